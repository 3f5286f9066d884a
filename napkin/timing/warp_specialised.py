"""Time of warp-specialised kernels, whose groups run as warpgroups of one block.

While one warpgroup multiplies, another computes: they meet at the tensor cores and at what issues
arithmetic and special functions as customers of a closed queue do, and as the products that a chunk
leaves are made while the next one's scores are, something of that is saved (arXiv 2412.03317,
section 4.4, for how they overlap at best). What a warp-specialised CTA does before and after its
loop is not hidden: it is alone on its multiprocessor.

Warp-specialised CTAs that only add products up last, and ask for the next group's chunks while they
finish one. Cooperative warpgroups finish together. Of ping-pong ones, one finishes while another
multiplies; both pass the same registers, so that some of it shows.
"""

from __future__ import annotations

from collections.abc import Mapping

from napkin.machine.calibration import Constants
from napkin.machine.machines import Machine
from napkin.timing.execution import ADDITIONS, DRAM, IMBALANCE, L2, Execution, Time
from napkin.timing.queueing import cycle

ARRIVAL = "prefetch latency"
TENSOR = "tensor cores shared by warpgroups"


def adding(
    machine: Machine,
    run: Execution,
    c: Constants,
    computing: Mapping[str, float],
    memory: float,
    arrives: float,
    end: tuple[float, float],
) -> Time:
    """The time of a kernel of warp-specialised CTAs that only add products up. Where they compute
    with the product of each chunk, one does while another multiplies, whose operands come through
    the port of shared memory through which chunks land.

    Args:
        computing: seconds of its loops on each pipe that computes, products first.
        memory: seconds of the bytes from and to the outermost memory.
        arrives: seconds from one chunk of a group to the next, as they arrive.
        end: seconds of what a group computes after its loop, and of what it stores.
    """
    computed, stored = end
    busiest = -(-run.groups // machine.sms)
    product, *others = (x * machine.sms / run.groups for x in computing.values())
    groups = run.schedule.warpgroups
    if any(others):
        landing = run.inner_bytes / machine.register_rate * machine.sms / run.groups
        waits = run.chunks * c.specialised_iteration
        product = cycle(groups, (product + landing, sum(others)), waits) / groups
    ping_pong = run.schedule.kind == "ping-pong"
    shown = c.sums_ping_pong if ping_pong else c.sums_cooperative
    crossing = run.inner_bytes + c.sums_partial * run.partial_bytes
    transfer = {L2: crossing / (c.sums_l2 * machine.l2_rate), DRAM: memory}
    late = busiest * (run.chunks * arrives + shown * computed)
    pipes = {**computing, TENSOR: busiest * (product + shown * computed), ARRIVAL: late, **transfer}
    slowest = max((TENSOR, ARRIVAL, *transfer), key=lambda k: pipes[k])
    rest = sum(pipes[k] for k in (TENSOR, *transfer) if k != slowest)
    last = computed + stored if ping_pong else stored
    seconds = pipes[slowest] + c.sums_exposed * rest + c.sums_start + last
    return Time(seconds + c.launch, slowest, pipes)


def specialised_time(
    machine: Machine,
    run: Execution,
    c: Constants,
    computing: Mapping[str, float],
    transfer: Mapping[str, float],
) -> Time:
    """The time of a kernel of warp-specialised CTAs.

    Args:
        computing: seconds of its loops on each pipe that computes, products first, then arithmetic
            and special functions.
        transfer: seconds of each pipe that moves bytes.
    """
    product, arithmetic, special = computing.values()
    busiest = -(-run.groups // machine.sms)
    groups = run.schedule.warpgroups
    each = [x / groups for x in (product, arithmetic + special)]
    iterations = c.specialised_cycle * cycle(groups, each, 0.0)
    iterations += run.chunks * run.groups / machine.sms * c.specialised_iteration
    iterations += c.specialised_tests * arithmetic if run.tested else 0.0
    if run.added_bytes:
        iterations *= 1.0 + c.specialised_tests_adding * run.tests
    # Where the longest start first, the last to start are as short as those are long.
    last = min(1.0, max(0.0, 2.0 - run.longest))
    idle = 1.0 + (busiest * machine.sms / run.groups - 1.0) * last
    # Each chunk's sums wait for all warpgroups, and its place for the sums before to have left.
    adds = c.specialised_adds * transfer.get(ADDITIONS, 0.0)
    own = iterations * idle + busiest * c.specialised_start + adds
    pipes = {**computing, TENSOR: own, **transfer}
    slowest = max(pipes, key=lambda k: pipes[k])
    seconds = pipes[slowest]
    alone = iterations * machine.sms / run.groups * run.longest + c.specialised_start
    if alone > seconds:
        slowest, seconds = IMBALANCE, alone
    return Time(seconds + c.launch, slowest, pipes)
