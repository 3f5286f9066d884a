"""Rooflines as tables and as plain data."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from napkin.show.console import table
from napkin.show.words import bytes_text, us_text
from napkin.studies.roofline import LevelUse, PipeUse, Roofline

if TYPE_CHECKING:
    from rich.console import RenderableType


def roofline_view(found: Roofline) -> list[RenderableType]:
    """The pipes of a kernel, busiest first, and the levels of memory from outside inwards."""
    return [_pipes(found), _levels(found)]


def _pipes(found: Roofline) -> Any:
    numbers = ("time", "share", "slack")
    made = table(
        "pipe", *numbers, title=f"kernel {found.kernel}: pipes and their slack",
        right=numbers,
    )  # fmt: skip
    for p in found.pipes:
        made.add_row(p.name, us_text(p.seconds), f"{p.share:.0%}", us_text(p.slack))
    made.add_section()
    made.add_row("predicted", us_text(found.seconds), "", "")
    made.add_row(f"limited by {found.limited_by}")
    return made


def _levels(found: Roofline) -> Any:
    numbers = ("bytes", "TB/s", "operations/B", "balance", "roof, TFLOP/s")
    made = table(
        "into", *numbers, "bound by", title=f"kernel {found.kernel}: roofline", right=numbers
    )
    for x in found.levels:
        made.add_row(
            x.target,
            bytes_text(x.bytes),
            f"{x.rate / 1e12:,.3g}",
            f"{x.intensity:,.1f}",
            f"{x.balance:,.1f}",
            f"{x.roof / 1e12:,.1f}",
            x.bound,
        )
    made.add_section()
    made.add_row(f"{found.pipe}", "", "", "", "", f"{found.peak / 1e12:,.1f}", "the peak")
    reached = f"{found.rate / found.peak:.0%} of the peak"
    made.add_row("predicted", "", "", "", "", f"{found.rate / 1e12:,.1f}", reached)
    return made


def roofline_json(found: Roofline) -> dict[str, Any]:
    """A roofline as plain data: seconds, bytes, operations/s."""
    pipes = [_plain(p) for p in found.pipes]
    levels = [_plain(x) | {"bound": x.bound} for x in found.levels]
    return {**_plain(found), "rate": _rounded(found.rate), "pipes": pipes, "levels": levels}


def _plain(found: Roofline | PipeUse | LevelUse) -> dict[str, Any]:
    return {f.name: _rounded(getattr(found, f.name)) for f in dataclasses.fields(found)}


def _rounded(value: Any) -> Any:
    """A number to nine digits, so that its text is the same wherever it was computed."""
    return float(f"{value:.9g}") if isinstance(value, float) else value
