"""The pipelining diagram: which team has which pipe when (arXiv 2412.03317, Figures 34 and 35)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from napkin.show.plots import drawing, figure_class, save
from napkin.studies.pipeline.model import Pipeline
from napkin.studies.pipeline.timeline import Bar, schedule

ITERATIONS = 3
"""Iterations of each team that are drawn."""

_COLOURS = {"first": "#2f6fd0", "second": "#7fa8e6", "arithmetic": "#2e8b3d"}


def write_gantt(path: Path, p: Pipeline, overhead: float) -> None:
    """Draw the first iterations of a thread block's teams side by side, and of one team alone.

    Raises:
        InputError: see `napkin.show.plots.check_plot`; or the file cannot be written.
    """
    with drawing():
        save(path, _figure(p, overhead))


def _figure(p: Pipeline, overhead: float) -> Any:
    iterations = list(p.overlaps())
    # Within a team, the overlap is that of one alone.
    counts = {"inter": p.fit.teams, "intra": 1}
    ways = [(i, iteration, how) for i, iteration in enumerate(iterations) for how in counts]
    shares = [0.9 + 0.45 * counts[how] for _, _, how in ways]
    figure = figure_class()(figsize=(10, 1.0 + sum(shares)), layout="constrained")
    figure.suptitle(f"{p.kernel.name} on {p.machine.name}, e = {overhead:.3g}")
    panels = figure.subplots(len(ways), squeeze=False, height_ratios=shares)[:, 0]
    for (i, iteration, how), axes in zip(ways, panels, strict=True):
        rows, teams = p.clocks[i].rows, counts[how]
        bars = schedule(
            iteration, how, teams=teams, iterations=ITERATIONS, rows=rows, overhead=overhead
        )
        for bar in bars:
            _draw(axes, bar)
        names = [f"{p.team} {t + 1}" for t in range(teams)]
        axes.set_yticks(range(teams), names, fontsize=8)
        axes.set_ylim(teams - 0.5, -0.5)
        busy = iteration.utilisation(how, overhead)
        loop = f"loop {i + 1}, " if len(iterations) > 1 else ""
        axes.set_title(f"{loop}{how}-{p.team} overlap: tensor cores busy {busy:.0%}", fontsize=9)
        axes.set_xlabel("clocks")
    handles, labels = _legend(iterations[0].pipe)
    figure.legend(handles, labels, loc="outside lower right", ncols=4)
    return figure


def _draw(axes: Any, bar: Bar) -> None:
    """One bar: products above the line of a team, arithmetic below it, overhead hatched."""
    y, high = (bar.team - 0.2, 0.36) if bar.pipe == "tensor" else (bar.team + 0.2, 0.36)
    colour = _COLOURS[bar.what]
    axes.barh(y, bar.counted, high, bar.start, color=colour, edgecolor="white", linewidth=0.5)
    rest = bar.end - bar.start - bar.counted
    if rest > 1e-9:
        left = bar.start + bar.counted
        axes.barh(y, rest, high, left, facecolor="white", edgecolor=colour, hatch="////")
    middle = bar.start + bar.counted / 2
    axes.text(
        middle, y, str(bar.iteration + 1), ha="center", va="center", fontsize=6, color="white"
    )


def _legend(pipe: str) -> tuple[list[Any], list[str]]:
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(color=c) for c in _COLOURS.values()]
    handles.append(Patch(facecolor="white", edgecolor=_COLOURS["arithmetic"], hatch="////"))
    arithmetic = pipe or "arithmetic"
    return handles, ["products before it", "products that wait for it", arithmetic, "overhead"]
