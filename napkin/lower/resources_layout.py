"""Register layouts as Triton gives them out, and the shared memory to go from one to another.

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
    return Layout(
        tuple(shape), positions([*register, *repeats]), positions(lane), positions(warp)
    )


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

        steps = [take(self.values), take(self.lanes), take(self.warps)]
        return layout(shape, *steps, tuple(at))


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


# --- conversions ----------------------------------------------------------------------------


def _reduced(vectors: Iterable[int]) -> dict[int, int]:
    """An echelon basis: leading bit to vector."""
    basis: dict[int, int] = {}
    for v in vectors:
        left = v
        while left:
            top = left.bit_length()
            if top not in basis:
                basis[top] = left
                break
            left ^= basis[top]
    return basis


def _inside(v: int, basis: dict[int, int]) -> bool:
    while v:
        row = basis.get(v.bit_length())
        if row is None:
            return False
        v ^= row
    return True


def within_warps(a: Layout, b: Layout) -> bool:
    """Whether every warp already holds what it needs, so that shuffles suffice."""
    mine = _reduced([*a.register, *a.lane])
    if not all(_inside(v, mine) for v in (*b.register, *b.lane)):
        return False
    return all(_inside(x ^ y, mine) for x, y in zip(a.warp, b.warp, strict=True))


@functools.lru_cache(4096)
def convert_bytes(a: Layout, b: Layout, bits: int) -> int:
    """Shared memory, in bytes, to go from layout `a` to `b`: what one round moves.

    Bits that are registers on both sides need not be in memory together: the conversion runs in
    rounds, one per value of them, each reusing the memory. Bits that a wide access or the 32 banks
    cover stay in every round.
    """
    return 0 if within_warps(a, b) else scratch_bytes(a, b, bits)


def scratch_bytes(a: Layout, b: Layout, bits: int) -> int:
    """Bytes of one round of a conversion through shared memory."""
    rank = math.prod(a.shape).bit_length() - 1
    vector = _vector(a, b, bits)
    bank = min((1024 // ((1 << len(vector)) * bits)).bit_length() - 1, rank - len(vector))
    segment = _segment(
        {*vector, *_tile(a, vector, bits)} - {0},
        {*vector, *_tile(b, vector, bits)} - {0},
        rank,
        rank - bank - len(vector),
    )
    rounds = sum(s in a.held and s in b.held for s in segment)
    return max(1, (1 << rank >> rounds) * bits // 8)


def _vector(a: Layout, b: Layout, bits: int) -> list[int]:
    """The bits that one access covers: common registers, then what fills a 4-byte bank and what
    widens the access of one side without conflicts on the other."""
    common = [r for r in a.held if r in b.held][: (128 // bits).bit_length() - 1]
    per_bank = max(0, (32 // bits).bit_length() - 1)
    lanes = (set(a.lane), set(b.lane))

    def widening(registers: Sequence[int], have: Sequence[int], other: set[int]) -> list[int]:
        most = (128 // max(bits, 32)).bit_length() - 1
        return [r for r in registers if r not in have and r in other][:most]

    from_a = True
    if (1 << len(common)) * bits < 32:
        ra, rb = list(a.held), list(b.held)
        front = [ra[: len(common)] == common, rb[: len(common)] == common]
        if common and not any(front):
            ra = common + [r for r in ra if r not in common]
            rb = common + [r for r in rb if r not in common]
            front = [True, True]

        def filled(registers: Sequence[int]) -> list[int]:
            return common + list(registers[len(common) : per_bank])

        if all(front):
            from_a = widening(ra, filled(ra), lanes[1]) >= widening(rb, filled(rb), lanes[0])
        else:
            from_a = front[0]
        common = filled(ra if from_a else rb)
        if from_a:
            return common + widening(ra, common, lanes[1])
        return common + widening(rb, common, lanes[0])
    return common + widening(a.held, common, lanes[1])


def _tile(a: Layout, vector: Sequence[int], bits: int) -> list[int]:
    """The lanes of one wavefront: fewer where each lane moves 8 or 16 bytes."""
    wide = 0
    while wide < min(len(vector), len(a.held)) and a.held[wide] == vector[wide]:
        wide += 1
    drop = max(0, ((1 << wide) * bits // 32).bit_length() - 1)
    return [b for b in a.lane[: len(a.lane) - drop] if b not in vector]


def _segment(a: set[int], b: set[int], rank: int, length: int) -> list[int]:
    """The bits above the banks: those that neither side reads at once, then sums of one bit of
    each side, which spread both over the banks."""
    free = [1 << i for i in range(rank) if 1 << i not in a and 1 << i not in b]
    if len(free) >= length:
        return free[:length]
    few, many = sorted((sorted(a - b), sorted(b - a)), key=len)
    clashing = min(max(0, length - len(few) - len(free)), len(few))
    out = free + [x ^ y for x, y in zip(few[clashing:], many[clashing:], strict=False)]
    return (out + few[:clashing] + many[:clashing])[:length]


@functools.lru_cache(4096)
def reduce_bytes(whole: Layout, dim: int, bits: int = 32) -> int:
    """Shared memory, in bytes, to reduce a tile along `dim` across its warps.

    Each thread reduces its registers and each warp its lanes; what warps hold of one row is then
    moved into lanes of one warp, and reduced there.
    """
    below, extent = math.prod(whole.shape[dim + 1 :]), whole.shape[dim]

    def along(b: int) -> int:
        return b // below % extent

    if not any(along(b) for b in whole.warp):
        return 0
    keep = [b for b in whole.held if not along(b)]
    lane = [0 if along(b) else b for b in whole.lane]
    rest = math.prod(whole.shape) // extent
    warp: list[int] = []
    found = 0
    for b in whole.warp:  # warps along the reduced dimension are numbered anew, after the rest
        warp.append(rest << found if along(b) else _without(b, below, extent))
        found += along(b) > 0
    keep = [_without(b, below, extent) for b in keep]
    lane = [_without(b, below, extent) for b in lane]
    before = Layout((1 << found, rest), tuple(keep), tuple(lane), tuple(warp))
    places = [i for i, b in enumerate(lane) if b == 0]
    moving = [i for i, b in enumerate(whole.warp) if along(b)]
    if len(places) < len(moving):
        places = list(range(len(lane)))
    total = 0
    for i, j in zip(places, moving, strict=False):
        lane[i], warp[j] = warp[j], lane[i]
    after = Layout(before.shape, before.register, tuple(lane), tuple(warp))
    total = scratch_bytes(before, after, bits)
    return total


def _without(b: int, below: int, extent: int) -> int:
    return (b // (below * extent)) * below + b % below
