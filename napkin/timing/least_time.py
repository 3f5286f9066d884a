"""Seconds that no kernel undercuts, from bytes and operations alone."""

from __future__ import annotations

from napkin.machine.calibration import Constants
from napkin.machine.machines import Machine

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
) -> float:
    """Seconds that no kernel undercuts that moves so many bytes from and to the outermost memory,
    does so many operations of products of `dtype`, in so many iterations of all groups that wait
    for nothing but products, adds so many bytes to what memory holds, and has so many cross between
    L2 and the multiprocessors: `napkin.timing.kernel_time.predict` hides none of these."""
    c = Constants.of(machine)
    product = multiplied / (c.tensor_share * machine.peak(dtype)) if multiplied else 0.0
    product += iterations * c.iteration / machine.sms
    share = max(c.l2_adds, c.l2_bulk_adds) if machine.target.has_warpgroups else c.l2_adds
    additions = added / (share * machine.l2_rate)
    crossing = crossed / (max(c.l2_share, c.l2_apart) * machine.l2_rate)
    memory = moved / (c.dram_share * machine.dram_rate)
    return max(memory, product, additions, crossing) * (1 - ROUNDING) + c.launch
