"""A verdict as it is read: every prediction beside what was found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from napkin.check.verdict_rows import ResourceRow, TrafficRow, ValueRow, Verdict, in_words
from napkin.plan.plan import Plan
from napkin.show.console import table
from napkin.show.measured import device_view
from napkin.show.plans import heading

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_STEPS = 1024
"""Tiles that the interpreter gets through in well under a minute."""


def requested_sizes(plan: Plan) -> dict[str, int] | None:
    """The plan's sizes to check at, or None (a choice of small ones) where they are so large that
    interpreting every tile would take minutes."""
    steps = 0
    for k in plan.kernels:
        cut = [a for a in k.choice.kernel.axes if a not in k.choice.kernel.whole]
        steps += math.prod(-(-plan.sizes[a] // k.tiles[a]) for a in cut)
    return dict(plan.sizes) if steps <= _STEPS else None


def verdict_view(
    plan: Plan, verdict: Verdict, device: Mapping[str, Any] | None = None
) -> list[RenderableType]:
    """A verdict as tables, and the plain data of what a device says."""
    out: list[RenderableType] = [heading(plan), "", _errors("values", "case", verdict.values)]
    if verdict.traffic:
        out.append(_traffic(verdict.traffic))
    if verdict.resources:
        out.append(_resources(verdict.resources))
    if verdict.derivatives:
        out.append(_errors("derivatives, in float64", "beside", verdict.derivatives))
    out += verdict.notes
    found = verdict.verdicts
    if device is not None:
        out += device_view(device)
        found["the device's figures"] = bool(device["ok"])
    return [*out, f"{plan.name}: {in_words(found)}"]


def _errors(title: str, of: str, rows: Sequence[ValueRow]) -> Table:
    made = table(of, "output", "relative error", "at most", "", title=title,
                 right=("relative error", "at most"))  # fmt: skip
    for row in rows:
        error, most = f"{row.relative_error:.2e}", f"{row.tolerance:.0e}"
        made.add_row(row.case, row.output, error, most, row.mark)
    return made


def _traffic(rows: Sequence[TrafficRow]) -> Table:
    numbers = ("predicted", "counted")
    made = table("case", "kernel", "tensor", "direction", "predicted", "", "counted",
                 title="bytes", right=numbers)  # fmt: skip
    for row in rows:
        names = row.case, row.kernel, row.tensor, row.direction
        both = f"{row.predicted:,}", "=" if row.ok else "!=", f"{row.counted:,}"
        made.add_row(*names, *both, style=None if row.ok else "red")
    return made


def _resources(rows: Sequence[ResourceRow]) -> Table:
    numbers = ("shared memory", "registers", "spills")
    made = table("kernel", "arch", *numbers, "note",
                 title="operands, shared memory allocated, and room", right=numbers)  # fmt: skip
    for row in rows:
        taken = row.said, _number(row.registers), _number(row.spills)
        made.add_row(row.kernel, row.arch, *taken, row.note)
    return made


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
