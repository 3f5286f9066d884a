"""Where buffers lie in shared memory, and the bytes that all of them need.

A kernel's buffers are known, each with the operations during which it is in use, so addresses are
given out ahead of time: large buffers first, each at the lowest address that is free all the while
(Gergov, Algorithms for Compile-Time Memory Optimization, SODA 1999). Alignment and the order in
which addresses are tried leave gaps, so the answer can be more than what is in use at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

SCRATCH = 128
"""Alignment, in bytes, of the memory that one operation takes for itself."""

PLAIN = 16
"""Alignment, in bytes, of a tile that threads read, and of barriers."""

SWIZZLES = (128, 64, 32)
"""Bytes of a row that wgmma and boxes permute together (PTX ISA, swizzling modes)."""

MIN_ROWS = 8
"""Rows that a permutation takes."""


class Buffer(NamedTuple):
    """Shared memory that is in use from one operation to another.

    Attributes:
        first, last: numbers of operations, both included.
        size: in bytes.
        alignment: in bytes.
        scratch: whether one operation takes it for itself; those are placed after equal ones.
    """

    first: int
    last: int
    size: int
    alignment: int = PLAIN
    scratch: bool = False


def swizzled_alignment(shape: Sequence[int], item_bytes: int) -> int:
    """Alignment, in bytes, of a tile that wgmma reads or a box arrives in: one whole permutation,
    8 rows of as many bytes as are permuted together."""
    *outer, last = shape
    row, rows = last * item_bytes, 1
    for n in outer:
        rows *= n
    width = next((w for w in SWIZZLES if row % w == 0), 0) if rows >= MIN_ROWS else 0
    return MIN_ROWS * width or SCRATCH


@dataclass(frozen=True)
class _Gap:
    """Memory from an address up that is free from one operation to before another."""

    start: int
    first: int
    end: int

    def meets(self, b: Buffer) -> bool:
        return b.first < self.end and self.first <= b.last


def placed_bytes(buffers: Sequence[Buffer]) -> int:
    """Bytes of shared memory for buffers that are in use as they say."""
    return max((at + b.size for at, b in placed(buffers)), default=0)


def placed(buffers: Sequence[Buffer]) -> list[tuple[int, Buffer]]:
    """The address of each buffer that takes memory, in the order in which they are placed."""
    order = sorted((b for b in buffers if b.size), key=lambda b: (b.scratch, b.first))
    order.sort(key=lambda b: -b.size)
    at = _lowest(order)
    while clashes := _clashes(order, at):
        _raise(order, at, clashes)
    return list(zip(at, order, strict=True))


def _aligned(address: int, b: Buffer) -> int:
    return -(-address // b.alignment) * b.alignment


def _lowest(order: Sequence[Buffer]) -> list[int]:
    """First addresses: each gap, from the lowest, takes the first buffer that meets no other gap,
    and is split around it."""
    at = [0] * len(order)
    left = list(range(len(order)))
    end = max((b.last for b in order), default=0) + 1
    gaps = [_Gap(0, 0, end)]
    while left:
        gap = gaps.pop(0)
        i = next(
            (
                i
                for i in left
                if gap.meets(order[i]) and not any(other.meets(order[i]) for other in gaps)
            ),
            None,
        )
        if i is None:
            continue
        b = order[i]
        at[i] = _aligned(gap.start, b)
        gaps.append(_Gap(at[i] + b.size, max(gap.first, b.first), min(gap.end, b.last + 1)))
        if gap.first < b.first:
            gaps.append(_Gap(gap.start, gap.first, b.last + 1))
        if b.last + 1 < gap.end:
            gaps.append(_Gap(gap.start, b.first, gap.end))
        gaps.sort(key=lambda g: g.start)
        left.remove(i)
    return at


def _clashes(order: Sequence[Buffer], at: Sequence[int]) -> dict[int, list[int]]:
    """For each buffer, those that are in use at the same time in the same place."""
    out: dict[int, list[int]] = {}
    for i, x in enumerate(order):
        for j, y in enumerate(order):
            together = i != j and x.first <= y.last and y.first <= x.last
            if together and at[i] < at[j] + y.size and at[j] < at[i] + x.size:
                out.setdefault(i, []).append(j)
    return out


def _raise(order: Sequence[Buffer], at: list[int], clashes: dict[int, list[int]]) -> None:
    """Move buffers past those that they clash with: all but those of the first colour, where
    neighbours have different colours."""
    colours: dict[int, int] = {0: 0} if order else {}
    for i in range(len(order)):
        taken = {colours[j] for j in clashes.get(i, ()) if j in colours}
        colours[i] = next(c for c in range(len(order)) if c not in taken)
    for i, b in enumerate(order):
        if colours[i]:
            at[i] = _aligned(max(at[j] + order[j].size for j in clashes[i]), b)
