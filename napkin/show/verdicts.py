"""A verdict as it is read: every prediction beside what was found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from napkin.check.verdict_rows import in_words, mark, said_of_memory, verdicts_of
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


def verdict_view(plan: Plan, data: Mapping[str, Any]) -> list[RenderableType]:
    """The verdict whose plain data are given, as tables."""
    values: Mapping[str, Any] = data["values"]
    rows = values.get("rows") or [{"case": "all", "output": "all", **values}]
    out: list[RenderableType] = [heading(plan), "", _errors("values", "case", rows)]
    if data["traffic"]:
        out.append(_traffic(data["traffic"]))
    if data["resources"]:
        out.append(_resources(data["resources"]))
    if data.get("derivatives"):
        out.append(_errors("derivatives, in float64", "beside", data["derivatives"]))
    out += list(data.get("notes", ()))
    if "device" in data:
        out += device_view(data["device"])
    found = verdicts_of(data)
    if "device" in data:
        found["the device's figures"] = bool(data["device"]["ok"])
    return [*out, f"{plan.name}: {in_words(found)}"]


def _errors(title: str, of: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    made = table(of, "output", "relative error", "at most", "", title=title,
                 right=("relative error", "at most"))  # fmt: skip
    for row in rows:
        error, most = row["relative_error"], row["tolerance"]
        made.add_row(row["case"], row["output"], f"{error:.2e}", f"{most:.0e}", mark(row))
    return made


def _traffic(rows: list[Mapping[str, Any]]) -> Table:
    numbers = ("predicted", "counted")
    made = table("case", "kernel", "tensor", "direction", "predicted", "", "counted",
                 title="bytes", right=numbers)  # fmt: skip
    for row in rows:
        same = row["predicted"] == row["counted"]
        made.add_row(
            row.get("case", ""),
            row["kernel"],
            row["tensor"],
            row["direction"],
            f"{row['predicted']:,}",
            "=" if same else "!=",
            f"{row['counted']:,}",
            style=None if same else "red",
        )
    return made


def _resources(rows: list[Mapping[str, Any]]) -> Table:
    numbers = ("shared memory", "registers", "spills")
    made = table("kernel", "arch", *numbers, "note",
                 title="operands, shared memory allocated, and room", right=numbers)  # fmt: skip
    for row in rows:
        made.add_row(
            row["kernel"],
            row["arch"],
            said_of_memory(row),
            _number(row["registers"]),
            _number(row["spills"]),
            row.get("note") or "",
        )
    return made


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
