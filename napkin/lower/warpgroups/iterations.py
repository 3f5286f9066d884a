"""What one warpgroup computes: iterations over chunks, two of which may overlap.

An iteration begins with the products of two tiles. While these are made, so are the delayed
products of the iteration before, of rows that it computed (FlashAttention-3, arXiv 2407.08608,
section 3.2, for one algorithm; here for any state that only adds a product). Where the boxes of
these are those of the first products, an iteration makes both, and the other warpgroups multiply
while it computes the rows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from napkin.derive.kernel import tensor_of
from napkin.ir.node import Node, postorder
from napkin.lower import syntax as sx
from napkin.lower.dots import Dot
from napkin.lower.emit import Emitter
from napkin.lower.emit_reductions import operand
from napkin.lower.printer import comment
from napkin.lower.program import Loop
from napkin.lower.syntax import Expr, Operand
from napkin.lower.warpgroups.cta import Crossed, Delayed
from napkin.lower.warpgroups.rings import Rings, waited


@dataclass(frozen=True)
class Work:
    """The products that one iteration makes.

    Attributes:
        leading: those of its own chunk, of two tiles.
        delayed: those that the iteration before has left, or its own where it makes all at once.
        boxes: the streamed boxes of the leading ones.
    """

    leading: Sequence[Dot]
    delayed: Sequence[Delayed]
    boxes: Sequence[Node]

    @property
    def left(self) -> Sequence[Node]:
        """The boxes of the delayed ones."""
        return list(dict.fromkeys(x.product.sides[1][0] for x in self.delayed))

    def needed(self, terms: Iterable[Node]) -> int:
        """How many of the leading products, the first ones, are done before these terms."""
        order = set(postorder(terms))
        return max((i for i, d in enumerate(self.leading, 1) if d.node in order), default=0)


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
        unread = [n for n in cta.streamed if cta.left and n not in cta.left]
        out += [self.rings.arrive(scope.free(tensor_of(n)), 0) for n in unread]
        out.append(self.rings.first())
        for i, loop in enumerate(self.program.loops):
            out += self._stream(i, loop)
        if cta.left:
            work = self._work(self.program.loops[-1])
            out += [*self._begin_delayed(work), *self._finish_delayed(work, ())]
        if cta.crossing:  # others multiply what this one holds, where its results will lie
            out += [self.rings.arrive(scope.ended, 0), self.rings.wait(scope.ended, 0, 0)]
        return [*out, comment("tail"), *self.loops.tail(), *self.rings.stored()]

    def _stream(self, index: int, loop: Loop) -> list[ast.stmt]:
        states = self.stream.passes[loop.part].states if index == 0 else ()
        begun = [self.loops.begin(s, self.emitter) for s in states]
        iteration = self._iteration(loop)
        if index == 0 and self.cta.left:
            begun += [self._nothing(x) for x in self.cta.delayed(loop)]
        title, *rest = self.rings.over_chunks(loop, iteration, self.loops.chunk(loop))
        return [title, *begun, *rest]

    def _nothing(self, x: Delayed) -> ast.stmt:
        """What the iteration before the first has left: rows of 0."""
        name, shape = x.state.name, self.emitter.extents(x.product.spans[0])
        made = self.lang("zeros", shape, self.types[name], layout=self._kept_in(x))
        return sx.assign(self.scope.kept(name), made)

    def _kept_in(self, x: Delayed) -> Expr:
        """The register layout of the rows of a product that is left."""
        return self.lang("DotOperandLayout", 0, self.scope.layout(x.product.columns[0]), 2)

    def _iteration(self, loop: Loop) -> list[ast.stmt]:
        """One iteration: each leading product is waited for where something first needs it. The
        rows of delayed products are computed as soon as they can be, and multiplied at once, while
        others are computed; or they stay for the next iteration, whose tensor cores multiply them
        beside its own leading products."""
        work, inner, at_once = self._work(loop), self.emitter.child(), self.cta.at_once
        slot = sx.name(self.scope.slot()[0])
        inner.have |= {n: self.rings.view(n, slot) for n in self.program.beside}
        inner.raw.update(self.program.beside)
        out = self._begin_leading(work)
        out += [*([] if at_once else self._begin_delayed(work)), *self.rings.across(loop, inner)]
        waiting = [x.state for x in work.delayed]
        now = [s for s in self.stream.passes[loop.part].states if s not in waiting]
        later = [n for x in work.delayed for n in (x.before, x.product.node)]
        first = work.needed(loop.steps[s.name] for s in now)
        after, done = list[ast.stmt](), 0
        begun, kept = list[Delayed](), list[tuple[Delayed, Expr]]()
        crossing = list[tuple[list[ast.stmt], list[ast.stmt]]]()
        stages = {x: max(first, work.needed([x.before, *x.product.sides[0]])) for x in work.delayed}
        for stage in sorted({first, *stages.values()}):
            beside = len(begun if at_once else work.delayed)
            out += self._finish_leading(work, inner, range(done, stage), beside)
            if stage == first:
                after = self.loops.steps(loop, now, inner, later)
                out += inner.drain()
            for x in (x for x in work.delayed if stages[x] == stage):
                value = operand(inner, x.product, 0)
                out += inner.drain()
                if at_once:
                    out += self._leave(x, value, inner)
                    if len(begun) == len(work.delayed) - 1:
                        crossing = [self._cross(y, inner) for y in self.cta.crossed(loop)]
                        out += [s for both in crossing for s in both[0]]
                    out += self._begin(x, work, begun)
                    begun.append(x)
                else:
                    kept.append((x, value))
            done = stage
        ending = [s for both in crossing for s in both[1]]
        out += [*inner.drain(), *self._finish_delayed(work, begun, ending)]
        return [*out, *(s for x, value in kept for s in self._leave(x, value, inner)), *after]

    def _cross(self, x: Crossed, inner: Emitter) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """The rows of a chunk's sum left to all warpgroups, and this one's part of their product
        begun; and that part as it is done, handed to the warp that adds."""
        rings, scope, groups = self.rings, self.scope, self.cta.groups
        slot, phase = map(sx.name, scope.slot())
        rows, sums = scope.rows(x.tensor), scope.value(x.product.node)
        value = operand(inner, x.product, 0)
        each: list[Operand] = [scope.warpgroup]
        for k in range(1, groups):
            each.append(sx.binary(sx.binary(scope.warpgroup, "+", k), "%", groups))
        places = [sx.binary(slot, "*", groups, "+", which) for which in each]
        begun = [
            *inner.drain(),
            rings.wait(scope.free(rows), places[0], sx.binary(1, "-", phase)),
            ast.Expr(sx.method(sx.method(scope.ring(rows), "index", places[0]), "store", value)),
            ast.Expr(sx.call("fence_async_shared")),
            rings.arrive(scope.full(rows), places[0]),
        ]
        for i, (which, place) in enumerate(zip(each, places, strict=True)):
            begun += [rings.wait(scope.full(rows), place, phase)] if i else []
            begun.append(self._part_of(x, which, place, first=not i))
        parity = rings.parity()
        box = sx.method(scope.ring(x.tensor), "index", 0)
        box = sx.method(box, "reshape", self.emitter.extents((*x.product.rows, *x.product.columns)))
        done = [
            waited([sums], 1),  # all but the delayed product that began last
            *(rings.arrive(scope.free(rows), p) for p in places[1:]),
            rings.wait(scope.free(x.tensor), 0, sx.binary(1, "-", parity)),
            ast.Expr(sx.method(self._cut(box, x, x.cut), "store", sx.name(sums))),
            ast.Expr(sx.call("fence_async_shared")),
            rings.arrive(scope.full(x.tensor), 0),
        ]
        return begun, done

    def _part_of(self, x: Crossed, which: Operand, place: Operand, first: bool) -> ast.stmt:
        """This warpgroup's part of a sum over the rows of one of them, begun."""
        scope, lang, d = self.scope, self.lang, x.product
        left = sx.method(scope.ring(scope.rows(x.tensor)), "index", place)
        right = self.rings.view(d.sides[1][0], which)
        if x.cut == 0:
            left = self._cut(left, x, d.spans[0].index(d.rows[0]))
        else:
            right = self._cut(right, x, d.spans[1].index(d.columns[0]))
        sides = [
            sx.method(side, "permute", sx.pair(1, 0)) if d.transposed(i) else side
            for i, side in enumerate((left, right))
        ]
        lists = map(sx.tuple_of, ((3, 0), (4, 1), (16, x.part[1], 16)))
        layout = lang("NVMMADistributedLayout", *lists)
        none = lang("zeros", sx.tuple_of(x.part), lang.word("float32"), layout=layout)
        name = scope.value(d.node)
        how = {"use_acc": sx.const(False)} if first else {}
        start = none if first else sx.name(name)
        return sx.assign(name, sx.call("warpgroup_mma", *sides, start, **how, is_async=True))

    def _cut(self, box: Expr, x: Crossed, dim: int) -> Expr:
        """The part of a box that belongs to this warpgroup, cut along a dimension."""
        length = x.part[x.cut]
        start = sx.binary(self.scope.warpgroup, "*", length)
        return sx.method(box, "slice", start, length, dim)

    def _work(self, loop: Loop) -> Work:
        products = self.cta.begun(loop)
        boxes = [n for n in self.cta.streamed if any(n in d.parts for d in products)]
        return Work(products, self.cta.delayed(loop), boxes)

    def _begin_leading(self, work: Work) -> list[ast.stmt]:
        """The leading products, begun as their boxes are there."""
        slot, phase = map(sx.name, self.scope.slot())
        waits = [self.rings.wait(self.scope.full(tensor_of(n)), slot, phase) for n in work.boxes]
        made = [self.rings.begun(d, lambda _: slot) for d in work.leading]
        self.emitter.made |= {d.node: sx.name(self.scope.value(d.node)) for d in work.leading}
        return [*self.rings.slots(), *waits, *made]

    def _finish_leading(
        self, work: Work, inner: Emitter, made: range, beside: int
    ) -> list[ast.stmt]:
        """Wait for these of the leading products, where so many delayed ones are being made, and
        free the boxes that nothing reads after them."""
        if not made:
            return []
        scope, slot = self.scope, sx.name(self.scope.slot()[0])
        dots, later = work.leading[made.start : made.stop], work.leading[made.stop :]
        inner.have |= {d.node: self.emitter.made[d.node] for d in dots if not d.outside}
        unread = set(work.boxes) - {n for d in later for n in d.parts} - set(work.left)
        read = [n for n in work.boxes if n in unread and any(n in d.parts for d in dots)]
        free = [self.rings.arrive(scope.free(tensor_of(n)), slot) for n in read]
        return [waited([scope.value(d.node) for d in dots], len(later) + beside), *free]

    def _leave(self, x: Delayed, value: Expr, inner: Emitter) -> list[ast.stmt]:
        """The state of a delayed product rescaled, and the rows kept, for the next iteration."""
        state, before = self.scope.state(x.state.name), inner.value(x.before)
        out = inner.drain()
        if x.before is not x.state.leaf("old"):
            out.append(sx.assign(state, before))
        assert isinstance(value, ast.Call)  # computed, and rounded to the operands' type
        self.types[x.state.name] = value.args[0]
        kept = self.lang("convert_layout", value, self._kept_in(x))
        return [*out, sx.assign(self.scope.kept(x.state.name), kept)]

    def _begin_delayed(self, work: Work) -> list[ast.stmt]:
        """The products that the iteration before has left, begun."""
        out = self.rings.slots(before=True)
        for i, x in enumerate(work.delayed):
            out += self._begin(x, work, work.delayed[:i])
        return out

    def _begin(self, x: Delayed, work: Work, begun: Sequence[Delayed]) -> list[ast.stmt]:
        """A delayed product, begun after others."""
        scope, box = self.scope, x.product.sides[1][0]
        slot, phase = map(sx.name, scope.slot(bool(self.cta.left)))
        state = scope.state(x.state.name)
        tile = self.rings.tile(box, slot, x.product.transposed(1))
        rows, how = sx.name(scope.kept(x.state.name)), {"is_async": sx.const(True)}
        made = sx.assign(state, sx.call("warpgroup_mma", rows, tile, state, **how))
        known = {*work.boxes, *(y.product.sides[1][0] for y in begun)}
        if box in known or box not in self.cta.streamed:
            return [made]
        return [self.rings.wait(scope.full(tensor_of(box)), slot, phase), made]

    def _finish_delayed(
        self, work: Work, begun: Sequence[Delayed], crossing: Sequence[ast.stmt] = ()
    ) -> list[ast.stmt]:
        """Wait for the delayed products, those that began one after another each by itself, and
        free their boxes; before the last of them for the sums that cross, which began before it."""
        scope, out = self.scope, list[ast.stmt]()
        slot = sx.name(scope.slot(bool(self.cta.left))[0])
        groups = [[x] for x in begun] or [work.delayed]
        for i, group in enumerate(groups):
            later = [x for xs in groups[i + 1 :] for x in xs]
            beside = self.cta.groups * len(self.cta.crossing) if later else 0
            out += [] if later else crossing
            out.append(waited([scope.state(x.state.name) for x in group], len(later) + beside))
            unread = [x.product.sides[1][0] for x in later]
            read = {x.product.sides[1][0] for x in group}.difference(unread)
            boxes = [n for n in work.left if n in self.cta.streamed and n in read]
            out += [self.rings.arrive(scope.free(tensor_of(n)), slot) for n in boxes]
        return out
