"""What a band takes: shared memory for its boxes and barriers, registers of a thread."""

from __future__ import annotations

import math
from collections.abc import Sequence

from napkin.derive.kernel import tensor_of
from napkin.lower.warpgroups.band import Band
from napkin.schedule import WARPS

BARRIER = 8
"""Bytes of one."""

PASSED = 256
"""Bytes, about, in which the block's first warps pass what they know to the others, with what says
which of them runs what."""

ALIGNED = 16
"""Bytes at multiples of which rings of barriers begin, and of which what is passed takes a multiple
(Triton 3.6)."""

THREADS = 128
"""Threads of a warpgroup."""

REGISTERS, LOADING, STEP, MOST = 65536, 24, 8, 240
"""Registers of a multiprocessor, those of a thread that only asks for chunks, in what steps they
are given out, and the most of one thread (PTX ISA, setmaxnreg)."""

BESIDE, BESIDE_TESTS = 30, 40
"""Registers of a thread beside its tiles; and where it tests chunks."""


def boxes_of(band: Band) -> dict[str, tuple[int, int]]:
    """How many boxes of each tensor lie in shared memory, and their values. Results leave from
    where a group held something of their form."""
    tiles, program = band.program.tiles, band.program
    out: dict[str, tuple[int, int]] = {}
    for leaf in (*band.held, *band.streamed):
        values = math.prod(tiles[a] for a in program.boxes[leaf])
        own = band.groups if band.own(leaf) else 1
        out[tensor_of(leaf)] = (own * (band.stages if leaf in band.streamed else 1), values)
    for tensor, axes in program.stores.items():
        if not any(band.alike(n, axes) for n in band.held):
            out[tensor] = (band.groups, math.prod(tiles[a] for a in axes))
    return out


def _box_bytes(band: Band) -> int:
    each = sum(n * values for n, values in boxes_of(band).values())
    return each * band.program.schedule.described


def shared_of(band: Band) -> int:
    """Bytes of shared memory of one block, about: to the byte but for `PASSED`."""
    return _box_bytes(band) + sum(_barriers(band)) * BARRIER + PASSED


def _barriers(band: Band) -> list[int]:
    """Barriers of each ring of them: for every place one that says that it is full, and of what is
    streamed one that says that it is read; where chunks are only added up, one for all tensors, and
    in turn, one for each group."""
    if band.sums:
        return [band.stages, band.stages] + ([band.groups] if band.ping_pong else [])
    held = [band.groups if band.own(n) else 1 for n in band.held]
    return held + [band.stages] * (2 * len(band.streamed))


def exact_bytes(band: Band, passed: Sequence[str]) -> int:
    """Bytes of shared memory of one block: boxes, barriers, what warps are passed, and a byte for
    each warp beside the first, rounded up to warpgroups.

    Args:
        passed: the kinds of values that are passed (`napkin.lower.warpgroups.write_gluon.passed`).
    """
    *first, last = (n * BARRIER for n in _barriers(band))
    barriers = sum(map(_aligned, first)) + last
    return (
        _box_bytes(band)
        + barriers
        + _aligned(sum(map(_passed_bytes, passed)))
        + WARPS * band.groups
    )


def _passed_bytes(kind: str) -> int:
    """A ring is passed as an address and an offset along each axis, other values as they are."""
    if kind.startswith("ring"):
        return 8 + 4 * int(kind.removeprefix("ring"))
    return 8 if kind == "descriptor" else 4


def _aligned(count: int) -> int:
    return -(-count // ALIGNED) * ALIGNED


def registers(groups: int) -> int:
    """Registers that a thread of a warpgroup has, of so many and one that loads."""
    left = REGISTERS - THREADS * LOADING
    return min(MOST, left // (THREADS * groups) // STEP * STEP)


def room_of(band: Band) -> int:
    """Registers of a thread that its tiles may take. What only adds up has them in one instruction,
    which is compiled for as many as the block starts with, the loading warp's group with it."""
    if not band.sums:
        return registers(band.groups)
    return REGISTERS // (THREADS * (band.groups + 1)) // STEP * STEP


def registers_of(band: Band) -> int:
    """Registers of a thread: sums, or states, and the scores of a chunk as they are computed and as
    they are multiplied."""
    program = band.program
    if band.sums:
        spans = [(*x.product.rows, *x.product.columns) for x in band.sums]
        return sum(map(program.span, spans)) // THREADS + BESIDE
    states = {x.state.name: x.state.leaf("old") for loop in program.loops for x in band.late(loop)}
    tiles = sum(program.span(program.shape(n)) for n in states.values())
    scores = sum(program.span((*d.rows, *d.columns)) for d in band.early)
    rows = {x.product.spans[0] for loop in program.loops for x in band.late(loop)}
    kept = sum(program.span(dims) for dims in rows) * program.schedule.described // 4
    beside = BESIDE if program.kernel.visits is None else BESIDE_TESTS
    return (tiles + scores + kept) // THREADS + beside
