"""A plan as text: the derivation, then each kernel's costs and settings."""

from __future__ import annotations

from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel


def plan_text(plan: Plan) -> str:
    """What `print(plan)` shows."""
    sizes = ", ".join(f"{a}={n}" for a, n in plan.sizes.items())
    lines = [f"{plan.name} on {plan.machine.name}, {plan.dtype}, {sizes}", ""]
    lines += [str(plan.trail)]
    if plan.materialised:
        lines += [""]
        lines += [f"materialised: {t} [{' '.join(axes)}]" for t, axes in plan.materialised.items()]
        lines += [f"workspace: {plan.workspace:,} bytes at once"]
    lines += [line for note in plan.notes for line in ("", note)]
    for k in plan.kernels:
        lines += ["", *_kernel(k)]
    for k in plan.of_warpgroups:
        lines += _specialised(k)
    lines += ["", f"predicted time {plan.seconds * 1e6:.1f} us"]
    return "\n".join(lines)


def _kernel(k: PlannedKernel) -> list[str]:
    return [
        f"kernel {k.name}",
        f"  H      {k.H.total} values = {sum(k.bytes.values()):,} bytes",
        f"  M      {k.M} values",
        f"  bound  {k.bound}",
        *_setting(k),
    ]


def _specialised(k: PlannedKernel) -> list[str]:
    moved = f"  H      {sum(k.bytes.values()):,} bytes"
    return ["", f"kernel {k.name}, {k.schedule.side}", moved, *_setting(k)]


def _setting(k: PlannedKernel) -> list[str]:
    tiles = ", ".join(f"{a}={n}" for a, n in k.tiles.items())
    return [
        f"  tiles  {tiles}; {k.schedule.words}, {k.shared_bytes:,} bytes of shared memory",
        f"  time   {k.choice.time.seconds * 1e6:.1f} us, limited by {k.choice.time.limited_by}",
    ]
