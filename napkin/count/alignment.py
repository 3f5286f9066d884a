"""Alignments: what a tile's length has to be a multiple of, and why.

arXiv 2412.03317, section 5: memory moves whole lines, so a tile is whole lines along the axis that
is innermost in memory; matrix instructions take rows, columns and depth of fixed multiples. Several
alignments of one axis combine by their least common multiple; nested tiles pass theirs outwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from napkin.algebra.terms import is_read
from napkin.derive.kernel import Kernel, tensor_of
from napkin.machine.chain import Chain, Stage

Bytes = Mapping[str, Fraction]
"""Bytes of a value of each tensor; half a byte for 4-bit values."""


@dataclass(frozen=True)
class Alignment:
    """Along `axis`, tiles of level `level` and of those around it are multiples of `multiple`."""

    axis: str
    multiple: int
    level: str
    reason: str


def alignments(kernel: Kernel, chain: Chain, item: Bytes) -> tuple[Alignment, ...]:
    """Every alignment of a kernel's axes on a chain of levels, the outermost level first."""
    found: list[Alignment] = []
    for stage in chain.stages:
        found += _lines(kernel, stage, item)
    inner = chain.stages[-1]
    shapes = list(_shapes(kernel, chain, inner, item))
    found += shapes or _warps(kernel, chain, inner)
    kept = dict.fromkeys(m for m in found if m.multiple > 1 and m.axis not in kernel.alone)
    return tuple(kept)


def combined(found: Iterable[Alignment]) -> dict[str, int]:
    """The least common multiple of the alignments of each axis."""
    out: dict[str, int] = {}
    for m in found:
        out[m.axis] = math.lcm(out.get(m.axis, 1), m.multiple)
    return out


def at_level(found: Iterable[Alignment], chain: Chain, level: str) -> tuple[Alignment, ...]:
    """The alignments that hold at a level: its own, and by nesting those of levels inside it."""
    names = [s.name for s in chain.stages]
    inside = set(names[names.index(level) :])
    return tuple(m for m in found if m.level in inside)


def _lines(kernel: Kernel, stage: Stage, item: Bytes) -> Iterable[Alignment]:
    """Whole granules of the pipe into a level, along the axis that is innermost in memory."""
    if stage.granule <= 1:
        return
    innermost = [(a.tensor, a.leaf.axes) for a in kernel.reads]
    innermost += [(o.name, o.axes) for o in kernel.outputs]
    alike: dict[tuple[str, Fraction], list[str]] = {}
    for tensor, axes in innermost:
        if axes:
            alike.setdefault((axes[-1], item[tensor]), []).append(tensor)
    for (axis, size), tensors in alike.items():
        names = ", ".join(dict.fromkeys(tensors))
        why = f"{stage.granule}-byte granules of {names}, {_bytes(size)} a value"
        yield Alignment(axis, (Fraction(stage.granule) / size).numerator, stage.name, why)


def _shapes(kernel: Kernel, chain: Chain, inner: Stage, item: Bytes) -> Iterable[Alignment]:
    """Rows, columns and depth of matrix instructions."""
    sizes = {key: int(f.value) for key, f in chain.machine.granules.items()}
    for c in kernel.products:
        rows, columns = c.rows, c.columns
        # Either side may be the rows: the one that is cut into groups, where just one is.
        if set(columns) & set(kernel.group) and not set(rows) & set(kernel.group):
            rows, columns = columns, rows
        for side, axes in (("rows", rows), ("columns", columns)):
            why = f"matrix instructions take {side} by {sizes[f'mma_{side}']}"
            # Of axes that are packed into one side of a product, the last carries its alignment.
            yield Alignment(axes[-1], sizes[f"mma_{side}"], inner.name, why)
        depth = max((item[tensor_of(p)] for p in c.parts if is_read(p)), default=max(item.values()))
        multiple = max(int(sizes["mma_depth"] / depth), 1)
        why = f"matrix instructions reduce {sizes['mma_depth']} bytes of {_bytes(depth)} a value"
        deep = [a for a in c.gone if a not in kernel.taps]  # taps are streamed one by one
        if deep:
            yield Alignment(deep[-1], multiple, inner.name, why)


def _warps(kernel: Kernel, chain: Chain, inner: Stage) -> Iterable[Alignment]:
    """Without a product, one value for each thread of a warp along the axis innermost in memory."""
    threads = int(chain.machine.granules["warp"].value)
    for axis in dict.fromkeys(o.axes[-1] for o in kernel.outputs if o.axes):
        yield Alignment(axis, threads, inner.name, f"{threads} threads of a warp, a value each")


def _bytes(size: Fraction) -> str:
    return f"{float(size):g} B"
