"""What a stream that a key set governs reads, keeps and computes, exactly, for any sizes.

A group reads, of each box of the key set, the keys from the first to the last that some query of
the group sees. Sums over groups are exact at the borders.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from napkin.count.split_axes import extents
from napkin.derive.kernel import Kernel
from napkin.ir.evaluate import aligned, evaluate
from napkin.ir.key_sets import Interval, query_axes
from napkin.ir.node import Node, postorder, union_axes
from napkin.ir.slotted import lengths
from napkin.keys.hulls import Hull, census, hull
from napkin.keys.residues import Split
from napkin.keys.typical import needed, typical
from napkin.keys.visits import Visits

Array = np.ndarray[Any, Any]
Bind = Mapping[Node, Array]
Settled = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Counted:
    """One box of one kernel, for every tile of the query axes.

    Attributes:
        axes: the query axes that the arrays go over.
        keys: keys from the first to the last that are visited.
        tiles, whole: chunks that are visited, and those among them that every query sees whole.
    """

    axes: tuple[str, ...]
    keys: Array
    tiles: Array
    whole: Array


def counted(
    kernel: Kernel,
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    bind: Bind | None = None,
) -> list[Counted]:
    """What is visited of every box."""
    seen = kernel.visits
    assert seen is not None
    hulls = _hulls(seen, sizes, tiles, bind)
    axes, there = _tiled(kernel, seen), _occupied(seen, sizes, tiles)
    out: list[Counted] = []
    for i, hs in enumerate(hulls):
        counts = [census(h, tiles[a]) for h, a in zip(hs, seen.axes, strict=True)]
        full = [(h.axes, c.full) for h, c in zip(hs, counts, strict=True)]
        whole = _product([*full, *there], axes)
        for earlier in hulls[1 if seen.prefix else 0 : i]:
            whole = np.where(_disjoint(hs, earlier, axes), whole, 0)
        visited = [(h.axes, c.visited) for h, c in zip(hs, counts, strict=True)]
        keys = _product([*((h.axes, h.length) for h in hs), *there], axes)
        out.append(Counted(axes, keys, _product([*visited, *there], axes), whole))
    return out


def _occupied(
    seen: Visits, sizes: Mapping[str, int], tiles: Mapping[str, int]
) -> list[tuple[tuple[str, ...], Array]]:
    """Which tiles of places hold a query of each residue."""
    return [
        ((s.place, s.residue), s.inside(sizes[s.axis])[:: tiles[s.place]].astype(np.int64))
        for s in seen.splits
    ]


def _hulls(
    seen: Visits, sizes: Mapping[str, int], tiles: Mapping[str, int], bind: Bind | None
) -> list[list[Hull]]:
    """The hulls of every box along every key axis, behind a prefix where there is one."""
    out = [[_hull(i, sizes, tiles, bind, seen.splits) for i in box.intervals] for box in seen.boxes]
    if seen.prefix:
        out[1:] = [[_behind(out[0][0], h)] for (h,) in out[1:]]
    return out


def _hull(
    i: Interval,
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    bind: Bind | None,
    splits: tuple[Split, ...],
) -> Hull:
    if bind is None or not any(n.op == "input" for n in postorder([i.first, i.end])):
        return known_hull(i, *settled(i, sizes, tiles, splits))
    return hull(i, sizes, tiles, bind, splits=splits)


def settled(
    i: Interval,
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    splits: tuple[Split, ...] = (),
) -> tuple[tuple[Split, ...], Settled, Settled]:
    """What settles an interval's hull: the splits, the sizes of the axes that its bounds name, and
    the tiles of those whose positions they depend on."""
    named, over = _names(i)
    splits = tuple(s for s in splits if s.place in named)
    if splits:
        named = tuple(sorted({*named, *(a for s in splits for a in (s.axis, s.residue))}))
        over = (*over, *(s.residue for s in splits))
    return splits, tuple((a, sizes[a]) for a in named), tuple((a, tiles[a]) for a in over)


@lru_cache(maxsize=4096)
def _names(i: Interval) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The axes that the bounds of an interval name, and those that they go over."""
    bounds = i.first, i.end
    return tuple(sorted(_named(bounds))), union_axes(bounds)


def _named(terms: Iterable[Node]) -> set[str]:
    """The axes whose positions or sizes terms read, and those of the inputs that they read."""
    terms = tuple(terms)
    read = {a for leaf in needed(terms) for a in leaf.axes}
    return read | {str(n.params[0]) for n in postorder(terms) if n.op in {"index", "size"}}


