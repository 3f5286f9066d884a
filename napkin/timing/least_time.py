"""Seconds that no kernel undercuts, from bytes and operations alone."""

from __future__ import annotations

import math
from collections.abc import Mapping

from napkin.count.matrix_products import WARPGROUP_ROWS
from napkin.machine.calibration import Constants
from napkin.machine.machines import Machine
from napkin.timing.execution import arithmetic_rate

ROUNDING = 1e-12
"""What rounding may add to seconds that are nowhere more."""


def at_least(
    machine: Machine,
    moved: float,
    multiplied: float = 0.0,
    dtype: str = "",
    added: int = 0,
    crossed: float = 0.0,
    iterations: int = 0,
    special: float = 0.0,
    imbalance: float = 1.0,
) -> float:
    """Seconds that no kernel undercuts that moves so many bytes from and to the outermost memory,
    does so many operations of products of `dtype`, in so many iterations of all groups that wait
    for nothing but products, and so many on the special function units, adds so many bytes to what
    memory holds, and has so many cross between L2 and the multiprocessors:
    `napkin.timing.kernel_time.predict` hides none of these.

    Args:
        imbalance: groups of the busiest multiprocessor over those of one on average.
    """
    c = Constants.of(machine)
    product = multiplied / (c.tensor_share * machine.peak(dtype)) if multiplied else 0.0
    product += iterations * c.iteration / machine.sms
    adds = max(c.l2_adds, c.l2_bulk_adds) if machine.target.has_warpgroups else c.l2_adds
    additions = added / (adds * machine.l2_rate)
    crossing = crossed / (max(c.l2_share, c.l2_apart) * machine.l2_rate)
    memory = moved / (c.dram_share * machine.dram_rate)
    busiest = max(product, special / machine.special_rate, crossing) * imbalance
    return max(memory, busiest, additions) * (1 - ROUNDING) + c.launch


def narrow(machine: Machine, dtype: str, rows: int) -> float:
    """Times that products take for having fewer rows than the fastest matrix instruction."""
    granules = machine.granules
    least = granules["mma_rows"].value if "mma_rows" in granules else 0
    few = dtype != "fp32" and least >= WARPGROUP_ROWS and 0 < rows < WARPGROUP_ROWS
    return Constants.of(machine).narrow if few else 1.0


def chaining(
    machine: Machine,
    multiplied: float,
    dtype: str,
    slots: Mapping[str, float],
    groups: int,
) -> float:
    """Seconds that no kernel undercuts whose products and arithmetic wait for each other: loops of
    all groups that do so many operations of products of `dtype`, and so many of arithmetic and of
    special functions (`slots`), beside each other where a multiprocessor has several groups."""
    c, busiest = Constants.of(machine), -(-groups // machine.sms)
    issued = slots["arithmetic"] + c.special_slots * slots["special"]
    seconds = multiplied / (c.tensor_share * machine.peak(dtype))
    seconds += c.stall * issued / arithmetic_rate(machine)
    hidden = min(c.hidden(n, pipelined=True) for n in range(1, min(busiest, 3) + 1))
    return seconds * hidden * busiest * machine.sms / groups * (1 - ROUNDING) + c.launch


def loading(
    machine: Machine,
    accesses: float,
    lines: float,
    singles: float = 0.0,
    imbalance: float = 1.0,
) -> float:
    """Seconds that no kernel undercuts whose warps load and store so often, touch so many lines of
    L1, and, of one with products, load so many values one by one; `imbalance` as for `at_least`.
    Without products nothing of a kernel hides it either (`napkin.timing.kernel_time.in_rounds`)."""
    c = Constants.of(machine)
    even = max(accesses * c.access, lines)
    clocks = max(even * imbalance, singles / 32 * c.single)
    return clocks / (machine.sms * machine.clock) * (1 - ROUNDING) + c.launch


def starting(machine: Machine, groups: int, warps: int, persistent: bool = False) -> float:
    """Seconds that so many groups of one multiprocessor, each of so many warps or more, take at
    least to start: those that it holds at once wait together, and persistent ones start once."""
    together = min(groups, machine.warps_per_sm // warps, machine.blocks_per_sm)
    starts = 1 if persistent else groups
    return starts * Constants.of(machine).start / math.sqrt(max(together, 1)) * (1 - ROUNDING)
