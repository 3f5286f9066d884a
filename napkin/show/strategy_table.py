"""Strategies for one diagram side by side, and how far each is from the least."""

from __future__ import annotations

import math
from typing import Any

from napkin.show.console import RenderableType, table
from napkin.show.plans import heading
from napkin.show.words import bytes_text
from napkin.studies.strategies import STRATEGIES, Comparison, Strategy

_NUMBERS = (">kernels", ">moved", ">least", ">once", ">workspace", ">us", ">/ optimum", ">/ comp.")


def comparison_view(found: Comparison) -> list[RenderableType]:
    """Strategies as a table, with what each word in it means."""
    made = table("strategy", *_NUMBERS, "limited by", title="strategies")
    for s in found.strategies:
        made.add_row(
            s.name,
            str(s.kernels),
            bytes_text(s.moved),
            "" if s.least is None else bytes_text(s.least),
            bytes_text(s.once),
            bytes_text(s.workspace),
            f"{'>= ' if s.name == 'naive' else ''}{s.seconds * 1e6:,.1f}",
            _factor(s.moved, found.optimum),
            _factor(s.moved, found.compulsory),
            s.limited_by,
        )
    made.add_section()
    if found.optimum is not None:
        far = _factor(found.optimum, found.compulsory)
        made.add_row("optimum", "", bytes_text(found.optimum), *[""] * 4, "1.00", far)
    made.add_row("compulsory", "", bytes_text(found.compulsory), *[""] * 5, "1.00")
    return [heading(found.plan), "", made, *_meanings(found)]


def _meanings(found: Comparison) -> list[str]:
    lines = [f"{s.name}: {STRATEGIES[s.name]}." for s in found.strategies]
    lines += [
        "moved: bytes that all groups read and write (H), at the tiles of each strategy.",
        f"least: the same kernels at their best tiles for M = {found.memory:,} bytes of a group"
        f" on {found.plan.machine.name}; none where a group holds more.",
        "once: the same kernels with unlimited memory; each kernel moves each of its tensors once:",
        *(f"  {s.name}: {s.symbols} values" for s in found.strategies),
        "compulsory: every input read once, every output written once.",
    ]
    times = {s.name: s.seconds for s in found.strategies}
    if times.get("unfused", math.inf) < times.get("fused", 0.0):
        lines.append(
            "Here unfused is predicted to be faster than the plan: it stores arrays between kernels"
            " that the plan's search leaves out."
        )
    if found.optimum is not None:
        lines.append(
            "optimum: the least for that M, over these cuts and one fused kernel, under any labels."
        )
        below = [s.name for s in found.strategies if s.moved < found.optimum]
        if below:
            lines.append(
                f"{' and '.join(below)} moves less than the optimum: a kernel holds more than"
                " that M in registers."
            )
    else:
        lines.append(f"There is no optimum in symbols: {found.no_optimum}.")
    if any(s.name == "naive" for s in found.strategies):
        lines.append(
            "The time of naive is a lower bound: the longer of its traffic at L2 bandwidth and the"
            " time of the unfused kernel."
        )
    return lines


def comparison_json(found: Comparison) -> dict[str, Any]:
    """Strategies as plain data, in bytes and seconds."""
    plan = found.plan
    return {
        "name": plan.name,
        "machine": plan.machine.name,
        "dtype": plan.dtype,
        "sizes": dict(plan.sizes),
        "memory": found.memory,
        "optimum": found.optimum,
        "no_optimum": found.no_optimum or None,
        "compulsory": found.compulsory,
        "strategies": [_row(found, s) for s in found.strategies],
    }


def comparison_rows(found: Comparison) -> list[dict[str, Any]]:
    """A row for each strategy, as CSV has them."""
    return [
        {**_row(found, s), "optimum": found.optimum, "compulsory": found.compulsory}
        for s in found.strategies
    ]


def _row(found: Comparison, s: Strategy) -> dict[str, Any]:
    return {
        "strategy": s.name,
        "kernels": s.kernels,
        "moved": s.moved,
        "least": s.least,
        "once": s.once,
        "once_values": str(s.symbols),
        "workspace": s.workspace,
        "seconds": s.seconds,
        "at_least": s.name == "naive",
        "limited_by": s.limited_by,
        "over_optimum": None if found.optimum is None else s.moved / found.optimum,
        "over_compulsory": s.moved / found.compulsory,
    }


def _factor(moved: float | None, least: float | None) -> str:
    return "" if moved is None or not least else f"{moved / least:,.2f}"
