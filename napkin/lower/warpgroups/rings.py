"""The shared memory of a band: boxes in rings, barriers for each place, and the warp that asks."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from napkin.derive.kernel import tensor_of
from napkin.diagram.node import Node
from napkin.lower import syntax as sx
from napkin.lower.launch import WARPS, Argument, in_box
from napkin.lower.printer import comment
from napkin.lower.program import Loop
from napkin.lower.syntax import Expr
from napkin.lower.visit import Head, Visiting
from napkin.lower.warpgroups.band import WIDEST, Band
from napkin.lower.warpgroups.emit import BandEmitter
from napkin.lower.warpgroups.scope import BandScope
from napkin.lower.write import Writer


class _Visiting(Visiting):
    def spanned(self, axis: str) -> Expr:
        assert isinstance(self.scope, BandScope)
        band = self.scope.band
        count = band.groups if axis == band.axis else 1
        return sx.binary(super().spanned(axis), "*", sx.const(count))


EACH = 8
"""Values that a thread stores at once, of 16 bits."""


class Rings(Writer):
    """Writes where a band stands, and what its boxes go through."""

    Emitter = BandEmitter
    Visiting = _Visiting
    scope: BandScope
    emitter: BandEmitter

    def __init__(self, band: Band) -> None:
        super().__init__(band.program, BandScope(band))
        self.band = band
        self._standing = False

    # --- signature --------------------------------------------------------------------------

    def arguments(self) -> tuple[Argument, ...]:
        return tuple(a for a in super().arguments() if a.kind not in {"descriptors", "wide"})

    def index_type(self) -> ast.stmt:
        return sx.assign("INDEX", sx.name("gl.int32"), "gl.constexpr")

    # --- places -----------------------------------------------------------------------------

    def _groups(self, axis: str) -> Expr:
        if axis != self.band.axis:
            return super()._groups(axis)
        block = sx.binary(sx.name(self.scope.block(axis)), "*", sx.const(self.band.groups))
        return sx.call("tl.cdiv", sx.name(self.scope.size(axis)), block)

    def number(self, axis: str) -> Expr:
        return sx.name(self.scope.own(axis)) if axis == self.band.axis else super().number(axis)

    def standing(self) -> list[ast.stmt]:
        return super().standing() if self._standing else []

    def lanes(self, dim: int, ids: dict[str, Expr], loop: Loop | None = None) -> list[ast.stmt]:
        return super().lanes(dim, ids, loop) if self._standing else []

    def _own(self) -> ast.stmt:
        """Which group of the band this is."""
        axis, scope = self.band.axis, self.scope
        first = sx.binary(sx.name(scope.group_id(axis)), "*", sx.const(self.band.groups))
        return sx.assign(scope.own(axis), sx.binary(first, "+", sx.name(scope.warpgroup)))

    def _layouts(self) -> Iterator[ast.stmt]:
        """The register layouts of tiles: rows by warps, across the columns of one instruction."""
        for dim in self.band.columns:
            if self.band.sums and dim not in self.band.finished:
                continue
            wide = min(WIDEST, max(8, self.program.extent(dim)))
            shape = sx.tuple_of([sx.const(16), sx.const(wide), sx.const(16)])
            version, warps = (sx.tuple_of(map(sx.const, x)) for x in ((3, 0), (4, 1)))
            made = sx.call("gl.NVMMADistributedLayout", version, warps, shape)
            yield sx.assign(self.scope.layout(dim), made, "gl.constexpr")

    # --- shared memory ----------------------------------------------------------------------

    def _box(self, leaf: Node) -> tuple[str, ...]:
        return in_box(self.program.boxes[leaf], self.program.tiles)

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

    def _ring(self, name: str, count: Expr, axes: Sequence[str]) -> ast.stmt:
        """Room for so many boxes of a tensor."""
        tensor = self.scope.tensor(name)
        shape = sx.tuple_of([count, *(self.emitter.block(a) for a in axes)])
        made = sx.call("gl.allocate_shared_memory", sx.name(f"{tensor}.dtype"), shape,
                       sx.name(f"{tensor}.layout"))  # fmt: skip
        return sx.assign(self.scope.ring(name), made)

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

    def _barriers(self, name: str, count: Expr, arrivals: int) -> list[ast.stmt]:
        shape = sx.tuple_of([count, sx.const(1)])
        layout = sx.call("mbarrier.MBarrierLayout")
        made = sx.call("gl.allocate_shared_memory", sx.name("gl.int64"), shape, layout)
        each = sx.name(self.scope.each)
        begun = ast.Expr(
            sx.call(
                "mbarrier.init", sx.method(sx.name(name), "index", each), count=sx.const(arrivals)
            )
        )
        each = ast.For(
            ast.Name(self.scope.each, ast.Store()), sx.call("gl.static_range", count), [begun], []
        )
        return [sx.assign(name, made), each]

    def _view(self, leaf: Node, at: Expr) -> Expr:
        """A box as a matrix."""
        box = sx.method(sx.name(self.scope.ring(tensor_of(leaf))), "index", at)
        if len(self._box(leaf)) == 2:
            return box
        shape = [self.scope.extent(d) for d in self.program.shape(leaf)]
        return sx.method(box, "reshape", sx.tuple_of(shape))

    def _tile(self, leaf: Node, slot: Expr, turned: bool) -> Expr:
        band = self.band
        box = sx.name(self.scope.tile(leaf)) if leaf in band.held else self._view(leaf, slot)
        return (
            sx.method(box, "permute", ast.Tuple([sx.const(1), sx.const(0)], ast.Load()))
            if turned
            else box
        )

    def _at(self, leaf: Node) -> Expr:
        """Where the box of a reading that is held lies."""
        return sx.name(self.scope.warpgroup) if self.band.own(leaf) else sx.const(0)

    def _slots(self, before: bool = False) -> list[ast.stmt]:
        turn: Expr = sx.name(self.scope.turn)
        if before:
            turn = sx.binary(turn, "-", sx.const(1))
        stages = sx.name(self.scope.stages)
        slot, phase = self.scope.slot(before)
        parity = sx.binary(sx.binary(turn, "//", stages), "%", sx.const(2))
        return [sx.assign(slot, sx.binary(turn, "%", stages)), sx.assign(phase, parity)]

    def _wait(self, name: str, at: Expr, phase: Expr) -> ast.stmt:
        return ast.Expr(sx.call("mbarrier.wait", sx.method(sx.name(name), "index", at), phase))

    def _arrive(self, name: str, at: Expr) -> ast.stmt:
        return ast.Expr(sx.call("mbarrier.arrive", sx.method(sx.name(name), "index", at)))

    # --- the warp that asks for chunks ------------------------------------------------------

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
        count = sx.binary(self._values(leaf), "*", sx.const(self.program.described))
        return [ast.Expr(sx.call("mbarrier.expect", full, count)), self._copy(leaf, full, at)]

    def _values(self, leaf: Node) -> Expr:
        """Values of a box."""
        sizes = [self.emitter.block(a) for a in self._box(leaf) if self.program.tiles[a] > 1]
        return sx.chain("*", sizes)

    def _copy(self, leaf: Node, full: Expr, at: Expr) -> ast.stmt:
        """A box asked for."""
        t, scope = tensor_of(leaf), self.scope
        corner = sx.tuple_of(self.emitter.corner(a) for a in self._box(leaf))
        into = sx.method(sx.name(scope.ring(t)), "index", at)
        return ast.Expr(sx.call("async_load", sx.name(scope.tensor(t)), corner, full, into))

    def _next(self) -> ast.stmt:
        turn = self.scope.turn
        return sx.assign(turn, sx.binary(sx.name(turn), "+", sx.const(1)))

    def _for(self, head: Head, body: list[ast.stmt], bounds: Sequence[Expr] = ()) -> ast.stmt:
        variable = ast.Name(head.variable, ast.Store())
        return ast.For(variable, sx.call("range", *(bounds or head.bounds)), body, [])


def waited(names: Sequence[str], outstanding: int) -> ast.stmt:
    """These products, done."""
    values = sx.tuple_of(map(sx.name, names))
    made = sx.call("warpgroup_mma_wait", sx.const(outstanding), values)
    if len(names) == 1:
        return sx.assign(names[0], made)
    target = ast.Tuple([ast.Name(n, ast.Store()) for n in names], ast.Store())
    return ast.Assign([target], made)
