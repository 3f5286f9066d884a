"""Which tiles a tensor descriptor can serve: boxes of a tensor that the hardware copies.

From Hopper on, one thread asks for a whole box of a tensor, with coordinates, and what lies outside
the tensor arrives as 0: no addresses per value, no masks. The tensor's last axis must be contiguous
and its other strides multiples of 16 bytes, which is known when the kernel is called; the kernel
keeps the plain loads and stores beside (CUDA Programming Guide, Tensor Memory Accelerator). A box
must begin at a multiple of 16 bytes, too: Hopper ends a kernel with an illegal instruction where it
begins elsewhere (H100), and Triton's interpreter refuses it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from napkin.algebra.terms import is_operand
from napkin.derive.kernel import Kernel, tensor_of
from napkin.ir.linear import linear
from napkin.ir.node import Node, postorder
from napkin.ir.storage import own_type
from napkin.ir.types import STORAGE
from napkin.ir.whole_numbers import length
from napkin.lower.dots import dot_of
from napkin.lower.launch import ROW_BYTES, contiguous, fits
from napkin.lower.program import Program
from napkin.target import MAX_BOX

MAX_RANK = 5
"""Axes of a tensor, at most."""

ITEM = 2
"""Bytes of a value of the plan's type, where descriptors serve it."""


def in_boxes(program: Program) -> Program:
    """The program with tiles of `described` bytes a value read and written in boxes, where
    descriptors can serve them: operands of products, by themselves, and what is stored at the end
    of a kernel that reads such. For warpgroups, boxes of more than two long axes are matrices where
    they lie, held ones and results, too.

    An operand that is held never passes through registers, of which 64 x 128 values beside a second
    product take those of a third resident group: attention at 64/128 took 294 us for 403 (H100,
    256 x 1024 x 128, bf16), and 279 with the output in boxes, too.
    """
    kernel, schedule = program.kernel, program.schedule
    reshaped = bool(schedule.warpgroups)
    alone = _operands(program)
    boxes: dict[Node, tuple[str, ...]] = {}
    may = boxable(kernel)
    for access in kernel.reads:
        axes = access.leaf.axes
        chosen = access.tensor in may and access.leaf in alone
        chosen = chosen and (kernel.stream.carried(axes) or reshaped or _plain(axes, program))
        if chosen and _boxed(axes, program, item_bytes(access.leaf)):
            boxes[access.leaf] = axes
    if not any(kernel.stream.carried(axes) for axes in boxes.values()):
        return replace(program, schedule=replace(schedule, described=0))
    schedule = replace(schedule, described=min(map(item_bytes, boxes)))
    stores = dict(_stores(program, reshaped))
    return replace(program, schedule=schedule, boxes=boxes, stores=stores)


def may_persist(program: Program) -> bool:
    """Whether persistent program instances may run a program: they take several groups in turn, and
    load ahead what is streamed, all of it in boxes."""
    kernel, may = program.kernel, boxable(program.kernel)
    streamed = [a for a in kernel.reads if kernel.stream.carried(a.leaf.axes)]
    if not (program.schedule.described and kernel.group and streamed):
        return False
    for a in streamed:
        if a.tensor not in may or not _boxed(a.leaf.axes, program, item_bytes(a.leaf)):
            return False
    return {a.leaf for a in streamed} <= _operands(program)


def item_bytes(n: Node) -> int:
    """Bytes of a value of a reading or a result that descriptors may serve."""
    return STORAGE[own].bits // 8 if (own := own_type(n)) else ITEM


def boxable(kernel: Kernel, tiles: Mapping[str, int] = MappingProxyType({})) -> frozenset[str]:
    """The tensors that are read once, where they lie, in boxes that begin at multiples of 16 bytes,
    and not past the end of a residue, where a box would reach.

    Args:
        tiles: of grouped axes, where known: their groups begin at multiples of these.
    """
    times, unaligned = Counter(a.tensor for a in kernel.reads), {*_unaligned(kernel, tiles)}
    lying = [a for a in kernel.reads if times[a.tensor] == 1 and not a.leaf.args]
    lying = [a for a in lying if unaligned.isdisjoint(a.leaf.axes[-1:])]
    return frozenset(a.tensor for a in lying if not kernel.ragged.keys() & set(a.leaf.axes))


def _unaligned(kernel: Kernel, tiles: Mapping[str, int]) -> Iterator[str]:
    """The axes whose visits may begin elsewhere than at a multiple of 16 bytes of any type."""
    seen = kernel.visits
    if seen is None:
        return
    for i, axis in enumerate(seen.axes):
        # Behind a first box that begins at key 0, the others begin where that one ends, at least.
        if seen.prefix or not all(_aligned(b.intervals[i].first, axis, tiles) for b in seen.boxes):
            yield axis


