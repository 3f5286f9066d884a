"""Costs in symbols beside their numbers: transfers, memory, and the optimum for a memory."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from napkin.bound.least import by_tensor, for_memory
from napkin.bound.optimum import Optimum
from napkin.bound.symbolic_cost import Cost
from napkin.count.interior import visited_symbol
from napkin.count.traffic import ITEM_BYTES
from napkin.count.visited import read
from napkin.errors import InputError
from napkin.ir.symbols import MEMORY, group_symbol, size_symbol, stream_symbol
from napkin.ir.types import STORAGE
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel, distinct
from napkin.show.console import RenderableType, Table, table
from napkin.show.notes import notes
from napkin.show.plans import heading, kernel_title, term_text, total_time
from napkin.show.words import bytes_text, us_text
from napkin.studies.roofline import LevelUse, PipeUse, Roofline, roofline


def cost_json(plan: Plan) -> dict[str, Any]:
    """The plan as plain data, with the optimum of each kernel: for long axes, and at its sizes."""
    out = plan.to_json()
    for data, k in zip(out["kernels"], plan.kernels, strict=True):
        data["optimum"] = _optimum_json(_optimum(k.cost))
        data["at_sizes"] = _at_sizes_json(plan, k)
        if _mixed(k):
            data["in_bytes"] = _in_bytes_json(k)
        data["roofline"] = _roofline_json(roofline(k))
    for data, k in zip(out.get("warpgroups", ()), plan.of_warpgroups, strict=True):
        data["roofline"] = _roofline_json(roofline(k))
    return out


def cost_view(plan: Plan) -> list[RenderableType]:
    """The costs of a plan as tables."""
    out: list[RenderableType] = [heading(plan), ""]
    for k in plan.kernels:
        out += [_transfers(k), _memory(k), _optima(plan, k)]
        out += [_in_bytes(k)] if _mixed(k) else []
        out += _rooflines(k)
    for k in distinct(plan.of_warpgroups):
        said = f"It runs in place of kernel {k.name} on tensors that descriptors serve."
        out += [*_rooflines(k), said, ""]
    return [*out, total_time(plan), *notes(plan)]


# --- numbers ------------------------------------------------------------------------------------


def inner_values(plan: Plan) -> int:
    """Values that fit in the shared memory of one group: M, in numbers."""
    return plan.machine.shared_per_block // ITEM_BYTES[plan.dtype]


def _numbers(k: PlannedKernel) -> dict[Any, float]:
    out: dict[Any, float] = {size_symbol(a): n for a, n in k.choice.sizes.items()}
    kernel = k.choice.kernel
    out |= {group_symbol(a): k.tiles[a] for a in kernel.group}
    out |= {stream_symbol(a): k.tiles[a] for a in kernel.stream.axes}
    if kernel.visits is not None:
        axes = kernel.visits.axes
        sizes = kernel.sized(k.choice.sizes)
        groups = math.prod(-(-sizes[a] // k.tiles[a]) for a in kernel.group)
        out[visited_symbol(axes)] = read(kernel, axes, sizes, k.tiles) / max(groups, 1)
    return out


def _at(expression: Any, numbers: Mapping[Any, float]) -> float:
    return float(expression.subs(numbers))


def _optimum(cost: Cost, **regime: Any) -> Optimum | str:
    """The optimum for long axes, or in a regime of sizes and memory; or why there is none."""
    try:
        return cost.optimum(**regime)
    except InputError as error:
        return str(error)


def _mixed(k: PlannedKernel) -> bool:
    """Whether arrays differ in their bytes per value, so that values do not say it all."""
    return len({STORAGE[dtype].bits for dtype in k.dtypes.values()}) > 1


def _bytes_at_sizes(k: PlannedKernel) -> Optimum | str:
    """The optimum in bytes, in the regime of the plan's sizes and machine."""
    return _optimum(k.byte_cost, sizes=k.choice.sizes, memory=k.machine.shared_per_block)


def _at_sizes(plan: Plan, k: PlannedKernel) -> Optimum | str:
    """The optimum in the regime of the plan's sizes and machine, or why there is none."""
    return _optimum(k.cost, sizes=k.choice.sizes, memory=inner_values(plan))


def _least(k: PlannedKernel, cost: Cost, found: Optimum, budget: int) -> float:
    """The least H in numbers. Without a stream several things may have to fit, for which the bound
    in symbols takes their sum."""
    if not k.choice.kernel.stream.axes:
        with contextlib.suppress(InputError):
            least = for_memory(cost, k.choice.sizes, budget)
            if math.isfinite(least):
                return least
    return _at(found.bound, {**_numbers(k), MEMORY: budget})


