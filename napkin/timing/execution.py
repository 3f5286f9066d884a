"""What a kernel does and the time that it takes: what goes into the time model and comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from napkin.machine.machines import Machine
from napkin.schedule import Schedule

ARITHMETIC_LANES = 128
"""float32 operations per clock and SM (CUDA Programming Guide, arithmetic throughput)."""

SCHEDULERS = 4
"""Warps of an SM that issue an instruction in a clock."""

L2, DRAM, L1 = "L2 bandwidth", "DRAM bandwidth", "L1 bandwidth"
ACCESSES = "load and store instructions"
ADDITIONS = "additions in memory"
ARITHMETIC, SPECIAL = "pointwise arithmetic", "special functions"
LATENCY, IMBALANCE, LAUNCH = "memory latency", "load imbalance", "kernel launch"

DEFAULT = Schedule({})
"""One chunk at a time, in groups of 4 warps."""


@dataclass(frozen=True)
class Execution:
    """What a kernel does at given tiles, over all groups.

    Attributes:
        work: operations per pipe: "product", "arithmetic", "special".
        schedule: how it runs; of its tiles, all that counts is said here.
        tail: those of them that are done after the loops.
        inner_bytes: bytes that pass between L2 and the multiprocessors.
        cached_bytes: bytes that are read of what L1 has already.
        outer_bytes: bytes from and to the outermost memory.
        partial_bytes: bytes of the lines of the inner level that boxes touch, beyond those that
            they would fill.
        singles: values of streamed operands that are loaded one by one, and not ahead.
        accesses: loads and stores of whole warps, of what no tensor descriptor serves.
        lines: lines of L1 that these touch.
        scattered: of these, those beyond what the bytes would fill that are moved.
        moved: values that these move, each of which is converted and has a place in a mask.
        divisions: whole-number divisions by numbers that are known at run time, of a group.
        stored_bytes: bytes that are written after the loops.
        finishing_bytes: bytes that are read after the loops.
        added_bytes: bytes of what groups add to what memory holds.
        emitted: values that loops of products store, chunk by chunk.
        formed: values that are computed from readings into operands of products.
        wide: values of 4 bytes that these are computed from.
        pieces: of what is computed so, what comes to a warpgroup's registers in pieces.
        held: of what is computed so, what a warpgroup takes from the registers it is computed in.
        zeroed_bytes: bytes of zeros that are written before, in a launch of their own.
        groups: program instances; the last wave of them may leave multiprocessors idle.
        resident: program instances that one multiprocessor has room for at once.
        chunks: iterations of the streamed loop in one group; 0 where nothing is streamed.
        pipelined: whether their loads are started an iteration or more ahead, as those of loops
            that multiply nothing are where an iteration waits for a reduction of its chunk.
        overlapped: whether a group's own loads go on while its last chunk is computed.
        chained: whether products and arithmetic wait for each other.
        rows: of the smallest product; 0 where there is none.
        serial: matrix instructions of an iteration that are waited for one by one.
        links: products of an iteration of which each waits for the one before.
        recurrent: whether products of an iteration read the state that the one before leaves.
        exchanged: values of pairs of positions that lanes exchange to add them up.
        longest: work of the busiest group over that of a group on average.
        staggered: whether groups of one wave visit other chunks, or as many as they need.
        loads: how often an iteration waits for memory where loads are not started ahead.
        per_thread: whether lanes keep the folds of all loops, so that no iteration reduces over a
            warp or a group.
        tested: whether its loops test which values of a chunk count, in more than a few chunks.
        tests: chunks that are so tested for a key set, over all that are visited.
        stepped: whether an iteration begins with the state that the one before leaves.
        late: loads that such an iteration waits for, one after another.
        joins: values that a lane takes from others in an iteration, to reduce what is no product.
        crossed: clocks of shared memory in which a group's warps pass each other such values.
    """

    work: Mapping[str, float]
    groups: int
    schedule: Schedule = DEFAULT
    tail: Mapping[str, float] = field(default_factory=dict[str, float])
    inner_bytes: float = 0.0
    cached_bytes: float = 0.0
    outer_bytes: float = 0.0
    partial_bytes: float = 0.0
    singles: float = 0.0
    accesses: float = 0.0
    lines: float = 0.0
    scattered: float = 0.0
    moved: float = 0.0
    divisions: int = 0
    stored_bytes: float = 0.0
    finishing_bytes: float = 0.0
    added_bytes: float = 0.0
    emitted: float = 0.0
    formed: float = 0.0
    wide: float = 0.0
    pieces: float = 0.0
    held: float = 0.0
    zeroed_bytes: float = 0.0
    resident: int = 1
    chunks: int = 0
    pipelined: bool = False
    overlapped: bool = True
    chained: bool = False
    rows: int = 0
    serial: int = 0
    links: int = 0
    recurrent: bool = False
    exchanged: float = 0.0
    longest: float = 1.0
    staggered: bool = False
    loads: int = 1
    per_thread: bool = False
    tested: bool = False
    tests: float = 0.0
    stepped: bool = False
    late: float = 0.0
    joins: float = 0.0
    crossed: float = 0.0

    @property
    def waits(self) -> bool:
        """Whether products and arithmetic wait, in every iteration, for what it loads."""
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


def arithmetic_rate(machine: Machine) -> float:
    """float32 operations per second of the chip."""
    return ARITHMETIC_LANES * machine.sms * machine.clock
