"""Where the rows of tensors begin and end, as far as the compiler can know it.

Triton learns of an argument that it is a multiple of 16, or nothing. Where a row has 792 values, it
then takes every value for the first that a copy may start at, and loads values one by one. So a
kernel is told the largest power of two, up to 8, that divides the length and the strides of rows
(`known_step` in `napkin.lower.launch`), and writes each as a quotient times it: the same number, in
which the compiler sees the factor (axis analysis, in 3.6 and 3.9; there `tl.multiple_of` says
nothing of an argument).
"""

from __future__ import annotations

from collections.abc import Mapping

from napkin.derive.kernel import Kernel, tile_axes
from napkin.ir.node import Node
from napkin.ir.taking import own_axes, position_of, read_axes, taken_of
from napkin.lower.program import Program


def tensor_axes(kernel: Kernel) -> dict[str, tuple[str, ...]]:
    """The axes of every tensor of a kernel under its own names, in memory order."""
    out = {a.tensor: own_axes(a.leaf) for a in kernel.reads}
    return out | {o.name: o.axes for o in kernel.outputs}


def each_placed(leaf: Node) -> bool:
    """Whether each value of a reading has an address of its own: neighbours in the tile are not
    neighbours along the tensor's last axis."""
    if not leaf.args:
        return False
    return taken_of(leaf) is None or position_of(leaf, read_axes(leaf)[-1]) is not None


def rows(program: Program) -> Mapping[str, tuple[str, ...]]:
    """The axes along which the largest tiles of a kernel have their rows, and the tensors whose
    rows lie along each. Tiles of fewer dimensions are small beside these; what is known of theirs
    would only be one more reason to compile anew."""
    kernel = program.kernel
    plain = [a for a in kernel.reads if not each_placed(a.leaf)]
    tiles = {a.tensor: (read_axes(a.leaf), a.leaf.axes) for a in plain}
    tiles |= {o.name: (o.axes, tile_axes(o)) for o in kernel.outputs}
    rank = {t: len(program.shape_of(tile)) for t, (_, tile) in tiles.items()}
    most = max(rank.values(), default=0)
    last = {t: axes[-1] for t, (axes, _) in tiles.items() if axes}
    large = [a for t, a in last.items() if rank[t] == most and program.tiles.get(a, 1) > 1]
    return {a: tuple(t for t, its in last.items() if its == a) for a in dict.fromkeys(large)}
