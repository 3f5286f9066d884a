"""What one warpgroup computes: iterations over chunks, two of which overlap.

An iteration begins with the products of two tiles. While these are made, so are the late products
of the iteration before, of rows that it computed (FlashAttention-3, arXiv 2407.08608, section 3.2,
for one algorithm; here for any state that only adds a product).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from napkin.derive.kernel import tensor_of
from napkin.ir.node import Node
from napkin.lower import syntax as sx
from napkin.lower.dots import Dot
from napkin.lower.emit import Emitter
from napkin.lower.emit_reductions import operand
from napkin.lower.printer import comment
from napkin.lower.program import Loop
from napkin.lower.syntax import Expr
from napkin.lower.warpgroups.cta import Late
from napkin.lower.warpgroups.rings import Rings, waited


@dataclass(frozen=True)
class Work:
    """The products that one iteration makes.

    Attributes:
        early: those of its own chunk, of two tiles.
        late: those that the iteration before has left.
        boxes: the streamed boxes of the early ones.
    """

    early: Sequence[Dot]
    late: Sequence[Late]
    boxes: Sequence[Node]

    @property
    def left(self) -> Sequence[Node]:
        """The boxes of the late ones."""
        return list(dict.fromkeys(x.product.sides[1][0] for x in self.late))


class Rows:
    """Writes the folds of one group.

    Attributes:
        types: of the rows that each state's product is made of.
    """

    def __init__(self, rings: Rings) -> None:
        self.rings, self.loops, self.emitter = rings, rings.loops, rings.emitter
        self.cta, self.program, self.scope = rings.cta, rings.program, rings.scope
        self.stream, self.lang = rings.program.kernel.stream, rings.lang
        self.types: dict[str, Expr] = {}

    def folds(self) -> list[ast.stmt]:
        """What one warpgroup does."""
        cta, scope, emitter = self.cta, self.scope, self.emitter
        own, standing = self.rings.own(), self.rings.places.standing()
        out: list[ast.stmt] = [self.rings.index_type(), *self.rings.layouts(), own, *standing]
        out.append(comment("held for the whole stream"))
        for n in cta.held:
            t = tensor_of(n)
            emitter.have[n] = sx.name(scope.tile(n))
            emitter.raw.add(n)
            out.append(sx.assign(scope.tile(n), self.rings.view(n, scope.warpgroup)))
            out.append(self.rings.wait(scope.full(t), scope.warpgroup, 0))
        for n in cta.streamed:  # of a box that is not there yet, the type is known
            emitter.have[n] = sx.name(scope.ring(tensor_of(n)))
            emitter.raw.add(n)
        self.loops.define_invariants()
        out += emitter.drain()
        unread = [n for n in cta.streamed if n not in cta.left]
        out += [self.rings.arrive(scope.free(tensor_of(n)), 0) for n in unread]
        out.append(sx.assign(scope.iteration, 1))
        for i, loop in enumerate(self.program.loops):
            out += self._stream(i, loop)
        last = self._work(self.program.loops[-1])
        out += [*self._begin_late(last), *self._finish_late(last)]
        return [*out, comment("tail"), *self.loops.tail(), *self.rings.stored()]

    def _stream(self, index: int, loop: Loop) -> list[ast.stmt]:
        out: list[ast.stmt] = [comment(self.loops.title(loop))]
        for s in self.stream.passes[loop.part].states if index == 0 else ():
            out.append(sx.assign(self.scope.state(s.name), self.loops.begun(s, self.emitter)))
        iteration = self._iteration(loop)
        if index == 0:
            out += [self._nothing(x) for x in self.cta.late(loop)]
        head = self.loops.head(loop)
        body = [*head.find, *self.loops.chunk(loop), *iteration, self.rings.next()]
        return [*out, *head.before, self.rings.over(head, body)]

    def _nothing(self, x: Late) -> ast.stmt:
        """What the iteration before the first has left: rows of 0."""
        name, shape = x.state.name, self.emitter.extents(x.product.spans[0])
        made = self.lang("zeros", shape, self.types[name], layout=self._kept_in(x))
        return sx.assign(self.scope.kept(name), made)

    def _kept_in(self, x: Late) -> Expr:
        """The register layout of the rows of a product that is left."""
        return self.lang("DotOperandLayout", 0, self.scope.layout(x.product.columns[0]), 2)

    def _iteration(self, loop: Loop) -> list[ast.stmt]:
        """One iteration: while tensor cores make the early products of its chunk, they also make
        the late ones of the chunk before. The rows of its own late products stay for the next."""
        work, inner = self._work(loop), self.emitter.child()
        out = [*self._begin_early(work), *self._begin_late(work), *self._finish_early(work, inner)]
        waiting = [x.state for x in work.late]
        now = [s for s in self.stream.passes[loop.part].states if s not in waiting]
        later = [n for x in work.late for n in (x.before, x.product.node)]
        after = self.loops.steps(loop, now, inner, later)
        rows = [operand(inner, x.product, 0) for x in work.late]
        out += [*inner.drain(), *self._finish_late(work)]
        for x, value in zip(work.late, rows, strict=True):
            out += self._leave(x, value, inner)
        return [*out, *after]

    def _work(self, loop: Loop) -> Work:
        products = self.cta.begun(loop)
        boxes = [n for n in self.cta.streamed if any(n in d.parts for d in products)]
        return Work(products, self.cta.late(loop), boxes)

    def _begin_early(self, work: Work) -> list[ast.stmt]:
        slot, phase = map(sx.name, self.scope.slot())
        waits = [self.rings.wait(self.scope.full(tensor_of(n)), slot, phase) for n in work.boxes]
        return [*self.rings.slots(), *waits, *(self._multiplied(d, slot) for d in work.early)]

    def _finish_early(self, work: Work, inner: Emitter) -> list[ast.stmt]:
        """Wait for the early products, and free the boxes that no late product reads."""
        scope, slot = self.scope, sx.name(self.scope.slot()[0])
        names = [scope.value(d.node) for d in work.early]
        inner.have |= {d.node: self.emitter.made[d.node] for d in work.early if not d.outside}
        read = [n for n in work.boxes if n not in self.cta.left]
        free = [self.rings.arrive(scope.free(tensor_of(n)), slot) for n in read]
        return [waited(names, len(work.late)), *free]

    def _leave(self, x: Late, value: Expr, inner: Emitter) -> list[ast.stmt]:
        """The state of a late product rescaled, and the rows kept, for the next iteration."""
        state, before = self.scope.state(x.state.name), inner.value(x.before)
        out = inner.drain()
        if x.before is not x.state.leaf("old"):
            out.append(sx.assign(state, before))
        assert isinstance(value, ast.Call)  # computed, and rounded to the operands' type
        self.types[x.state.name] = value.args[0]
        kept = self.lang("convert_layout", value, self._kept_in(x))
        return [*out, sx.assign(self.scope.kept(x.state.name), kept)]

    def _multiplied(self, d: Dot, slot: Expr) -> ast.stmt:
        """A product of two tiles, begun."""
        scope = self.scope
        sides = [self.rings.tile(d.sides[i][0], slot, d.turned(i)) for i in (0, 1)]
        shape = self.emitter.extents((d.rows[0], d.columns[0]))
        layout, float32 = scope.layout(d.columns[0]), self.lang.word("float32")
        none = self.lang("zeros", shape, float32, layout=layout)
        name = scope.value(d.node)
        self.emitter.made[d.node] = sx.name(name)
        made = sx.call("warpgroup_mma", *sides, none, use_acc=False, is_async=True)
        return sx.assign(name, made)

    def _begin_late(self, work: Work) -> list[ast.stmt]:
        scope, out = self.scope, self.rings.slots(before=True)
        slot, phase = map(sx.name, scope.slot(before=True))
        other = [n for n in work.left if n in self.cta.streamed and n not in work.boxes]
        out += [self.rings.wait(scope.full(tensor_of(n)), slot, phase) for n in other]
        for x in work.late:
            state = scope.state(x.state.name)
            tile = self.rings.tile(x.product.sides[1][0], slot, x.product.turned(1))
            rows, how = sx.name(scope.kept(x.state.name)), {"is_async": sx.const(True)}
            made = sx.call("warpgroup_mma", rows, tile, state, **how)
            out.append(sx.assign(state, made))
        return out

    def _finish_late(self, work: Work) -> list[ast.stmt]:
        """Wait for the late products, and free their boxes."""
        scope = self.scope
        slot = sx.name(scope.slot(before=True)[0])
        read = [n for n in work.left if n in self.cta.streamed]
        free = [self.rings.arrive(scope.free(tensor_of(n)), slot) for n in read]
        return [waited([scope.state(x.state.name) for x in work.late], 0), *free]