# --- plain data ---------------------------------------------------------------------------------


def _optimum_json(found: Optimum | str) -> dict[str, Any]:
    if isinstance(found, str):
        return {"none": found}
    return {
        "tiles": {str(v): str(e) for v, e in found.tiles.items()},
        "bound": str(found.bound),
        "terms": [{"alpha": str(t.alpha), "beta": str(t.beta)} for t in found.terms],
        "multiplier": str(found.multiplier),
        "clipped": [str(v) for v in found.clipped],
        "arbitrary": [str(v) for v in found.arbitrary],
        "exact": found.exact and not found.summed,
    }


def _in_bytes_json(k: PlannedKernel) -> dict[str, Any]:
    cost = k.byte_cost
    found, budget = _bytes_at_sizes(k), k.machine.shared_per_block
    at = {"M": budget, **_optimum_json(found), "H": sum(k.bytes.values())}
    if not isinstance(found, str):
        at["H_least"] = round(_least(k, cost, found, budget))
    return {
        "stored": dict(k.dtypes),
        "H": str(cost.H.total),
        "M": str(cost.M),
        "optimum": _optimum_json(_optimum(cost)),
        "at_sizes": at,
    }


def _at_sizes_json(plan: Plan, k: PlannedKernel) -> dict[str, Any]:
    found = _at_sizes(plan, k)
    out = {"M": inner_values(plan), **_optimum_json(found)}
    out["H"] = k.H.values(k.choice.sizes, k.tiles)
    if not isinstance(found, str):
        out["H_least"] = round(_least(k, k.cost, found, inner_values(plan)))
    if (shared := _sharing(plan, k)) is not None:
        out["H_least_with_taps_held"] = round(shared)
    return out


# --- tables -------------------------------------------------------------------------------------


def _transfers(k: PlannedKernel) -> Table:
    columns = ("tensor", "direction", "H in values", ">values", ">bytes")
    made = table(*columns, title=f"kernel {k.name}: transfers")
    for (tensor, direction), own in by_tensor(k.cost).items():
        values = sum(t.values(k.choice.sizes, k.tiles) for t in own)
        symbolic, count = sum(t.total for t in own), k.bytes[tensor, direction]
        made.add_row(tensor, direction, str(symbolic), f"{values:,}", f"{count:,}")
    total = k.H.values(k.choice.sizes, k.tiles)
    made.add_section()
    made.add_row("all", "", str(k.H.total), f"{total:,}", f"{sum(k.bytes.values()):,}")
    at = _numbers(k)
    for name, part in (("a group", k.H.per_group), ("a step", k.H.per_step)):
        if part != 0:
            made.add_row(name, "", str(part), f"{_at(part, at):,.0f}", "")
    if k.cost.sharing is not None:
        shared = k.cost.sharing.H.total
        made.add_row("taps held", "", str(shared), f"{_at(shared, at):,.0f}", "")
    return made


def _memory(k: PlannedKernel) -> Table:
    rows = [
        ("M", str(k.M), f"{_at(k.M, _numbers(k)):,.0f}"),
        ("shared memory, estimated", "", "", f"{k.shared_bytes:,}"),
        (f"shared memory of {k.machine.name}", "", "", f"{k.machine.shared_per_block:,}"),
    ]
    title = f"kernel {k.name}: memory of a group"
    return table("memory", "in values", ">values", ">bytes", title=title, rows=rows)


def _optima(plan: Plan, k: PlannedKernel) -> Table:
    at_sizes = _at_sizes(plan, k)
    budget = inner_values(plan)
    made = table("", "for long axes", f"at these sizes, M = {budget:,}",
                 title=f"kernel {k.name}: the optimum for M values of memory")  # fmt: skip
    _add_rows(made, _rows(_optimum(k.cost), None), _rows(at_sizes, {**_numbers(k), MEMORY: budget}))
    made.add_section()
    total = k.H.values(k.choice.sizes, k.tiles)
    if not isinstance(at_sizes, str):
        made.add_row("least H, in values", "", f"{_least(k, k.cost, at_sizes, budget):,.0f}")
    made.add_row("H with the tiles of the kernel", "", f"{total:,}")
    if k.cost.sharing is not None and (shared := _sharing(plan, k)) is not None:
        bound = k.cost.sharing.bound
        made.add_row("least H with taps held", str(bound), f"{shared:,.0f}")
    return made