def _aligned(first: Node, axis: str, tiles: Mapping[str, int]) -> bool:
    """Whether visits that begin at `first` begin at a multiple of 16 values, or at the end of the
    axis, where they read nothing. A group begins where its first position does, if that rises."""
    if first.op in {"maximum", "minimum"}:
        return all(_aligned(a, axis, tiles) for a in first.args)
    steps = (
        f * tiles.get(t.axes[0], 1) if t is not None and t.op == "index" and f > 0 else f
        for t, f in linear(first).items()
    )
    return first is length(axis) or all(n % ROW_BYTES == 0 for n in steps)


def served(program: Program, sizes: Mapping[str, int]) -> bool:
    """Whether descriptors serve every row-major tensor of these sizes that they may."""
    items = items_of(program)
    strides = {
        t: contiguous([sizes[a] for a in axes]) for t, axes in served_tensors(program).items()
    }
    return all(fits(s, items[t]) for t, s in strides.items())


def served_tensors(program: Program) -> dict[str, tuple[str, ...]]:
    """The tensors that descriptors may serve, with their axes in memory order."""
    read = {tensor_of(leaf): axes for leaf, axes in program.boxed.items()}
    return {**read, **program.stores, **program.adds}


def items_of(program: Program) -> dict[str, int]:
    """The bytes of a value of each of these tensors."""
    stored = {o.name: item_bytes(o.node) for o in program.kernel.outputs}
    found = {tensor_of(leaf): item_bytes(leaf) for leaf in program.boxed} | stored
    return {t: found[t] for t in served_tensors(program)}


def lines(program: Program) -> dict[Node, tuple[str, ...]]:
    """The readings with one value for each position of a chunk that descriptors can serve."""
    kernel, tiles = program.kernel, program.tiles
    may = boxable(kernel, tiles)
    leaves = [a.leaf for a in kernel.reads if a.tensor in may and a.leaf not in program.boxes]
    found = {n: n.axes for n in leaves if n.kind == "real" and own_type(n) in {"", "fp32"}}
    return {
        n: axes
        for n, axes in found.items()
        if kernel.stream.carried(axes)
        and len(program.shape(n)) == 1
        and program.span(program.shape(n)) == math.prod(tiles[a] for a in axes)
        and _boxed(axes, program, ITEM)
    }


def _stores(program: Program, reshaped: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The outputs that are stored as whole matrices after the loops."""
    kernel = program.kernel
    for o in kernel.outputs:
        n = program.tails.get(o.name)
        if n is None or n.kind != "real" or n.op == "scatter" or o.name in kernel.added:
            continue
        whole = program.shape(n) == program.shape_of(o.axes)
        if (
            whole
            and not own_type(o.node)
            and (reshaped or _plain(o.axes, program))
            and _boxed(o.axes, program, ITEM)
        ):
            yield o.name, o.axes


def _operands(program: Program) -> set[Node]:
    """Readings that are whole operands of products, and read by sums only; those of 8 bits, which
    warpgroups alone take in boxes. A factor of an operand goes through registers, in a layout that
    loads choose better."""
    whole: set[Node] = set()
    other: set[Node] = set()
    for n in postorder(program.roots):
        dot = dot_of(program, n)
        for parts in dot.sides if dot else ():
            every = dot.parts if dot and program.schedule.warpgroups else ()
            one = len(parts) == 1 and is_operand(parts[0], every)
            (whole if one else other).update(parts)
        if not (n.op == "sum" or (n.op == "mul" and n in program.products)):
            other.update(n.args)
    return whole - other


def _plain(axes: Sequence[str], program: Program) -> bool:
    """Whether a tile is a matrix as it lies in memory; one that is reshaped outside a loop goes
    through registers, and before it, stays there."""
    long = [a for a in axes if program.tiles[a] > 1]
    return len(long) == len(program.shape_of(axes)) == 2


def _boxed(axes: Sequence[str], program: Program, item: int) -> bool:
    tiles = program.tiles
    if program.kernel.ragged.keys() & set(axes):  # a box would reach past the last residue's end
        return False
    if not axes or len(axes) > MAX_RANK or any(tiles[a] > MAX_BOX for a in axes):
        return False
    if tiles[axes[-1]] * item < ROW_BYTES:
        return False
    # The box must be the tile as it lies in memory.
    places = {a: (d, i) for d, group in enumerate(program.dims) for i, a in enumerate(group)}
    place = [places[a] for a in axes if a in places]
    return place == sorted(place)
