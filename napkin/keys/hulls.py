"""What the queries of a tile see together: the hull of their intervals, and their intersection.

Everything is exact, tile by tile, the ragged last tile included; the bounds are those of the key
set's node, evaluated for every query once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from napkin.ir.evaluate import aligned, aligned_to, evaluate
from napkin.ir.key_sets import Interval
from napkin.ir.node import Node, union_axes
from napkin.keys.residues import Split

Array = np.ndarray[Any, Any]

_FAR = 2**62
"""A key that no axis has."""


@dataclass(frozen=True, eq=False)
class Hull:
    """An interval's reach for every tile of queries, in keys.

    Attributes:
        axes: the query axes that it depends on; the arrays have one entry per tile along each.
        first, end: the least and one past the greatest key that some query of the tile sees.
        inner_first, inner_end: what every query of the tile sees; empty where they cross.
        step: the interval's step; from 2 on no run of keys is seen whole.
    """

    axes: tuple[str, ...]
    first: Array
    end: Array
    inner_first: Array
    inner_end: Array
    step: int

    @cached_property
    def length(self) -> Array:
        """Keys from the first to the last that some query sees."""
        return np.maximum(self.end - self.first, 0)

    def aligned(self, tile: int, size: int) -> Hull:
        """The same reach widened to a grid of tiles of `tile` keys that begins at key 0."""
        first = self.first // tile * tile
        end = np.minimum(-(-self.end // tile) * tile, size)
        end = np.where(self.end > self.first, end, first)
        return Hull(self.axes, first, end, self.inner_first, self.inner_end, self.step)


def hull(
    interval: Interval,
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    bind: Mapping[Node, Array] | None = None,
    splits: Sequence[Split] = (),
    box: Mapping[str, range] | None = None,
) -> Hull:
    """The hull of one interval for tiles of `tiles[a]` queries along each query axis `a`.

    `bind` gives the inputs that the bounds read, where they read any; `splits` says which axes are
    places within a residue: a tile without a query there sees nothing. `box` gives the queries
    along an axis, if they are not all.
    """
    axes = union_axes((interval.first, interval.end))
    splits = [s for s in splits if s.place in axes]
    axes = tuple(dict.fromkeys((*axes, *(s.residue for s in splits))))
    starts, ends = evaluate([interval.first, interval.end], bind or {}, sizes, box=box)
    held = {a: range(sizes[a]) for a in axes} | dict(box or {})
    lows = aligned_to(starts, interval.first.axes, axes, held)
    highs = aligned_to(ends, interval.end.axes, axes, held)
    found = [lows, highs, lows, highs]
    for s in splits:
        there = aligned(s.inside(sizes[s.axis]), (s.place, s.residue), axes)
        none = (_FAR, -_FAR, -_FAR, _FAR)
        found = [np.where(there, v, other) for v, other in zip(found, none, strict=True)]
    found = _by_tiles(found, axes, tiles)
    if splits:
        found = [np.where(np.abs(found[0]) == _FAR, 0, v) for v in found]
    first, end, inner_first, inner_end = found
    return Hull(axes, first, end, inner_first, inner_end, interval.step)


def coarser(h: Hull, by: Mapping[str, int]) -> Hull:
    """The reach of tiles that are each `by[a]` tiles of `h` along each axis `a`, of which none is
    without a query."""
    found = [h.first, h.end, h.inner_first, h.inner_end]
    first, end, inner_first, inner_end = _by_tiles(found, h.axes, by)
    return Hull(h.axes, first, end, inner_first, inner_end, h.step)


def _by_tiles(
    found: Sequence[Array], axes: Sequence[str], tiles: Mapping[str, int]
) -> Sequence[Array]:
    """The least first, the greatest end, the greatest first and the least end of each tile."""
    least, most = np.minimum.reduceat, np.maximum.reduceat
    # The last axis first, along which values lie side by side: along others numpy takes 40 times
    # as long for each, of which fewer are left then.
    for at, a in reversed([*enumerate(axes)]):
        if tiles[a] == 1 or found[0].shape[at] == 1:
            continue
        cuts = np.arange(0, found[0].shape[at], tiles[a])
        picks = zip((least, most, most, least), found, strict=True)
        found = [pick(v, cuts, axis=at) for pick, v in picks]
    return found


@dataclass(frozen=True, eq=False)
class Census:
    """Tiles of keys that each tile of queries visits along one key axis."""

    visited: Array
    full: Array


def census(h: Hull, tile: int) -> Census:
    """How many tiles of `tile` keys are visited from the hull's first key on, and how many of them
    every query sees whole."""
    visited = -_floored(-h.length, tile)
    if h.step > 1:
        return Census(visited, np.zeros_like(visited))
    before = -_floored(-np.maximum(h.inner_first - h.first, 0), tile)
    upto = _floored(np.maximum(np.minimum(h.inner_end, h.end) - h.first, 0), tile)
    return Census(visited, np.maximum(upto - before, 0))


def _floored(x: Array, tile: int) -> Array:
    """`x // tile`; numpy shifts integers ten times as fast as it divides them."""
    shifts = x.dtype.kind == "i" and not tile & (tile - 1)
    return x >> (tile.bit_length() - 1) if shifts else x // tile
