"""What kernels of a plan are launched with, and what they store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.lower.launch import Launch, launch
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel


def launch_of(
    k: PlannedKernel,
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
    strides: Mapping[str, Sequence[int]],
    aligned: bool = True,
) -> Launch:
    """The launch of one kernel; `strides` are by the plan's tensor names, in values, and `aligned`
    says whether tensor descriptors may serve them."""
    own = {theirs: strides[ours] for theirs, ours in k.binding.items()}
    return launch(k.written.entry, sizes, scalars, own, aligned)


def outputs_of(plan: Plan) -> list[tuple[str, tuple[str, ...], str]]:
    """Name, axes and storage type of every tensor that some kernel of the plan writes."""
    out = [
        (k.binding[o.name], o.axes, k.dtypes[o.name]) for k in plan.kernels for o in k.choice.origin
    ]
    return list(dict.fromkeys(out))
