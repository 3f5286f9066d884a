"""The cost over a chain of memory levels: tiles, traffic and cost at each, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from napkin.bound.multilevel import Program, canonical, weighted
from napkin.bound.whole_tiles import Levels, Rounded, levels
from napkin.count.alignment import at_level, combined
from napkin.count.residency import live_set
from napkin.errors import InputError
from napkin.ir.types import STORAGE
from napkin.machine.chain import chains
from napkin.machine.machines import machine
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel
from napkin.show.console import RenderableType, Table, table
from napkin.show.plans import heading
from napkin.show.words import bytes_text, us_text
from napkin.studies.predicted import operations

_WINDOWS = (
    "Windows enter every level tap by tap, as kernels load them; a cache that holds what windows"
    " share lets less through. The least counts padding, too; whole tiles do not."
)


def through_levels(on: str, text: str | None) -> tuple[str, ...]:
    """The levels of ``--through``, as in "host,dram,l2,shared"; none without it.

    Raises:
        InputError: they are no chain of levels of the machine `on`.
    """
    if text is None:
        return ()
    names = tuple(n.strip() for n in text.split(","))
    if not all(names):
        raise InputError(f"--through {text!r}: a level is empty; write --through dram,l2,shared")
    hardware = machine(on)
    try:
        list(chains(hardware, names))
    except InputError as error:
        raise InputError(f"--through {text!r}: {error}") from None
    return names


def levels_json(plan: Plan, names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """For each kernel of a plan its levels, or why there are none, as plain data."""
    return [_json(k, _levels(k, names)) for k in plan.kernels]


def levels_view(plan: Plan, names: Sequence[str] = ()) -> list[RenderableType]:
    """The levels of a plan's kernels as tables."""
    out: list[RenderableType] = [heading(plan), ""]
    for k in plan.kernels:
        found = _levels(k, names)
        if isinstance(found, str):
            out.append(f"kernel {k.name}: no cost over levels: {found}")
            continue
        symbols = f"In symbols, each level bound by its own M, in bytes: {_symbols(k, found)}"
        out += [_tiles(k, found), _costs(k, found), *_passed_on(found), symbols, ""]
        if k.cost.sharing is not None:
            out += [_WINDOWS, ""]
        if k.choice.kernel.visits is not None:
            out += ["The least is by formulas that leave borders out; whole tiles are counted.", ""]
        out += _alignments(found)
    return out


def _levels(k: PlannedKernel, names: Sequence[str]) -> Levels | str:
    """The levels of a kernel, or why it has none: no formula, or tiles that do not fit."""
    try:
        program = Program(k.choice.kernel, k.choice.sizes, _item(k))
        return levels(program, k.machine, names)
    except InputError as error:
        return str(error)


def _item(k: PlannedKernel) -> dict[str, Fraction]:
    return {t: Fraction(STORAGE[d].bits, 8) for t, d in k.dtypes.items()}


# --- plain data ---------------------------------------------------------------------------------


def _json(k: PlannedKernel, found: Levels | str) -> dict[str, Any]:
    if isinstance(found, str):
        return {"kernel": k.name, "none": found}
    whole = found.whole
    stages: list[dict[str, Any]] = []
    for i, stage in enumerate(found.chain.stages):
        data: dict[str, Any] = {
            "level": stage.name,
            "via": list(stage.via),
            "count": stage.count,
            "capacity": stage.capacity,
            "memory": stage.memory,
            "children": stage.children or None,
            "bytes_per_second": {"read": _rate(stage.read), "write": _rate(stage.write)},
            "optimum": {
                "tiles": found.optimum.tiles[i],
                "bytes": dict(zip(("read", "write"), found.optimum.bytes[i], strict=True)),
                "seconds": found.optimum.seconds[i],
                "binds": list(found.optimum.binds[i]),
            },
        }
        if isinstance(whole, Rounded):
            data["whole"] = {
                "tiles": whole.tiles[i],
                "values": whole.values[i],
                "bytes": dict(zip(("read", "write"), whole.bytes[i], strict=True)),
                "seconds": whole.seconds[i],
                "held": whole.held[i],
                "multiples": combined(at_level(whole.alignments, found.chain, stage.name)),
            }
        stages.append(data)
    out: dict[str, Any] = {
        "kernel": k.name,
        "through": list(found.chain.names),
        "chips": found.chain.chips,
        "levels": stages,
        "seconds": {"optimum": found.optimum.total, "computing": _computing(k, found)},
        "symbols": _symbols(k, found),
    }
    if isinstance(whole, str):
        return {**out, "no_whole_tiles": whole}
    out["seconds"]["whole"] = whole.total
    out["alignments"] = [
        {"axis": m.axis, "multiple": m.multiple, "from": m.level, "reason": m.reason}
        for m in whole.alignments
    ]
    return out


