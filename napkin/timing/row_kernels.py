"""Time of kernels that multiply nothing: norms, softmax, losses, merges."""

from __future__ import annotations

from collections.abc import Mapping

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
    Execution,
    Time,
)

MOVES = frozenset({DRAM, L2, ACCESSES, L1})
"""Pipes that move bytes; the others compute."""

ALIKE = 4
"""How nearly a round takes what its busiest pipe or one group alone takes, where both take about as
long: the power of which both are summed."""


def in_rounds(place: Machine, run: Execution, c: Constants, pipes: Mapping[str, float]) -> Time:
    """The time of groups that load, compute and store, each of these after the other. In a round
    all groups of a multiprocessor do so once: it takes at least what its busiest pipe has to do for
    all of them, and at least what one of them takes alone; few groups leave memory idle while they
    compute.

    Args:
        run: with as many groups to a multiprocessor as run at once.
        pipes: seconds of each pipe by itself.
    """
    groups = max(run.groups, 1)
    each = place.sms / groups  # of what one multiprocessor does for all its groups
    fewer = min(groups, place.sms) / groups  # memory gives few of them more than their share
    waits = c.row_wait + run.chunks * c.row_turn if run.chunks else 0.0
    # Where lanes keep the folds, no turn reduces over a warp or a group.
    reductions = 1 if run.laned else max(run.chunks, 1)
    issued = reductions * run.schedule.warps * c.row_slots / (SCHEDULERS * place.clock)
    computing = {k: v for k, v in pipes.items() if k not in MOVES}
    computing[ARITHMETIC] *= c.row_lanes
    inner = max(pipes[L2], pipes.get(ACCESSES, 0.0), pipes.get(L1, 0.0))
    stations = pipes[DRAM] * fewer, inner * each, sum(computing.values()) * each + issued
    beside = c.exposed * (sum(stations) - max(stations))
    alone, busiest = sum(stations) + waits, run.resident * (max(stations) + beside)
    one = (alone**ALIKE + busiest**ALIKE) ** (1 / ALIKE)
    rounds = max(1.0, groups / (place.sms * run.resident))
    seconds = rounds * one + c.uneven * busiest
    known = {**pipes, **computing, LATENCY: rounds * waits}
    slowest = max(known, key=lambda k: known[k])
    if run.longest > 1.0 and alone * run.longest > seconds:
        slowest, seconds = IMBALANCE, alone * run.longest
    return Time(seconds + c.launch, LAUNCH if seconds < c.launch else slowest, known)
