"""The one way from a labelled kernel and its schedule to a loop program."""

from __future__ import annotations

import math
from dataclasses import replace

from napkin.derive.kernel import Kernel
from napkin.errors import Refusal
from napkin.ir.storage import own_type
from napkin.ir.types import STORAGE
from napkin.lower.descriptors import in_boxes
from napkin.lower.per_thread import with_partials
from napkin.lower.program import Program, looped
from napkin.lower.warpgroups.cta import with_adds, with_columns
from napkin.schedule import Schedule


def build(kernel: Kernel, schedule: Schedule, item: int = 4) -> Program:
    """The loop program of a kernel; of a warp-specialised one, that of one group.

    Its schedule says what of the settings serves this kernel (`Program.schedule`).

    Args:
        item: bytes of a value that asks for no type of its own.
    """
    chunk = math.prod(schedule.group[a] for a in kernel.stream.axes)
    if kernel.unit % max(chunk, 1):
        raise Refusal(
            f"chunks of {chunk} positions",
            kernel.name,
            f"its parts have a whole number of {kernel.unit}, to begin at one place in all kernels",
            f"take chunks that divide {kernel.unit}",
        )
    made = looped(kernel, schedule)
    made = with_partials(made) if schedule.per_thread else made
    made = in_boxes(made) if schedule.described else made
    made = with_adds(with_columns(made)) if schedule.warpgroups else made
    return replace(made, rounded=_rounded(kernel, item))


def _rounded(kernel: Kernel, item: int) -> bool:
    """Whether all that a kernel stores is rounded to 16 bits."""
    own = [own_type(o.node) for o in kernel.outputs]
    bits = [STORAGE[t].bits if t else 8 * item for t in own]
    return all(o.node.kind == "real" for o in kernel.outputs) and set(bits) == {16}