def _rate(seconds: float) -> float | None:
    return 1 / seconds if seconds else None


# --- tables -------------------------------------------------------------------------------------


def _tiles(k: PlannedKernel, found: Levels) -> Table:
    columns = ("level", ">memory", "what that is", "best tile", "whole tile", "what binds")
    made = table(*columns, title=f"kernel {k.name}: tiles from {found.chain.top.name} inwards")
    for i, stage in enumerate(found.chain.stages):
        one = f"one of {stage.count}" if stage.count > 1 else "all"
        what = f"{stage.children} of the next, together" if stage.children else one
        best = {a: f"{g:,.1f}" for a, g in found.optimum.tiles[i].items()}
        whole = found.whole.tiles[i] if isinstance(found.whole, Rounded) else {}
        made.add_row(
            stage.name,
            bytes_text(stage.memory),
            what,
            _named(best),
            _named({a: f"{n:,}" for a, n in whole.items()}),
            ", ".join(found.optimum.binds[i]),
        )
    return made


def _costs(k: PlannedKernel, found: Levels) -> Table:
    numbers = (">TB/s", ">least bytes", ">least cost", ">values", ">bytes", ">cost")
    made = table("into", "by", *numbers, title="traffic and weighted cost")
    whole = found.whole if isinstance(found.whole, Rounded) else None
    for i, stage in enumerate(found.chain.stages):
        least = sum(found.optimum.bytes[i])
        made.add_row(
            stage.name,
            ", ".join(stage.via),
            f"{1e-12 / stage.read:,.3g}",
            f"{least:,.0f}",
            us_text(found.optimum.seconds[i]),
            f"{whole.values[i]:,}" if whole else "",
            f"{sum(whole.bytes[i]):,.0f}" if whole else "",
            us_text(whole.seconds[i]) if whole else "",
        )
    made.add_section()
    total = us_text(whole.total) if whole else ""
    made.add_row("sum", "", "", "", us_text(found.optimum.total), "", "", total)
    if (computing := _computing(k, found)) is not None:
        what, shown = f"computing at the peak of {k.dtype}", us_text(computing)
        made.add_row("beside it", what, "", "", shown, "", "", shown)
    return made


def _passed_on(found: Levels) -> list[str]:
    """What the weight of a cluster is: it is the rate of no pipe."""
    return [
        f"{outer.name}: every byte into it crosses {', '.join(outer.via)} once, and is then passed"
        f" on rather than read again; it weighs what those take less what {inner.via[0]} does"
        " (arXiv 2412.03317, Theorem 3), which the TB/s above stand for.\n"
        for outer, inner in pairwise(found.chain.stages)
        if outer.name.startswith("cluster")
    ]


def _computing(k: PlannedKernel, found: Levels) -> float | None:
    """Seconds of the kernel's matrix products at the machine's peak, if there are any and the peak
    is known."""
    if not live_set(k.choice.kernel).products or k.dtype not in k.machine.dtypes:
        return None
    return operations(k) / (k.machine.peak(k.dtype) * found.chain.chips)


def _symbols(k: PlannedKernel, found: Levels) -> str:
    """The sum in symbols: M_l in bytes, Hdot_l in bytes/s."""
    try:
        terms = canonical(k.cost, _item(k))
    except InputError as error:
        return f"none: {error}"
    names = [s.name.replace(":", "_") for s in found.chain.stages]
    return str(weighted(terms, names))


def _alignments(found: Levels) -> list[RenderableType]:
    if isinstance(found.whole, str):
        return [found.whole, ""]
    columns = ("axis", ">multiple of", "from", "because")
    made = table(*columns, title="alignments of whole tiles")
    for axis, together in combined(found.whole.alignments).items():
        own = [m for m in found.whole.alignments if m.axis == axis]
        for m in own:
            made.add_row(axis, str(m.multiple), m.level, m.reason)
        made.add_row(axis, str(together), "", "the least common multiple")
        made.add_section()
    return [made, "Tiles nest: each is a multiple of the one inside it.", ""]


def _named(values: Mapping[str, str]) -> str:
    return ", ".join(f"{a} {n}" for a, n in values.items())
