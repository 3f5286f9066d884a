"""What the queries of a tile see where the inputs of a key set are not known, to plan with.

Bounds are evaluated with typical inputs (`napkin.keys.typical`). Large bounds are evaluated at some
positions only. One member of a batch stands for all members. Along two axes that no input has, one
tile in the middle stands for all tiles. Along one long axis, runs of queries stand for the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from napkin.ir.key_sets import Interval
from napkin.ir.node import postorder, union_axes
from napkin.keys.hulls import Array, Hull, coarser, hull
from napkin.keys.residues import Split
from napkin.keys.typical import needed, typical

Settled = tuple[tuple[str, int], ...]

DRAWN = 2**20
"""Places that are drawn for an input whose values are not known, at most: others are like these."""

PIECES = 2**18
"""Pieces along several axes whose starts and ends are told apart, at most."""

TOLD = 2**14
"""Pairs of positions whose bounds are told apart at most, where they read inputs: a search for each
pair takes 0.1 s for so many."""

EVALUATED = 2**22
"""Values of all terms that bounds are computed of, such as documents times queries, at most: a
search has some 300 terms for each query."""

STRETCHES = 16
"""Parts of a longer axis, at most, of which the first queries stand for all."""

RUN = 256
"""A run has a multiple of so many queries, so that tiles of up to 256 queries begin with it."""

FINE = 16
"""Queries of a tile of which larger tiles are made: bounds for each pair of positions take long to
evaluate."""


@lru_cache(maxsize=4096)
def known_hull(
    i: Interval, splits: tuple[Split, ...], keys: int, sizes: Settled, tiles: Settled
) -> Hull:
    """The hull of every tile, in keys; an axis whose tiles are all alike has one of them.

    Args:
        keys: the length of the key axis; 0 where the bounds read no input.
        sizes, tiles: of the axes on which the hull depends (`napkin.count.visited.settles`).
    """
    known, alike = dict(sizes), {*_uniform(i, sizes), *_middle(i, splits, sizes, tiles)}
    found = _typical_hull(i, splits, keys, sizes, tiles)
    groups = {a: -(-known[a] // dict(tiles)[a]) for a in found.axes}
    shape = [min(n, 1) if a in alike else n for a, n in groups.items()]
    every = found.first, found.end, found.inner_first, found.inner_end
    first, end, inner_first, inner_end = (np.broadcast_to(v, shape) for v in every)
    return Hull(found.axes, first, end, inner_first, inner_end, found.step)


@lru_cache(maxsize=4096)
def _typical_hull(
    i: Interval, splits: tuple[Split, ...], keys: int, sizes: Settled, tiles: Settled
) -> Hull:
    """The hull of typical bounds, of which one stands for all that are alike."""
    box = _middle(i, splits, sizes, tiles)
    long = {a: n for a, n in tiles if n > FINE and a not in box}
    if long and not splits and not any(RUN % n for n in long.values()):
        fine = tuple((a, FINE if a in long else n) for a, n in tiles)
        by = {a: n // FINE if a in long else 1 for a, n in tiles}
        return coarser(_typical_hull(i, splits, keys, sizes, fine), by)
    one, cut = dict(sizes) | dict.fromkeys(_uniform(i, sizes), 1), dict(tiles)
    axis, runs, length = _runs(i, splits, one, cut, box)
    if not runs:
        return hull(i, one, cut, typical((i.first, i.end), one, keys), splits, box)
    each, by = {**cut, axis: 1}, {a: n if a == axis else 1 for a, n in tiles}
    known = tuple(tuple(x.items()) for x in (one, each, box))
    found = [coarser(h, by) for h in _of_runs(i, keys, *known, axis, tuple(runs))]
    tile, at = cut[axis], found[0].axes.index(axis)
    ends = [min(run.start + length, one[axis]) for run in runs]
    tiled = [-(-(end - run.start) // tile) for end, run in zip(ends, runs, strict=True)]
    every = ((h.first, h.end, h.inner_first, h.inner_end) for h in found)
    parts = ([_first(v, n, at) for v in of] for of, n in zip(every, tiled, strict=True))
    first, end, inner_first, inner_end = (
        np.concatenate(v, axis=at) for v in zip(*parts, strict=True)
    )
    return Hull(found[0].axes, first, end, inner_first, inner_end, found[0].step)


@lru_cache(maxsize=16)
def _of_runs(
    i: Interval,
    keys: int,
    sizes: Settled,
    tiles: Settled,
    box: tuple[tuple[str, range], ...],
    axis: str,
    runs: tuple[range, ...],
) -> list[Hull]:
    """The hulls of runs of queries, one by one along `axis`: those of its tiles are made of them.
    They have few values, for which runs are chosen."""
    one, cut = dict(sizes), dict(tiles)
    values = typical((i.first, i.end), one, keys)
    return [hull(i, one, cut, values, (), {**dict(box), axis: run}) for run in runs]


def _first(v: Array, n: int, at: int) -> Array:
    """The first `n` values along an axis of an array that repeats."""
    again = np.concatenate([v] * -(-n // v.shape[at]), axis=at)
    return again[(slice(None),) * at + (slice(n),)]


def _runs(
    i: Interval,
    splits: tuple[Split, ...],
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    box: Mapping[str, range],
) -> tuple[str, list[range], int]:
    """The longest axis that no input has, the first queries of each of its stretches, where bounds
    are computed of more than `EVALUATED` values, and the number of queries of a stretch."""
    inputs, order = needed((i.first, i.end)), list(postorder((i.first, i.end)))
    own = {*union_axes((i.first, i.end))} - {*box}.union(*(leaf.axes for leaf in inputs))
    if not (own and inputs) or splits:
        return "", [], 0
    lengths = {**sizes, **{a: len(r) for a, r in box.items()}}
    most = sum(math.prod([lengths[a] for a in n.axes]) for n in order)
    axis = max(sorted(own), key=lengths.__getitem__)
    step = -(-RUN // tiles[axis]) * tiles[axis]
    told = EVALUATED * sizes[axis] // max(most, 1)
    stretches = min(max(told // step, 1), STRETCHES)
    stretch = -(-sizes[axis] // (stretches * step)) * step
    run = max(told // (stretches * step), 1) * step
    if most <= EVALUATED or run >= stretch:
        return "", [], 0
    begins = range(0, sizes[axis], stretch)
    return axis, [range(b, min(b + run, sizes[axis])) for b in begins], stretch


def _middle(
    i: Interval, splits: tuple[Split, ...], sizes: Settled, tiles: Settled
) -> dict[str, range]:
    """The positions of a tile in the middle of each axis of which one tile stands for all: where
    bounds that read inputs are of more than `TOLD` pairs, the first axes that no input has."""
    inputs, known = needed((i.first, i.end)), dict(sizes)
    own = [a for a in union_axes((i.first, i.end)) if a not in _uniform(i, sizes)]
    found = dict[str, range]()
    for a in own if inputs and len(own) > 1 and not splits else ():
        pairs = math.prod([len(found[b]) if b in found else known[b] for b in own])
        last = a == own[-1] and len(found) < len(own) - 1
        if pairs > TOLD and not last and not any(a in leaf.axes for leaf in inputs):
            tile = dict(tiles)[a]
            begin = known[a] // tile // 2 * tile
            found[a] = range(begin, min(begin + tile, known[a]))
    return found


@lru_cache(maxsize=4096)
def _uniform(i: Interval, sizes: Settled) -> frozenset[str]:
    """The axes along which typical bounds are the same. One of a batch of lengths stands for each.
    Of more than `DRAWN` places, the first axes are such, and of starts and ends of more than
    `PIECES`, all that have to be but the last one."""
    bounds, known = (i.first, i.end), dict(sizes)
    inputs = needed(bounds)
    lengths = [leaf for leaf, of in inputs.items() if of.what == "lengths"]
    batch = {a for leaf in lengths for a in leaf.axes[:-1]}
    for leaf, of in inputs.items():
        most, least = (DRAWN, 0) if of.what == "places" else (PIECES, 1)
        left = list(leaf.axes) if of.what != "lengths" else []
        while len(left) > least and math.prod([known[a] for a in left]) > most:
            batch.add(left.pop(0))
    others = {a for leaf in lengths for a in leaf.axes[-1:]}
    others |= {str(n.params[0]) for n in postorder(bounds) if n.op in {"index", "size"}}
    return frozenset((batch - others) & set(union_axes(bounds)))
