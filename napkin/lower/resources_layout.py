"""Register layouts as Triton gives them out: where each value of a tile lives.

A layout says which value of a tile each register, lane and warp holds. All sizes are powers of
two, so it is linear over bits (arXiv 2505.23819): a basis lists, for each bit of the register,
lane and warp number, the flat position in the tile that it adds; 0 means a copy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LANES = 32
"""Threads of a warp."""

Bits = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Where the values of a tile of `shape` live.

    Attributes:
        register, lane, warp: the flat position (row-major) that each bit adds; 0 for a copy.
    """

    shape: tuple[int, ...]
    register: Bits
    lane: Bits
    warp: Bits

    @functools.cached_property
    def held(self) -> Bits:
        """Registers without copies."""
        return tuple(b for b in self.register if b)


Steps = Sequence[tuple[int, int]]
"""Bits in order, each as (dimension, values along it)."""


def layout(shape: Sequence[int], register: Steps, lane: Steps, warp: Steps, tile: Bits) -> Layout:
    """The layout whose bits step through a tile of extents `tile`, repeated in registers over the
    rest of `shape` (last dimension first); steps past the shape are copies."""
    flat = [math.prod(shape[d + 1 :]) for d in range(len(shape))]

    def positions(steps: Iterable[tuple[int, int]]) -> Bits:
        return tuple(v * flat[d] if v < shape[d] else 0 for d, v in steps)

    repeats: list[tuple[int, int]] = []
    for d in reversed(range(len(shape))):
        repeats += [(d, v) for v in _powers(tile[d], shape[d])]
    return Layout(tuple(shape), positions([*register, *repeats]), positions(lane), positions(warp))


def _powers(low: int, high: int) -> list[int]:
    return [1 << i for i in range(low.bit_length() - 1, high.bit_length() - 1)]


@dataclass(frozen=True)
class Blocked:
    """Values per thread, threads per warp and warps along each dimension; `order` lists the
    dimensions from the contiguous one."""

    values: Bits
    lanes: Bits
    warps: Bits
    order: Bits

    def of(self, shape: Sequence[int]) -> Layout:
        """The layout of a tile."""
        at = [1] * len(shape)

        def take(counts: Bits) -> list[tuple[int, int]]:
            out: list[tuple[int, int]] = []
            for d in self.order:
                out += [(d, v) for v in _powers(at[d], at[d] * counts[d])]
                at[d] *= counts[d]
            return out

        register, lane, warp = take(self.values), take(self.lanes), take(self.warps)
        return layout(shape, register, lane, warp, tuple(at))


@functools.lru_cache(4096)
def blocked(shape: Bits, values: Bits, order: Bits, warps: int) -> Blocked:
    """Threads and then warps are spread from the contiguous dimension outwards, as far as the tile
    reaches; the outermost dimension takes what is left."""
    lanes_left, warps_left = LANES, warps
    lanes, across = [1] * len(shape), [1] * len(shape)
    threads_left = LANES * warps
    for d in order[:-1]:
        threads = max(1, min(threads_left, max(1, shape[d] // values[d])))
        lanes[d] = min(threads, lanes_left)
        across[d] = max(1, min(threads // lanes[d], warps_left))
        lanes_left //= lanes[d]
        warps_left //= across[d]
        threads_left //= threads
    lanes[order[-1]], across[order[-1]] = lanes_left, warps_left
    return Blocked(values, tuple(lanes), tuple(across), order)


@dataclass(frozen=True)
class Mma:
    """The accumulator of a matrix instruction: `version` 2 (mma.sync, 16 rows x 8 columns a warp)
    or 3 (wgmma, 16 x `columns`), with warps along rows and columns."""

    version: int
    warps: tuple[int, int]
    columns: int

    def of(self, shape: Sequence[int]) -> Layout:
        """The layout of an accumulator tile."""
        wide = [(1, v) for v in _powers(8, self.columns)]
        lane = [(1, 2), (1, 4), (0, 1), (0, 2), (0, 4)]
        rows = [(0, v) for v in _powers(16, 16 * self.warps[0])]
        columns = [(1, v) for v in _powers(self.columns, self.columns * self.warps[1])]
        warp = [*columns, *rows] if self.version == 2 else [*rows, *columns]
        tile = (16 * self.warps[0], self.columns * self.warps[1])
        return layout(shape, [(1, 1), (0, 8), *wide], lane, warp, tile)

    def operand(self, side: int, shape: Sequence[int], bits: int) -> Layout:
        """The layout of an operand in registers: rows x reduced (side 0), or reduced x columns."""
        k, free = 1 - side, side
        wide = 32 // bits  # values of one register
        inner = [(k, v) for v in _powers(1, wide)]
        far = [(k, 4 * wide)]
        register = [*inner, (free, 8), *far] if side == 0 else [*inner, *far]
        lane = [(k, wide), (k, 2 * wide), (free, 1), (free, 2), (free, 4)]
        tall = 16 if side == 0 else 8
        mine = [(free, v) for v in _powers(tall, tall * self.warps[side])]
        other = [(free, 1 << 30)] * (self.warps[1 - side].bit_length() - 1)
        first = (side == 1) == (self.version == 2)
        warp = [*mine, *other] if first else [*other, *mine]
        tile = [0, 0]
        tile[k], tile[free] = 8 * wide, tall * self.warps[side]
        # The reduced dimension is repeated first.
        made = layout(shape, register, lane, warp, (tile[0], tile[1]))
        if k == 1:
            return made
        count = len(register)
        head, tail = made.register[:count], made.register[count:]
        row = shape[1]
        again = [b for b in tail if b >= row] + [b for b in tail if b < row]
        return Layout(made.shape, (*head, *again), made.lane, made.warp)


def sliced(whole: Layout, dim: int) -> Layout:
    """The layout of a tile that lacks dimension `dim`, as a reduction of `whole` leaves it."""
    shape = whole.shape[:dim] + whole.shape[dim + 1 :]
    below = math.prod(whole.shape[dim + 1 :])
    extent = whole.shape[dim]

    def drop(bits: Bits) -> Bits:
        return tuple((b // (below * extent)) * below + b % below for b in bits)

    return Layout(shape, drop(whole.register), drop(whole.lane), drop(whole.warp))


def transposed(a: Layout) -> Layout:
    """The layout of the transposed tile."""
    rows, columns = a.shape

    def turn(bits: Bits) -> Bits:
        return tuple((b % columns) * rows + b // columns for b in bits)

    return Layout((columns, rows), turn(a.register), turn(a.lane), turn(a.warp))


def ended_by(whole: Layout, dim: int) -> Layout:
    """The layout of the tile with dimension `dim` moved to the end."""
    shape = whole.shape[:dim] + whole.shape[dim + 1 :] + (whole.shape[dim],)
    below, extent = math.prod(whole.shape[dim + 1 :]), whole.shape[dim]

    def turn(bits: Bits) -> Bits:
        return tuple(
            (b // (below * extent) * below + b % below) * extent + b // below % extent for b in bits
        )

    return Layout(shape, turn(whole.register), turn(whole.lane), turn(whole.warp))
