"""What one warpgroup of a band does: the turns of its rows, each with what the one before left.

A turn begins with the products of two tiles; while these are made, so are those that the turn
before has left, of rows that it computed (FlashAttention-3, arXiv 2407.08608, section 3.2, for one
algorithm; here for any state that only adds a product).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from napkin.derive.kernel import tensor_of
from napkin.ir.node import Node, factors, postorder
from napkin.lower import syntax as sx
from napkin.lower.dots import Dot
from napkin.lower.printer import comment
from napkin.lower.program import Loop
from napkin.lower.syntax import Expr
from napkin.lower.warpgroups.band import Band, Late, early
from napkin.lower.warpgroups.chunks import Chunks
from napkin.lower.warpgroups.emit import BandEmitter
from napkin.lower.warpgroups.rings import waited


class Rows(Chunks):
    """Writes the folds of one group.

    Attributes:
        types: of the rows that each state's product is made of.
    """

    def __init__(self, band: Band) -> None:
        super().__init__(band)
        self.types: dict[str, Expr] = {}

    def folds(self) -> list[ast.stmt]:
        self._standing = True
        band, scope, emitter = self.band, self.scope, self.emitter
        out: list[ast.stmt] = [self.index_type(), *self._layouts(), self._own(), *self.standing()]
        out.append(comment("held for the whole stream"))
        for n in band.held:
            t = tensor_of(n)
            emitter.have[n] = sx.name(scope.tile(n))
            emitter.raw.add(n)
            out.append(sx.assign(scope.tile(n), self._view(n, self._at(n))))
            out.append(self._wait(scope.full(t), self._at(n), sx.const(0)))
        for n in band.streamed:  # of a box that is not there yet, the type is known
            emitter.have[n] = sx.name(scope.ring(tensor_of(n)))
            emitter.raw.add(n)
        self._prologue()
        out += emitter.statements
        emitter.statements = []
        for n in band.streamed:
            if n not in band.left:
                out.append(self._arrive(scope.free(tensor_of(n)), sx.const(0)))
        out.append(sx.assign(scope.turn, sx.const(1)))
        for i, loop in enumerate(self.program.loops):
            out += self._stream(i, loop)
        out += self._flush()
        emitter.statements = []
        for name, n in self.program.tails.items():
            self._store(emitter, name, n)
        out += [comment("tail"), *emitter.statements]
        if self.program.stores:
            out.append(ast.Expr(sx.call("tma.store_wait", sx.const(0))))
        return out

    def _stream(self, index: int, loop: Loop) -> list[ast.stmt]:
        scope = self.scope
        states = self.stream.passes[loop.part].states
        out: list[ast.stmt] = [comment(self._title(loop))]
        for s in states if index == 0 else ():
            out.append(sx.assign(scope.state(s.name), self._init(s, self.emitter)))
        turn = self._turn(loop)
        if index == 0:
            out += [self._nothing(x) for x in self.band.late(loop)]
        head = self._head(loop)
        body = [*head.find, *self._chunk(loop), *turn, self._next(), *head.after]
        out += [*head.before, self._for(head, body)]
        for s in states:
            self.emitter.have[s.leaf("new")] = sx.name(scope.state(s.name))
        return out

    def _nothing(self, x: Late) -> ast.stmt:
        """What the turn before the first has left: rows of 0."""
        shape = sx.tuple_of(self.scope.extent(d) for d in x.product.spans[0])
        made = sx.call("gl.zeros", shape, self.types[x.state.name], layout=self._kept_in(x))
        return sx.assign(self.scope.kept(x.state.name), made)

    def _kept_in(self, x: Late) -> Expr:
        """The register layout of the rows of a product that is left."""
        across = sx.name(self.scope.layout(x.product.columns[0]))
        return sx.call("gl.DotOperandLayout", sx.const(0), across, sx.const(2))

    def _turn(self, loop: Loop) -> list[ast.stmt]:
        """What one chunk adds, with what the chunk before has left."""
        scope, band = self.scope, self.band
        products, left = list(early(self.program, loop)), band.late(loop)
        inner = self.emitter.child()
        if loop.box is not None:
            inner.recount(self._beside(loop))
            inner.inside = set(self.stream.axes) if loop.whole else set()
        slot, phase = map(sx.name, scope.slot())
        out = [*self._slots()]
        used = [n for n in band.streamed if any(n in d.parts for d in products)]
        for n in used:
            out.append(self._wait(scope.full(tensor_of(n)), slot, phase))
        made = [self._multiplied(d, slot) for d in products]
        out += made
        names = [scope.products[d.node] for d in products]
        out += [*self._slots(before=True), *self._added(left, used)]
        out.append(waited(names, len(left)))
        for n in used:
            if n not in band.left:
                out.append(self._arrive(scope.free(tensor_of(n)), slot))
        for d in products:
            if len(d.parts) == len(list(factors(d.node.args[0]))):
                inner.have[d.node] = sx.name(scope.products[d.node])
        inner.statements, after = [], list[ast.stmt]()
        self._folded(loop, left, inner, after)
        rows = [inner.operand(x.product, 0) for x in left]
        out += inner.statements
        inner.statements = []
        out += self._taken(left)
        for x, value in zip(left, rows, strict=True):
            state = scope.state(x.state.name)
            before = inner.value(x.before)
            out += inner.statements
            inner.statements = []
            if x.before is not x.state.leaf("old"):
                out.append(sx.assign(state, before))
            assert isinstance(value, ast.Call)  # computed, and rounded to the operands' type
            self.types[x.state.name] = value.args[0]
            kept = sx.call("gl.convert_layout", value, self._kept_in(x))
            out.append(sx.assign(scope.kept(x.state.name), kept))
        self.emitter.helpers |= inner.helpers
        return [*out, *after]

    def _multiplied(self, d: Dot, slot: Expr) -> ast.stmt:
        """A product of two tiles, begun."""
        scope = self.scope
        sides = [self._tile(d.sides[i][0], slot, d.turned(i)) for i in (0, 1)]
        shape = sx.tuple_of(scope.extent(i) for i in (d.rows[0], d.columns[0]))
        none = sx.call("gl.zeros", shape, sx.name("gl.float32"),
                       layout=sx.name(scope.layout(d.columns[0])))  # fmt: skip
        name = scope.products.setdefault(d.node, scope.value(d.node))
        how = {"use_acc": sx.const(False), "is_async": sx.const(True)}
        return sx.assign(name, sx.call("warpgroup_mma", *sides, none, **how))

    def _added(self, left: Sequence[Late], used: Sequence[Node]) -> list[ast.stmt]:
        """What the turn before has left, begun."""
        scope, out = self.scope, list[ast.stmt]()
        slot, phase = map(sx.name, scope.slot(before=True))
        for n in dict.fromkeys(x.product.sides[1][0] for x in left):
            if n not in used and n in self.band.streamed:
                out.append(self._wait(scope.full(tensor_of(n)), slot, phase))
        for x in left:
            state = scope.state(x.state.name)
            tile = self._tile(x.product.sides[1][0], slot, x.product.turned(1))
            rows, how = sx.name(scope.kept(x.state.name)), {"is_async": sx.const(True)}
            out.append(
                sx.assign(state, sx.call("warpgroup_mma", rows, tile, sx.name(state), **how))
            )
        return out

    def _taken(self, left: Sequence[Late]) -> list[ast.stmt]:
        """What the turn before has left, done."""
        scope = self.scope
        slot = sx.name(scope.slot(before=True)[0])
        out = [waited([scope.state(x.state.name) for x in left], 0)]
        for n in dict.fromkeys(x.product.sides[1][0] for x in left):
            if n in self.band.streamed:
                out.append(self._arrive(scope.free(tensor_of(n)), slot))
        return out

    def _flush(self) -> list[ast.stmt]:
        """What the last turn has left."""
        loop = self.program.loops[-1]
        left = self.band.late(loop)
        products = list(early(self.program, loop))
        used = [n for n in self.band.streamed if any(n in d.parts for d in products)]
        return [*self._slots(before=True), *self._added(left, used), *self._taken(left)]

    def _folded(
        self, loop: Loop, left: Sequence[Late], inner: BandEmitter, after: list[ast.stmt]
    ) -> None:
        """The states that are taken up at once."""
        scope, waiting = self.scope, {x.state.name for x in left}
        states = self.stream.passes[loop.part].states
        for s in states:
            inner.have.pop(s.leaf("new"), None)
            inner.have[s.leaf("old")] = sx.name(scope.state(s.name))
        now = [s for s in states if s.name not in waiting]
        later = [n for x in left for n in (x.before, x.product.node)]
        for i, s in enumerate(now):
            value = inner.value(loop.steps[s.name])
            rest = [*(loop.steps[x.name] for x in now[i + 1 :]), *later]
            target = scope.state(s.name)
            if s.leaf("old") in set(postorder(rest)):
                target = scope.fresh(s.name)
                after.append(sx.assign(scope.state(s.name), sx.name(target)))
            inner.statements.append(sx.assign(target, value))
            inner.have[s.leaf("new")] = sx.name(target)
