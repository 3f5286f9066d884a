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

What no datasheet states (`Constants`) is read off one machine's runs and kept in its file, under
``[calibration]``, with how it was measured. No constant knows a diagram.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache

from napkin.cost.machines import MEASURED, Machine, machine
from napkin.cost.products import WARPGROUP_ROWS
from napkin.cost.queueing import cycle

ARITHMETIC_LANES = 128
"""float32 operations per clock and SM (CUDA Programming Guide, arithmetic throughput)."""

SCHEDULERS = 4
"""Warps of an SM that issue an instruction in a clock."""

EVERY = 2
"""Clocks from one instruction of a warp to the next where its values follow from each other: gelu
after products takes twice its share of a multiprocessor with 4 warps, and its share with 8."""

CHAIN = "products in turn with arithmetic"
TURNS = "products, with what a turn takes beside"
L2, DRAM, L1 = "L2 to shared memory", "DRAM", "L1"
ACCESSES = "loads and stores of few bytes each"
ARRIVAL = "arrival of chunks that are loaded ahead"


@dataclass(frozen=True)
class Constants:
    """What is read off runs on one machine; its file says how each was measured.

    Attributes:
        launch: seconds from a launch to the first instruction, and after the last.
        start: seconds from a group's first load to its first product or value.
        turn: seconds that a turn of a loop of products takes beside them.
        arrival: seconds from when a chunk is asked for to its first byte.
        chain_turn: that of a turn in which products and arithmetic wait for each other.
        row_turn: seconds of a turn of another loop, however little it computes.
        wait: seconds for each load that is waited for in a turn.
        row_slots: instructions that a warp issues in a turn of a loop of rows beside its values:
            reductions over a warp and a group.
        dram_share, l2_share, tensor_share: of the stated rates, what is reached.
        l2_apart: that of L2 where groups are of different lengths, which read a chunk one after
            another and not at once.
        streamed: bytes/s that one multiprocessor takes from DRAM, however few there are.
        stall: clocks of a multiprocessor for each of arithmetic that products wait for.
        special_slots: instructions that one special function counts as there.
        hidden_2, hidden_3: what is left of such a turn where two groups, or three and more, share
            a multiprocessor.
        narrow: times that a product takes whose rows are fewer than those of the fastest matrix
            instruction, on a machine where a group issues that (wgmma): it runs on another.
        single: clocks of a multiprocessor for each 32 values of operands that are loaded one by
            one.
        access: clocks of a multiprocessor for each load or store of a warp, however few its bytes.
        between: times that bytes of boxes take from L2 whose rows begin between sectors.
        exposed: share of the faster pipes' time that is not hidden behind the slowest.
        rows_exposed: that of arithmetic in a loop of rows, times the groups of a multiprocessor.
    """

    launch: float
    start: float
    turn: float
    arrival: float
    chain_turn: float
    row_turn: float
    wait: float
    row_slots: float
    dram_share: float
    l2_share: float
    l2_apart: float
    tensor_share: float
    streamed: float
    stall: float
    special_slots: float
    hidden_2: float
    hidden_3: float
    narrow: float
    single: float
    access: float
    between: float
    exposed: float
    rows_exposed: float

    def hidden(self, resident: int, pipelined: bool) -> float:
        """What is left of a turn of products and arithmetic beside other groups."""
        most = min(resident, 3 if pipelined else 2)
        return {1: 1.0, 2: self.hidden_2, 3: self.hidden_3}[most]

    @staticmethod
    @cache
    def of(place: Machine) -> Constants:
        """The constants of a machine; where its file lacks one, that of the H100."""
        own = {k: f.value for k, f in place.calibration.items()}
        if borrows(place):
            own = {k: f.value for k, f in machine(MEASURED).calibration.items()} | own
        return Constants(**{f.name: own[f.name] for f in fields(Constants)})


def borrows(place: Machine) -> bool:
    """Whether some constants of a machine are those of `MEASURED`."""
    return not {f.name for f in fields(Constants)} <= place.calibration.keys()


