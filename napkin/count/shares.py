"""Shares of chunks that a key set has visited and tested, for the search: quickly, where what is
visited along each key axis does not depend on the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from napkin.count.visited import Array, Bind, Settled, counted, known_hull, settled
from napkin.derive.kernel import Kernel
from napkin.ir.key_sets import Interval, boxes_of
from napkin.ir.node import Node, union_axes
from napkin.keys.hulls import census
from napkin.keys.residues import Split
from napkin.keys.visits import Visits


def share(
    kernel: Kernel, sizes: Mapping[str, int], tiles: Mapping[str, int], bind: Bind | None = None
) -> tuple[float, float]:
    """Chunks that are visited, and those that need a test, over all chunks there are."""
    seen = kernel.visits
    assert seen is not None
    if bind is None and _separable(seen):
        found = _along_each(seen, sizes, tiles)
        visited, whole = (math.prod(part) for part in list(zip(*found, strict=True))[:2])
        return visited, visited - whole
    boxes = counted(kernel, sizes, tiles, bind)
    every = np.prod([-(-sizes[a] // tiles[a]) for a in seen.axes], dtype=float)
    groups = np.prod([-(-sizes[a] // tiles[a]) for a in boxes[0].axes], dtype=float)
    shape = [-(-sizes[a] // tiles[a]) for a in boxes[0].axes]
    visited = sum(float(np.broadcast_to(b.tiles, shape).sum()) for b in boxes)
    whole = sum(float(np.broadcast_to(b.whole, shape).sum()) for b in boxes)
    scale = max(float(every * groups), 1.0)
    return visited / scale, (visited - whole) / scale


def visiting(
    kernel: Kernel,
    sizes: Mapping[str, int],
    groups: Sequence[Mapping[str, int]],
    chunks: Sequence[Mapping[str, int]],
) -> Array:
    """The visited part of `share` for every group of queries with every chunk of keys, both given
    by their tiles; a row for each group [groups, chunks].

    Where that is a product over the key axes, along each of which tiles are few, it is found once
    for each of these.
    """
    seen = kernel.visits
    assert seen is not None
    ones = dict.fromkeys(kernel.axes, 1)
    if not _separable(seen):
        found = [[share(kernel, sizes, {**ones, **g, **c})[0] for c in chunks] for g in groups]
        return np.reshape(found, (len(groups), len(chunks)))
    out = np.ones((len(groups), len(chunks)))
    for i, a in zip(seen.boxes[0].intervals, seen.axes, strict=True):
        rows: dict[tuple[int, ...], list[float]] = {}
        named = [q for q in union_axes((i.first, i.end)) if q in ones]
        for g, row in zip(groups, out, strict=True):
            own = {**ones, **g}
            at = tuple(own[q] for q in named)
            if at not in rows:
                tiles = [{**own, a: n} for n in dict.fromkeys(c[a] for c in chunks)]
                each = {t[a]: _mean(i, *settled(i, sizes, t), sizes[a], t[a])[0] for t in tiles}
                rows[at] = [each[c[a]] for c in chunks]
            row *= rows[at]
    return out


def longest(kernel: Kernel, sizes: Mapping[str, int], tiles: Mapping[str, int]) -> float:
    """Chunks that the busiest group visits over those of a group on average."""
    seen = kernel.visits
    assert seen is not None
    if _separable(seen):
        return math.prod(part[2] for part in _along_each(seen, sizes, tiles))
    boxes = counted(kernel, sizes, tiles)
    shape = [-(-sizes[a] // tiles[a]) for a in boxes[0].axes]
    every = sum(np.broadcast_to(b.tiles, shape).astype(float) for b in boxes)
    mean = float(np.mean(every))
    return float(np.max(every)) / mean if mean else 1.0


def _along_each(
    seen: Visits, sizes: Mapping[str, int], tiles: Mapping[str, int]
) -> list[tuple[float, float, float]]:
    return [
        _mean(i, *settled(i, sizes, tiles), sizes[a], tiles[a])
        for i, a in zip(seen.boxes[0].intervals, seen.axes, strict=True)
    ]


def _separable(seen: Visits) -> bool:
    """Whether what is visited is a product of what is visited along each key axis."""
    return not seen.splits and len(seen.boxes) == 1 and _independent(seen.keys)


@lru_cache(maxsize=4096)
def _independent(keys: Node) -> bool:
    """Whether no two intervals of a box depend on one query axis."""
    (box,) = boxes_of(keys)
    named = [a for i in box.intervals for a in union_axes((i.first, i.end))]
    return len(named) == len(set(named))


@lru_cache(maxsize=65536)
def _mean(
    i: Interval, splits: tuple[Split, ...], sizes: Settled, tiles: Settled, size: int, tile: int
) -> tuple[float, float, float]:
    """Chunks of one key axis that a group visits, and those seen whole, over all chunks of it; and
    the most that a group visits over the mean."""
    found = census(known_hull(i, splits, sizes, tiles), tile)
    every = max(-(-size // tile), 1)
    if not found.visited.size or not found.visited.any():
        return 0.0, 0.0, 1.0
    mean = float(found.visited.mean())
    return mean / every, float(found.full.mean()) / every, float(found.visited.max()) / mean
