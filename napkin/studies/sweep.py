"""Every stride and every tile of a neighborhood attention problem, ranked.

Axes multiply, so each axis is counted once for each of its strides and tiles, and the grid of all
problems is products of those counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from napkin.errors import InputError
from napkin.ir.whole_numbers import whole
from napkin.keys.neighbors import PerAxis, PerAxisFlag, Window
from napkin.studies.simulator import (
    Counts,
    Simulation,
    axis_tiles,
    check_run,
    problem_of,
    simulate,
    tile_of,
)

Q_TOKENS, KV_TOKENS = 256, 128
"""Tokens of the tiles that are tried where none is given: those of Hassani et al.'s kernels."""

EVERY_STRIDE = 128
"""Windows up to this length are tried with all strides; longer ones with those of `strides_of`."""

MAX_PROBLEMS = 2**23
"""Strides of all axes together that one sweep holds."""

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Sweep:
    """The problems worth a look, best first.

    What is compared is work, in scores that are computed, needed or not: bounds of different tiles
    are not comparable, since dense attention, too, pads its tiles at the end of an axis.

    Attributes:
        results: for each stride the tiles with the least work for the worst tile of queries (then
            the least work in total, then the largest share of full tiles); strides that a smaller
            one equals or beats are left out.
        tried: how many problems there were.
    """

    results: tuple[Simulation, ...]
    tried: int

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"tried": self.tried, "results": [r.to_json() for r in self.results]}