@dataclass(frozen=True)
class Execution:
    """What a kernel does at given tiles, over all groups.

    Attributes:
        work: operations per pipe: "product", "arithmetic", "special".
        tail: those of them that are done after the loops.
        inner_bytes: bytes that pass between L2 and the multiprocessors.
        cached_bytes: bytes that are read of what L1 has already.
        outer_bytes: bytes from and to the outermost memory.
        between_bytes: bytes into the inner level in boxes whose rows begin between sectors.
        singles: values of streamed operands that are loaded one by one, and not ahead.
        accesses: loads and stores of whole warps, of what no tensor descriptor serves.
        stored_bytes: bytes that are written after the loops.
        groups: program instances; the last wave of them may leave multiprocessors idle.
        resident: program instances that one multiprocessor has room for at once.
        warps: of a group.
        chunks: turns of the streamed loop in one group; 0 where nothing is streamed.
        pipelined: whether their loads are started a turn or more ahead.
        ahead: chunks that are asked for before the one that is computed.
        overlapped: whether a group's own loads go on while its last chunk is computed.
        chained: whether products and arithmetic wait for each other.
        rows: of the smallest product; 0 where there is none.
        longest: work of the busiest group over that of a group on average.
        staggered: whether groups of one wave visit other chunks, or as many as they need.
        loads: how often a turn waits for memory where loads are not started ahead.
        laned: whether lanes keep the folds, so that no turn reduces over a warp or a group.
        persistent: whether program instances take groups in turn, the next one's loads ahead.
    """

    work: Mapping[str, float]
    groups: int
    tail: Mapping[str, float] = field(default_factory=dict[str, float])
    inner_bytes: float = 0.0
    cached_bytes: float = 0.0
    outer_bytes: float = 0.0
    between_bytes: float = 0.0
    singles: float = 0.0
    accesses: float = 0.0
    stored_bytes: float = 0.0
    resident: int = 1
    warps: int = 4
    chunks: int = 0
    pipelined: bool = False
    ahead: int = 1
    overlapped: bool = True
    chained: bool = False
    rows: int = 0
    longest: float = 1.0
    staggered: bool = False
    loads: int = 1
    laned: bool = False
    persistent: bool = False

    @property
    def waits(self) -> bool:
        """Whether products and arithmetic wait, in every turn, for what it loads."""
        return self.chained and not self.pipelined

    def looped(self, pipe: str) -> float:
        """Operations of a pipe in the loops."""
        return self.work[pipe] - self.tail.get(pipe, 0.0)


@dataclass(frozen=True)
class Time:
    """Seconds of one kernel and the pipe that sets them.

    Attributes:
        pipes: seconds of every pipe by itself.
    """

    seconds: float
    limited_by: str
    pipes: Mapping[str, float]


