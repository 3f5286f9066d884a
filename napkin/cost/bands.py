"""Time of kernels whose groups run side by side as warpgroups of one block.

While one warpgroup multiplies, another computes: they meet at the tensor cores and at what issues
arithmetic and special functions as customers of a closed queue do, and as the products that a chunk
leaves are made while the next one's scores are, something of that is saved (arXiv 2412.03317,
section 4.4, for how they overlap at best). What a band does before and after its loop is not
hidden: it is alone on its multiprocessor.
"""

from __future__ import annotations

from collections.abc import Mapping

from napkin.cost.calibration import Constants
from napkin.cost.execution import Execution, Time
from napkin.cost.machines import Machine
from napkin.cost.queueing import cycle

BAND = "warpgroups at tensor cores and arithmetic"


def in_bands(
    place: Machine,
    run: Execution,
    c: Constants,
    computing: Mapping[str, float],
    moving: Mapping[str, float],
) -> Time:
    """The time of a kernel of bands.

    Args:
        computing: seconds of its loops on each pipe that computes, products first, then arithmetic
            and special functions.
        moving: seconds of each pipe that moves bytes.
    """
    product, arithmetic, special = computing.values()
    busiest = -(-run.groups // place.sms)
    each = [x / run.band for x in (product, arithmetic + special)]
    turns = c.band_cycle * cycle(run.band, each, 0.0)
    turns += run.chunks * run.groups / place.sms * c.band_turn
    turns += c.band_tests * arithmetic if run.tested else 0.0
    # Where the longest start first, the last to start are as short as those are long.
    last = min(1.0, max(0.0, 2.0 - run.longest))
    idle = 1.0 + (busiest * place.sms / run.groups - 1.0) * last
    pipes = {**computing, BAND: turns * idle + busiest * c.band_start, **moving}
    slowest = max(pipes, key=lambda k: pipes[k])
    seconds = pipes[slowest]
    alone = turns * place.sms / run.groups * run.longest + c.band_start
    if alone > seconds:
        slowest, seconds = "the longest group", alone
    return Time(seconds + c.launch, slowest, pipes)
