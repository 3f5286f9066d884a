"""Axes that are split by residue, in counts and in symbols.

An array on places and residues has as many values as the array that it stands for: the places of a
residue are fewer where the step does not divide the axis.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from napkin.count.factors import Factor
from napkin.ir.symbols import group_symbol, size_symbol
from napkin.keys.residues import Blocks, Split


def positions(
    axes: Iterable[str], sizes: Mapping[str, int], splits: Sequence[Split | Blocks]
) -> int:
    """Values of an array with these axes."""
    axes = set(axes)
    found = {s.place: s for s in splits if s.place in axes and isinstance(s, Split)}
    split = {*found, *(s.residue for s in found.values())}
    out = math.prod(sizes[a] for a in axes - split)
    for residue in dict.fromkeys(s.residue for s in found.values()):
        of = [s.lengths(sizes[s.axis]) for s in found.values() if s.residue == residue]
        # Without the residue as an axis of its own, an array is held for the longest one.
        lengths = np.prod(of, axis=0)
        out *= int(lengths.sum() if residue in axes else lengths.max())
    return out


def in_chunks(
    cut: Sequence[Split],
    axes: Iterable[str],
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    splits: Sequence[Split | Blocks],
) -> Fraction:
    """How often an array with these axes crosses for the chunks of the split axes `cut`, of which a
    short residue may have fewer: on average over the residues that it carries, and in total over
    those that it does not."""
    axes, out = set(axes), Fraction(1)
    for residue in dict.fromkeys(s.residue for s in cut):
        of = [s for s in cut if s.residue == residue]
        chunks = np.prod([-(-s.lengths(sizes[s.axis]) // tiles[s.place]) for s in of], axis=0)
        if residue not in axes:
            out *= int(chunks.sum())
            continue
        own = [s for s in splits if isinstance(s, Split) and s.residue == residue]
        held = [s.lengths(sizes[s.axis]) for s in own if s.place in axes]
        values = np.prod(held or [np.ones_like(chunks)], axis=0)
        out *= Fraction(int(values @ chunks), max(int(values.sum()), 1))
    return out


def extents(
    axis: str,
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    over: Collection[str],
    splits: Sequence[Split],
) -> Factor:
    """The positions of each tile of an axis; of places, for each residue among the axes `over`."""
    starts = np.arange(0, sizes[axis], tiles[axis])
    for s in splits:
        if s.place == axis and s.residue in over:
            inside = s.inside(sizes[s.axis])
            return (axis, s.residue), np.add.reduceat(inside, starts, dtype=np.int64)
    return (axis,), np.minimum(starts + tiles[axis], sizes[axis]) - starts


def plain(expression: Any, splits: Sequence[Split | Blocks], part: str = "") -> Any:
    """A formula in the sizes of the axes themselves, for steps that divide them; a group has one
    of the positions along the axis of parts, `part`, and one block."""
    by: dict[Any, Any] = {group_symbol(part): 1} if part else {}
    for s in splits:
        by[size_symbol(s.place)] = size_symbol(s.axis) / s.step
        if isinstance(s, Split):
            by[size_symbol(s.residue)] = s.step
            by[group_symbol(s.residue)] = 1
    return expression.subs(by) if by else expression
