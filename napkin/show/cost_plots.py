"""Plots of costs: traffic against memory, rooflines, landscapes of tiles, times against size."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from napkin.bound.least import for_memory
from napkin.count.traffic import ITEM_BYTES
from napkin.errors import InputError
from napkin.ir.symbols import size_symbol
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel, distinct
from napkin.show import files
from napkin.show.plans import heading, kernel_title
from napkin.show.plots import figure, figure_class
from napkin.show.predictions import fixed_sizes
from napkin.show.words import Range, sizes_text
from napkin.studies.landscape import Landscape, landscape
from napkin.studies.predicted import Predicted
from napkin.studies.roofline import Roofline, roofline
from napkin.studies.strategies import Comparison

_POINTS = 33
"""Points of a curve."""

_LETTERS = 90
"""Letters of a title in one line."""


def check_folder(folder: Path, what: str = "--plot") -> None:
    """Check that plots can be made, before the work that they show.

    Raises:
        InputError: matplotlib is missing, or the folder cannot be written into.
    """
    figure_class(what)
    files.check_folder(folder)


def plot_plan(folder: Path, plan: Plan) -> list[str]:
    """Draw, for each kernel, traffic against memory, its roofline and its tiles, and the rooflines
    of kernels of warpgroups that run in place of these; the files' names.

    A kernel whose bound is in no closed form has no plot of traffic, one with fewer than two tiles
    to choose no landscape.

    Raises:
        InputError: see `check_folder`; or a file cannot be written.
    """
    out: list[str] = []
    for k in distinct(plan.kernels):
        about = heading(plan) if k.name == plan.name else f"{k.name} of {heading(plan)}"
        lines = traffic_terms(k)
        if lines:
            out.append(_write(folder, f"traffic_{k.name}", about, _draw_traffic, k, lines))
        out.append(_write(folder, f"roofline_{k.name}", about, _draw_roofline, roofline(k)))
        found = landscape(k)
        if found is not None:
            out.append(_write(folder, f"tiles_{k.name}", about, _draw_landscape, found))
    for k in distinct(plan.of_warpgroups):
        about = f"{kernel_title(k)} of {heading(plan)}"
        out.append(
            _write(folder, f"roofline_{k.name}_warpgroups", about, _draw_roofline, roofline(k))
        )
    return out


def plot_sweep(folder: Path, swept: Range, found: Sequence[Predicted]) -> list[str]:
    """Draw time against size, beside what no plan could undercut; the file's name."""
    plan = found[0].plan
    rest = fixed_sizes(swept, found)
    about = f"{plan.name} on {plan.machine.name}, {plan.dtype}, {sizes_text(rest)}".rstrip(", ")
    return [_write(folder, f"time_{plan.name}", about, _draw_times, swept, found)]


def plot_comparison(folder: Path, found: Comparison) -> list[str]:
    """Draw what each strategy moves, beside the optimum and what is compulsory; the file's name."""
    name = f"strategies_{found.plan.name}"
    return [_write(folder, name, heading(found.plan), _draw_strategies, found)]


def plot_machines(folder: Path, found: Sequence[Predicted]) -> list[str]:
    """Draw the time on each machine; the file's name."""
    plan = found[0].plan
    about = f"{plan.name}, {plan.dtype}, {sizes_text(plan.sizes)}"
    return [_write(folder, f"machines_{plan.name}", about, _draw_machines, found)]


# --- what is drawn ------------------------------------------------------------------------------


def traffic_terms(k: PlannedKernel) -> list[tuple[float, float]]:
    """The terms alpha * M**-beta of a kernel's bound at its sizes, as (alpha, beta), in values;
    none where a term depends on more than sizes."""
    known: dict[Any, Any] = {size_symbol(a): n for a, n in k.choice.sizes.items()}
    try:
        found: list[tuple[Any, float]] = [(t.alpha.subs(known), float(t.beta)) for t in k.terms]
    except InputError:
        return []
    if any(alpha.free_symbols for alpha, _ in found):
        return []
    return [(float(alpha), beta) for alpha, beta in found]


def _draw_traffic(axes: Any, k: PlannedKernel, terms: Sequence[tuple[float, float]]) -> None:
    item = ITEM_BYTES[k.dtype]
    here = k.machine.shared_per_block
    steps = [here * 2 ** (-6 + 12 * i / (_POINTS - 1)) for i in range(_POINTS)]
    for alpha, beta in terms:
        label = f"M^-{beta:.3g}" if beta else "M^0, whatever the memory"
        curve = [item * alpha * (m / item) ** -beta for m in steps]
        axes.plot(steps, curve, linestyle="--", label=f"the term in {label}")
    least = [(m, n) for m in steps if math.isfinite(n := _least(k, round(m)))]
    if least:
        axes.plot(*zip(*least, strict=True), color="black", label="the least H at these sizes")
    moved = sum(k.bytes.values())
    axes.plot([here], [moved], "o", color="black", label="H of the kernel")
    axes.axvline(here, color="grey", linestyle=":", label=f"M of {k.machine.name}")
    axes.set(xscale="log", yscale="log", xlabel="bytes of a group, M", ylabel="bytes moved, H")
    axes.legend(fontsize=8)


