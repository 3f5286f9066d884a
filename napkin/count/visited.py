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
from napkin.count.window_images import pairs, reading
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
    both, single = _padded(slides, sizes, {*over, *seen.axes})
    paired = {a for s in both for a in (s.out, s.tap)}
    every = [
        _tile_sums(a, single[a], tiles)
        if a in single
        else extents(a, sizes, tiles, over, kernel.splits)
        for a in over
        if a in axes and a not in paired
    ]
    every += occupied(seen, sizes, tiles)
    end = {a: sizes[a] + past * tiles[a] for a in seen.axes}  # no box begins past it
    out = 0
    for hs in hulls(seen, sizes, tiles, bind):
        spans = {a: (h.axes, *_within(h)) for h, a in zip(hs, seen.axes, strict=True)}
        # Along a key axis that the array lacks, the same values are read again for every chunk.
        keys = [
            (h.axes, _values(h, tiles[a], end[a], boxed, single.get(a)))
            if a in axes
            else (h.axes, _iterations(h, tiles[a]))
            for h, a in zip(hs, seen.axes, strict=True)
            if a not in paired
        ]
        ends = {a: spans.get(a) or _tiles(a, sizes, tiles) for a in paired}
        joint = [_read_pairs(s, sizes, ends[s.out], ends[s.tap]) for s in both]
        out += summed([*keys, *joint, *every], over)
    out *= math.prod([-(-sizes[a] // tiles[a]) for a in {*kernel.group} - {*over, *axes}])
    rest = {*axes} - {*over, *seen.axes}
    return out * math.prod([int(single[a].sum()) if a in single else sizes[a] for a in rest])


def _padded(
    slides: Sequence[Slide], sizes: Mapping[str, int], visited: Collection[str]
) -> tuple[list[Slide], dict[str, Array]]:
    """The padded windows of which groups visit windows and taps, and of the others how many values
    each position along an axis has: along the one of the two that groups visit, or else of taps,
    what is read there, and along the other one."""
    both, out = [], dict[str, Array]()
    for s in slides:
        if any(s.beyond) and {s.out, s.tap} <= {*visited}:
            both.append(s)
        elif any(s.beyond):
            axis, other = (s.out, s.tap) if s.out in visited else (s.tap, s.out)
            out[axis] = reading(s, sizes[s.axis], axis, sizes[axis], sizes[other])
            out[other] = np.ones(1, np.int64)
    return both, out


def _tile_sums(axis: str, each: Array, tiles: Mapping[str, int]) -> Factor:
    return (axis,), np.add.reduceat(each, np.arange(0, len(each), tiles[axis]))


Bounds = tuple[tuple[str, ...], Array, Array]
"""Axes, and from where to where a group's positions reach, for each position along them."""


def _tiles(axis: str, sizes: Mapping[str, int], tiles: Mapping[str, int]) -> Bounds:
    starts = np.arange(0, sizes[axis], tiles[axis])
    return (axis,), starts, np.minimum(starts + tiles[axis], sizes[axis])


def _read_pairs(s: Slide, sizes: Mapping[str, int], windows: Bounds, taps: Bounds) -> Factor:
    """How many pairs of a window and a tap within these reach read the tensor, and no padding."""
    of, *ends = taps
    ends, which = np.unique(np.stack(ends), return_inverse=True)
    table = pairs(s, sizes[s.axis], sizes[s.out], tuple(ends.tolist()))
    axes = tuple(dict.fromkeys((*windows[0], *of)))
    p0, p1 = (aligned(x, windows[0], axes) for x in windows[1:])
    w0, w1 = (aligned(x, of, axes) for x in which.reshape(2, *taps[1].shape))
    return axes, table[p1, w1] - table[p0, w1] - table[p1, w0] + table[p0, w0]


def _within(h: Hull) -> tuple[Array, Array]:
    """From where to where a hull reaches, within the axis where it is empty, too."""
    end = np.maximum(h.end, 0)
    return np.minimum(h.first, end), end


def _values(h: Hull, tile: int, size: int, boxed: bool, each: Array | None) -> Array:
    if each is not None:
        upto = np.concatenate([[0], np.cumsum(each)])
        first, end = _within(h)
        return upto[end] - upto[first]
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
