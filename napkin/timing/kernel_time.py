"""Time of a kernel from its own loop program: clocks on every pipe, and how they overlap.

A kernel's groups run in waves. In a group, the loop's pipes run beside each other (loads ahead of
products), or in turn where one waits for the other: products and the arithmetic between them
(arXiv 2412.03317, section 6), loads that are not started ahead. The pipe that takes longest sets
the time, and others add the share of theirs that is not hidden. Groups that wait for their loads in
every turn, several to a multiprocessor, meet at its pipes: a closed queueing network.

Groups of one length read a chunk at once, and L2 answers many of them with one reading; where
lengths differ, each asks for itself, and takes longer.

Chunks that are loaded ahead arrive no sooner than memory answers: a group with N chunks under way
takes a turn for each N-th of that, however little it computes, and R groups of a multiprocessor
take R turns in it. Products of few values need N R chunks to keep the tensor cores busy.

What a group does before and after its loop is not hidden. Around products it is paid for every
group of the busiest multiprocessor, whether or not it holds others: those start and end together,
and the tensor cores wait for all of them. Of R groups that wait, each waits 1 / sqrt(R) as long. A
persistent program instance starts once: its next group's chunks are asked for before its products
end. Its tile leaves between the products of one group and the next, and what it computes after a
loop takes as long as its own warps can issue it.

Kernels that multiply nothing have a law of their own (`rows.py`). What no datasheet states
(`Constants`) is read off one machine's runs and kept in its file, under ``[calibration]``, with how
it was measured. No constant knows a diagram.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from napkin.count.matrix_products import WARPGROUP_ROWS
from napkin.machine.calibration import Constants
from napkin.machine.machines import Machine
from napkin.timing.execution import (
    ACCESSES,
    ARITHMETIC,
    DRAM,
    IMBALANCE,
    L1,
    L2,
    LATENCY,
    LAUNCH,
    SCHEDULERS,
    SPECIAL,
    Execution,
    Time,
    arithmetic_rate,
)
from napkin.timing.queueing import cycle
from napkin.timing.row_kernels import in_rounds
from napkin.timing.warp_specialised import ARRIVAL, adding, in_bands

EVERY = 2
"""Clocks from one instruction of a warp to the next where its values follow from each other: gelu
after products takes twice its share of a multiprocessor with 4 warps, and its share with 8."""

CHAIN = "serialised products and arithmetic"
TURNS = "products and loop overhead"


def predict(place: Machine, dtype: str, run: Execution, constants: Constants | None = None) -> Time:
    """The time of a kernel; `dtype` is that of its products, `constants` are by default those of
    the machine."""
    c = constants or Constants.of(place)
    # Groups are spread over all multiprocessors before one of them holds a second.
    resident = max(1, min(run.resident, -(-run.groups // place.sms)))
    run = run if run.resident == resident else replace(run, resident=resident)
    computing = _computing(place, dtype, run, c)
    if not run.work["product"]:
        return in_rounds(place, run, c, {**computing, **_moving(place, run, c)})
    specialised = run.schedule.warpgroups > 0
    if specialised and not run.chained:
        memory = _moving(place, run, c)[DRAM]
        own = replace(c, l2_share=c.sums_l2, partial=c.sums_partial)
        arrives = _arrives(place, run, own)
        return adding(place, run, c, computing, memory, arrives, _end(place, dtype, run, c))
    if specialised:
        return in_bands(place, run, c, computing, _moving(place, run, c))
    waves = run.groups / (place.sms * run.resident)
    turns, pipes = _turns(place, run, c, computing)
    busiest = -(-run.groups // place.sms)
    idle = math.ceil(waves) / waves
    if TURNS in pipes:
        idle = busiest * place.sms / run.groups
    if CHAIN in pipes:
        idle = _unshared(place, run, c)
    pipes = {k: v * idle for k, v in pipes.items()} | _moving(place, run, c, idle)
    if TURNS in pipes and run.pipelined:
        pipes[ARRIVAL] = -(-busiest // run.resident) * run.chunks * _arrives(place, run, c)
    if not run.pipelined:
        pipes[LATENCY] = math.ceil(waves) * run.chunks * run.loads * c.wait
    alone = turns * place.sms / run.groups  # of a group on average
    if not run.chunks:  # nothing starts before all of it is there
        alone += run.inner_bytes / run.groups / c.streamed
    if run.waits:
        waited = run.chunks * run.loads * c.wait
        product = next(iter(computing.values())) * place.sms / run.groups
        each = cycle(run.resident, (product, alone - product), waited)
        pipes[LATENCY] = busiest / run.resident * each
        alone += waited
    slowest = max(pipes, key=lambda k: pipes[k])
    seconds = pipes[slowest] + _beside(run, c, pipes, slowest)
    if not _overlaps(run):
        moves = {L2, DRAM, ACCESSES} & pipes.keys()
        moving = max(pipes[k] for k in moves)
        seconds = moving + max(v for k, v in pipes.items() if k not in moves | {L1})
    seconds += _apart(place, dtype, run, c, busiest)
    # However the groups are spread, one of them runs on one multiprocessor.
    if run.longest > 1.0 and alone * run.longest > seconds:
        slowest, seconds = IMBALANCE, alone * run.longest
    return Time(seconds + c.launch, LAUNCH if seconds < c.launch else slowest, pipes)


def at_least(place: Machine, moved: int, multiplied: float = 0.0, dtype: str = "") -> float:
    """Seconds that no kernel undercuts that moves so many bytes from and to the outermost memory,
    and does so many operations of products of `dtype`: whatever else it does, `predict` hides none
    of either."""
    c = Constants.of(place)
    product = multiplied / (c.tensor_share * place.peak(dtype)) if multiplied else 0.0
    return max(moved / (c.dram_share * place.dram_rate), product) + c.launch


def _moving(place: Machine, run: Execution, c: Constants, idle: float = 1.0) -> dict[str, float]:
    """Seconds of each pipe that moves bytes; `idle` is how much longer those of a multiprocessor
    take for the groups that the others do not have."""
    crossing = run.inner_bytes + c.partial * run.partial_bytes
    share = c.l2_apart if run.staggered else c.l2_share
    pipes = {L2: crossing / (share * place.l2_rate) * idle}
    accesses = run.accesses * c.access / (place.sms * place.clock) * idle
    if accesses > pipes[L2]:  # of 16 bytes a thread, L2 sets the time and not their number
        pipes[ACCESSES] = accesses
    busy = min(max(run.groups, 1), place.sms)
    pipes[DRAM] = run.outer_bytes / min(c.dram_share * place.dram_rate, c.streamed * busy)
    if run.cached_bytes:
        pipes[L1] = run.cached_bytes / place.register_rate * idle
    if run.singles:
        pipes["single-element loads"] = run.singles / 32 * c.single / (place.sms * place.clock)
    return pipes


def _unshared(place: Machine, run: Execution, c: Constants) -> float:
    """Time of all waves over that of as many groups as fill them: in the last one a multiprocessor
    may hold fewer groups, which hide less of each other's waiting and end sooner."""
    waves, left = divmod(run.groups, place.sms * run.resident)
    last = -(-left // place.sms)
    each = run.resident * c.hidden(run.resident, run.pipelined)
    rounds = waves * each + (last * c.hidden(last, run.pipelined) if last else 0.0)
    return rounds * run.resident * place.sms / (each * run.groups)


def _computing(place: Machine, dtype: str, run: Execution, c: Constants) -> dict[str, float]:
    """Seconds of the loops on each pipe that computes."""
    products = "tensor cores" if dtype != "fp32" else "fp32 matrix products"
    narrow = _narrow(place, dtype, run, c)
    return {
        products: run.looped("product") / (c.tensor_share * place.peak(dtype)) * narrow,
        ARITHMETIC: run.looped("arithmetic") / arithmetic_rate(place),
        SPECIAL: run.looped("special") / place.special_rate,
    }


def _narrow(place: Machine, dtype: str, run: Execution, c: Constants) -> float:
    """Times that products take for having fewer rows than the fastest matrix instruction."""
    least = place.granules["mma_rows"].value if "mma_rows" in place.granules else 0
    few = dtype != "fp32" and least >= WARPGROUP_ROWS and 0 < run.rows < WARPGROUP_ROWS
    return c.narrow if few else 1.0


def _turns(
    place: Machine, run: Execution, c: Constants, computing: Mapping[str, float]
) -> tuple[float, dict[str, float]]:
    """Seconds that the loops compute if all multiprocessors are busy, and of each pipe."""
    pipes, product = dict(computing), next(iter(computing.values()))
    if run.chained:
        slots = run.looped("arithmetic") + c.special_slots * run.looped("special")
        turns = product + c.stall * slots / arithmetic_rate(place)
        if run.pipelined:
            turns += run.chunks * c.chain_turn * run.groups / place.sms
        pipes[CHAIN] = turns * c.hidden(run.resident, run.pipelined)
        return turns, pipes
    if run.chunks:
        pipes[TURNS] = product + run.chunks * c.turn * run.groups / place.sms
        return pipes[TURNS], pipes
    return max(computing.values()), pipes


def _arrives(place: Machine, run: Execution, c: Constants) -> float:
    """Seconds from one chunk of a group to the next, as they arrive: each crosses at its share of
    what L2 gives."""
    crossing = max(0.0, run.inner_bytes + c.partial * run.partial_bytes - run.stored_bytes)
    each = crossing / (run.groups * run.chunks)
    return (c.arrival + each * place.sms / (c.l2_share * place.l2_rate)) / max(
        run.schedule.stages - 1, 1
    )


def _overlaps(run: Execution) -> bool:
    """Whether memory and computing go on together: in a group, or among the groups of one SM."""
    if run.chunks and run.pipelined and not run.chained:  # what is waited for is in `ARRIVAL`
        return True
    beside = run.overlapped or run.resident > 1
    return beside and (run.chained or run.pipelined or not run.chunks)


def _beside(run: Execution, c: Constants, pipes: Mapping[str, float], slowest: str) -> float:
    """Seconds of the faster pipes that are not hidden."""
    rest = {k: v for k, v in pipes.items() if k not in {slowest, LATENCY}}
    whole = CHAIN in pipes or TURNS in pipes  # what computes is in the turn already
    moved = {TURNS, ARRIVAL} if run.waits else {TURNS, ARRIVAL, L2, DRAM}
    return c.exposed * sum(v for k, v in rest.items() if k in moved or not whole)


def _apart(place: Machine, dtype: str, run: Execution, c: Constants, busiest: int) -> float:
    """Seconds of one multiprocessor's groups before and after their loops of products."""
    computed, stored = _end(place, dtype, run, c)
    starts = 1 if run.schedule.persistent else busiest
    return (starts * c.start + busiest * stored) / math.sqrt(run.resident) + busiest * computed


def _end(place: Machine, dtype: str, run: Execution, c: Constants) -> tuple[float, float]:
    """Seconds of one group after its loops: of products and arithmetic, and of storing."""
    rate = c.tensor_share * place.peak(dtype) / _narrow(place, dtype, run, c)
    products = run.tail.get("product", 0.0) / rate * place.sms / run.groups
    slots = run.tail.get("arithmetic", 0.0) + c.special_slots * run.tail.get("special", 0.0)
    stored = run.stored_bytes / run.groups / c.streamed
    few = max(1.0, EVERY * SCHEDULERS / (run.resident * run.schedule.warps))
    return products + few * slots / arithmetic_rate(place) * place.sms / run.groups, stored