def sweep(
    layout: PerAxis,
    *,
    kernel_size: PerAxis,
    dilation: PerAxis = 1,
    is_causal: PerAxisFlag = False,
    stride: PerAxis | None = None,
    q_tile: PerAxis | None = None,
    kv_tile: PerAxis | None = None,
    kv_tiling: str = "static",
    heads: int = 1,
    batch: int = 1,
    share: float | None = None,
    top: int | None = None,
) -> Sweep:
    """Simulate every stride with every tile; see `napkin.studies.simulator.simulate`.

    Args:
        stride, q_tile, kv_tile: one to hold; all that are worth a try by default. A stride that a
            smaller one equals or beats is not: it is a coarser window, so by itself it is no gain.
        top: how many results to keep, all by default.

    Raises:
        InputError: a parameter is out of range, or their lengths differ.
    """
    sizes, each = problem_of(
        layout, kernel_size, 1 if stride is None else stride, dilation, is_causal
    )
    check_run(kv_tiling, share)
    lengths = [-(-n // w.dilation) for n, w in zip(sizes, each, strict=True)]
    q_tiles, kv_tiles = (
        tiles_of(tokens, lengths) if given is None else [tile_of(given, name, len(lengths))]
        for given, name, tokens in ((q_tile, "q_tile", Q_TOKENS), (kv_tile, "kv_tile", KV_TOKENS))
    )
    tables = [
        _Table(n, w, {t[a] for t in q_tiles}, {t[a] for t in kv_tiles}, kv_tiling, stride is None)
        for a, (n, w) in enumerate(zip(sizes, each, strict=True))
    ]
    best = _best(tables, q_tiles, kv_tiles)
    order = _ranked(best)
    if top is not None:
        order = order[: whole(top, "simulate: top", 1)]
    results = [
        simulate(
            sizes,
            kernel_size=[w.kernel_size for w in each],
            stride=best.strides[:, i].tolist(),
            dilation=[w.dilation for w in each],
            is_causal=[w.is_causal for w in each],
            q_tile=q_tiles[best.tiles[i] // len(kv_tiles)],
            kv_tile=kv_tiles[best.tiles[i] % len(kv_tiles)],
            kv_tiling=kv_tiling,
            heads=heads,
            batch=batch,
            share=share,
        )
        for i in order
    ]
    tried = math.prod(t.tried for t in tables) * len(q_tiles) * len(kv_tiles)
    return Sweep(tuple(results), tried)


def strides_of(window: int, q_tiles: Sequence[int]) -> list[int]:
    """Strides worth a try: all of a short window, and of a longer one the powers of two, its
    divisors, and the first multiples of tiles of queries, where counts change."""
    every = range(1, window + 1)
    if window <= EVERY_STRIDE:
        return list(every)
    some = {1 << i for i in range(window.bit_length())}
    some |= {s for s in every if window % s == 0}
    some |= {t * i for t in q_tiles for i in range(1, 17)}
    return sorted(some & set(every))


def tiles_of(tokens: int, lengths: Sequence[int]) -> list[tuple[int, ...]]:
    """Tiles of `tokens` tokens, powers of two along every axis, none longer than its axis needs;
    of a layout with fewer tokens, the whole."""
    powers = [range((n - 1).bit_length() + 1) for n in lengths]
    total = min(tokens.bit_length() - 1, sum(p[-1] for p in powers))
    return [
        tuple(1 << i for i in each) for each in itertools.product(*powers) if sum(each) == total
    ]


class _Table:
    """The counts of one axis: `worst`, `visited` and `full`, by tile of queries, tile of keys and
    stride.

    Args:
        free: whether strides are tried, and those left out that a smaller one equals or beats
            whatever the tiles; else the table is of the window's own.
    """

    def __init__(
        self,
        size: int,
        w: Window,
        q_tiles: set[int],
        kv_tiles: set[int],
        kv_tiling: str,
        free: bool,
    ) -> None:
        self.size, self.window, self.kv_tiling = size, w, kv_tiling
        self.q_tiles, self.kv_tiles = sorted(q_tiles), sorted(kv_tiles)
        strides = strides_of(w.kernel_size, self.q_tiles) if free else [w.stride]
        counts: Counts = np.array(
            [
                [[self._counts(s, q, kv) for s in strides] for kv in self.kv_tiles]
                for q in self.q_tiles
            ],
            dtype=np.int64,
        )
        self.tried = len(strides)
        kept = list(range(len(strides)))
        for i in reversed(range(1, len(strides))):
            smaller = counts[:, :, :i, :2] <= counts[:, :, i : i + 1, :2]
            if smaller.all(axis=(0, 1, 3)).any():
                kept.remove(i)
        self.strides: Counts = np.array(strides, dtype=np.int64)[kept]
        self.worst, self.visited, self.full = np.moveaxis(counts[:, :, kept], -1, 0)

    def _counts(self, s: int, q: int, kv: int) -> tuple[int, int, int]:
        w = self.window
        at = Window(w.kernel_size, s, w.dilation, w.is_causal)
        found = axis_tiles(self.size, at, q, kv, self.kv_tiling)
        return found.worst, found.visited, found.full

    def at(self, q: int, kv: int) -> tuple[Counts, Counts, Counts]:
        """Worst, visited and full by stride, for one pair of tiles."""
        i, j = self.q_tiles.index(q), self.kv_tiles.index(kv)
        return self.worst[i, j], self.visited[i, j], self.full[i, j]


@dataclass(frozen=True, eq=False)
class _Best:
    """The best tiles of every stride; `strides` has a row for each axis.

    `measures` are work per query of the worst tile and in total, and the share of tiles that are
    not full: less is better.
    """

    strides: Counts
    tiles: Counts
    measures: Floats


def _best(
    tables: Sequence[_Table],
    q_tiles: Sequence[tuple[int, ...]],
    kv_tiles: Sequence[tuple[int, ...]],
) -> _Best:
    problems = math.prod(len(t.strides) for t in tables)
    if problems > MAX_PROBLEMS:
        raise InputError(
            f"simulate: {problems} strides are too many to try (at most {MAX_PROBLEMS}); give "
            "stride=..."
        )
    grid = np.meshgrid(*(t.strides for t in tables), indexing="ij")
    tiles = np.zeros(problems, dtype=np.int64)
    best = np.full((3, problems), np.inf)
    for i, (q, kv) in enumerate(itertools.product(q_tiles, kv_tiles)):
        found = _measures(tables, q, kv)
        less = _less(found, best)
        tiles[less] = i
        best[:, less] = found[:, less]
    return _Best(np.stack([g.ravel() for g in grid]), tiles, best)


def _measures(tables: Sequence[_Table], q: Sequence[int], kv: Sequence[int]) -> Floats:
    """The measures of `_Best` for every stride with one pair of tiles."""
    counts = [t.at(a, b) for t, a, b in zip(tables, q, kv, strict=True)]
    # Whole numbers are exact in float64 far beyond any number of scores that is ever computed.
    worst, visited, full = (
        reduce(np.multiply.outer, [c[i].astype(np.float64) for c in counts]).ravel()
        for i in range(3)
    )
    return np.stack(
        [worst * math.prod(kv), visited * math.prod(q) * math.prod(kv), 1 - full / visited]
    )


def _less(a: Floats, b: Floats) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where the columns of `a` are less than those of `b`, the first row deciding first."""
    out = a[-1] < b[-1]
    for x, y in zip(a[-2::-1], b[-2::-1], strict=True):
        out = (x < y) | ((x == y) & out)
    return out


def _ranked(best: _Best) -> list[int]:
    """Problems from the best on; of equal ones the smaller stride first, and none that a smaller
    one equals or beats."""
    worst, total, partial = best.measures
    order = np.lexsort((*best.strides[::-1], best.strides.sum(0), partial, total, worst))
    kept: list[int] = []
    for i in order.tolist():
        # What is kept already has no more work in its worst tile.
        others = np.array(kept, dtype=np.int64)
        smaller = (best.strides[:, others] <= best.strides[:, i : i + 1]).all(0)
        if not (smaller & (total[others] <= total[i])).any():
            kept.append(i)
    return kept
