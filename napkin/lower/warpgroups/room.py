"""What a warp-specialised CTA takes: shared memory for its boxes and barriers, registers of a
thread."""

from __future__ import annotations

import math
from collections.abc import Sequence

from napkin.derive.kernel import tensor_of
from napkin.lower.warpgroups.cta import SpecialisedCta
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


def boxes_of(cta: SpecialisedCta) -> dict[str, tuple[int, int]]:
    """How many boxes of each tensor lie in shared memory, and their values. Results leave from
    where a group held something of their form."""
    tiles, program = cta.program.tiles, cta.program
    out: dict[str, tuple[int, int]] = {}
    for leaf in (*cta.held, *cta.streamed):
        values = math.prod(tiles[a] for a in program.boxes[leaf])
        own = cta.groups if cta.own(leaf) else 1
        out[tensor_of(leaf)] = (own * (cta.stages if leaf in cta.streamed else 1), values)
    for tensor, axes in program.stores.items():
        if not any(cta.alike(n, axes) for n in cta.held):
            out[tensor] = (cta.groups, math.prod(tiles[a] for a in axes))
    return out


def _box_bytes(cta: SpecialisedCta) -> int:
    each = sum(n * values for n, values in boxes_of(cta).values())
    return each * cta.program.schedule.described


def shared_of(cta: SpecialisedCta) -> int:
    """Bytes of shared memory of one block, about: to the byte but for `PASSED`."""
    return _box_bytes(cta) + sum(_barriers(cta)) * BARRIER + PASSED


def _barriers(cta: SpecialisedCta) -> list[int]:
    """Barriers of each ring of them: for every place one that says that it is full, and of what is
    streamed one that says that it is read; where chunks are only added up, one for all tensors, and
    in turn, one for each group."""
    if cta.sums:
        return [cta.stages, cta.stages] + ([cta.groups] if cta.ping_pong else [])
    return [cta.groups] * len(cta.held) + [cta.stages] * (2 * len(cta.streamed))


def exact_bytes(cta: SpecialisedCta, passed: Sequence[str]) -> int:
    """Bytes of shared memory of one block: boxes, barriers, what warps are passed, and a byte for
    each warp beside the first, rounded up to warpgroups.

    Args:
        passed: the kinds of values that are passed (`napkin.lower.warpgroups.write_gluon.passed`).
    """
    *first, last = (n * BARRIER for n in _barriers(cta))
    barriers = sum(map(_aligned, first)) + last
    return (
        _box_bytes(cta) + barriers + _aligned(sum(map(_passed_bytes, passed))) + WARPS * cta.groups
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


def room_of(cta: SpecialisedCta) -> int:
    """Registers of a thread that its tiles may take. What only adds up has them in one instruction,
    which is compiled for as many as the block starts with, the loading warp's group with it."""
    if not cta.sums:
        return registers(cta.groups)
    return REGISTERS // (THREADS * (cta.groups + 1)) // STEP * STEP


def registers_of(cta: SpecialisedCta) -> int:
    """Registers of a thread: sums, or states, and the scores of a chunk as they are computed and as
    they are multiplied."""
    program = cta.program
    if cta.sums:
        spans = [(*x.product.rows, *x.product.columns) for x in cta.sums]
        return sum(map(program.span, spans)) // THREADS + BESIDE
    states = {x.state.name: x.state.leaf("old") for loop in program.loops for x in cta.late(loop)}
    tiles = sum(program.span(program.shape(n)) for n in states.values())
    scores = sum(program.span((*d.rows, *d.columns)) for d in cta.early)
    rows = {x.product.spans[0] for loop in program.loops for x in cta.late(loop)}
    kept = sum(program.span(dims) for dims in rows) * program.schedule.described // 4
    beside = BESIDE if program.kernel.visits is None else BESIDE_TESTS
    return (tiles + scores + kept) // THREADS + beside
