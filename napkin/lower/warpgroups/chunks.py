"""The shared memory of a band whose groups compute with every chunk: rings and barriers for each
tensor, and the warp that asks for chunks."""

from __future__ import annotations

import ast

from napkin.derive.kernel import tensor_of
from napkin.ir.node import Node
from napkin.lower import syntax as sx
from napkin.lower.launch import in_box
from napkin.lower.printer import comment
from napkin.lower.syntax import Expr
from napkin.lower.warpgroups.rings import Rings
from napkin.schedule import WARPS

EACH = 8
"""Values that a thread stores at once, of 16 bits."""


class Chunks:
    """Writes what lies in shared memory, and how it comes there."""

    def __init__(self, rings: Rings) -> None:
        self.rings, self.loops = rings, rings.loops
        self.band, self.program, self.scope = rings.band, rings.program, rings.scope
        self.lang = rings.lang

    def first(self) -> list[ast.stmt]:
        """Where the band stands, and room for boxes with their barriers."""
        places = self.rings.places.numbers()
        return [*places, *self.rings.bases(), *self.loops.visits("band"), *self._rings()]

    def _rings(self) -> list[ast.stmt]:
        scope, band = self.scope, self.band
        out: list[ast.stmt] = [comment("boxes in shared memory, and barriers for each")]
        leaves = (*band.held, *band.streamed)
        rooms = {tensor_of(n): (self._room(n), self.rings.box(n)) for n in leaves}
        for t, axes in self.program.stores.items():
            own = in_box(axes, self.program.tiles)
            like = next((n for n in band.held if band.alike(n, axes)), None)
            if like is not None:  # what was held has been read when results are stored
                scope.share(t, tensor_of(like))
            else:
                rooms[t] = sx.const(band.groups), own
        out += [self.rings.ring(t, count, axes) for t, (count, axes) in rooms.items()]
        for n in leaves:
            t, count = tensor_of(n), self._room(n)
            out += self.rings.barriers(scope.full(t), count, 1)
            if n in band.streamed:
                out += self.rings.barriers(scope.free(t), count, band.groups)
        first = [x for n in band.left for x in self._zeros(n)]
        fence = ast.Expr(sx.call("fence_async_shared"))
        full = [self.rings.arrive(scope.full(tensor_of(n)), sx.const(0)) for n in band.streamed]
        return [*out, *first, fence, *full]

    def _zeros(self, leaf: Node) -> list[ast.stmt]:
        """The box that the turn before the first leaves a product of: what is there must be finite,
        as that product is of rows of 0."""
        dims = self.program.shape(leaf)
        shape = sx.tuple_of(self.scope.extent(d) for d in dims)
        lists = ([1, EACH], [4, 8], [WARPS, 1], [1, 0])
        layout = self.lang("BlockedLayout", *(sx.tuple_of(map(sx.const, x)) for x in lists))
        dtype = sx.name(f"{self.scope.ring(tensor_of(leaf))}.dtype")
        none = self.lang("zeros", shape, dtype, layout=layout)
        return [ast.Expr(sx.method(self.rings.view(leaf, sx.const(0)), "store", none))]

    def _room(self, leaf: Node) -> Expr:
        """How many boxes of a reading lie in shared memory."""
        if leaf in self.band.streamed:
            return sx.name(self.scope.stages)
        return sx.const(self.band.groups if self.band.own(leaf) else 1)

    def at(self, leaf: Node) -> Expr:
        """Where the box of a reading that is held lies."""
        return sx.name(self.scope.warpgroup) if self.band.own(leaf) else sx.const(0)

    def loads(self) -> list[ast.stmt]:
        """What the warp does that asks for chunks."""
        band, scope = self.band, self.scope
        out: list[ast.stmt] = [self.rings.index_type()]
        every = [n for n in band.held if band.own(n)]
        out += [x for n in band.held if n not in every for x in self._ask(n, sx.const(0))]
        if every:
            body = [self.rings.own()]
            body += [x for n in every for x in self._ask(n, sx.name(scope.warpgroup))]
            out.append(self.rings.each_warpgroup(body))
        out.append(sx.assign(scope.turn, sx.const(1)))
        for loop in self.program.loops:
            head, (slot, phase) = self.loops.head(loop), scope.slot()
            body = [
                *head.find,
                *self.loops.starts(self.program.kernel.stream.axes),
                *self.rings.slots(),
            ]
            for n in band.streamed:
                parity = sx.binary(sx.const(1), "-", sx.name(phase))
                body.append(self.rings.wait(scope.free(tensor_of(n)), sx.name(slot), parity))
                body += self._ask(n, sx.name(slot))
            out += [comment(self.loops.title(loop)), *head.before]
            out.append(self.rings.over(head, [*body, self.rings.next()]))
        return out

    def _ask(self, leaf: Node, at: Expr) -> list[ast.stmt]:
        """A box asked for, with its bytes."""
        t, scope = tensor_of(leaf), self.scope
        full = sx.method(sx.name(scope.full(t)), "index", at)
        count = sx.binary(self.rings.values(leaf), "*", sx.const(self.program.schedule.described))
        return [ast.Expr(sx.call("mbarrier.expect", full, count)), self.rings.copy(leaf, full, at)]