def _sharing(plan: Plan, k: PlannedKernel) -> float | None:
    """The least H where what windows share crosses once, which no kernel that loads tap by tap
    reaches; None where nothing is shared, or there is none for the plan's sizes and machine."""
    budget = inner_values(plan)
    found = _optimum(k.cost.sharing, sizes=k.choice.sizes, memory=budget) if k.cost.sharing else ""
    return None if isinstance(found, str) else _at(found.bound, {**_numbers(k), MEMORY: budget})


def _in_bytes(k: PlannedKernel) -> Table:
    """H, M and the optimum in bytes, each array at its own."""
    cost, budget, found = k.byte_cost, k.machine.shared_per_block, _bytes_at_sizes(k)
    stored = ", ".join(f"{t} {dtype}" for t, dtype in k.dtypes.items())
    made = table("", "for long axes", f"at these sizes, M = {budget:,} bytes",
                 title=f"kernel {k.name}: in bytes, with {stored}")  # fmt: skip
    at = {**_numbers(k), MEMORY: budget}
    total = sum(k.bytes.values())
    made.add_row("H", str(cost.H.total), f"{total:,}")
    made.add_row("M", str(cost.M), f"{_at(cost.M, at):,.0f}")
    made.add_section()
    _add_rows(made, _rows(_optimum(cost), None), _rows(found, at))
    if not isinstance(found, str):
        made.add_section()
        made.add_row("least H, in bytes", "", f"{_least(k, cost, found, budget):,.0f}")
    return made


def _add_rows(made: Table, *columns: Mapping[str, str]) -> None:
    for name in dict.fromkeys(n for c in columns for n in c):
        made.add_row(name, *(c.get(name, "") for c in columns))


def _rows(found: Optimum | str, numbers: Mapping[Any, float] | None) -> dict[str, str]:
    """What an optimum says, by name; tiles with their numbers where there are any."""
    if isinstance(found, str):
        return {"none": found}
    short = {"to leading order": not found.exact, "of the sum of what must fit": found.summed}
    out = {"bound": ", ".join([str(found.bound), *(words for words, so in short.items() if so)])}
    for i, t in enumerate(found.terms):
        out[f"term {i + 1}"] = term_text(t)
    for v, e in found.tiles.items():
        value = "" if numbers is None or e.is_number else f" = {_at(e, numbers):,.1f}"
        clipped = ", all of the axis or 1" if v in found.clipped else ""
        free = ", any split does" if v in found.arbitrary else ""
        out[f"tile {v}"] = f"{e}{value}{clipped}{free}"
    out["multiplier"] = str(found.multiplier)
    return out


# --- rooflines ----------------------------------------------------------------------------------


def _rooflines(k: PlannedKernel) -> list[RenderableType]:
    found, title = roofline(k), kernel_title(k)
    return [_pipes(found, f"{title}: pipes and their slack"), _roofs(found, f"{title}: roofline")]


def _pipes(found: Roofline, title: str) -> Table:
    """The pipes of a kernel, busiest first."""
    rows = ((p.name, us_text(p.seconds), f"{p.share:.0%}", us_text(p.slack)) for p in found.pipes)
    made = table("pipe", ">time", ">share", ">slack", title=title, rows=rows)
    made.add_section()
    made.add_row("predicted", us_text(found.seconds))
    made.add_row(f"limited by {found.limited_by}")
    return made


def _roofs(found: Roofline, title: str) -> Table:
    """The levels of memory from outside inwards."""
    numbers = (">bytes", ">TB/s", ">operations/B", ">balance", ">roof, TFLOP/s")
    made = table("into", *numbers, "bound by", title=title)
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


def _roofline_json(found: Roofline) -> dict[str, Any]:
    """A roofline as plain data: seconds, bytes, operations/s."""
    pipes = [_plain(p) for p in found.pipes]
    levels = [_plain(x) | {"bound": x.bound} for x in found.levels]
    return {**_plain(found), "rate": _rounded(found.rate), "pipes": pipes, "levels": levels}


def _plain(found: Roofline | PipeUse | LevelUse) -> dict[str, Any]:
    return {f.name: _rounded(getattr(found, f.name)) for f in dataclasses.fields(found)}


def _rounded(value: Any) -> Any:
    """A number to nine digits, so that its text is the same wherever it was computed."""
    return float(f"{value:.9g}") if isinstance(value, float) else value
