"""Time of a kernel from its own loop program: seconds on every pipe, and how they overlap.

The pipe that takes longest sets the time, and others add the share of theirs that is not hidden.
Kernels without products (norms, softmax, losses, merges) load, compute and store in turn
(`in_rounds`). Warpgroups of one CTA overlap each other (`warp_specialised`). All other kernels run
in waves of CTAs (`Waves`): in an iteration, loads overlap products, unless products wait for
arithmetic (arXiv 2412.03317, section 6) or loads are not started ahead. CTAs that wait meet at the
pipes of their SM: a closed queueing network.

Chunks that are loaded ahead arrive no sooner than memory answers: with N of them under way, a CTA
takes an iteration for each N-th of that latency, and R CTAs of an SM take R iterations in it. CTAs
of one length read a chunk at once, and L2 answers them with one reading.

A recurrent loop's products read the state that the chunk before leaves, and wait for it. Other CTAs
of the SM compute meanwhile.

Prologues and epilogues around products are not hidden: the CTAs of an SM start and end together. Of
R CTAs each waits 1 / sqrt(R) as long. A persistent CTA has one prologue: it asks for the next
group's chunks before its products end.

What no datasheet states (`Constants`) is read off one machine's runs and kept in its file, under
``[calibration]``, with how it was measured. No constant knows a diagram.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from napkin.count.matrix_products import WARPGROUP_ROWS
from napkin.count.requested import SECTOR
from napkin.machine.calibration import Constants
from napkin.machine.machines import Machine
from napkin.timing.execution import (
    ACCESSES,
    ADDITIONS,
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
from napkin.timing.least_time import ROUNDING, narrow
from napkin.timing.queueing import blended, cycle
from napkin.timing.warp_specialised import ARRIVAL, adding, specialised_time

EVERY = 2
"""Clocks from one instruction of a warp to the next where its values follow from each other: gelu
after products takes twice its share of a multiprocessor with 4 warps, and its share with 8."""

DIVISION = 25
"""Instructions of a whole-number division with its remainder, by a number known at run time:
about, as read off the code of rotated rows (ptxas of Triton 3.6, sm_90)."""

JOIN = 3
"""Instructions in whose place a lane of a step takes a value from another and adds it: about, of 19
settings (see `OF_ONE_WARP`)."""

EXCHANGE = 4
"""Instructions in whose place a lane of any other loop takes a value from another and adds it:
about, of 140 settings of eight kernels (docs/measurements, reductions)."""

OF_ONE_WARP = 0.6
"""Share of a load's wait that a step of one warp waits for, which meets no barrier: about, of
settings of the gated delta rule, RWKV-7 and Kimi delta attention (H100, H200)."""

LINKED = 2
"""Products in a row of an iteration whose waiting is in `chain_iteration`: those of attention."""

CHAIN = "serialised products and arithmetic"
ITERATIONS = "products and loop overhead"

MOVES = frozenset({DRAM, L2, ACCESSES, ADDITIONS, L1})
"""Pipes that move bytes; the others compute."""


def predict(
    machine: Machine, dtype: str, run: Execution, constants: Constants | None = None
) -> Time:
    """The time of a kernel; `dtype` is that of its products, `constants` are by default those of
    the machine. What it adds to is set to 0 before, which takes a launch."""
    c = constants or Constants.of(machine)
    time = _of_groups(machine, dtype, run, c)
    zeros = _zeroed(machine, run, c)
    return replace(time, seconds=time.seconds + zeros) if zeros else time


def _zeroed(machine: Machine, run: Execution, c: Constants) -> float:
    if not run.zeroed_bytes:
        return 0.0
    return c.launch + run.zeroed_bytes / (c.dram_share * machine.dram_rate)


def _waves(machine: Machine, dtype: str, run: Execution, c: Constants) -> Waves:
    # Groups are spread over all multiprocessors before one of them holds a second.
    resident = max(1, min(run.resident, -(-run.groups // machine.sms)))
    run = run if run.resident == resident else replace(run, resident=resident)
    return Waves(machine, dtype, run, c)


def _of_groups(machine: Machine, dtype: str, run: Execution, c: Constants) -> Time:
    model = _waves(machine, dtype, run, c)
    run = model.run
    if not run.work["product"]:
        return in_rounds(machine, run, c, {**model.computing, **model.transfer()})
    if not run.schedule.warpgroups:
        return model.predicted()
    if run.chained:
        return specialised_time(machine, run, c, model.computing, model.transfer())
    own = replace(model, c=replace(c, l2_share=c.sums_l2, partial=c.sums_partial))
    memory = model.transfer()[DRAM]
    return adding(machine, run, c, model.computing, memory, own.arrival, model.epilogue)


def least(machine: Machine, dtype: str, run: Execution) -> float:
    """Seconds that no kernel without warpgroups undercuts that does what `run` does, and passes as
    many bytes between levels of memory, or more."""
    c = Constants.of(machine)
    if not run.work["product"]:
        seconds = predict(machine, dtype, run, c).seconds
    else:
        model = _waves(machine, dtype, run, c)
        seconds = model.least + c.launch + _zeroed(machine, run, c)
    return seconds * (1 - ROUNDING)


@dataclass(frozen=True)
class Waves:
    """Seconds of a kernel whose groups (CTAs) run in waves; `dtype` is that of its products."""

    machine: Machine
    dtype: str
    run: Execution
    c: Constants

    def predicted(self) -> Time:
        """Its time, where it has products."""
        pipes = self.pipes
        slowest = max(pipes, key=lambda k: pipes[k])
        seconds = self._loops(slowest) + self._around_loops
        # However the groups are spread, one of them runs on one multiprocessor.
        longest = sum(self._group) * self.run.longest
        if self.run.longest > 1.0 and longest > seconds:
            slowest, seconds = IMBALANCE, longest
        launch = self.c.launch
        return Time(seconds + launch, LAUNCH if seconds < launch else slowest, pipes)

    @cached_property
    def pipes(self) -> dict[str, float]:
        """Seconds of each pipe by itself; those of an SM count the SMs that idle at the end."""
        run, c, looped = self.run, self.c, dict(self.computing)
        if self._loop:
            hidden = c.hidden(run.resident, run.pipelined) if run.chained else 1.0
            looped[self._loop] = self._iterations * hidden
        out = {k: v * self._idle for k, v in looped.items()} | self.transfer(self._idle)
        if self._loop == ITERATIONS and run.pipelined:
            out[ARRIVAL] = self._waves * run.chunks * self.arrival
        busy, waited = self._group
        if waited:
            product = next(iter(self.computing.values())) * self.machine.sms / run.groups
            each = cycle(run.resident, (product, busy - product), waited)
            out[LATENCY] = self._busiest / run.resident * each
        elif not run.pipelined:
            out[LATENCY] = self._waves * run.chunks * run.loads * c.wait
        return out

    @cached_property
    def computing(self) -> dict[str, float]:
        """Seconds of the loops on each pipe that computes, with all SMs busy; products first."""
        products = "tensor cores" if self.dtype != "fp32" else "fp32 matrix products"
        rate = self.c.tensor_share * self.machine.peak(self.dtype)
        return {
            products: self.run.looped("product") / rate * self._narrow,
            ARITHMETIC: self.run.looped("arithmetic") / arithmetic_rate(self.machine),
            SPECIAL: self.run.looped("special") / self.machine.special_rate,
        }

    def transfer(self, idle: float = 1.0) -> dict[str, float]:
        """Seconds of each pipe that moves bytes. Those of an SM take `idle` times as long: it has
        groups that others do not have."""
        machine, run, c = self.machine, self.run, self.c
        share = c.l2_apart if run.staggered else c.l2_share
        crossing = run.inner_bytes + c.partial * run.partial_bytes
        pipes = {L2: crossing / (share * machine.l2_rate) * idle}
        # L1 looks up a line a clock; one that L2 sends few bytes of takes longer.
        sent = min(run.scattered, run.inner_bytes / SECTOR)
        clocks = max(run.accesses * c.access, run.lines + c.scattered * sent)
        accesses = clocks / (machine.sms * machine.clock) * idle
        if accesses > pipes[L2]:  # of 16 bytes a thread, L2 sets the time and not their number
            pipes[ACCESSES] = accesses
        if run.added_bytes:
            rate = c.l2_bulk_adds if run.schedule.warpgroups else c.l2_adds
            pipes[ADDITIONS] = run.added_bytes / (rate * machine.l2_rate) * idle
        busy = min(max(run.groups, 1), machine.sms)
        pipes[DRAM] = run.outer_bytes / min(c.dram_share * machine.dram_rate, c.streamed * busy)
        if run.cached_bytes:
            pipes[L1] = run.cached_bytes / machine.register_rate * idle
        if run.singles:
            clocks = run.singles / 32 * c.single
            pipes["single-element loads"] = clocks / (machine.sms * machine.clock)
        return pipes

    @property
    def _narrow(self) -> float:
        """Times that products take for having few rows."""
        return narrow(self.machine, self.dtype, self.run.rows)

    @property
    def _loop(self) -> str:
        """The pipe on which the iterations of a loop follow each other; "" where none do."""
        return CHAIN if self.run.chained else ITERATIONS if self.run.chunks else ""

    @cached_property
    def _iterations(self) -> float:
        """Seconds that the loops compute with all SMs busy, each with one group."""
        machine, run, c = self.machine, self.run, self.c
        if not self._loop:
            return max(self.computing.values())
        seconds = next(iter(self.computing.values()))
        if run.chained:
            slots = run.looped("arithmetic") + c.special_slots * run.looped("special")
            seconds += c.stall * slots / arithmetic_rate(machine)
            # A warpgroup turns what it stores from the layout of its products to that of rows.
            emitted = run.emitted if run.rows >= WARPGROUP_ROWS else 0.0
            seconds += c.emitted * emitted / arithmetic_rate(machine)
            stored = run.formed - run.held
            clocks = c.formed * stored + c.wide * run.wide + c.pieces * run.pieces
            clocks += c.exchange * run.exchanged + c.carry_moves * run.moved * run.recurrent
            seconds += clocks / (machine.sms * machine.clock)
        if not run.waits:
            each = c.chain_iteration if run.chained else c.iteration
            each += run.serial * c.serial / machine.clock
            each += max(0, run.links - LINKED) * c.link * run.rows**2
            seconds += run.chunks * each * run.groups / machine.sms
        return seconds

    @property
    def least(self) -> float:
        """`predicted`, but for a launch, or less: of more bytes it is no less than this. A pipe
        that they make the slowest shows no more beside the one that was."""
        if not self._together:
            return self._loops("") + self._around_loops
        pipes = {k: v for k, v in self.pipes.items() if k != L1}
        shown = [pipes[k] for k in self._shown & pipes.keys()]
        beside = self.c.exposed * (sum(shown) - max(shown, default=0.0))
        return max(pipes.values()) + beside + self._around_loops

    @property
    def _together(self) -> bool:
        """Whether moving and computing go on together, in a group or among an SM's."""
        run, ahead = self.run, self.run.pipelined or not self.run.chunks
        together = (run.overlapped or run.resident > 1) and (run.chained or ahead)
        return together or (self._loop == ITERATIONS and run.pipelined)

    @property
    def _shown(self) -> set[str]:
        """Pipes of which a share shows beside the slowest."""
        if not self._loop:
            return self.pipes.keys() - {LATENCY}
        # An iteration has its products and arithmetic in it already.
        return {ITERATIONS, ARRIVAL} | (set() if self.run.waits else {L2, DRAM, ADDITIONS})

    def _loops(self, slowest: str) -> float:
        """Seconds of all loops: of the slowest pipe and a share of those that it hides; of moving
        and then of computing where these do not go on together."""
        pipes = self.pipes
        if self._together:
            shown = self._shown - {slowest}
            return pipes[slowest] + self.c.exposed * sum(v for k, v in pipes.items() if k in shown)
        moves = {L2, DRAM, ACCESSES, ADDITIONS} & pipes.keys()
        computing = max(v for k, v in pipes.items() if k not in moves | {L1})
        return max(pipes[k] for k in moves) + computing

    @property
    def _busiest(self) -> int:
        """Groups of the busiest SM."""
        return -(-self.run.groups // self.machine.sms)

    @property
    def _waves(self) -> int:
        """Waves of groups, the last one however few these are."""
        return -(-self._busiest // self.run.resident)

    @cached_property
    def _idle(self) -> float:
        """Time of the pipes of an SM over what they would take if all SMs were busy to the end."""
        sms, run, hidden = self.machine.sms, self.run, self.c.hidden
        if self._loop == ITERATIONS:
            return self._busiest * sms / run.groups
        if not self._loop:
            return self._waves / (run.groups / (sms * run.resident))
        # In the last wave an SM may hold fewer groups, which hide less of each other's waiting and
        # end sooner.
        waves, left = divmod(run.groups, sms * run.resident)
        last = -(-left // sms)
        each = run.resident * hidden(run.resident, run.pipelined)
        rounds = waves * each + (last * hidden(last, run.pipelined) if last else 0.0)
        return rounds * run.resident * sms / (each * run.groups)

    @cached_property
    def _group(self) -> tuple[float, float]:
        """Seconds of an average group that is alone on its SM: it computes, and waits for loads
        that are not started ahead."""
        run, c = self.run, self.c
        busy = self._iterations * self.machine.sms / run.groups
        if not run.chunks:  # nothing starts before all of it is there
            busy += run.inner_bytes / run.groups / c.streamed
        waited = c.carry if run.recurrent else 0.0
        if run.waits:
            return busy, run.chunks * (run.loads * c.wait + waited)
        # Its next chunk is asked for as its products end, which read where that will lie.
        behind = run.chained and run.formed and run.schedule.stages == 2
        return busy, run.chunks * ((c.arrival if behind else 0.0) + waited)

    @property
    def arrival(self) -> float:
        """Seconds from one chunk of a group to the next, as they arrive: each crosses at its share
        of what L2 gives."""
        machine, run, c = self.machine, self.run, self.c
        crossing = run.inner_bytes + c.partial * run.partial_bytes - run.stored_bytes
        each = max(0.0, crossing) / (run.groups * run.chunks)
        answer = c.arrival + each * machine.sms / (c.l2_share * machine.l2_rate)
        return answer / max(run.schedule.stages - 1, 1)

    @property
    def _around_loops(self) -> float:
        """Seconds of the prologues and epilogues of one SM's groups."""
        computed, stored = self.epilogue
        prologues = 1 if self.run.schedule.persistent else self._busiest
        waited = prologues * self.c.start + self._busiest * stored
        return waited / math.sqrt(self.run.resident) + self._busiest * computed

    @property
    def epilogue(self) -> tuple[float, float]:
        """Seconds of one group after its loops: of products and arithmetic, and of storing."""
        machine, run, c = self.machine, self.run, self.c
        rate = c.tensor_share * machine.peak(self.dtype) / self._narrow
        products = run.tail.get("product", 0.0) / rate * machine.sms / run.groups
        slots = run.tail.get("arithmetic", 0.0) + c.special_slots * run.tail.get("special", 0.0)
        few = max(1.0, EVERY * SCHEDULERS / (run.resident * run.schedule.warps))
        arithmetic = few * slots / arithmetic_rate(machine) * machine.sms / run.groups
        moved = run.stored_bytes + c.finishing * run.finishing_bytes
        return products + arithmetic, moved / run.groups / c.streamed


def in_rounds(machine: Machine, run: Execution, c: Constants, pipes: Mapping[str, float]) -> Time:
    """The time of groups that load, compute and store, each of these after the other. In a round
    all groups of a multiprocessor do so once: it takes at least what its busiest pipe has to do for
    all of them, and at least what one of them takes alone; few groups leave memory idle while they
    compute. Groups that load ahead do so while they compute, and the last of them ends a chunk
    after the others, not a round.

    Args:
        run: with as many groups to a multiprocessor as run at once.
        pipes: seconds of each pipe by itself.
    """
    groups = max(run.groups, 1)
    each = machine.sms / groups  # of what one multiprocessor does for all its groups
    fewer = min(groups, machine.sms) / groups  # memory gives few of them more than their share
    each_waits = c.chain_iteration if run.stepped else c.row_iteration
    waits = c.row_wait + run.chunks * each_waits if run.chunks else 0.0
    one_warp = run.schedule.warps == 1
    late = run.chunks * run.late * c.wait * (OF_ONE_WARP if one_warp else 1.0)
    # Where lanes keep the folds, no iteration reduces over a warp or a group.
    reductions = 1 if run.per_thread else max(run.chunks, 1)
    crossing = SCHEDULERS * run.crossed / run.schedule.warps
    joining = reductions * max(c.row_slots, EXCHANGE * run.joins + crossing)
    slots = run.chunks * JOIN * run.joins if run.stepped else joining
    slots += DIVISION * run.divisions
    issued = run.schedule.warps * slots / (SCHEDULERS * machine.clock)
    computing = {k: v for k, v in pipes.items() if k not in MOVES}
    computing[ARITHMETIC] *= c.row_lanes
    computing[ARITHMETIC] += c.row_moves * run.moved / arithmetic_rate(machine)
    inner = max(pipes[L2], *(pipes.get(x, 0.0) for x in (ACCESSES, ADDITIONS, L1)))
    stations = pipes[DRAM] * fewer, inner * each, sum(computing.values()) * each + issued
    exposed = c.exposed * (sum(stations) - max(stations))
    few = max(1.0, SCHEDULERS / run.schedule.warps)  # a warp issues on one scheduler
    of_one = *stations[:2], few * stations[2]
    alone = max(of_one) if run.pipelined else sum(of_one)
    # One warp computes beside what it waits for; before barriers of several, nothing is computed.
    alone = waits + (blended(alone, late) if one_warp else alone + late)
    busiest = run.resident * (max(stations) + exposed)
    one = blended(alone, busiest)
    rounds = max(1.0, groups / (machine.sms * run.resident))
    left = c.uneven / (run.chunks if run.pipelined and run.chunks else 1)
    seconds = rounds * one + left * busiest
    known = {**pipes, **computing, LATENCY: rounds * (waits + late)}
    slowest = max(known, key=lambda k: known[k])
    if run.longest > 1.0 and alone * run.longest > seconds:
        slowest, seconds = IMBALANCE, alone * run.longest
    return Time(seconds + c.launch, LAUNCH if seconds < c.launch else slowest, known)
