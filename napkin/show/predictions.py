"""Predictions over sizes and on several machines, as tables and as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from napkin.machine.calibration import borrows
from napkin.machine.machines import MEASURED
from napkin.plan.workspace import resident_bytes
from napkin.show.console import RenderableType, table
from napkin.show.notes import fits, of_constants, of_memory
from napkin.show.words import Range, bytes_text, sizes_text, us_text
from napkin.studies.predicted import Predicted, Refused


def sweep_view(
    swept: Range, found: Sequence[Predicted], refused: Mapping[int, str]
) -> list[RenderableType]:
    """A line for each size, and why others have no plan."""
    first = found[0].plan
    rest = fixed_sizes(swept, found)
    together = "=".join(swept.axes)
    numbers = (together, "kernels", "moved", "optimum", "compulsory", "time", "TFLOP/s")
    title = f"{first.name} on {first.machine.name}, {first.dtype}, {sizes_text(rest)}"
    made = table(*(f">{n}" for n in numbers), "limited by", title=title.rstrip(", "))
    for size, p in zip(swept.sizes, found, strict=True):
        made.add_row(
            f"{size:,}",
            str(len(p.plan.kernels)),
            bytes_text(p.plan.moved),
            "" if p.optimum is None else bytes_text(p.optimum),
            bytes_text(p.compulsory),
            us_text(p.plan.seconds),
            f"{p.rate / 1e12:,.1f}",
            p.plan.limited_by,
        )
    plans = [p.plan for p in found]
    none = [f"{together}={size:,}: {reason}" for size, reason in refused.items()]
    return [made, _WORDS, *none, *of_memory(plans), *of_constants(plans)]


def fixed_sizes(swept: Range, found: Sequence[Predicted]) -> dict[str, int]:
    """The sizes that are neither swept nor follow from one that is."""
    first, *others = (p.plan.sizes for p in found)
    same = {a: n for a, n in first.items() if all(s[a] == n for s in others)}
    return {a: n for a, n in same.items() if a not in swept.axes}


def against_view(found: Sequence[Predicted], refused: Sequence[Refused]) -> list[RenderableType]:
    """A line for each machine, the fastest first, and why others have none."""
    plan = found[0].plan
    priced = any(p.usd is not None for p in found)
    numbers = (">", ">time", ">/ first", ">TFLOP/s", ">of peak")
    money = (">USD/h", ">USD for 1e6 runs", ">by cost") if priced else ()
    title = f"{plan.name}, {plan.dtype}, {sizes_text(plan.sizes)}"
    made = table("machine", *numbers, *money, "limited by", title=title)
    for i, (p, place) in enumerate(zip(found, by_cost(found), strict=True)):
        bill = ("",) * len(money)
        if p.usd is not None and p.price is not None:
            bill = (f"{p.price:,.2f}", f"{1e6 * p.usd:,.3g}", str(place))
        made.add_row(
            p.plan.machine.name,
            f"{i + 1}",
            us_text(p.plan.seconds),
            f"{p.plan.seconds / found[0].plan.seconds:.2f}",
            f"{p.rate / 1e12:,.1f}",
            f"{p.rate / _peak(p):.0%}",
            *bill,
            p.plan.limited_by,
        )
    plans = [p.plan for p in found]
    notes = [*of_memory(plans), *of_constants(plans)]
    if not priced:
        notes.append(
            "For a ranking by cost, give prices: --prices h100=2.5,a100=1.2 (USD an hour)."
        )
    elif unpriced := ", ".join(p.plan.machine.name for p in found if p.usd is None):
        notes.append(f"Without a price: {unpriced}.")
    return [made, *notes, *(f"{r.machine}: {r.reason}" for r in refused)]


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


def sweep_json(
    swept: Range, found: Sequence[Predicted], refused: Mapping[int, str]
) -> dict[str, Any]:
    """A sweep as plain data."""
    plan = found[0].plan
    rest = fixed_sizes(swept, found)
    about = {"name": plan.name, "machine": plan.machine.name, "dtype": plan.dtype, "sizes": rest}
    none = [{**dict.fromkeys(swept.axes, n), "reason": reason} for n, reason in refused.items()]
    return {
        **about,
        "axes": list(swept.axes),
        "rows": sweep_rows(swept, found),
        "refused": none,
    }


def against_json(found: Sequence[Predicted], refused: Sequence[Refused]) -> dict[str, Any]:
    """Several machines as plain data."""
    plan = found[0].plan
    about = {"name": plan.name, "dtype": plan.dtype, "sizes": dict(plan.sizes)}
    none = [{"machine": r.machine, "reason": r.reason} for r in refused]
    return {**about, "machines": against_rows(found), "refused": none}


def _numbers(p: Predicted) -> dict[str, Any]:
    return {
        "kernels": len(p.plan.kernels),
        "moved": p.plan.moved,
        "optimum": p.optimum,
        "compulsory": p.compulsory,
        "workspace": p.plan.workspace,
        "resident": resident_bytes(p.plan),
        "fits": fits(p.plan),
        "operations": p.operations,
        "seconds": p.plan.seconds,
        "rate": p.rate,
        "limited_by": p.plan.limited_by,
    }


def _peak(p: Predicted) -> float:
    machine = p.plan.machine
    return machine.peak(p.plan.dtype if p.plan.dtype in machine.dtypes else "fp32")


_WORDS = (
    "moved: bytes that all groups read and write, at the plan's tiles; optimum: the least for the"
    " memory of a group, over the plan's cut and one fused kernel, under any labels; compulsory:"
    " every input and output once."
)
