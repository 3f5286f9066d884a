"""What a stream that a key set governs reads, keeps and computes, exactly, for any sizes.

A group reads, of each box of the key set, the keys from the first to the last that some query of
the group sees. Sums over groups are exact at the borders.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

import numpy as np

from napkin.count.factors import Array, Factor, summed
from napkin.count.split_axes import extents
from napkin.count.typical_hulls import known_hull
from napkin.count.window_images import reading
from napkin.derive.kernel import Kernel
from napkin.ir.evaluate import aligned, evaluate
from napkin.ir.key_sets import Interval, query_axes
from napkin.ir.node import Node, postorder, union_axes
from napkin.ir.slotted import lengths
from napkin.ir.windows import Slide
from napkin.keys.hulls import Hull, census, hull
from napkin.keys.residues import Split
from napkin.keys.typical import needed
from napkin.keys.visits import Visits

Bind = Mapping[Node, Array]


def occupied(seen: Visits, sizes: Mapping[str, int], tiles: Mapping[str, int]) -> list[Factor]:
    """Which tiles of places hold a query of each residue."""
    return [((s.place, s.residue), s.inside(sizes[s.axis])[:: tiles[s.place]]) for s in seen.splits]


def hulls(
    seen: Visits, sizes: Mapping[str, int], tiles: Mapping[str, int], bind: Bind | None = None
) -> list[list[Hull]]:
    """The hulls of every box along every key axis."""
    return [
        [reach(seen, box, i, sizes, tiles, bind) for i in range(len(seen.axes))]
        for box in range(len(seen.boxes))
    ]


def reach(
    seen: Visits,
    box: int,
    i: int,
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    bind: Bind | None = None,
) -> Hull:
    """The hull of a box along one key axis, behind a prefix where there is one."""

    def of(b: int) -> Hull:
        return _hull(
            seen.boxes[b].intervals[i], sizes[seen.axes[i]], sizes, tiles, bind, seen.splits
        )

    return _behind(of(0), of(box)) if seen.prefix and box else of(box)


def _hull(
    i: Interval,
    keys: int,
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    bind: Bind | None,
    splits: tuple[Split, ...],
) -> Hull:
    reads = any(n.op == "input" for n in postorder([i.first, i.end]))
    if bind is None or not reads:
        splits, sized, tiled = settles(i, splits)
        own = tuple((a, sizes[a]) for a in sized), tuple((a, tiles[a]) for a in tiled)
        return known_hull(i, splits, keys if reads else 0, *own)
    return hull(i, sizes, tiles, bind, splits=splits)


@lru_cache(maxsize=4096)
def settles(
    i: Interval, splits: tuple[Split, ...]
) -> tuple[tuple[Split, ...], tuple[str, ...], tuple[str, ...]]:
    """What settles an interval's hull: the splits, the axes of which the sizes do, which its bounds
    name, and those of which the tiles do, on whose positions they depend."""
    bounds = i.first, i.end
    named, over = _named(bounds), union_axes(bounds)
    splits = tuple(s for s in splits if s.place in named)
    named |= {a for s in splits for a in (s.axis, s.residue)}
    over = (*over, *(s.residue for s in splits))
    return splits, tuple(sorted(named)), tuple(dict.fromkeys(over))


def _named(bounds: Sequence[Node]) -> set[str]:
    """The axes whose positions or sizes bounds read, and those of the inputs that they read."""
    read = {a for leaf in needed(bounds) for a in leaf.axes}
    return read | {str(n.params[0]) for n in postorder(bounds) if n.op in {"index", "size"}}


def _behind(first: Hull, h: Hull) -> Hull:
    """A box that begins behind a prefix of the keys."""
    axes = tuple(dict.fromkeys((*h.axes, *first.axes)))

    def of(x: Hull, value: Array) -> Array:
        return aligned(value, x.axes, axes)

    begin = np.maximum(of(h, h.first), of(first, first.end))
    shape = np.broadcast_shapes(begin.shape, of(h, h.end).shape)

    def whole(value: Array) -> Array:
        return np.broadcast_to(of(h, value), shape)

    least = np.broadcast_to(begin, shape)
    return Hull(axes, least, whole(h.end), whole(h.inner_first), whole(h.inner_end), h.step)


def read(
    kernel: Kernel,
    axes: Sequence[str],
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    bind: Bind | None = None,
    boxed: bool = False,
    past: bool = False,
    slides: Sequence[Slide] = (),
) -> int:
    """Values of one streamed reading with these axes, in one pass, over all groups; `boxed` where
    the last chunk crosses whole, up to the end of the axis, and `past` where beyond it, too. Of
    windows, `slides`, what lies in the padding does not cross."""
    seen = kernel.visits
    assert seen is not None
    # The axes along which groups visit different keys.
    differ = {*query_axes(seen.keys), *(a for s in seen.splits for a in (s.place, s.residue))}
    over = {a: -(-sizes[a] // tiles[a]) for a in kernel.axes if a in differ}
    padded = _padded(slides, sizes, {*over, *seen.axes})
    every = [
        _tile_sums(a, padded[a], tiles)
        if a in padded
        else extents(a, sizes, tiles, over, kernel.splits)
        for a in over
        if a in axes
    ]
    every += occupied(seen, sizes, tiles)
    end = {a: sizes[a] + past * tiles[a] for a in seen.axes}  # no box begins past it
    out = 0
    for hs in hulls(seen, sizes, tiles, bind):
        # Along a key axis that the array lacks, the same values are read again for every chunk.
        keys = [
            (h.axes, _values(h, tiles[a], end[a], boxed, padded.get(a)))
            if a in axes
            else (h.axes, _iterations(h, tiles[a]))
            for h, a in zip(hs, seen.axes, strict=True)
        ]
        out += summed([*keys, *every], over)
    out *= math.prod([-(-sizes[a] // tiles[a]) for a in {*kernel.group} - {*over, *axes}])
    rest = {*axes} - {*over, *seen.axes}
    return out * math.prod([int(padded[a].sum()) if a in padded else sizes[a] for a in rest])


def _padded(
    slides: Sequence[Slide], sizes: Mapping[str, int], visited: Collection[str]
) -> dict[str, Array]:
    """How many values each position along an axis of padded windows has: along the one of windows
    and taps that groups visit, or else of taps, what is read there, and along the other one."""
    out: dict[str, Array] = {}
    for s in slides:
        if any(s.beyond):
            by_windows = s.out in visited and s.tap not in visited
            axis, other = (s.out, s.tap) if by_windows else (s.tap, s.out)
            out[axis] = reading(s, sizes[s.axis], axis, sizes[axis], sizes[other])
            out[other] = np.ones(1, np.int64)
    return out


def _tile_sums(axis: str, each: Array, tiles: Mapping[str, int]) -> Factor:
    return (axis,), np.add.reduceat(each, np.arange(0, len(each), tiles[axis]))


def _values(h: Hull, tile: int, size: int, boxed: bool, each: Array | None) -> Array:
    if each is not None:
        upto = np.concatenate([[0], np.cumsum(each)])
        return upto[np.maximum(h.end, h.first)] - upto[h.first]
    return (
        np.minimum(_iterations(h, tile) * tile, np.maximum(size - h.first, 0))
        if boxed
        else h.length
    )


def _iterations(h: Hull, tile: int) -> Array:
    return census(h, tile).visited


def members(keys: Node, axes: Collection[str], sizes: Mapping[str, int]) -> int:
    """Keys of a key set of one box, summed over all positions of `axes`, which hold its queries."""
    count = _members(keys, tuple(sorted((a, sizes[a]) for a in _named(keys.args))))
    return count * math.prod(sizes[a] for a in axes if a not in query_axes(keys))


@lru_cache(maxsize=4096)
def _members(keys: Node, sizes: tuple[tuple[str, int], ...]) -> int:
    counts = lengths(keys)
    found = evaluate(counts, {}, dict(sizes))
    known = dict(sizes)
    every = [
        (n.axes, np.broadcast_to(v, [known[a] for a in n.axes]))
        for n, v in zip(counts, found, strict=True)
    ]
    return summed(every, {a: known[a] for a in query_axes(keys)})
