"""A verdict as it is read: every prediction beside what was found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from napkin.check.verdict_rows import ResourceRow, TrafficRow, ValueRow, Verdict, in_words
from napkin.plan.plan import Plan
from napkin.show.console import RenderableType, Table, table
from napkin.show.measured import device_view
from napkin.show.plans import heading

_STEPS = 1024
"""Tiles that the interpreter gets through in well under a minute."""


def requested_sizes(plan: Plan) -> dict[str, int] | None:
    """The plan's sizes to check at, or None (a choice of small ones) where they are so large that
    interpreting every tile would take minutes."""
    steps = 0
    for k in plan.kernels:
        kernel, sizes = k.choice.kernel, k.choice.kernel.sized(plan.full(plan.sizes))
        cut = [a for a in kernel.axes if a not in kernel.whole]
        steps += math.prod(-(-sizes[a] // k.tiles[a]) for a in cut)
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
    shown = (
        (r.case, r.output, f"{r.relative_error:.2e}", f"{r.tolerance:.0e}", r.mark) for r in rows
    )
    return table(of, "output", ">relative error", ">at most", "", title=title, rows=shown)


def _traffic(rows: Sequence[TrafficRow]) -> Table:
    names = ("case", "kernel", "tensor", "direction")
    made = table(*names, ">predicted", "", ">counted", title="bytes")
    for row in rows:
        names = row.case, row.kernel, row.tensor, row.direction
        both = f"{row.predicted:,}", "=" if row.ok else "!=", f"{row.counted:,}"
        made.add_row(*names, *both, style=None if row.ok else "red")
    return made


def _resources(rows: Sequence[ResourceRow]) -> Table:
    title = "operands, shared memory allocated, and room"
    shown = (
        (r.kernel, r.arch, r.said, _number(r.registers), _number(r.spills), r.note) for r in rows
    )
    numbers = (">shared memory", ">registers", ">spills")
    return table("kernel", "arch", *numbers, "note", title=title, rows=shown)


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
