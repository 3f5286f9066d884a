"""What the time model takes from runs on a machine, and not from a datasheet."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache

from napkin.machine.machines import MEASURED, Machine, machine


@dataclass(frozen=True)
class Constants:
    """What is read off runs on one machine; its file says how each was measured.

    Attributes:
        launch: seconds from a launch to the first instruction, and after the last.
        start: seconds from a group's first load to its first product.
        iteration: seconds that an iteration of a loop of products takes beside them.
        arrival: seconds from when a chunk is asked for to its first byte.
        chain_iteration: that of an iteration in which products and arithmetic wait for each other,
            or which waits for the one before.
        row_wait: seconds that a group waits beside a loop that multiplies nothing.
        row_iteration: that in an iteration of it.
        row_lanes: instructions of such a group for each operation of arithmetic that is counted.
        row_moves: those for each value that it loads or stores: its address, mask and conversion.
        uneven: of what the busiest pipe does in a round of such groups, how much is left for the
            last of them.
        wait: seconds for each load that is waited for in an iteration.
        row_slots: instructions that a warp issues there beside its values, in an iteration or in
            all: reductions over a warp and a group.
        dram_share, l2_share, tensor_share: of the stated rates, what is reached.
        l2_apart: that of L2 where groups are of different lengths, which read a chunk one after
            another and not at once.
        l2_adds: that of L2 where groups add float32 values to what memory holds.
        l2_bulk_adds: that where a warp adds them box by box, while warpgroups compute.
        streamed: bytes/s that one multiprocessor takes from DRAM, however few there are.
        stall: clocks of a multiprocessor for each of arithmetic that products wait for.
        special_slots: instructions that one special function counts as there.
        emitted: clocks of a multiprocessor for each value that a warpgroup stores there, in an
            iteration of products and arithmetic, over those of an operation.
        hidden_2, hidden_3: what is left of such an iteration where two groups, or three and more,
            share a multiprocessor.
        formed, wide, pieces: clocks of a multiprocessor for each value that is computed into an
            operand of a product and stored for it, for each of 4 bytes that it is computed from,
            and for each that comes to a warpgroup's registers in pieces.
        finishing: bytes stored that one byte counts as that is read after the loops.
        serial: clocks from one matrix instruction to the next where each is waited for, beside
            what it takes.
        link: seconds that a product of an iteration waits for the one before, of those in a row
            beyond two, for each value of its square operand, which passes through registers and
            shared memory.
        carry, carry_moves: seconds that an iteration waits whose products read the state that the
            one before leaves (it is rounded, and passes through shared memory to other threads),
            and clocks of a multiprocessor there for each value that no tensor descriptor serves.
        exchange: clocks of a multiprocessor for each value of a pair of positions that lanes
            exchange to add them up.
        narrow: times that a product takes whose rows are fewer than those of the fastest matrix
            instruction, on a machine where a group issues that (wgmma): it runs on another.
        single: clocks of a multiprocessor for each 32 values of operands that are loaded one by
            one.
        scattered: clocks of a multiprocessor for each line that loads or stores touch beyond those
            that their bytes would fill, over those of a line, if L2 sends them.
        access: clocks of a multiprocessor for each load or store of a warp, however few its bytes.
        partial: what a byte of a line that a box touches and does not read counts, of those that
            it reads.
        exposed: share of the faster pipes' time that is not hidden behind the slowest.
        specialised_cycle: of the time in which warpgroups of a warp-specialised CTA that meet at
            tensor cores and arithmetic come round, what is left as a chunk's products run into the
            next one.
        specialised_tests: of its arithmetic, what loops take longer that test their chunks.
        specialised_iteration, specialised_start: seconds that an iteration of a warp-specialised
            CTA takes beside, and a warp-specialised CTA.
        specialised_adds: of what is added to memory there, the share of the time that shows.
        specialised_tests_adding: how much longer a chunk takes that is tested where its sums are
            added to memory, over one that is not.
        sums_cooperative, sums_ping_pong: times that what groups of warp-specialised CTAs compute
            after sums takes, where they lie side by side, and where others multiply beside.
        sums_l2: of the stated rate of L2, what warp-specialised CTAs that only add up are answered
            at.
        sums_partial: what a byte of a line that a box touches and does not read counts there.
        sums_exposed: share of the faster pipes' time that is not hidden there.
        sums_start: seconds from such a warp-specialised CTA's first load to its first product.
    """

    launch: float
    start: float
    iteration: float
    arrival: float
    chain_iteration: float
    row_wait: float
    row_iteration: float
    row_lanes: float
    row_moves: float
    uneven: float
    wait: float
    row_slots: float
    dram_share: float
    l2_share: float
    l2_apart: float
    l2_adds: float
    l2_bulk_adds: float
    tensor_share: float
    streamed: float
    stall: float
    special_slots: float
    emitted: float
    formed: float
    wide: float
    pieces: float
    finishing: float
    hidden_2: float
    hidden_3: float
    narrow: float
    serial: float
    link: float
    carry: float
    carry_moves: float
    exchange: float
    single: float
    scattered: float
    access: float
    partial: float
    exposed: float
    specialised_cycle: float
    specialised_tests: float
    specialised_iteration: float
    specialised_start: float
    specialised_adds: float
    specialised_tests_adding: float
    sums_cooperative: float
    sums_ping_pong: float
    sums_l2: float
    sums_partial: float
    sums_exposed: float
    sums_start: float

    def hidden(self, resident: int, pipelined: bool) -> float:
        """What is left of an iteration of products and arithmetic beside other groups."""
        most = min(resident, 3 if pipelined else 2)
        return {1: 1.0, 2: self.hidden_2, 3: self.hidden_3}[most]

    @staticmethod
    @cache
    def of(on: Machine) -> Constants:
        """The constants of a machine; where its file lacks one, that of the H100."""
        own = {k: f.value for k, f in on.calibration.items()}
        if borrows(on):
            own = {k: f.value for k, f in machine(MEASURED).calibration.items()} | own
        return Constants(**{f.name: own[f.name] for f in fields(Constants)})


def borrows(on: Machine) -> bool:
    """Whether some constants of a machine are those of `MEASURED`."""
    return not {f.name for f in fields(Constants)} <= on.calibration.keys()
