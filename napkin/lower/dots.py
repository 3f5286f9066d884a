"""Which sums of a loop program are matrix products, and in which type they are multiplied."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from napkin.algebra.contraction import Contraction, on_tile
from napkin.algebra.terms import is_operand
from napkin.derive.kernel import Kernel, tensor_of
from napkin.ir.node import Node, factors, over, postorder
from napkin.ir.storage import own_type
from napkin.lower.program import Program

Dot = Contraction[int]
"""A sum in the tile dimensions of a loop program."""


def contracted(program: Program, n: Node) -> Dot:
    """A sum on the tile of a program."""
    if (found := program.contracted.get(n)) is not None:
        return found
    parts, gone = factors(n.args[0]), over(n)
    reduced = tuple(d for d, axes in enumerate(program.dims) if axes[0] in gone)
    shapes = tuple(map(program.shape, parts))
    extents = program.extents
    found = on_tile(n, parts, shapes, reduced, tuple(extents), extents)
    program.contracted[n] = found
    return found


def dot_of(program: Program, n: Node) -> Dot | None:
    """The matrix product that a term becomes, if it does."""
    if n.op != "sum":
        return None
    found = contracted(program, n)
    return found if found.is_product else None


def transposed(c: Dot, side: int) -> bool:
    """Whether an operand's tile is transposed before it is multiplied: the right one of more than
    two dimensions lies with its depth last, as it is flattened."""
    return c.transposed(side) or (side == 1 and len(c.spans[1]) > 2)


def multiplies(program: Program) -> bool:
    """Whether a program has matrix products."""
    return any(dot_of(program, n) is not None for n in postorder(program.roots))


def beside_depth(program: Program, leaf: Node, dim: int) -> bool:
    """Whether a tensor is the right operand of a product in 8 bits, and two of its values are
    packed in a byte along this tile dimension, a column of the product.

    Triton 3.6 and 3.9 fail to compile such an operand for sm_90 where a byte's two values are its
    innermost dimension (TritonGPUOptimizeDotOperands, a layout that no shared memory has).
    """
    found = (dot_of(program, n) for n in postorder(program.roots))
    return any(c and c.dtype == "int8" and leaf in c.sides[1] and dim in c.columns for c in found)


def multiplied_as(kernel: Kernel, parts: Sequence[Node], boxes: Collection[Node | str] = ()) -> str:
    """The tensor whose type the operands of a product have.

    It is one of the plan's type: a factor of the product, else an output, else an input. A kernel
    whose tensors all have types of their own multiplies in the widest of them, unless it rounds as
    another kernel does (`Kernel.rounds`), and one without tensors of reals in float32; both are "".
    What is computed is not rounded to fp8.

    Args:
        parts: the factors.
        boxes: readings and outputs that a descriptor may stand for, which cannot be asked for
            their type; "" is returned where only such a factor has the plan's.
    """
    plain = [p for p in parts if is_operand(p)]
    for p in plain:
        if p not in boxes:
            return tensor_of(p)
    tensors = [(o.name, o.node) for o in kernel.outputs if o.name not in boxes]
    tensors += [(a.tensor, a.leaf) for a in kernel.reads if a.leaf not in boxes]
    real = sorted(
        ((own_type(n), name) for name, n in tensors if n.kind == "real" and own_type(n) != "fp8"),
        key=lambda found: ("", "fp32", "bf16", "fp16").index(found[0]),
    )
    known = real and not ((plain or kernel.rounds) and real[0][0])
    return real[0][1] if known else ""
