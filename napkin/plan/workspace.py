"""What a plan needs in memory beside its inputs and outputs."""

from __future__ import annotations

import math

from napkin.count.traffic import ITEM_BYTES
from napkin.ir.storage import array_bytes
from napkin.ir.taking import read_axes
from napkin.plan.plan import Plan


def materialised_bytes(plan: Plan) -> dict[str, int]:
    """Bytes of each array that passes between kernels through memory."""
    sizes = plan.full(plan.sizes)
    found: dict[str, int] = {}
    for k in plan.kernels:
        for o in k.choice.origin:
            name = k.binding[o.name]
            if name in plan.materialised:
                item = ITEM_BYTES[k.dtypes[o.name]]
                found[name] = math.prod(sizes[a] for a in o.axes) * item
    return found


def resident_bytes(plan: Plan) -> int:
    """Bytes of all inputs and results, and of what passes between kernels while it is alive."""
    sizes = plan.full(plan.sizes)
    ends = {str(n.params[0]): (n, read_axes(n)) for n in plan.diagram.inputs}
    ends |= {o.name: (o.node, o.axes) for o in plan.diagram.outputs}
    own = (array_bytes(n, axes, sizes, plan.dtype) for n, axes in ends.values())
    return workspace(plan) + sum(own)


def workspace(plan: Plan) -> int:
    """The most bytes of materialised arrays that are alive at once, from the kernel that writes
    each to the last that reads it."""
    size = materialised_bytes(plan)
    users = {
        name: [i for i, k in enumerate(plan.kernels) if name in k.binding.values()] for name in size
    }
    alive = (
        sum(n for name, n in size.items() if users[name][0] <= i <= users[name][-1])
        for i in range(len(plan.kernels))
    )
    return max(alive, default=0)
