"""Statements of one warpgroup: those of the plain kernel, with register layouts and products that
have been made before."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from napkin.ir.node import Node
from napkin.lower import syntax as sx
from napkin.lower.dots import Dot
from napkin.lower.emit import Emitter
from napkin.lower.launch import in_box
from napkin.lower.program import Program
from napkin.lower.scope import Scope
from napkin.lower.syntax import Expr
from napkin.lower.warpgroups.gluon_scope import BandScope


class BandEmitter(Emitter):
    """Writes statements for the terms of one group of a band."""

    scope: BandScope

    def __init__(self, program: Program, scope: Scope) -> None:
        assert isinstance(scope, BandScope)
        super().__init__(program, scope)

    def laid(self, made: Expr, dims: Sequence[int]) -> Expr:
        if not dims:
            return made
        assert isinstance(made, ast.Call)
        layout = ast.keyword("layout", self.scope.of(tuple(dims)))
        return ast.Call(made.func, made.args, [*made.keywords, layout])

    def spread(self, value: Expr, have: Sequence[int], want: Sequence[int]) -> Expr:
        band = self.scope.band
        if tuple(have) == (band.row,) and len(want) == 2 and want[1] != band.columns[0]:
            beside = sx.call("gl.SliceLayout", sx.const(1), sx.name(self.scope.layout(want[1])))
            value = sx.call("gl.convert_layout", value, beside)
        return super().spread(value, have, want)

    def _reduce_dims(self, op: str, value: Expr, dims: list[int], axes: Sequence[str]) -> Expr:
        before = list(dims)
        value = super()._reduce_dims(op, value, dims, axes)
        row, first = self.scope.band.row, self.scope.band.columns[0]
        if dims == [row] and before != dims and before[1] != first:
            value = sx.call("gl.convert_layout", value, self.scope.of((row,)))
        return value

    def _dot(self, c: Dot, start: Node | None) -> tuple[Expr, list[int]]:
        """The product that the loop has made of these operands."""
        made = sx.name(self.scope.products[c.node])
        if start is not None:
            made = sx.binary(self.value(start), "+", made)
        return made, sorted((*c.rows, *c.columns))

    def corner(self, axis: str) -> Expr:
        """Where a box begins along an axis."""
        return self._corner(axis)

    def _corner(self, axis: str) -> Expr:
        if axis == self.scope.band.axis:
            return sx.binary(sx.name(self.scope.own(axis)), "*", sx.name(self.scope.block(axis)))
        return super()._corner(axis)

    def _boxed_store(self, tensor: str, value: Expr, plain: ast.stmt) -> ast.stmt:
        """A tile to shared memory, and from there through the tensor's descriptor."""
        axes = in_box(self.program.stores[tensor], self.program.tiles)
        into, scope = self.scope.tensor(tensor), self.scope
        box = sx.method(sx.name(scope.ring(tensor)), "index", sx.name(scope.warpgroup))
        shape = sx.tuple_of(scope.extent(d) for d in self.program.shape_of(axes))
        value = sx.method(value, "to", sx.name(f"{into}.dtype"))
        self.statements += [
            ast.Expr(sx.method(sx.method(box, "reshape", shape), "store", value)),
            ast.Expr(sx.call("fence_async_shared")),
        ]
        at = sx.tuple_of(self._corner(a) for a in axes)
        return ast.Expr(sx.call("async_store", sx.name(into), at, box))
