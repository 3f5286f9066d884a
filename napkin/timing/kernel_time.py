"""Time of a kernel from its own loop program: seconds on every pipe, and how they overlap.

The pipe that takes longest sets the time, and the others add the share of theirs that is not
hidden. Three kinds of kernels differ in what overlaps:

- Kernels without matrix products load, compute and store in turn (`row_kernels.py`).
- Warp-specialised kernels overlap warpgroups of one CTA (`warp_specialised.py`).
- All others run in waves of CTAs (`Waves.predicted`). The iterations of a loop overlap loads with
  products. They do not where products wait for arithmetic (arXiv 2412.03317, section 6), nor where
  loads are not started ahead: then the CTAs of an SM overlap each other, as customers of a closed
  queueing network.

Chunks that are loaded ahead arrive no sooner than memory answers: with N chunks under way, a CTA
takes an iteration for each N-th of that latency. R CTAs of an SM take R iterations in it. L2
answers CTAs that read a chunk at once with one reading; where their lengths differ, it takes longer
(`l2_apart`).

Prologue and epilogue around products are not hidden: the CTAs of an SM start and end together, and
the tensor cores wait. Of R CTAs each waits 1 / sqrt(R) as long. A persistent CTA has one prologue:
it asks for the next tile's chunks before its products end.

What no datasheet states (`Constants`) is read off one machine's runs and kept in its file, under
``[calibration]``, with how it was measured. No constant knows a diagram.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from napkin.count.matrix_products import WARPGROUP_ROWS
from napkin.machine.calibration import Constants
from napkin.machine.machines import Machine
from napkin.timing.execution import (
    ACCESSES,
    ARITHMETIC,
    DRAM,
    L1,
    L2,
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

CHAIN = "products in turn with arithmetic"
TURNS = "products, with what a turn takes beside"
LATENCY = "latency"
SINGLES = "loads of single values"


def predict(place: Machine, dtype: str, run: Execution, constants: Constants | None = None) -> Time:
    """The time of a kernel; `dtype` is that of its products, `constants` are by default those of
    the machine."""
    c = constants or Constants.of(place)
    # Groups are spread over all multiprocessors before one of them holds a second.
    resident = max(1, min(run.resident, -(-run.groups // place.sms)))
    run = run if run.resident == resident else replace(run, resident=resident)
    model = Waves(place, dtype, run, c)
    if not run.work["product"]:
        return in_rounds(place, run, c, {**model.computing, **model.moving()})
    if not run.schedule.warpgroups:
        return model.predicted()
    if run.chained:
        return in_bands(place, run, c, model.computing, model.moving())
    own = replace(model, c=replace(c, l2_share=c.sums_l2, partial=c.sums_partial))
    memory = model.moving()[DRAM]
    return adding(place, run, c, model.computing, memory, own.arrival, model.epilogue)


def at_least(place: Machine, moved: int, multiplied: float = 0.0, dtype: str = "") -> float:
    """Seconds that no kernel undercuts that moves so many bytes from and to the outermost memory,
    and does so many operations of products of `dtype`: whatever else it does, `predict` hides none
    of either."""
    c = Constants.of(place)
    product = multiplied / (c.tensor_share * place.peak(dtype)) if multiplied else 0.0
    return max(moved / (c.dram_share * place.dram_rate), product) + c.launch


@dataclass(frozen=True)
class Waves:
    """Seconds of a kernel whose CTAs run in waves.

    Attributes:
        dtype: the type of its products.
        run: what it does, with as many groups (CTAs) to an SM as run at once.
    """

    place: Machine
    dtype: str
    run: Execution
    c: Constants

    def predicted(self) -> Time:
        """Its time, where it has products."""
        pipes = self.pipes
        slowest = max(pipes, key=lambda k: pipes[k])
        seconds = self._loops(slowest) + self._around_loops
        # However the groups are spread, one of them runs on one multiprocessor.
        longest = self._alone * self.run.longest
        if self.run.longest > 1.0 and longest > seconds:
            slowest, seconds = "the longest group", longest
        launch = self.c.launch
        return Time(seconds + launch, "launch" if seconds < launch else slowest, pipes)

    # --- pipes of the chip ----------------------------------------------------------------------

    @cached_property
    def pipes(self) -> dict[str, float]:
        """Seconds of each pipe by itself; those of an SM count the SMs that idle at the end."""
        run, looped = self.run, dict(self.computing)
        if self._loop:
            looped[self._loop] = self._iterations
        if self._loop == CHAIN:
            looped[CHAIN] *= self.c.hidden(run.resident, run.pipelined)
        out = {k: v * self._idle for k, v in looped.items()} | self.moving(self._idle)
        if self._loop == TURNS and run.pipelined:
            out[ARRIVAL] = -(-self._busiest // run.resident) * run.chunks * self.arrival
        if run.waits:
            out[LATENCY] = self._busiest / run.resident * self._in_queue
        elif not run.pipelined:
            out[LATENCY] = math.ceil(self._waves) * run.chunks * run.loads * self.c.wait
        return out

    @cached_property
    def computing(self) -> dict[str, float]:
        """Seconds of the loops on each pipe that computes, with all SMs busy; products first."""
        products = "tensor cores" if self.dtype != "fp32" else "fp32 arithmetic"
        return {
            products: self.run.looped("product") / self._product_rate * self._narrow,
            ARITHMETIC: self.run.looped("arithmetic") / arithmetic_rate(self.place),
            SPECIAL: self.run.looped("special") / self.place.special_rate,
        }

    def moving(self, idle: float = 1.0) -> dict[str, float]:
        """Seconds of each pipe that moves bytes. Those of an SM take `idle` times as long: it has
        groups that others do not have."""
        place, run, c = self.place, self.run, self.c
        share = c.l2_apart if run.staggered else c.l2_share
        pipes = {L2: self._crossing / (share * place.l2_rate) * idle}
        accesses = run.accesses * c.access / (place.sms * place.clock) * idle
        if accesses > pipes[L2]:  # of 16 bytes a thread, L2 sets the time and not their number
            pipes[ACCESSES] = accesses
        busy = min(max(run.groups, 1), place.sms)
        pipes[DRAM] = run.outer_bytes / min(c.dram_share * place.dram_rate, c.streamed * busy)
        if run.cached_bytes:
            pipes[L1] = run.cached_bytes / place.register_rate * idle
        if run.singles:
            pipes[SINGLES] = run.singles / 32 * c.single / (place.sms * place.clock)
        return pipes

    @property
    def _crossing(self) -> float:
        """Bytes that L2 answers, with a share of those that lie beside boxes in their lines."""
        return self.run.inner_bytes + self.c.partial * self.run.partial_bytes

    @property
    def _product_rate(self) -> float:
        """Operations per second of products that have enough rows."""
        return self.c.tensor_share * self.place.peak(self.dtype)

    @property
    def _narrow(self) -> float:
        """Times that products take for having fewer rows than the fastest matrix instruction."""
        granules, rows = self.place.granules, self.run.rows
        least = granules["mma_rows"].value if "mma_rows" in granules else 0
        few = self.dtype != "fp32" and least >= WARPGROUP_ROWS and 0 < rows < WARPGROUP_ROWS
        return self.c.narrow if few else 1.0

    # --- the loops ------------------------------------------------------------------------------

    @property
    def _loop(self) -> str:
        """The pipe on which the iterations of a loop follow each other; "" where none do."""
        return CHAIN if self.run.chained else TURNS if self.run.chunks else ""

    @cached_property
    def _iterations(self) -> float:
        """Seconds that the loops compute with all SMs busy, each with one group."""
        place, run, c = self.place, self.run, self.c
        if not self._loop:
            return max(self.computing.values())
        seconds = next(iter(self.computing.values()))
        if run.chained:
            slots = run.looped("arithmetic") + c.special_slots * run.looped("special")
            seconds += c.stall * slots / arithmetic_rate(place)
        if not run.waits:
            each = c.chain_turn if run.chained else c.turn
            seconds += run.chunks * each * run.groups / place.sms
        return seconds

    def _loops(self, slowest: str) -> float:
        """Seconds of all loops: of the slowest pipe, and a share of those that it hides."""
        pipes = self.pipes
        if self._overlap:
            # An iteration has its products and arithmetic in it already.
            beside = {TURNS, ARRIVAL} if self.run.waits else {TURNS, ARRIVAL, L2, DRAM}
            beside = (beside if self._loop else pipes.keys()) - {slowest, LATENCY}
            return pipes[slowest] + self.c.exposed * sum(v for k, v in pipes.items() if k in beside)
        moves = {L2, DRAM, ACCESSES} & pipes.keys()
        computing = max(v for k, v in pipes.items() if k not in moves | {L1})
        return max(pipes[k] for k in moves) + computing

    @property
    def _overlap(self) -> bool:
        """Whether memory and computing go on together: in a group, or among those of an SM."""
        run = self.run
        if self._loop == TURNS and run.pipelined:  # waiting for memory is in `ARRIVAL`
            return True
        beside = run.overlapped or run.resident > 1
        return beside and (run.chained or run.pipelined or not run.chunks)

    # --- waves ----------------------------------------------------------------------------------

    @property
    def _waves(self) -> float:
        return self.run.groups / (self.place.sms * self.run.resident)

    @property
    def _busiest(self) -> int:
        """Groups of the busiest SM."""
        return -(-self.run.groups // self.place.sms)

    @cached_property
    def _idle(self) -> float:
        """Time of the pipes of an SM over what they would take if all SMs were busy to the end."""
        if self._loop == CHAIN:
            return self._last_wave
        if self._loop == TURNS:
            return self._busiest * self.place.sms / self.run.groups
        return math.ceil(self._waves) / self._waves

    @property
    def _last_wave(self) -> float:
        """`_idle` where groups of an SM hide each other's waiting: in the last wave it may hold
        fewer, which hide less of it and end sooner."""
        sms, run, hidden = self.place.sms, self.run, self.c.hidden
        waves, left = divmod(run.groups, sms * run.resident)
        last = -(-left // sms)
        each = run.resident * hidden(run.resident, run.pipelined)
        rounds = waves * each + (last * hidden(last, run.pipelined) if last else 0.0)
        return rounds * run.resident * sms / (each * run.groups)

    # --- one group ------------------------------------------------------------------------------

    @property
    def _busy(self) -> float:
        """Seconds of a group on average that does not wait for the loads of its iterations."""
        busy = self._iterations * self.place.sms / self.run.groups
        if not self.run.chunks:  # nothing starts before all of it is there
            busy += self.run.inner_bytes / self.run.groups / self.c.streamed
        return busy

    @property
    def _waited(self) -> float:
        """Seconds that a group waits for the loads of its iterations, not started ahead."""
        return self.run.chunks * self.run.loads * self.c.wait if self.run.waits else 0.0

    @property
    def _alone(self) -> float:
        """Seconds of a group on average that has an SM to itself."""
        return self._busy + self._waited

    @property
    def _in_queue(self) -> float:
        """Seconds of a group that shares its SM with others that wait for loads, too."""
        product = next(iter(self.computing.values())) * self.place.sms / self.run.groups
        return cycle(self.run.resident, (product, self._busy - product), self._waited)

    @property
    def arrival(self) -> float:
        """Seconds from one chunk of a group to the next, as they arrive: each crosses at its share
        of what L2 gives."""
        place, run, c = self.place, self.run, self.c
        each = max(0.0, self._crossing - run.stored_bytes) / (run.groups * run.chunks)
        answer = c.arrival + each * place.sms / (c.l2_share * place.l2_rate)
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
        place, run, c = self.place, self.run, self.c
        products = run.tail.get("product", 0.0) / (self._product_rate / self._narrow)
        slots = run.tail.get("arithmetic", 0.0) + c.special_slots * run.tail.get("special", 0.0)
        few = max(1.0, EVERY * SCHEDULERS / (run.resident * run.schedule.warps))
        computed = products * place.sms / run.groups
        computed += few * slots / arithmetic_rate(place) * place.sms / run.groups
        return computed, run.stored_bytes / run.groups / c.streamed
