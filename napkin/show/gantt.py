"""The pipelining diagram: which team has which pipe when (arXiv 2412.03317, Figures 34 and 35)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from napkin.show.plots import figure
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
    # Within a team, the overlap is that of one alone.
    teams = {"inter": p.fit.teams, "intra": 1}
    iterations = list(p.overlaps())
    ways = list(product(enumerate(iterations), teams))
    shares = [0.9 + 0.45 * teams[how] for _, how in ways]
    with figure(path, 10, 1.0 + sum(shares)) as made:
        made.suptitle(f"{p.kernel.name} on {p.machine.name}, e = {overhead:.3g}")
        panels = made.subplots(len(ways), squeeze=False, height_ratios=shares)[:, 0]
        for ((i, iteration), how), axes in zip(ways, panels, strict=True):
            rows = p.clocks[i].rows
            bars = schedule(iteration, how, teams=teams[how], iterations=ITERATIONS, rows=rows,
                            overhead=overhead)  # fmt: skip
            _panel(axes, bars, [f"{p.team} {t + 1}" for t in range(teams[how])])
            busy = iteration.utilisation(how, overhead)
            loop = f"loop {i + 1}, " if len(iterations) > 1 else ""
            about = f"{loop}{how}-{p.team} overlap: tensor cores busy {busy:.0%}"
            axes.set_title(about, fontsize=9)
        handles, labels = _legend(iterations[0].pipe)
        made.legend(handles, labels, loc="outside lower right", ncols=4)


def _panel(axes: Any, bars: Iterable[Bar], teams: Sequence[str]) -> None:
    """The bars of some teams, a line for each."""
    for bar in bars:
        _draw(axes, bar)
    axes.set_yticks(range(len(teams)), teams, fontsize=8)
    axes.set_ylim(len(teams) - 0.5, -0.5)
    axes.set_xlabel("clocks")


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