def predict(place: Machine, dtype: str, run: Execution, constants: Constants | None = None) -> Time:
    """The time of a kernel; `dtype` is that of its products, `constants` are by default those of
    the machine."""
    c = constants or Constants.of(place)
    # Groups are spread over all multiprocessors before one of them holds a second.
    resident = max(1, min(run.resident, -(-run.groups // place.sms)))
    run = run if run.resident == resident else replace(run, resident=resident)
    waves = run.groups / (place.sms * run.resident)
    computing = _computing(place, dtype, run, c)
    turns, pipes = _turns(place, run, c, computing)
    busiest = -(-run.groups // place.sms)
    idle = math.ceil(waves) / waves if waves else 1.0
    if TURNS in pipes:
        idle = busiest * place.sms / run.groups
    if CHAIN in pipes:
        idle = _unshared(place, run, c)
    pipes = {k: v * idle for k, v in pipes.items()}
    if TURNS in pipes and run.pipelined:
        pipes[ARRIVAL] = -(-busiest // run.resident) * run.chunks * _arrives(place, run, c)
    crossing = run.inner_bytes + (c.between - 1) * run.between_bytes
    share = c.l2_apart if run.staggered else c.l2_share
    pipes[L2] = crossing / (share * place.l2_rate) * idle
    accesses = run.accesses * c.access / (place.sms * place.clock) * idle
    if accesses > pipes[L2]:  # of 16 bytes a thread, L2 sets the time and not their number
        pipes[ACCESSES] = accesses
    busy = min(max(run.groups, 1), place.sms)
    pipes[DRAM] = run.outer_bytes / min(c.dram_share * place.dram_rate, c.streamed * busy)
    if run.cached_bytes:
        pipes[L1] = run.cached_bytes / place.register_rate * idle
    if run.singles:
        pipes["loads of single values"] = run.singles / 32 * c.single / (place.sms * place.clock)
    alone = turns * place.sms / max(run.groups, 1)  # of a group on average
    waited = run.chunks * run.loads * c.wait if run.waits else 0.0
    if run.work["product"] and not run.chunks:  # nothing starts before all of it is there
        alone += run.inner_bytes / max(run.groups, 1) / c.streamed
    apart = run.work["product"] > 0  # what is before and after the loops is not hidden
    start = 0.0 if apart else c.start
    pipes["latency"] = math.ceil(waves) * (start + _still(run, c))
    if run.waits:
        product = next(iter(computing.values())) * place.sms / max(run.groups, 1)
        each = cycle(run.resident, (product, alone - product), waited)
        pipes["latency"] = busiest / run.resident * each
        alone += waited
    slowest = max(pipes, key=lambda k: pipes[k])
    seconds = pipes[slowest] + _beside(run, c, pipes, slowest)
    if not _overlaps(run):
        moves = {L2, DRAM, ACCESSES} & pipes.keys()
        moving = max(pipes[k] for k in moves)
        seconds = moving + max(v for k, v in pipes.items() if k not in moves | {L1})
    if apart:
        seconds += _apart(place, dtype, run, c, busiest)
    # However the groups are spread, one of them runs on one multiprocessor.
    if run.longest > 1.0 and alone * run.longest > seconds:
        slowest, seconds = "the longest group", alone * run.longest
    return Time(seconds + c.launch, "launch" if seconds < c.launch else slowest, pipes)


def at_least(place: Machine, moved: int) -> float:
    """Seconds that no kernel undercuts that moves so many bytes from and to the outermost memory:
    whatever else it does, `predict` hides none of that."""
    c = Constants.of(place)
    return moved / (c.dram_share * place.dram_rate) + c.launch


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
    products = "tensor cores" if dtype != "fp32" else "fp32 arithmetic"
    narrow = _narrow(place, dtype, run, c)
    return {
        products: run.looped("product") / (c.tensor_share * place.peak(dtype)) * narrow,
        "arithmetic": run.looped("arithmetic") / _lanes(place),
        "special functions": run.looped("special") / place.special_rate,
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
        turns = product + c.stall * slots / _lanes(place)
        if run.pipelined:
            turns += run.chunks * c.chain_turn * run.groups / place.sms
        pipes[CHAIN] = turns * c.hidden(run.resident, run.pipelined)
        return turns, pipes
    if run.work["product"] and run.chunks:
        pipes[TURNS] = product + run.chunks * c.turn * run.groups / place.sms
        return pipes[TURNS], pipes
    if run.chunks:
        slots = 0.0 if run.laned else run.groups * run.chunks * run.warps * c.row_slots
        pipes["issue of instructions"] = slots / (SCHEDULERS * place.sms * place.clock)
    return max(computing.values()), pipes


def _arrives(place: Machine, run: Execution, c: Constants) -> float:
    """Seconds from one chunk of a group to the next, as they arrive: each crosses at its share of
    what L2 gives."""
    each = max(0.0, run.inner_bytes - run.stored_bytes) / (run.groups * run.chunks)
    return (c.arrival + each * place.sms / (c.l2_share * place.l2_rate)) / max(run.ahead, 1)


def _still(run: Execution, c: Constants) -> float:
    """Seconds of a group's loop beside its work; lanes wait for what each turn loads."""
    ahead = run.pipelined and not run.laned
    return run.chunks * (c.row_turn if ahead else c.wait * run.loads)


def _overlaps(run: Execution) -> bool:
    """Whether memory and computing go on together: in a group, or among the groups of one SM."""
    if run.work["product"]:
        if run.chunks and run.pipelined and not run.chained:  # what is waited for is in `ARRIVAL`
            return True
        beside = run.overlapped or run.resident > 1
        return beside and (run.chained or run.pipelined or not run.chunks)
    return run.resident > 1


def _beside(run: Execution, c: Constants, pipes: Mapping[str, float], slowest: str) -> float:
    """Seconds of the faster pipes that are not hidden."""
    rest = {k: v for k, v in pipes.items() if k not in {slowest, "latency"}}
    if run.work["product"]:
        # What computes is in the turn already.
        whole = CHAIN in pipes or TURNS in pipes
        moved = {TURNS, ARRIVAL} if run.waits else {TURNS, ARRIVAL, L2, DRAM}
        return c.exposed * sum(v for k, v in rest.items() if k in moved or not whole)
    turns = run.chunks and not run.laned
    share = min(c.rows_exposed, c.exposed + c.rows_exposed / run.resident) if turns else 0.0
    own = {"arithmetic": share, "special functions": share} if turns else {}
    return sum(max(own.get(k, 0.0), c.exposed) * v for k, v in rest.items())


def _apart(place: Machine, dtype: str, run: Execution, c: Constants, busiest: int) -> float:
    """Seconds of one multiprocessor's groups before and after their loops of products."""
    computed, stored = _end(place, dtype, run, c)
    starts = 1 if run.persistent else busiest
    return (starts * c.start + busiest * stored) / math.sqrt(run.resident) + busiest * computed


def _end(place: Machine, dtype: str, run: Execution, c: Constants) -> tuple[float, float]:
    """Seconds of one group after its loops: of products and arithmetic, and of storing."""
    rate = c.tensor_share * place.peak(dtype) / _narrow(place, dtype, run, c)
    products = run.tail.get("product", 0.0) / rate * place.sms / max(run.groups, 1)
    slots = run.tail.get("arithmetic", 0.0) + c.special_slots * run.tail.get("special", 0.0)
    stored = run.stored_bytes / max(run.groups, 1) / c.streamed
    few = max(1.0, EVERY * SCHEDULERS / (run.resident * run.warps))
    return products + few * slots / _lanes(place) * place.sms / max(run.groups, 1), stored


def _lanes(place: Machine) -> float:
    """float32 operations per second of the chip."""
    return ARITHMETIC_LANES * place.sms * place.clock
