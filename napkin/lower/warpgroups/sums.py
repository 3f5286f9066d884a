"""What the warps of a band do whose groups only add products up.

A block lasts: while its warpgroups finish a group, the chunks of the next are on their way. Groups
that lie side by side share what does not carry their axis (CUTLASS calls such warpgroups
cooperative). Groups in turn share nothing (ping-pong): a warpgroup multiplies when the one before
it has begun its last product, and what it does after the stream is done while the others multiply.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from napkin.derive.kernel import tensor_of
from napkin.ir.node import Node
from napkin.lower import syntax as sx
from napkin.lower.box_loops import Head
from napkin.lower.launch import in_box
from napkin.lower.printer import comment
from napkin.lower.scope import GROUP, GROUPS
from napkin.lower.syntax import Expr
from napkin.lower.warpgroups.rings import Rings, waited

EVERY = ""
"""The name of the barriers of all tensors together: their boxes come and go at once."""


class Sums:
    """Writes the parts of a kernel whose groups only add products up."""

    def __init__(self, rings: Rings) -> None:
        self.rings, self.loops, self.places = rings, rings.loops, rings.places
        self.band, self.program, self.scope = rings.band, rings.program, rings.scope
        self.kernel, self.lang = rings.program.kernel, rings.lang
        (self.loop,) = rings.program.loops

    # --- shared memory ----------------------------------------------------------------------

    def first(self) -> list[ast.stmt]:
        """Room for boxes and their barriers."""
        scope, band = self.scope, self.band
        stages, groups = sx.name(scope.stages), sx.const(band.groups)
        out: list[ast.stmt] = [comment("boxes in shared memory, and barriers for each place")]
        for n in band.streamed:
            count = sx.binary(stages, "*", groups) if band.own(n) else stages
            out.append(self.rings.ring(tensor_of(n), count, self.rings.box(n)))
        for t, axes in self.program.stores.items():
            out.append(self.rings.ring(t, groups, in_box(axes, self.program.tiles)))
        out += self.rings.barriers(scope.full(EVERY), stages, 1)
        out += self.rings.barriers(scope.free(EVERY), stages, 1 if band.in_turn else band.groups)
        if band.in_turn:
            out += self.rings.barriers(scope.order, groups, 1)
        out.append(ast.Expr(sx.call("fence_async_shared")))
        if band.in_turn:
            out.append(self.rings.arrive(scope.order, sx.const(0)))
        return out

    def _place(self, leaf: Node, slot: Expr) -> Expr:
        """Where a box of this warpgroup lies."""
        if not self.band.own(leaf):
            return slot
        first = sx.binary(slot, "*", sx.const(self.band.groups))
        return sx.binary(first, "+", sx.name(self.scope.warpgroup))

    # --- groups, one after another ----------------------------------------------------------

    def _over_groups(self, body: list[ast.stmt], by: int) -> list[ast.stmt]:
        """A loop over groups, of which this is every `by`-th."""
        first, step = (self.lang(x, sx.const(0)) for x in ("program_id", "num_programs"))
        if by > 1:
            own = sx.binary(sx.name(self.scope.warpgroup), "*", step)
            first, step = sx.binary(first, "+", own), sx.binary(step, "*", sx.const(by))
        every = self.rings.over(Head(GROUP, [first, sx.name(GROUPS), step], []), body)
        return [comment("groups in turn"), sx.assign(GROUPS, self.places.groups()), every]

    def _over_chunks(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """A loop over chunks."""
        head = self.loops.head(self.loop)
        found = [*head.find, *self.loops.starts(), *self.rings.slots()]
        return [
            comment(self.loops.title(self.loop)),
            *head.before,
            self.rings.over(head, [*found, *body, self.rings.next()]),
        ]

    def loads(self) -> list[ast.stmt]:
        """What the warp does that asks for chunks."""
        band, scope = self.band, self.scope
        slot, phase = map(sx.name, scope.slot())
        full = sx.method(sx.name(scope.full(EVERY)), "index", slot)
        each = [self._times(n) for n in band.streamed]
        count = sx.binary(sx.chain("+", each), "*", sx.const(self.program.schedule.described))
        body = [
            self.rings.wait(scope.free(EVERY), slot, sx.binary(sx.const(1), "-", phase)),
            ast.Expr(sx.call("mbarrier.expect", full, count)),
        ]
        own = [n for n in band.streamed if band.own(n)]
        if own:
            copies = [
                self.rings.own(),
                *(self.rings.copy(n, full, self._place(n, slot)) for n in own),
            ]
            body.append(self.rings.each_warpgroup(copies))
        body += [self.rings.copy(n, full, slot) for n in band.streamed if n not in own]
        group = [*self.places.numbers(), *self._over_chunks(body)]
        start = sx.assign(scope.turn, sx.const(0))
        return [self.rings.index_type(), start, *self._over_groups(group, 1)]

    def _times(self, leaf: Node) -> Expr:
        """Values of a reading that a chunk brings."""
        groups = self.band.groups if self.band.own(leaf) else 1
        return sx.binary(self.rings.values(leaf), "*", sx.const(groups))

    # --- one group --------------------------------------------------------------------------

    def folds(self) -> list[ast.stmt]:
        """What one warpgroup does."""
        band, scope = self.band, self.scope
        out: list[ast.stmt] = [self.rings.index_type(), *self.rings.layouts()]
        if not band.in_turn:
            start = [sx.assign(scope.turn, sx.const(0))]
            out += [*start, *self._over_groups(self._group(), 1)]
        else:
            own = sx.name(scope.warpgroup)
            out += [
                comment("its chunks come after those of the warpgroups before it"),
                sx.assign(scope.chunks, self._many()),
                sx.assign(scope.turn, sx.binary(own, "*", sx.name(scope.chunks))),
                sx.assign(scope.rounds, sx.const(0)),
                *self._over_groups(self._group(), band.groups),
            ]
        return [*out, *self.rings.stored()]

    def _many(self) -> Expr:
        """How many chunks a group has."""
        return sx.chain("*", [self.loops.count(a) for a in self.kernel.stream.axes])

    def _group(self) -> list[ast.stmt]:
        """All that one group does."""
        scope, band, emitter = self.scope, self.band, self.rings.emitter
        states = [x.state for x in band.sums]
        names = [scope.state(s.name) for s in states]
        own = [] if band.in_turn else [self.rings.own()]
        out = [*self.places.numbers(), *own, *self.places.standing(), *self.rings.bases()]
        out += [
            sx.assign(n, self.loops.begun(s, emitter)) for n, s in zip(names, states, strict=True)
        ]
        if band.in_turn:
            parity = sx.binary(sx.name(scope.rounds), "%", sx.const(2))
            out.append(self.rings.wait(scope.order, sx.name(scope.warpgroup), parity))
        out += self._over_chunks(self._added(names))
        if band.in_turn:
            after = sx.binary(sx.name(scope.warpgroup), "+", sx.const(1))
            out.append(self.rings.arrive(scope.order, sx.binary(after, "%", sx.const(band.groups))))
        out += [waited(names, 0), self._leave()]
        if band.in_turn:
            past = sx.binary(sx.name(scope.chunks), "*", sx.const(band.groups - 1))
            out += [
                sx.assign(scope.turn, sx.binary(sx.name(scope.turn), "+", past)),
                sx.assign(scope.rounds, sx.binary(sx.name(scope.rounds), "+", sx.const(1))),
            ]
        for s, name in zip(states, names, strict=True):
            emitter.have[s.leaf("new")] = sx.name(name)
        return [*out, comment("tail"), *self.rings.stored(), *self.loops.tail()]

    def _added(self, names: Sequence[str]) -> list[ast.stmt]:
        """The products of one chunk, begun, and what they free of the one before."""
        scope = self.scope
        slot, phase = map(sx.name, scope.slot())
        out = [self.rings.wait(scope.full(EVERY), slot, phase)]
        for name, x in zip(names, self.band.sums, strict=True):
            sides = []
            for i in (0, 1):
                leaf = x.product.sides[i][0]
                sides.append(self.rings.tile(leaf, self._place(leaf, slot), x.product.turned(i)))
            made = sx.call("warpgroup_mma", *sides, sx.name(name), is_async=sx.const(True))
            out.append(sx.assign(name, made))
        first = sx.less(sx.const(0), sx.name(self.loops.head(self.loop).variable))
        return [*out, waited(names, len(names)), ast.If(first, [self._leave()], [])]

    def _leave(self) -> ast.stmt:
        """The chunk of the turn before is read."""
        before = sx.binary(sx.name(self.scope.turn), "-", sx.const(1))
        at = sx.binary(before, "%", sx.name(self.scope.stages))
        return self.rings.arrive(self.scope.free(EVERY), at)
