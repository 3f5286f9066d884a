"""A plan as a graph of tensors and kernels, and what it needs beside inputs and outputs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from napkin.count.traffic import ITEM_BYTES
from napkin.ir.storage import storage_type
from napkin.ir.taking import read_axes
from napkin.ir.types import stored_bytes
from napkin.plan.plan import Plan

if TYPE_CHECKING:
    import networkx as nx


def graph(plan: Plan) -> nx.DiGraph[Any]:
    """Kernels (by their place in the plan) and tensors (by name); edges carry bytes moved.

    Kernel nodes have `kind="kernel"`, `name` and `seconds`; tensor nodes have `kind="tensor"`.
    """
    import networkx as nx

    out: nx.DiGraph[Any] = nx.DiGraph()
    for i, k in enumerate(plan.kernels):
        out.add_node(i, kind="kernel", name=k.name, seconds=k.choice.time.seconds)
        for (tensor, direction), count in k.bytes.items():
            name = k.binding[tensor]
            out.add_node(name, kind="tensor")
            ends = (name, i) if direction == "read" else (i, name)
            out.add_edge(*ends, bytes=count)
    return out


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
    return workspace(plan) + sum(
        stored_bytes(math.prod(sizes[a] for a in axes), storage_type(n, plan.dtype))
        for n, axes in ends.values()
    )


def workspace(plan: Plan) -> int:
    """The most bytes of materialised arrays that are alive at once, from the kernel that writes
    each to the last that reads it."""
    edges = graph(plan)
    size = materialised_bytes(plan)
    last = {name: max(edges.successors(name), default=-1) for name in size}
    born = {name: min(edges.predecessors(name)) for name in size}
    return max(
        (
            sum(n for name, n in size.items() if born[name] <= i <= last[name])
            for i in range(len(plan.kernels))
        ),
        default=0,
    )
