"""The tensors that a kernel's statements form, and which of them Triton takes.

They have at most `MAX_TENSOR` values, those included that exist only between two operators: factors
that are multiplied out before a sum, above all. And operands of products may be too large to be
transposed (`Target.transposes`).
"""

from __future__ import annotations

from dataclasses import dataclass

from napkin.count.matrix_products import turns
from napkin.derive.kernel import tile_axes
from napkin.ir.node import Node, postorder
from napkin.lower.descriptors import ITEM
from napkin.lower.dots import Dot, contracted, transposed
from napkin.lower.program import Program
from napkin.lower.warpgroups.cta import ROWS
from napkin.target import Target

MAX_TENSOR = 2**20
"""Values of a tensor, at most (`triton.language.core.TRITON_MAX_TENSOR_NUMEL`)."""


@dataclass(frozen=True, eq=False)
class Tensors:
    """The tensors of a program, whatever the lengths of its tiles.

    Attributes:
        shapes: tile dimensions of what it computes, reads and stores.
        sums: its sums of products.
    """

    shapes: tuple[tuple[int, ...], ...]
    sums: tuple[Node, ...]

    def formed(self, program: Program, tile: int, tensor: int, target: Target, item: int) -> bool:
        """Whether at the tiles of `program` no product that is summed has more values than `tile`,
        where no matrix product does that, and nothing else more than `tensor`; and whether a target
        reads operands of `item` bytes a value, or of 8 bits, as what they are."""
        if any(program.span(dims) > tensor for dims in self.shapes):
            return False
        found = [contracted(program, n) for n in self.sums]
        if any(program.span(_inside(program, c)) > tile for c in found if not c.is_product):
            return False
        dots = [c for c in found if c.is_product]
        sides = (dims for c in dots for dims in (*c.spans, (*c.rows, *c.columns)))
        if any(program.span(dims) > tensor for dims in sides):
            return False
        return all(_read(program, c, target, 1 if c.dtype else item) for c in dots)


def _read(program: Program, c: Dot, target: Target, item: int) -> bool:
    """Whether a target reads the operands of a product as what they are, which lie in shared memory
    where an instruction has the rows of a warpgroup."""
    rows, columns, depth = map(program.span, (c.rows, c.columns, c.gone))
    turned = turns(c, program.extents)
    if item > ITEM or (columns if turned else rows) < ROWS:  # of float32 none is multiplied so
        return True
    sides = [n for side, n in enumerate((rows, columns)) if transposed(c, side) != turned]
    return all(target.transposes((n, depth), item) for n in sides)


def tensors_of(program: Program) -> Tensors:
    """The tensors that the statements of a program form."""
    order = [n for n in postorder(program.roots) if not n.constant]
    shapes = {program.shape(n): None for n in order if n not in program.products}
    shapes |= {program.shape_of(tile_axes(o)): None for o in program.kernel.outputs}
    return Tensors(tuple(shapes), tuple(n for n in order if n.op == "sum"))


def _inside(program: Program, c: Dot) -> set[int]:
    """The dimensions of what a sum adds up; a factor outside comes after."""
    return {d for p in c.parts or c.outside for d in program.shape(p)}
