"""What a warp-specialised CTA takes: shared memory for its boxes and barriers, registers of a
thread."""

from __future__ import annotations

import math

from napkin.ir.node import Node
from napkin.lower.descriptors import ITEM, item_bytes
from napkin.lower.launch import LANES
from napkin.lower.warpgroups.cta import SpecialisedCta, reads
from napkin.target import LINE

BARRIER, FLOAT = 8, 4
"""Bytes of a barrier, and of what is computed."""

PASSED = 256
"""Bytes that are counted, at least, for what a block's first warps pass to the others, with what
says which of them runs what, and what aligns barriers: attention passes as many."""

ALIGNED = 16
"""Bytes: arrays of barriers begin at multiples of so many. Boxes begin at multiples of `LINE`."""

THREADS = 128
"""Threads of a warpgroup."""

REGISTERS, LOADING, STEP, MOST = 65536, 24, 8, 240
"""Registers of a multiprocessor, those of a thread that only asks for chunks, in what steps they
are given out, and the most of one thread (PTX ISA, setmaxnreg)."""

OVERHEAD, OVERHEAD_TESTS, OVERHEAD_ANEW = 30, 40, 8
"""Registers of a thread beside its tiles; where it tests chunks; and where it adds up what it
computes of products, beside what it reads: of 64 x 128 values, scaled along rows and columns, the
168 that there are, and spills none (as Triton 3.6 compiles it for sm_90)."""

PER_THREAD = 4
"""Columns of a product for each that a thread has (PTX ISA, wgmma)."""


def box_bytes(cta: SpecialisedCta) -> int:
    """Bytes of shared memory of the boxes of one block. Results leave from where a group held
    something of their form."""
    tiles, program, found = cta.program.tiles, cta.program, 0
    for leaf in (*cta.held, *cta.streamed):
        values = math.prod(tiles[a] for a in program.boxes[leaf])
        own = cta.groups if cta.own(leaf) else 1
        found += own * (cta.stages if leaf in cta.streamed else 1) * values * item_bytes(leaf)
    return found + sum(_stored(cta)) + _crossing(cta)


def _stored(cta: SpecialisedCta) -> list[int]:
    """Bytes of the boxes of each result that has room of its own."""
    tiles, stores = cta.program.tiles, cta.program.stores
    own = [axes for tensor, axes in stores.items() if tensor not in cta.vacated]
    return [cta.groups * math.prod(tiles[a] for a in axes) * ITEM for axes in own]


def _crossing(cta: SpecialisedCta) -> int:
    """Bytes of the rows that warpgroups leave to each other, and of a chunk's sums."""
    program = cta.program
    rows = sum(program.span(x.product.spans[0]) for x in cta.crossing)
    sums = sum(program.span((*x.product.rows, *x.product.columns)) for x in cta.crossing)
    return cta.stages * cta.groups * rows * ITEM + FLOAT * sums


def shared_of(cta: SpecialisedCta, passed: int = 0) -> int:
    """Bytes of shared memory of one block: at most, where what its warps pass each other is known
    (`napkin.lower.parameters.Written`), of which `PASSED` are counted else."""
    arrays, lines = _barriers(cta), [*_beside(cta), *_across(cta)]
    behind = any(n < passed for n in (*lines, *_stored(cta)))  # larger ones come first
    rest = passed + THREADS // LANES * cta.groups  # and a byte for each warp that waits for work
    rest += LINE if behind else ALIGNED
    rest += BARRIER * sum(n % 2 for n in arrays)
    return box_bytes(cta) + sum(lines) + BARRIER * sum(arrays) + max(PASSED, rest)


def _beside(cta: SpecialisedCta) -> list[int]:
    """Bytes of each tensor that comes beside boxes."""
    found = list[int]()
    for leaf in cta.program.beside:
        values = cta.program.span(cta.program.shape(leaf)) * (cta.groups if cta.own(leaf) else 1)
        found.append(cta.stages * values * item_bytes(leaf))
    return found


def _across(cta: SpecialisedCta) -> list[int]:
    """Bytes of each term that has one value for each column."""
    terms = cta.every_across
    return [cta.groups * FLOAT * cta.program.extent(cta.columns[0])] * len(terms)


def _barriers(cta: SpecialisedCta) -> list[int]:
    """Barriers of one block, array by array: for every place one that says that it is full, and of
    what is streamed one that says that it is read; where chunks are only added up, one for all
    tensors, and in ping-pong, one for each group."""
    places = [cta.stages, cta.stages]
    if cta.sums:
        return [*places, cta.groups] if cta.ping_pong else places
    crossing = [n * cta.groups for n in places] + [1, 1, 1]
    return [cta.groups] * len(cta.held) + places * len(cta.streamed) + crossing * len(cta.crossing)


def registers(groups: int) -> int:
    """Registers that a thread of a warpgroup has, of so many and one that loads."""
    left = REGISTERS - THREADS * LOADING
    return min(MOST, left // (THREADS * groups) // STEP * STEP)


def register_budget(cta: SpecialisedCta) -> int:
    """Registers of a thread that its tiles may take. What only adds up has them in one instruction,
    which is compiled for as many as the block starts with, the loading warp's group with it."""
    if not cta.sums:
        return registers(cta.groups)
    return REGISTERS // (THREADS * (cta.groups + 1)) // STEP * STEP


def _held(cta: SpecialisedCta, leaf: Node) -> int:
    """Values that a thread has of a reading: those of its columns, or of its rows."""
    dims = cta.program.shape(leaf)
    values = cta.program.span(dims)
    return values // THREADS if len(dims) > 1 else values // PER_THREAD * (dims != (cta.row,))


def registers_of(cta: SpecialisedCta) -> int:
    """Registers of a thread: sums, or states, and the scores of a chunk as they are computed and,
    where the next chunk's are computed beside, as they are multiplied. What is read for each score
    takes about half a register: with a mask or a bias, 64 x 128 scores beside 64 x 64 values in
    three warpgroups spilled 300 to 800 bytes, and 64 x 64 none (Triton 3.9, sm_90)."""
    program = cta.program
    if cta.sums:
        products = [x.product for x in cta.sums]
        sums = sum(program.span((*d.rows, *d.columns)) for d in products) // THREADS
        if not cta.anew:
            return sums + OVERHEAD
        read = reads(program.loops[0].steps.values()) - {p for d in products for p in d.parts}
        return 2 * sums + sum(_held(cta, n) for n in read) + OVERHEAD_ANEW
    delayed = [x for loop in program.loops for x in cta.delayed(loop)]
    states = {x.state.name: x.state.leaf("old") for x in delayed}
    tiles = sum(program.span(program.shape(n)) for n in states.values())
    scores = sum(program.span((*d.rows, *d.columns)) for d in cta.leading)
    # Parts of sums are made when the scores have become their rows.
    scores = max(scores, sum(math.prod(x.part) for x in cta.crossing))
    halves = [*{x.product.spans[0] for x in delayed if cta.left}]
    read = {n for loop in program.loops for n in reads(loop.steps.values())} - program.boxed.keys()
    halves += [dims for dims in map(program.shape, read) if len(dims) > 1]
    kept = sum(program.span(dims) for dims in halves) * ITEM // FLOAT
    overhead = OVERHEAD if program.kernel.visits is None else OVERHEAD_TESTS
    return (tiles + scores + kept) // THREADS + overhead