@lru_cache(maxsize=4096)
def known_hull(i: Interval, splits: tuple[Split, ...], sizes: Settled, tiles: Settled) -> Hull:
    bounds = (i.first, i.end)
    known = dict(sizes)
    keys = max((known[str(n.params[0])] for n in postorder(bounds) if n.op == "size"), default=1)
    one = known | dict.fromkeys(_uniform(i), 1)
    found = hull(i, one, dict(tiles), typical(bounds, one, keys), splits=splits)
    shape = [-(-known[a] // dict(tiles)[a]) for a in found.axes]
    every = found.first, found.end, found.inner_first, found.inner_end
    first, end, inner_first, inner_end = (np.broadcast_to(v, shape) for v in every)
    return Hull(found.axes, first, end, inner_first, inner_end, found.step)


@lru_cache(maxsize=4096)
def _uniform(i: Interval) -> frozenset[str]:
    """The axes along which typical bounds are the same: those of a batch of lengths, of which one
    stands for each."""
    bounds = (i.first, i.end)
    lengths = [leaf for leaf, what in needed(bounds).items() if what.lengths]
    batch = {a for leaf in lengths for a in leaf.axes[:-1]}
    others = {a for leaf in lengths for a in leaf.axes[-1:]}
    others |= {str(n.params[0]) for n in postorder(bounds) if n.op in {"index", "size"}}
    return frozenset((batch - others) & set(union_axes(bounds)))


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


def _product(parts: Iterable[tuple[tuple[str, ...], Array]], axes: Sequence[str]) -> Array:
    out = np.ones([1] * len(axes), dtype=np.int64)
    for held, value in parts:
        out = out * aligned(value, held, axes)
    return out


def _disjoint(a: Sequence[Hull], b: Sequence[Hull], axes: Sequence[str]) -> Array:
    out = np.zeros([1] * len(axes), dtype=bool)
    for x, y in zip(a, b, strict=True):
        for p, q in ((x, y), (y, x)):
            out = out | (aligned(p.end, p.axes, axes) <= aligned(q.first, q.axes, axes))
    return out


def _tiled(kernel: Kernel, seen: Visits) -> tuple[str, ...]:
    """The axes along which groups visit different keys."""
    split = {a for s in seen.splits for a in (s.place, s.residue)}
    return tuple(a for a in kernel.axes if a in query_axes(seen.keys) or a in split)


def total(
    kernel: Kernel,
    value: Array,
    over: Sequence[str],
    carried: Iterable[str],
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
) -> int:
    """The sum over all groups of a number per group.

    `value` has one entry per tile along the axes `over`; it counts for every group, times the
    group's positions along the axes that the array `carried` names.
    """
    carried = set(carried)
    weight = np.broadcast_to(value, [-(-sizes[a] // tiles[a]) for a in over]).astype(
        object if value.dtype == object else np.int64
    )
    for a in over:
        if a in carried:
            weight = weight * extents(a, sizes, tiles, over, kernel.splits)
    out = int(weight.sum())
    for a in kernel.group:
        if a not in over:
            out *= sizes[a] if a in carried else -(-sizes[a] // tiles[a])
    for a in carried - {*over, *kernel.group, *kernel.stream.axes}:
        out *= sizes[a]
    return out


def read(
    kernel: Kernel,
    axes: Sequence[str],
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    bind: Bind | None = None,
    boxed: bool = False,
    past: bool = False,
) -> int:
    """Values of one streamed reading with these axes, in one pass, over all groups; `boxed` where
    the last chunk crosses whole, up to the end of the axis, and `past` where beyond it, too."""
    seen = kernel.visits
    assert seen is not None
    keys = _along(kernel, axes, sizes, tiles, bind, boxed, past)
    return total(kernel, keys, _tiled(kernel, seen), axes, sizes, tiles)


def _along(
    kernel: Kernel,
    axes: Sequence[str],
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    bind: Bind | None,
    boxed: bool,
    past: bool,
) -> Array:
    """Keys read by each group of an array with these axes: along a key axis that the array lacks,
    the same values are read again for every chunk."""
    seen = kernel.visits
    assert seen is not None
    held, there = _tiled(kernel, seen), _occupied(seen, sizes, tiles)
    out: Array = np.zeros([1] * len(held), dtype=np.int64)
    end = {a: sizes[a] + past * tiles[a] for a in seen.axes}  # no box begins past it
    for hs in _hulls(seen, sizes, tiles, bind):
        part = [
            (h.axes, _length(h, tiles[a], end[a], boxed) if a in axes else _iterations(h, tiles[a]))
            for h, a in zip(hs, seen.axes, strict=True)
        ]
        out = out + _product([*part, *there], held)
    return out


def _length(h: Hull, tile: int, size: int, boxed: bool) -> Array:
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
    queries = query_axes(keys)
    shape = [dict(sizes)[a] for a in queries]
    every = _product([(n.axes, v) for n, v in zip(counts, found, strict=True)], queries)
    return int(np.broadcast_to(every, shape).sum())


def chunks(
    kernel: Kernel,
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    group: Mapping[str, int],
    bind: Bind | None = None,
) -> list[tuple[int, dict[str, range]]]:
    """The chunks that one group visits, each with its box, in order; `group` gives the group's
    number along each axis."""
    seen = kernel.visits
    assert seen is not None
    out: list[tuple[int, dict[str, range]]] = []
    if not all(v[group[p], group[r]] for (p, r), v in _occupied(seen, sizes, tiles)):
        return out
    for i, hs in enumerate(_hulls(seen, sizes, tiles, bind)):
        spans: list[range] = []
        for h in hs:
            place = tuple(group.get(q, 0) for q in h.axes)
            spans.append(range(int(h.first[place]), int(h.end[place])))
        cuts = [
            [range(s, min(s + tiles[a], span.stop)) for s in range(span.start, span.stop, tiles[a])]
            for span, a in zip(spans, seen.axes, strict=True)
        ]
        out += [(i, dict(zip(seen.axes, parts, strict=True))) for parts in itertools.product(*cuts)]
    return out
