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
from napkin.lower.warpgroups.kernel_text import Whole
from napkin.schedule import WARPS

EACH = 8
"""Values that a thread stores at once, of 16 bits."""


class Chunks(Whole):
    """Writes what lies in shared memory, and how it comes there."""

    def rings(self) -> list[ast.stmt]:
        """Room for boxes and their barriers."""
        scope, band = self.scope, self.band
        out: list[ast.stmt] = [comment("boxes in shared memory, and barriers for each")]
        rooms = {tensor_of(n): (self._room(n), self._box(n)) for n in (*band.held, *band.streamed)}
        for t, axes in self.program.stores.items():
            own = in_box(axes, self.program.tiles)
            like = next((n for n in band.held if band.alike(n, axes)), None)
            if like is not None:  # what was held has been read when results are stored
                scope.share(t, tensor_of(like))
            else:
                rooms[t] = sx.const(band.groups), own
        out += [self._ring(t, count, axes) for t, (count, axes) in rooms.items()]
        for n in (*band.held, *band.streamed):
            t, count = tensor_of(n), self._room(n)
            out += self._barriers(scope.full(t), count, 1)
            if n in band.streamed:
                out += self._barriers(scope.free(t), count, band.groups)
        first = [x for n in band.left for x in self._zeros(n)]
        fence = ast.Expr(sx.call("fence_async_shared"))
        full = [self._arrive(scope.full(tensor_of(n)), sx.const(0)) for n in band.streamed]
        return [*out, *first, fence, *full]

    def _zeros(self, leaf: Node) -> list[ast.stmt]:
        """The box that the turn before the first leaves a product of: what is there must be finite,
        as that product is of rows of 0."""
        dims = self.program.shape(leaf)
        shape = sx.tuple_of(self.scope.extent(d) for d in dims)
        lists = ([1, EACH], [4, 8], [WARPS, 1], [1, 0])
        layout = sx.call("gl.BlockedLayout", *(sx.tuple_of(map(sx.const, x)) for x in lists))
        dtype = sx.name(f"{self.scope.ring(tensor_of(leaf))}.dtype")
        none = sx.call("gl.zeros", shape, dtype, layout=layout)
        return [ast.Expr(sx.method(self._view(leaf, sx.const(0)), "store", none))]

    def _room(self, leaf: Node) -> Expr:
        """How many boxes of a reading lie in shared memory."""
        if leaf in self.band.streamed:
            return sx.name(self.scope.stages)
        return sx.const(self.band.groups if self.band.own(leaf) else 1)

    def _at(self, leaf: Node) -> Expr:
        """Where the box of a reading that is held lies."""
        return sx.name(self.scope.warpgroup) if self.band.own(leaf) else sx.const(0)

    def loads(self) -> list[ast.stmt]:
        self._standing = False
        band, scope = self.band, self.scope
        out: list[ast.stmt] = [self.index_type()]
        every = [n for n in band.held if band.own(n)]
        out += [x for n in band.held if n not in every for x in self._ask(n, sx.const(0))]
        if every:
            body = [self._own()]
            body += [x for n in every for x in self._ask(n, sx.name(scope.warpgroup))]
            turns = sx.call("gl.static_range", sx.const(band.groups))
            out.append(ast.For(ast.Name(scope.warpgroup, ast.Store()), turns, body, []))
        out.append(sx.assign(scope.turn, sx.const(1)))
        for loop in self.program.loops:
            head, (slot, phase) = self._head(loop), scope.slot()
            body = [*head.find, *self._chunk(loop), *self._slots()]
            for n in band.streamed:
                parity = sx.binary(sx.const(1), "-", sx.name(phase))
                body.append(self._wait(scope.free(tensor_of(n)), sx.name(slot), parity))
                body += self._ask(n, sx.name(slot))
            out += [comment(self._title(loop)), *head.before]
            out.append(self._for(head, [*body, self._next(), *head.after]))
        return out

    def _ask(self, leaf: Node, at: Expr) -> list[ast.stmt]:
        """A box asked for, with its bytes."""
        t, scope = tensor_of(leaf), self.scope
        full = sx.method(sx.name(scope.full(t)), "index", at)
        count = sx.binary(self._values(leaf), "*", sx.const(self.program.schedule.described))
        return [ast.Expr(sx.call("mbarrier.expect", full, count)), self._copy(leaf, full, at)]
