"""Which readings a tensor descriptor can serve: boxes of a tensor that the hardware copies.

From Hopper on, one thread asks for a whole box of a tensor, with coordinates, and what lies outside
the tensor arrives as 0: no addresses per value, no masks. The tensor's last axis must be contiguous
and its other strides multiples of 16 bytes, which is known when the kernel is called; the kernel
keeps the plain loads beside (CUDA Programming Guide, Tensor Memory Accelerator).
"""

from __future__ import annotations

from dataclasses import replace

from napkin.cost.levels import held
from napkin.derive.terms import is_read
from napkin.diagram.node import Node, inside_sums, postorder
from napkin.lower.launch import ROW_BYTES
from napkin.lower.program import Program
from napkin.lower.resources_dot import dot_of

MAX_RANK = 5
MAX_BOX = 256
"""Axes of a tensor, and positions of a box along each."""


def described(program: Program, item_bytes: int) -> Program:
    """The program with operands of `item_bytes` bytes a value read in boxes, where descriptors can
    serve them: operands of products, by themselves, that are read chunk by chunk."""
    kernel = program.kernel
    streamed = {t for t, _ in held(kernel).streamed_operands}
    alone = _operands(program)
    boxes: dict[Node, tuple[str, ...]] = {}
    for access in kernel.reads:
        once = sum(a.tensor == access.tensor for a in kernel.reads) == 1
        chosen = once and access.tensor in streamed and access.leaf in alone
        # A box would reach past the last residue's end.
        chosen = chosen and not kernel.ragged.keys() & set(access.leaf.axes)
        if chosen and _boxed(access.leaf, program, item_bytes):
            boxes[access.leaf] = access.leaf.axes
    return replace(program, boxes=boxes, described=item_bytes) if boxes else program


def _operands(program: Program) -> set[Node]:
    """Readings that are whole operands of products, and read by sums only. A factor of an operand
    goes through registers, in a layout that loads choose better."""
    inside = inside_sums(program.roots)
    whole: set[Node] = set()
    other: set[Node] = set()
    for n in postorder(program.roots):
        dot = dot_of(program, n)
        for parts in dot.sides if dot else ():
            (whole if len(parts) == 1 else other).update(parts)
        if not (n.op == "sum" or (n.op == "mul" and n in inside)):
            other.update(n.args)
    return {n for n in whole - other if is_read(n)}


def _boxed(leaf: Node, program: Program, item_bytes: int) -> bool:
    axes, tiles = leaf.axes, program.tiles
    if leaf.args:  # at addresses of its own for every value
        return False
    if not axes or len(axes) > MAX_RANK or any(tiles[a] > MAX_BOX for a in axes):
        return False
    if tiles[axes[-1]] * item_bytes < ROW_BYTES:
        return False
    # The box must be the tile as it lies in memory.
    places = {a: (d, i) for d, group in enumerate(program.dims) for i, a in enumerate(group)}
    place = [places[a] for a in axes if a in places]
    return place == sorted(place)
