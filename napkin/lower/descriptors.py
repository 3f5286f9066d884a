"""Which readings a tensor descriptor can serve: boxes of a tensor that the hardware copies.

From Hopper on, one thread asks for a whole box of a tensor, with coordinates, and what lies outside
the tensor arrives as 0: no addresses per value, no masks. The tensor's last axis must be contiguous
and its other strides multiples of 16 bytes, which is known when the kernel is called; the kernel
keeps the plain loads beside (CUDA Programming Guide, Tensor Memory Accelerator).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.cost.levels import held
from napkin.derive.kernel import Kernel
from napkin.diagram.node import Node, factors, inside_sums, over, postorder

MIN_CAPABILITY = 90
"""Compute capability of the first GPUs with the Tensor Memory Accelerator."""

MAX_RANK = 5
MAX_BOX = 256
"""Axes of a tensor, and positions of a box along each."""

ROW_BYTES = 16
"""Bytes that a box's rows, and a tensor's strides, are multiples of."""


def readings(
    kernel: Kernel, tiles: Mapping[str, int], dims: Sequence[Sequence[str]], item_bytes: int
) -> dict[Node, tuple[str, ...]]:
    """The readings that descriptors can serve, with the axes of their tensors in memory order:
    operands of products, by themselves, that are read chunk by chunk."""
    operands = {t for t, _ in held(kernel).streamed_operands}
    out: dict[Node, tuple[str, ...]] = {}
    for access in kernel.reads:
        alone = sum(a.tensor == access.tensor for a in kernel.reads) == 1
        alone = alone and _alone(access.leaf, kernel, tiles)
        if alone and access.tensor in operands and _boxed(access.leaf, tiles, dims, item_bytes):
            out[access.leaf] = access.leaf.axes
    return out


def _alone(leaf: Node, kernel: Kernel, tiles: Mapping[str, int]) -> bool:
    """Whether a tile is an operand of products as it is, and nothing else: it then never leaves
    shared memory for registers in another layout."""
    inside = inside_sums(kernel.terms)
    for n in postorder(kernel.terms):
        if leaf in n.args and not (n.op == "mul" and n in inside):
            return False
        if n.op == "sum" and leaf in factors(n.args[0]):
            reduced = {a for a in over(n) if tiles[a] > 1}
            if sum(bool(reduced & set(p.axes)) for p in factors(n.args[0])) != 2:
                return False
    return True


def _boxed(
    leaf: Node, tiles: Mapping[str, int], dims: Sequence[Sequence[str]], item_bytes: int
) -> bool:
    axes = leaf.axes
    if leaf.args:  # at addresses of its own for every value
        return False
    if not axes or len(axes) > MAX_RANK or any(tiles[a] > MAX_BOX for a in axes):
        return False
    if tiles[axes[-1]] * item_bytes < ROW_BYTES:
        return False
    # The box must be the tile as it lies in memory.
    place = [(d, group.index(a)) for a in axes for d, group in enumerate(dims) if a in group]
    return place == sorted(place)


def fits(strides: Sequence[int], item_bytes: int) -> bool:
    """Whether a tensor with these strides, in values, can be described."""
    *outer, last = strides
    return last == 1 and all(s > 0 and s * item_bytes % ROW_BYTES == 0 for s in outer)
