"""Shares of chunks that a key set has visited and tested, for the search: quickly, since what is
visited along key axes whose hulls share no query axis is a product."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from napkin.count.factors import Array, Factor, joined, most, summed_outside
from napkin.count.typical_hulls import Settled
from napkin.count.visited import hulls, occupied, reach, settles
from napkin.derive.kernel import Kernel
from napkin.ir.evaluate import aligned
from napkin.ir.key_sets import boxes_of
from napkin.ir.node import Node
from napkin.keys.hulls import Hull, census
from napkin.keys.residues import Split
from napkin.keys.visits import Visits

KINDS = 2**20
"""Kinds of groups among which the busiest is looked for, at most."""


@dataclass(frozen=True)
class Cell:
    """Key axes of a box whose hulls share query axes.

    Attributes:
        keys: the key axes.
        queries: the axes of whose tiles they depend.
        sizes: the axes whose sizes settle them, too.
    """

    keys: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()

    def settled(
        self, sizes: Mapping[str, int], tiles: Mapping[str, int]
    ) -> tuple[Settled, Settled]:
        """The sizes and the tiles that settle what is visited."""
        cut = (*self.keys, *self.queries)
        return tuple((a, sizes[a]) for a in self.sizes), tuple((a, tiles[a]) for a in cut)


@dataclass(frozen=True)
class Share:
    """Of the chunks along the key axes of a cell, those that a group visits on average, and those
    that its queries see whole; and what the busiest group visits over the average."""

    visited: float
    whole: float
    longest: float


def share(
    kernel: Kernel, sizes: Mapping[str, int], tiles: Mapping[str, int]
) -> tuple[float, float]:
    """Chunks that are visited, and those that need a test, over all chunks there are."""
    seen = kernel.visits
    assert seen is not None
    visited = whole = 0.0
    for box, cells in enumerate(_cells(seen.keys, seen.splits)):
        found = [_share(seen.keys, seen.splits, box, c, *c.settled(sizes, tiles)) for c in cells]
        visited += math.prod([x.visited for x in found])
        alone = box <= seen.prefix  # no box before it can have its keys
        whole += math.prod([x.whole for x in found]) if alone else _beside(seen, box, sizes, tiles)
    return visited, visited - whole


def visiting(
    kernel: Kernel,
    sizes: Mapping[str, int],
    groups: Sequence[Mapping[str, int]],
    chunks: Sequence[Mapping[str, int]],
) -> Array:
    """The visited part of `share` for every group of queries with every chunk of keys, both given
    by their tiles; a row for each group [groups, chunks]. Along the axes of a cell tiles are few:
    what is visited is found once for each of these."""
    seen = kernel.visits
    assert seen is not None
    ones = dict.fromkeys(kernel.axes, 1)
    out = np.zeros((len(groups), len(chunks)))
    for box, cells in enumerate(_cells(seen.keys, seen.splits)):
        part = np.ones_like(out)
        for cell in cells:
            rows: dict[tuple[int, ...], list[float]] = {}
            at = [tuple(c.get(a, 1) for a in cell.keys) for c in chunks]
            for g, row in zip(groups, part, strict=True):
                own = {**ones, **g}
                here = tuple(own[q] for q in cell.queries)
                if here not in rows:
                    each: dict[tuple[int, ...], float] = {}
                    for c in dict.fromkeys(at):
                        tiles = {**own, **dict(zip(cell.keys, c, strict=True))}
                        settled = cell.settled(sizes, tiles)
                        each[c] = _share(seen.keys, seen.splits, box, cell, *settled).visited
                    rows[here] = [each[c] for c in at]
                row *= rows[here]
        out += part
    return out


def positions(kernel: Kernel, sizes: Mapping[str, int]) -> int:
    """Positions of the largest array that counts chunks which a key set has visited, in tiles of
    one query; 1 where all chunks are."""
    seen = kernel.visits
    together: list[set[str]] = []  # axes that an array carries in some box
    for cell in (c for cells in _cells(seen.keys, seen.splits) for c in cells) if seen else ():
        near = [axes for axes in together if not axes.isdisjoint(cell.queries)]
        together = [axes for axes in together if axes not in near]
        together.append(set(cell.queries).union(*near))
    return max((math.prod([sizes[a] for a in axes]) for axes in together), default=1)


def longest(kernel: Kernel, sizes: Mapping[str, int], tiles: Mapping[str, int]) -> float:
    """Chunks that the busiest group visits over those of a group on average. It is an upper bound
    where groups are of more than `KINDS` kinds (see `napkin.count.factors.most`)."""
    seen = kernel.visits
    assert seen is not None
    boxes = _cells(seen.keys, seen.splits)
    if len(boxes) > 1:
        cell = _together(c for cells in boxes for c in cells)
        return _longest(seen.keys, seen.splits, *cell.settled(sizes, tiles))
    found = [_share(seen.keys, seen.splits, 0, c, *c.settled(sizes, tiles)) for c in boxes[0]]
    return math.prod([x.longest for x in found])


# --- the cells of a key set ---------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _cells(keys: Node, splits: tuple[Split, ...]) -> list[list[Cell]]:
    """The cells of every box."""
    seen = Visits(keys, boxes_of(keys), splits)
    out: list[list[Cell]] = []
    for box in seen.boxes:
        cells: list[Cell] = []
        parts = [Cell((), (s.place, s.residue), (s.axis, s.place, s.residue)) for s in splits]
        for a, i in zip(seen.axes, box.intervals, strict=True):
            before = seen.boxes[0].intervals if seen.prefix else ()
            found = [settles(x, splits) for x in (i, *before)]
            parts.append(
                _together(Cell((a,), over, (a, *named, *over)) for _, named, over in found)
            )
        for part in parts:
            near = [c for c in cells if not set(c.queries).isdisjoint(part.queries)]
            cells = [c for c in cells if set(c.queries).isdisjoint(part.queries)]
            cells.append(_together([*near, part]))
        out.append(cells)
    return out


def _together(cells: Iterable[Cell]) -> Cell:
    parts = zip(*((c.keys, c.queries, c.sizes) for c in cells), strict=True)
    return Cell(*(tuple(dict.fromkeys(a for axes in of for a in axes)) for of in parts))


@lru_cache(maxsize=65536)
def _share(
    keys: Node, splits: tuple[Split, ...], box: int, cell: Cell, sizes: Settled, tiles: Settled
) -> Share:
    known, cut = dict(sizes), dict(tiles)
    seen = Visits(keys, boxes_of(keys), tuple(s for s in splits if s.place in cell.queries))
    along = [i for i, a in enumerate(seen.axes) if a in cell.keys]
    counted = [(h := reach(seen, box, i, known, cut), census(h, cut[seen.axes[i]])) for i in along]
    there = occupied(seen, known, cut)
    visited = joined([*((h.axes, c.visited) for h, c in counted), *there])
    whole = joined([*((h.axes, c.full) for h, c in counted), *there])
    mean, full = (math.prod([_mean(value) for _, value in x]) for x in (visited, whole))
    busiest = math.prod([float(value.max(initial=0)) for _, value in visited])
    every = _every(cell.keys, known, cut)
    return Share(mean / every, full / every, busiest / mean if mean else 1.0)


def _mean(value: Array) -> float:
    return float(value.mean()) if value.size else 0.0


def _every(axes: Iterable[str], sizes: Mapping[str, int], tiles: Mapping[str, int]) -> int:
    """Chunks along some axes; 1 where there are none."""
    return math.prod([max(-(-sizes[a] // tiles[a]), 1) for a in axes])


# --- boxes that reach the same keys -------------------------------------------------------------


def _beside(seen: Visits, box: int, sizes: Mapping[str, int], tiles: Mapping[str, int]) -> float:
    """Chunks of a box that every query sees whole and no box before it reaches, over all chunks."""
    cell = _together(c for cells in _cells(seen.keys, seen.splits) for c in cells)
    return _outside(seen.keys, seen.splits, box, cell.queries, *cell.settled(sizes, tiles))


@lru_cache(maxsize=4096)
def _outside(
    keys: Node,
    splits: tuple[Split, ...],
    box: int,
    queries: tuple[str, ...],
    sizes: Settled,
    tiles: Settled,
) -> float:
    known, cut = dict(sizes), dict(tiles)
    seen = Visits(keys, boxes_of(keys), splits)
    over = {q: -(-known[q] // cut[q]) for q in queries}
    *before, own = hulls(seen, known, cut)[: box + 1]
    full = [(h.axes, census(h, cut[a]).full) for h, a in zip(own, seen.axes, strict=True)]
    others = [
        [_overlap(h, x) for h, x in zip(own, other, strict=True)] for other in before[seen.prefix :]
    ]
    found = summed_outside([*full, *occupied(seen, known, cut)], others, over)
    return found / max(math.prod(over.values()), 1) / _every(seen.axes, known, cut)


def _overlap(a: Hull, b: Hull) -> Factor:
    """Where the hulls of two boxes have a key in common along an axis."""
    axes = tuple(dict.fromkeys((*a.axes, *b.axes)))
    (begin, end), (first, last) = (
        [aligned(v, h.axes, axes) for v in (h.first, h.end)] for h in (a, b)
    )
    return axes, (end > first) & (last > begin)


@lru_cache(maxsize=4096)
def _longest(keys: Node, splits: tuple[Split, ...], sizes: Settled, tiles: Settled) -> float:
    known, cut = dict(sizes), dict(tiles)
    seen = Visits(keys, boxes_of(keys), splits)
    there = occupied(seen, known, cut)
    boxes = [
        [*((h.axes, census(h, cut[a]).visited) for h, a in zip(hs, seen.axes, strict=True)), *there]
        for hs in hulls(seen, known, cut)
    ]
    mean = sum(math.prod([_mean(value) for _, value in joined(b)]) for b in boxes)
    return most(boxes, KINDS) / mean if mean else 1.0
