"""Shared memory that a change of layout takes, and a reduction across warps."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from napkin.lower.compiler import NEWEST, Version
from napkin.lower.resources_layout import Bits, Layout


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
    """Whether every warp already holds what it needs, and at most one bit of a position goes from
    lanes to registers or back, so that shuffles suffice."""
    out, back = (sum(p in y.held for p in x.lane if p) for x, y in ((a, b), (b, a)))
    if max(out, back) > 1:
        return False
    mine = _reduced([*a.register, *a.lane])
    return a.warp == b.warp and all(_inside(v, mine) for v in (*b.register, *b.lane))


@functools.lru_cache(4096)
def convert_bytes(a: Layout, b: Layout, bits: int, capability: int) -> int:
    """Shared memory, in bytes, to go from layout `a` to `b`: what one round moves.

    Bits that are registers on both sides need not be in memory together: the conversion runs in
    rounds, one per value of them, each reusing the memory. Bits that one access or the 32 banks
    cover stay in every round, so the instructions chosen on both sides decide the size.
    """
    if within_warps(a, b):
        return 0
    matrix = [_ROWS, _COLUMNS] if bits == 16 else [_ROWS]
    stores = [_PLAIN, *matrix] if capability >= 90 else [_PLAIN]  # stmatrix came with sm_90
    best: tuple[int, int, int] | None = None
    for s in stores:
        for d in [_PLAIN, *matrix]:
            found = _with_instructions(a, b, bits, s, d)
            if found is not None and (best is None or found[:2] < best[:2]):
                best = found
    return scratch_bytes(a, b, bits) if best is None else best[2]


@dataclass(frozen=True)
class _Access:
    """Lanes that hold neighbours in memory, and lanes that give the addresses of one wavefront."""

    together: Bits
    addresses: Bits


_PLAIN = _Access((), (0, 1, 2))  # 16 bytes a thread
_ROWS = _Access((0, 1), (2, 3, 4))  # ldmatrix, stmatrix
_COLUMNS = _Access((2, 3, 4), (0, 1))  # the same, transposed


def _with_instructions(
    a: Layout, b: Layout, bits: int, store: _Access, load: _Access
) -> tuple[int, int, int] | None:
    """Bank conflicts, minus the rounds, and the bytes of one round; None where a pair of
    instructions cannot serve."""
    full = (128 // bits).bit_length() - 1
    vector = _joint(a, b, full, store.together, load.together)
    if vector is None:
        return None
    from_a, to_b = _addressed(a, store, vector), _addressed(b, load, vector)
    if from_a is None or to_b is None:
        return None
    rank = math.prod(a.shape).bit_length() - 1
    segment = _spread(vector, from_a, to_b, rank, bits)
    common = sum(s in a.held and s in b.held for s in segment)
    spare = min(len(x.together) + len(x.addresses) - 3 for x in (store, load))
    rounds = max(0, common - spare)
    conflicts = sum(1 << _overlap(segment, t) for t in (from_a, to_b))
    return conflicts, -rounds, (1 << rank >> rounds) * bits // 8


def _joint(a: Layout, b: Layout, full: int, mine: Bits, other: Bits) -> list[int] | None:
    """The 16 bytes that both instructions move whole, or None."""
    if len(mine) > len(other):
        return _joint(b, a, full, other, mine)
    count = full - len(other)  # registers of the side that moves fewer
    common = [r for r in a.held if r in b.held]
    if count < 0 or len(common) < count:
        return None
    lanes = [b.lane[i] for i in other]
    if 0 in lanes or any(a.lane[i] == 0 for i in mine):
        return None
    extra = len(other) - len(mine)
    if any(lane not in a.held for lane in lanes[:extra]):
        return None
    if [a.lane[i] for i in mine] != lanes[extra:]:
        return None
    return [*common[:count], *lanes]


def _addressed(a: Layout, access: _Access, vector: Sequence[int]) -> list[int] | None:
    need = 3 - len(access.addresses)
    extra = [r for r in a.held if r not in vector][:need]
    return None if len(extra) < need else [*extra, *(a.lane[i] for i in access.addresses)]


def _overlap(x: Sequence[int], y: Sequence[int]) -> int:
    return len(_reduced(x)) + len(_reduced(y)) - len(_reduced([*x, *y]))


def scratch_bytes(a: Layout, b: Layout, bits: int) -> int:
    """Bytes of one round of a conversion through shared memory with plain loads and stores."""
    rank = math.prod(a.shape).bit_length() - 1
    vector = _vector(a, b, bits)
    drop = max(0, ((1 << len(vector)) * bits // 32).bit_length() - 1)
    tiles = [list(x.lane[: len(x.lane) - drop]) for x in (a, b)]
    segment = _spread(vector, tiles[0], tiles[1], rank, bits)
    rounds = sum(s in a.held and s in b.held for s in segment)
    return max(1, (1 << rank >> rounds) * bits // 8)


def _vector(a: Layout, b: Layout, bits: int) -> list[int]:
    """The bits that one access covers: common registers; up to a 4-byte bank, what is a register
    on one side and a warp on the other, since warps do not conflict."""
    vector = [r for r in a.held if r in b.held][: (128 // bits).bit_length() - 1]
    need = (32 // bits).bit_length() - 1
    if len(vector) >= need:
        return vector
    warps = [[w for w in x.warp if w] for x in (a, b)]
    one = [r for r in a.held if r not in vector and r in warps[1]]
    two = [r for r in b.held if r not in vector and r in warps[0]]
    if len(one) == len(two):
        vector += one if one and min(one) < min(two) else two
    else:
        vector += max(one, two, key=len)
    if len(vector) < need:
        vector += [w for w in warps[0] if w in warps[1]]
    for i in range(max(map(len, warps))):
        vector += [w[i] for w in warps if i < len(w) and w[i] not in vector]
    return vector[:need]


def _spread(
    vector: Sequence[int], a: Sequence[int], b: Sequence[int], rank: int, bits: int
) -> list[int]:
    """The bits above one line of the 32 banks."""
    line = 1024 // ((1 << len(vector)) * bits)
    bank = min(line.bit_length() - 1, rank - len(vector))
    return _segment({*vector, *a} - {0}, {*vector, *b} - {0}, rank, rank - bank - len(vector))


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
def reduce_bytes(whole: Layout, dim: int, bits: int = 32, triton: Version = NEWEST) -> int:
    """Shared memory, in bytes, to reduce a tile along `dim` across its warps.

    Each thread reduces its registers and each warp its lanes; what warps hold of one row is then
    moved into lanes of one warp, and reduced there. Triton 3.6 holds what every warp has of every
    row at once.
    """
    below, extent = math.prod(whole.shape[dim + 1 :]), whole.shape[dim]

    def along(b: int) -> int:
        return b // below % extent

    if not any(along(b) for b in whole.warp):
        return 0
    if triton <= (3, 6):
        across = 1 << sum(along(b) > 0 for b in whole.warp)
        return math.prod(whole.shape) // extent * across * bits // 8
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
    for i, j in zip(places, moving, strict=False):
        lane[i], warp[j] = warp[j], lane[i]
    after = Layout(before.shape, before.register, tuple(lane), tuple(warp))
    return scratch_bytes(before, after, bits)


def scan_bytes(whole: Layout, dim: int, bits: int = 32) -> int:
    """Shared memory, in bytes, of a running sum along `dim` across warps: each warp leaves the last
    value of every row that it holds, for each block of the tile that the group goes over."""
    below, extent = math.prod(whole.shape[dim + 1 :]), whole.shape[dim]

    def along(b: int) -> int:
        return b // below % extent

    if not any(along(b) for b in whole.warp):
        return 0
    reach = max(along(b) for b in (*whole.lane, *whole.warp))
    blocks = [b for b in whole.held if not along(b) or along(b) > reach]
    rows = [b for b in whole.lane if not along(b)]
    return 1 << len(blocks) + len(rows) + len(whole.warp) << (bits // 8).bit_length() - 1


def sort_bytes(whole: Layout, triton: Version = NEWEST) -> int:
    """Shared memory, in bytes, to sort along the last dimension: values are compared with those at
    the other end of one bit of the position at a time, by a reduction over the two."""
    count, last = math.prod(whole.shape), whole.shape[-1]
    most = 0
    for bit in (1 << i for i in range(last.bit_length() - 1)):
        shape = (count // (2 * bit), 2, bit)
        pairs = Layout(shape, whole.register, whole.lane, whole.warp)
        most = max(most, reduce_bytes(pairs, 1, triton=triton))
    return most


def _without(b: int, below: int, extent: int) -> int:
    return (b // (below * extent)) * below + b % below