def _least(k: PlannedKernel, memory: int) -> float:
    try:
        return for_memory(k.byte_cost, k.choice.sizes, memory)
    except InputError:
        return math.inf


def _draw_roofline(axes: Any, found: Roofline) -> None:
    at = {x: x.intensity for x in found.levels if math.isfinite(x.intensity) and x.intensity > 0}
    points = [*at.values(), *(x.balance for x in found.levels)]
    low, high = min(points) / 8, max(points) * 8
    for x in found.levels:
        name = f"{x.source} to {x.target}, {x.rate / 1e12:.3g} TB/s"
        (line,) = axes.plot(
            [low, x.balance, high],
            [low * x.rate / 1e12, found.peak / 1e12, found.peak / 1e12],
            label=name,
        )
        if x in at:  # a kernel without operations stands nowhere on axes of powers
            axes.plot([at[x]], [found.rate / 1e12], "o", color=line.get_color())
    axes.axhline(found.peak / 1e12, color="black", linestyle=":", label=f"the peak of {found.pipe}")
    axes.set(xscale="log", yscale="log", xlabel="operations for each byte", ylabel="TFLOP/s")
    axes.legend(fontsize=8, loc="lower right", title="dots: the kernel, as predicted")


def _draw_landscape(axes: Any, found: Landscape) -> None:
    across = sorted({a for a, _ in found.seconds})
    up = sorted({b for _, b in found.seconds})
    grid = [[found.seconds.get((a, b), math.nan) * 1e6 for a in across] for b in up]
    least = min(found.seconds.values()) * 1e6
    over = [[v / least for v in line] for line in grid]
    mesh = axes.pcolormesh(over, cmap="viridis_r", vmin=1.0, vmax=4.0, edgecolors="white")
    axes.figure.colorbar(mesh, label="time over the least", extend="max")
    for i, line in enumerate(grid):
        for j, value in enumerate(line):
            text = "" if math.isnan(value) else f"{value:,.4g}"
            weight = "bold" if (across[j], up[i]) == found.chosen else "normal"
            axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=7,
                      weight=weight, color="white" if over[i][j] > 2 else "black")  # fmt: skip
    axes.set_xticks([j + 0.5 for j in range(len(across))], [str(a) for a in across])
    axes.set_yticks([i + 0.5 for i in range(len(up))], [str(b) for b in up])
    axes.set(xlabel=f"tile of {found.axes[0]}", ylabel=f"tile of {found.axes[1]}")


def _draw_times(axes: Any, swept: Range, found: Sequence[Predicted]) -> None:
    machine = found[0].plan.machine
    curves: Mapping[str, list[float | None]] = {
        "predicted": [p.plan.seconds for p in found],
        "the optimum into shared memory": [
            None if p.optimum is None else p.optimum / machine.l2_rate for p in found
        ],
        "inputs and outputs once from DRAM": [p.compulsory / machine.dram_rate for p in found],
    }
    dtype = found[0].plan.dtype
    if dtype in machine.dtypes:
        peak = machine.peak(dtype)
        curves = {
            **curves,
            f"operations at the peak of {dtype}": [p.operations / peak for p in found],
        }
    for name, seconds in curves.items():
        points = [(n, s * 1e6) for n, s in zip(swept.sizes, seconds, strict=True) if s is not None]
        style = "o-" if name == "predicted" else "--"
        axes.plot([n for n, _ in points], [s for _, s in points], style, label=name)
    axes.set(xscale="log", yscale="log", xlabel="=".join(swept.axes), ylabel="microseconds")
    shown = swept.sizes[:: -(-len(swept.sizes) // 8)]
    axes.set_xticks(shown, [f"{n:,}" for n in shown])
    axes.set_xticks([], minor=True)
    axes.legend(fontsize=8)


def _draw_strategies(axes: Any, found: Comparison) -> None:
    names = [s.name for s in found.strategies]
    axes.barh(names, [s.moved for s in found.strategies], color="#7fa8e6")
    if found.optimum is not None:
        axes.axvline(found.optimum, color="black", label="the optimum")
    axes.axvline(found.compulsory, color="black", linestyle=":", label="compulsory")
    axes.set(xscale="log", xlabel="bytes moved", xlim=(found.compulsory / 2, None))
    axes.invert_yaxis()
    axes.legend(fontsize=8)


def _draw_machines(axes: Any, found: Sequence[Predicted]) -> None:
    axes.barh([p.plan.machine.name for p in found], [p.plan.seconds * 1e6 for p in found])
    axes.set(xlabel="microseconds, predicted")
    axes.invert_yaxis()


def _write(folder: Path, name: str, about: str, draw: Callable[..., None], *shown: Any) -> str:
    """Draw what is shown into a file; its name."""
    files.writable_folder(folder)
    with figure(folder / f"{name}.svg", 7.0, 4.5) as made:
        axes = made.subplots()
        draw(axes, *shown)
        axes.set_title(textwrap.fill(about, _LETTERS), fontsize=9)
    return f"{name}.svg"
