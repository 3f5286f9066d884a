"""What goes through the shared memory of a band: boxes in rings, and barriers for each place."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from napkin.derive.kernel import tensor_of
from napkin.ir.node import Node
from napkin.lower import syntax as sx
from napkin.lower.box_loops import Head, Visiting
from napkin.lower.launch import Argument, in_box
from napkin.lower.program import Loop
from napkin.lower.syntax import Expr
from napkin.lower.warpgroups.band import WIDEST, Band
from napkin.lower.warpgroups.emit_gluon import BandEmitter
from napkin.lower.warpgroups.gluon_scope import BandScope
from napkin.lower.write import Writer


class _Visiting(Visiting):
    def spanned(self, axis: str) -> Expr:
        assert isinstance(self.scope, BandScope)
        band = self.scope.band
        count = band.groups if axis == band.axis else 1
        return sx.binary(super().spanned(axis), "*", sx.const(count))


class Rings(Writer):
    """Writes where a band stands, and how its boxes come."""

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
            wide = min(WIDEST, max(8, self.program.extent(dim)))
            shape = sx.tuple_of([sx.const(16), sx.const(wide), sx.const(16)])
            version, warps = (sx.tuple_of(map(sx.const, x)) for x in ((3, 0), (4, 1)))
            made = sx.call("gl.NVMMADistributedLayout", version, warps, shape)
            yield sx.assign(self.scope.layout(dim), made, "gl.constexpr")

    # --- shared memory ----------------------------------------------------------------------

    def _box(self, leaf: Node) -> tuple[str, ...]:
        return in_box(self.program.boxes[leaf], self.program.tiles)

    def _ring(self, name: str, count: Expr, axes: Sequence[str]) -> ast.stmt:
        """Room for so many boxes of a tensor."""
        tensor = self.scope.tensor(name)
        shape = sx.tuple_of([count, *(self.emitter.block(a) for a in axes)])
        made = sx.call("gl.allocate_shared_memory", sx.name(f"{tensor}.dtype"), shape,
                       sx.name(f"{tensor}.layout"))  # fmt: skip
        return sx.assign(self.scope.ring(name), made)

    def _barriers(self, name: str, count: Expr, arrivals: int) -> list[ast.stmt]:
        shape = sx.tuple_of([count, sx.const(1)])
        layout = sx.call("mbarrier.MBarrierLayout")
        made = sx.call("gl.allocate_shared_memory", sx.name("gl.int64"), shape, layout)
        place = sx.method(sx.name(name), "index", sx.name(self.scope.each))
        begun = ast.Expr(sx.call("mbarrier.init", place, count=sx.const(arrivals)))
        turns = sx.call("gl.static_range", count)
        every = ast.For(ast.Name(self.scope.each, ast.Store()), turns, [begun], [])
        return [sx.assign(name, made), every]

    def _view(self, leaf: Node, at: Expr) -> Expr:
        """A box as a matrix."""
        box = sx.method(sx.name(self.scope.ring(tensor_of(leaf))), "index", at)
        if len(self._box(leaf)) == 2:
            return box
        shape = [self.scope.extent(d) for d in self.program.shape(leaf)]
        return sx.method(box, "reshape", sx.tuple_of(shape))

    def _tile(self, leaf: Node, slot: Expr, turned: bool) -> Expr:
        """A box as an operand, that of this place in its ring where it is streamed."""
        held = leaf in self.band.held
        box = sx.name(self.scope.tile(leaf)) if held else self._view(leaf, slot)
        order = ast.Tuple([sx.const(1), sx.const(0)], ast.Load())
        return sx.method(box, "permute", order) if turned else box

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

    # --- what is asked for ------------------------------------------------------------------

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
