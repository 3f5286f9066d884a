"""What neighborhood attention could gain over dense attention, counted in tiles.

A kernel works in tiles of queries and of keys, and pays for every key tile that it touches, however
few of its keys count. The counts here are exact, tile by tile, on the bounds of the key set itself;
no clock is in them. The measures are those of the simulator of Hassani et al., "Generalized
Neighborhood Attention" (2025).

A dilation group, the tokens of one residue, is a problem of its own: it has the tiles that the
group's tokens have when they lie side by side, as kernels for dilated windows lay them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from napkin.errors import InputError, check_known
from napkin.ir.whole_numbers import FARTHEST, whole
from napkin.keys.hulls import Hull, census, hull
from napkin.keys.neighbors import PerAxis, PerAxisFlag, Window, neighborhood, windows

Counts = np.ndarray[Any, np.dtype[np.int64]]

KV_TILINGS = ("static", "dynamic")
"""Where the grid of key tiles begins: at key 0, or at the first key of each tile of queries."""

MAX_AXIS = 2**22
"""Tokens of the longest axis: every one of its queries is looked at."""


@dataclass(frozen=True)
class AxisTiles:
    """Tiles of keys along one axis, summed over its tiles of queries in all dilation groups.

    Several axes multiply, each count with the same of the others.

    Attributes:
        dense_queries, dense_keys: tiles of queries and of keys of dense attention.
        worst: key tiles that the worst tile of queries visits.
        visited: pairs of a tile of queries and a tile of keys that it visits.
        whole: those of them in which every query sees every key that the axis has there.
        full: those of them that lie inside the axis, too.
    """

    dense_queries: int
    dense_keys: int
    worst: int
    visited: int
    whole: int
    full: int


@dataclass(frozen=True, repr=False)
class Simulation:
    """What one problem with one pair of tiles could gain.

    Attributes:
        layout, kernel_size, stride, dilation, is_causal, q_tile, kv_tile: the problem, per axis.
        kv_tiling: "static" or "dynamic", see `KV_TILINGS`.
        speedup_bound: key tiles of dense attention by those of the worst tile of queries.
        speedup_mean: pairs of tiles of dense attention by the pairs visited, as where idle cores
            take work from the worst tile.
        speedup_flops: tokens by keys of a window: what tiles of one token would gain.
        tiles_dense, tiles_worst: key tiles for a tile of queries, in dense attention and at worst.
        visited: pairs of tiles that are visited, of all heads and batch items.
        full, partial, padding: pairs among them that need no mask, a mask by coordinates, a check
            against the end of an axis alone.
        full_share: full by visited.
        share: the share of attention in the time of a whole run, from 0 to 1, where it was given.
        end_to_end: what the run gains if attention gains the bound (Amdahl).
    """

    layout: tuple[int, ...]
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    is_causal: tuple[bool, ...]
    q_tile: tuple[int, ...]
    kv_tile: tuple[int, ...]
    kv_tiling: str
    heads: int
    batch: int
    share: float | None
    speedup_bound: float
    speedup_mean: float
    speedup_flops: float
    tiles_dense: int
    tiles_worst: int
    full_share: float
    visited: int
    full: int
    partial: int
    padding: int
    end_to_end: float | None

    def to_json(self) -> dict[str, Any]:
        """As plain data, the measures first."""
        data = asdict(self)
        problem = list(data)[: list(data).index("speedup_bound")]
        return {k: v for k, v in data.items() if k not in problem} | {k: data[k] for k in problem}

    def __repr__(self) -> str:
        said = [
            f"speed-up bound {self.speedup_bound:.2f}, mean {self.speedup_mean:.2f}, FLOP-wise "
            f"{self.speedup_flops:.2f}",
            f"{self.tiles_worst} of {self.tiles_dense} key tiles at worst",
            f"{self.full_share:.0%} of the visited tiles full",
        ]
        if self.end_to_end is not None:
            said.append(f"end to end {self.end_to_end:.2f}")
        return f"{self.problem}: {'; '.join(said)}"

    @property
    def problem(self) -> str:
        """The problem and the tiles in words."""
        words = [shape_text(self.layout), f"window {shape_text(self.kernel_size)}"]
        for name in ("stride", "dilation", "is_causal"):
            values = getattr(self, name)
            if set(values) != {0 if name == "is_causal" else 1}:
                words.append(f"{name.removeprefix('is_')} {shape_text(values)}")
        tiles = f"{self.kv_tiling} tiles {shape_text(self.q_tile)} / {shape_text(self.kv_tile)}"
        return ", ".join([*words, tiles])


def shape_text(values: Sequence[int]) -> str:
    """Numbers per axis as the command line takes them: 30x48x80."""
    return "x".join(str(int(v)) for v in values)


def simulate(
    layout: PerAxis,
    *,
    kernel_size: PerAxis,
    stride: PerAxis = 1,
    dilation: PerAxis = 1,
    is_causal: PerAxisFlag = False,
    q_tile: PerAxis,
    kv_tile: PerAxis,
    kv_tiling: str = "static",
    heads: int = 1,
    batch: int = 1,
    share: float | None = None,
) -> Simulation:
    """Count the tiles of neighborhood attention on a token layout.

    A number stands for every axis. A tile is a box in the token layout (with dilation, in each
    dilation group's), and the last one of an axis may pass its end.

    Args:
        layout: tokens along each axis.
        kernel_size, stride, dilation, is_causal: the windows, as in `nk.neighborhood`.
        q_tile, kv_tile: tokens of a tile of queries and of keys along each axis.
        kv_tiling: "static" or "dynamic", see `KV_TILINGS`.
        share: the share of attention in the time of a whole run, for `end_to_end`.

    Raises:
        InputError: a parameter is out of range, or their lengths differ.
    """
    sizes, each = problem_of(layout, kernel_size, stride, dilation, is_causal)
    q, kv = tile_of(q_tile, "q_tile", len(sizes)), tile_of(kv_tile, "kv_tile", len(sizes))
    check_run(kv_tiling, share)
    axes = [
        axis_tiles(n, w, tq, tk, kv_tiling) for n, w, tq, tk in zip(sizes, each, q, kv, strict=True)
    ]
    heads, batch = whole(heads, "simulate: heads", 1), whole(batch, "simulate: batch", 1)
    times = heads * batch
    dense = math.prod(a.dense_keys for a in axes)
    worst = math.prod(a.worst for a in axes)
    visited = math.prod(a.visited for a in axes)
    full = math.prod(a.full for a in axes)
    unmasked = math.prod(a.whole for a in axes)
    bound = dense / worst
    return Simulation(
        layout=sizes,
        kernel_size=tuple(w.kernel_size for w in each),
        stride=tuple(w.stride for w in each),
        dilation=tuple(w.dilation for w in each),
        is_causal=tuple(w.is_causal for w in each),
        q_tile=q,
        kv_tile=kv,
        kv_tiling=kv_tiling,
        heads=heads,
        batch=batch,
        share=share,
        speedup_bound=bound,
        speedup_mean=dense * math.prod(a.dense_queries for a in axes) / visited,
        speedup_flops=math.prod(sizes) / math.prod(w.kernel_size for w in each),
        tiles_dense=dense,
        tiles_worst=worst,
        full_share=full / visited,
        visited=times * visited,
        full=times * full,
        partial=times * (visited - unmasked),
        padding=times * (unmasked - full),
        end_to_end=None if share is None else 1 / (1 - share + share / bound),
    )


# --- what is given ------------------------------------------------------------------------------


def problem_of(
    layout: PerAxis,
    kernel_size: PerAxis,
    stride: PerAxis,
    dilation: PerAxis,
    is_causal: PerAxisFlag,
) -> tuple[tuple[int, ...], tuple[Window, ...]]:
    """The size and the window of every axis.

    Raises:
        InputError: a parameter is out of range, or their lengths differ.
    """
    given = tuple(layout) if isinstance(layout, Sequence) else (layout,)
    sizes = tuple(_tokens(n, "layout") for n in given)
    if not sizes:
        raise InputError("simulate: layout=() has no axis; write its sizes, as in (30, 48, 80)")
    each = windows(kernel_size, stride, dilation, is_causal, len(sizes), "simulate")
    for axis, (n, w) in enumerate(zip(sizes, each, strict=True)):
        if n > MAX_AXIS:
            raise InputError(
                f"simulate: axis {axis} of {n} tokens is too long to look at every query; "
                f"write at most {MAX_AXIS}"
            )
        if w.span > n:
            apart = f", {w.dilation} apart," if w.dilation > 1 else ""
            raise InputError(
                f"simulate: a window of {w.kernel_size} keys{apart} does not fit axis {axis} of "
                f"{n} tokens; {_less(n, w)} there"
            )
    return sizes, each


def _less(size: int, w: Window) -> str:
    if w.dilation <= size:
        return f"write a kernel_size of at most {size // w.dilation}"
    return f"write a dilation of at most {max(size // w.kernel_size, 1)}"


def tile_of(tile: PerAxis, name: str, dims: int) -> tuple[int, ...]:
    """The tile along every axis.

    Raises:
        InputError: it has another number of axes, or is no tile.
    """
    given = tuple(tile) if isinstance(tile, Sequence) else (tile,) * dims
    if len(given) != dims:
        raise InputError(
            f"simulate: {name} names {len(given)}, there are {dims} axes; give one number, or one "
            "for every axis"
        )
    return tuple(_tokens(n, name) for n in given)


def check_run(kv_tiling: str, share: float | None) -> None:
    """Check what is not of one axis.

    Raises:
        InputError: there is no such tiling, or the share is none.
    """
    check_known(kv_tiling, KV_TILINGS, f"simulate: kv_tiling={kv_tiling!r} is unknown")
    if share is not None and not 0 <= share <= 1:
        raise InputError(
            f"simulate: share={share} is not between 0 and 1; it is the share of attention in the "
            "time of the run, as in 0.6"
        )


# --- one axis -----------------------------------------------------------------------------------


def _tokens(value: object, name: str) -> int:
    """Tokens along an axis."""
    number = whole(value, f"simulate: {name}", 1)
    if number > FARTHEST:
        raise InputError(f"simulate: {name}={number} is past every token; write 2**30 at most")
    return number


@lru_cache(maxsize=2**17)
def axis_tiles(size: int, w: Window, q_tile: int, kv_tile: int, kv_tiling: str) -> AxisTiles:
    """The counts of one axis of `size` tokens."""
    short, longer = divmod(size, w.dilation)
    # Dilation groups have one of two lengths.
    groups = [(short + 1, longer), (short, w.dilation - longer)]
    found = [(group_tiles(n, w, q_tile, kv_tile, kv_tiling), times) for n, times in groups if times]
    worst = max(int(counts[0].max()) for counts, _ in found)
    pairs = [sum(int(counts[i].sum()) * times for counts, times in found) for i in range(3)]
    return AxisTiles(-(-size // q_tile), -(-size // kv_tile), worst, *pairs)


def group_tiles(
    length: int, w: Window, q_tile: int, kv_tile: int, kv_tiling: str
) -> tuple[Counts, Counts, Counts]:
    """Of each tile of queries of a dilation group of `length` tokens: the key tiles that are
    visited, those of them that are whole, and those that are full (see `AxisTiles`)."""
    reach = _reach(length, w.kernel_size, w.stride, w.is_causal, q_tile)
    if kv_tiling == "static":
        reach = reach.aligned(kv_tile, length)
    counted = census(reach, kv_tile)
    # A last tile that passes the axis's end is whole if it would be full on a longer axis.
    past = reach.first + counted.visited * kv_tile
    beyond = replace(reach, end=past, inner_end=np.where(reach.inner_end < length, 0, past))
    return counted.visited, np.maximum(census(beyond, kv_tile).full, counted.full), counted.full


@lru_cache(maxsize=2**10)
def _reach(length: int, k: int, s: int, is_causal: bool, q_tile: int) -> Hull:
    """What each tile of queries sees of an axis without dilation."""
    keys = neighborhood(k, s, 1, is_causal, queries="q", keys="x")
    (box,) = keys.boxes
    (interval,) = box.intervals
    return hull(interval, {"q": length, "x": length}, {"q": q_tile})
