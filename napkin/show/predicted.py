"""Predictions over sizes and on several machines, as tables and as rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from napkin.cost.machines import MEASURED
from napkin.cost.time import borrows
from napkin.plan.predicted import Predicted, Refused
from napkin.show.console import table
from napkin.show.sizes import Range, sizes_text
from napkin.show.units import bytes_text, us_text

if TYPE_CHECKING:
    from rich.console import RenderableType


def sweep_view(swept: Range, found: Sequence[Predicted]) -> list[RenderableType]:
    """A line for each size."""
    first = found[0].plan
    rest = {a: n for a, n in first.sizes.items() if a not in swept.axes}
    together = "=".join(swept.axes)
    numbers = (together, "kernels", "moved", "optimum", "compulsory", "time", "TFLOP/s")
    title = f"{first.name} on {first.machine.name}, {first.dtype}, {sizes_text(rest)}"
    made = table(*numbers, "limited by", title=title.rstrip(", "), right=numbers)
    for size, p in zip(swept.sizes, found, strict=True):
        made.add_row(
            f"{size:,}",
            str(len(p.plan.kernels)),
            bytes_text(p.moved),
            "" if p.optimum is None else bytes_text(p.optimum),
            bytes_text(p.compulsory),
            us_text(p.seconds),
            f"{p.rate / 1e12:,.1f}",
            p.limited_by,
        )
    return [made, _WORDS]


def against_view(found: Sequence[Predicted], refused: Sequence[Refused]) -> list[RenderableType]:
    """A line for each machine, the fastest first, and why others have none."""
    none = [f"{r.machine}: {r.reason}" for r in refused]
    return [*_ranking(found), *none] if found else [*none]


def _ranking(found: Sequence[Predicted]) -> list[RenderableType]:
    plan = found[0].plan
    priced = any(p.usd is not None for p in found)
    numbers = ("", "time", "/ first", "TFLOP/s", "of peak")
    money = ("USD/h", "USD for 1e6 runs", "by cost") if priced else ()
    title = f"{plan.name}, {plan.dtype}, {sizes_text(plan.sizes)}"
    made = table("machine", *numbers, *money, "limited by", title=title, right=(*numbers, *money))
    for i, (p, place) in enumerate(zip(found, by_cost(found), strict=True)):
        bill = ("",) * len(money)
        if p.usd is not None and p.price is not None:
            bill = (f"{p.price:,.2f}", f"{1e6 * p.usd:,.3g}", str(place))
        made.add_row(
            p.plan.machine.name,
            f"{i + 1}",
            us_text(p.seconds),
            f"{p.seconds / found[0].seconds:.2f}",
            f"{p.rate / 1e12:,.1f}",
            f"{p.rate / _peak(p):.0%}",
            *bill,
            p.limited_by,
        )
    notes: list[str] = []
    if borrowed := ", ".join(p.plan.machine.name for p in found if borrows(p.plan.machine)):
        notes.append(
            f"{borrowed}: with rates and capacities of their own, but what no datasheet states "
            f"(launches, turns of loops, what is hidden) as read off the {MEASURED}."
        )
    if not priced:
        notes.append(
            "For a ranking by cost, give prices: --prices h100=2.5,a100=1.2 (USD an hour)."
        )
    elif unpriced := ", ".join(p.plan.machine.name for p in found if p.usd is None):
        notes.append(f"Without a price: {unpriced}.")
    return [made, *notes]


def by_cost(found: Sequence[Predicted]) -> list[int | None]:
    """The place of each machine whose price is known, the cheapest run first."""
    cheapest = sorted(p.usd for p in found if p.usd is not None)
    return [None if p.usd is None else cheapest.index(p.usd) + 1 for p in found]


def sweep_rows(swept: Range, found: Sequence[Predicted]) -> list[dict[str, Any]]:
    """A row for each size, in bytes, seconds and operations/s."""
    return [
        {**dict.fromkeys(swept.axes, size), **_numbers(p)}
        for size, p in zip(swept.sizes, found, strict=True)
    ]


def against_rows(found: Sequence[Predicted]) -> list[dict[str, Any]]:
    """A row for each machine, the fastest first."""
    return [
        {
            "machine": p.plan.machine.name,
            "by_time": i + 1,
            **_numbers(p),
            "constants_of": MEASURED if borrows(p.plan.machine) else p.plan.machine.name,
            "peak": _peak(p),
            "usd_per_hour": p.price,
            "usd": p.usd,
            "by_cost": place,
        }
        for i, (p, place) in enumerate(zip(found, by_cost(found), strict=True))
    ]


def sweep_json(swept: Range, found: Sequence[Predicted]) -> dict[str, Any]:
    """A sweep as plain data."""
    plan = found[0].plan
    rest = {a: n for a, n in plan.sizes.items() if a not in swept.axes}
    about = {"name": plan.name, "machine": plan.machine.name, "dtype": plan.dtype, "sizes": rest}
    return {**about, "axes": list(swept.axes), "rows": sweep_rows(swept, found)}


def against_json(found: Sequence[Predicted], refused: Sequence[Refused]) -> dict[str, Any]:
    """Several machines as plain data."""
    about: dict[str, Any] = {}
    if found:
        plan = found[0].plan
        about = {"name": plan.name, "dtype": plan.dtype, "sizes": dict(plan.sizes)}
    none = [{"machine": r.machine, "reason": r.reason} for r in refused]
    return {**about, "machines": against_rows(found), "refused": none}


def _numbers(p: Predicted) -> dict[str, Any]:
    return {
        "kernels": len(p.plan.kernels),
        "moved": p.moved,
        "optimum": p.optimum,
        "compulsory": p.compulsory,
        "workspace": p.plan.workspace,
        "operations": p.operations,
        "seconds": p.seconds,
        "rate": p.rate,
        "limited_by": p.limited_by,
    }


def _peak(p: Predicted) -> float:
    machine = p.plan.machine
    return machine.peak(p.plan.dtype if p.plan.dtype in machine.dtypes else "fp32")


_WORDS = (
    "moved: what all groups read and write, at the plan's tiles; optimum: the same kernels at their"
    " best tiles for the memory of a group; compulsory: every input and output once."
)
