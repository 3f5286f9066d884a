"""How tiles lie in the registers of a warpgroup, and leave them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from napkin.ir.node import Node
from napkin.lower import syntax as sx
from napkin.lower.emit_block import Block, Layouts
from napkin.lower.syntax import Expr
from napkin.lower.warpgroups.gluon_scope import CtaScope
from napkin.schedule import WARPS


class Registers(Layouts):
    """The layouts that Gluon wants to be told."""

    def __init__(self, scope: CtaScope) -> None:
        self.scope, self.cta, self.lang = scope, scope.cta, scope.lang

    def of(self, dims: Sequence[int]) -> Expr:
        """The layout of a tile with these dimensions."""
        return self.scope.of(tuple(dims))

    def laid(self, made: Expr, dims: Sequence[int]) -> Expr:
        assert isinstance(made, ast.Call)
        if not dims:  # Gluon's `full` makes no scalars
            return self.lang("to_tensor", made.args[1])
        layout = ast.keyword("layout", self.of(dims))
        return ast.Call(made.func, made.args, [*made.keywords, layout])

    def spread(self, value: Expr, have: Sequence[int], want: Sequence[int]) -> Expr:
        cta = self.cta
        if tuple(have) == (cta.row,) and len(want) == 2 and want[1] != cta.columns[0]:
            sliced = self.lang("SliceLayout", 1, self.scope.layout(want[1]))
            value = self.lang("convert_layout", value, sliced)
        return super().spread(value, have, want)

    def read(self, n: Node, held: Expr) -> Expr:
        if n not in self.cta.held and n not in self.cta.program.beside:
            return held
        return sx.method(held, "load", self.scope.of(self.cta.program.shape(n)))

    def reduced(self, value: Expr, had: Sequence[int], have: Sequence[int]) -> Expr:
        row, first = self.cta.row, self.cta.columns[0]
        if list(have) == [row] and list(had) != [row] and had[1] != first:
            value = self.lang("convert_layout", value, self.scope.of((row,)))
        return value

    def stored(
        self, into: Block, tensor: str, axes: Sequence[str], at: Expr, value: Expr, plain: ast.stmt
    ) -> list[ast.stmt]:
        """A tile to shared memory, and from there through the tensor's descriptor."""
        scope = self.scope
        box = sx.method(scope.ring(tensor), "index", scope.warpgroup)
        shape = into.extents(into.program.shape_of(axes))
        return [
            ast.Expr(sx.method(sx.method(box, "reshape", shape), "store", value)),
            ast.Expr(sx.call("fence_async_shared")),
            ast.Expr(sx.call("async_store", scope.tensor(tensor), at, box)),
        ]


class Alone(Registers):
    """Layouts of tiles of one dimension, of which each thread has a value."""

    def of(self, dims: Sequence[int]) -> Expr:
        return self.lang("BlockedLayout", *(sx.tuple_of([n]) for n in (1, 32, WARPS, 0)))
