"""The tables of `napkin cost`: what is computed for each, and the forms in which it can be had."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napkin.cli.parse import parse_prices, parse_sweep
from napkin.cli.request import Request
from napkin.errors import InputError, check_known
from napkin.show import console
from napkin.show.console import RenderableType
from napkin.show.files import check_csv, write_csv
from napkin.show.words import Range


@dataclass(frozen=True)
class Costs:
    """One table of costs, worked out; each form is made where it is asked for.

    Attributes:
        view: as text.
        data: as JSON.
        rows: as CSV, where it has rows.
        plot: draws it into a folder, and says what it drew.
    """

    view: Callable[[], Sequence[RenderableType]]
    data: Callable[[], Mapping[str, Any]]
    rows: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    plot: Callable[[Path], Sequence[str]] | None = None


@dataclass(frozen=True)
class Output:
    """Where costs go.

    Attributes:
        csv: a file for rows, or none.
        plot: a folder for plots, or none.
        json: to stdout as JSON, rather than as text.
    """

    csv: Path | None
    plot: Path | None
    json: bool

    def check(self) -> None:
        """Check what can be checked before the work.

        Raises:
            InputError: the file has another ending, the folder cannot be written into, or
                matplotlib is missing.
        """
        if self.csv is not None:
            check_csv(self.csv)
        if self.plot is not None:
            _plots().check_folder(self.plot)

    def write(self, costs: Costs) -> None:
        """Write and print costs.

        Raises:
            InputError: a file cannot be written.
        """
        if self.csv is not None:
            write_csv(self.csv, costs.rows())
        drawn = costs.plot(self.plot) if costs.plot and self.plot else ()
        if self.json:
            console.emit_json(costs.data())
        else:
            files = [f"Drawn in {self.plot}: {', '.join(drawn)}."] if drawn else []
            console.emit(*costs.view(), *files)


def plain(request: Request) -> Costs:
    """What the plan costs."""
    plan = request.plan()
    from napkin.show import costs

    return Costs(
        view=lambda: costs.cost_view(plan),
        data=lambda: costs.cost_json(plan),
        plot=lambda folder: _plots().plot_plan(folder, plan),
    )


def levels(request: Request, through: str | None) -> Costs:
    """What it costs at every level of memory."""
    from napkin.show import costs, levels

    names = levels.through_levels(request.on, through)  # a wrong one is said before any work
    plan = request.plan()
    return Costs(
        view=lambda: levels.levels_view(plan, names),
        data=lambda: costs.cost_json(plan) | {"levels": levels.levels_json(plan, names)},
    )


def compared(request: Request, strategies: str) -> Costs:
    """Several strategies, beside the least there is."""
    from napkin.show.strategy_table import comparison_json, comparison_rows, comparison_view
    from napkin.studies.strategies import compare, named

    names = named(strategies)
    with console.progress() as tell:
        asked = request.diagram, request.on, request.sizes, request.dtype, names
        found = compare(*asked, parts=request.parts, progress=tell)
    return Costs(
        view=lambda: comparison_view(found),
        data=lambda: comparison_json(found),
        rows=lambda: comparison_rows(found),
        plot=lambda folder: _plots().plot_comparison(folder, found),
    )


def swept(request: Request, sweep: str) -> Costs:
    """One plan for each size of a sweep."""
    sizes = parse_sweep(sweep)
    diagram = request.diagram
    for axis in sizes.axes:
        check_known(axis, diagram.axes, f"--sweep: {diagram.name} has no axis {axis!r}")
        if axis in request.sizes:
            raise InputError(f"--sweep: {axis} is swept, so leave it out of --sizes")
    from napkin.show.predictions import sweep_json, sweep_rows, sweep_view
    from napkin.studies.predicted import Predicted, over_sizes

    every = [{**request.sizes, **dict.fromkeys(sizes.axes, size)} for size in sizes.sizes]
    with console.progress() as tell:
        asked = request.diagram, request.on, every, request.dtype
        found = over_sizes(*asked, parts=request.parts, progress=tell)
    each = dict(zip(sizes.sizes, found, strict=True))
    plans = {n: p for n, p in each.items() if isinstance(p, Predicted)}
    refused = {n: r.reason for n, r in each.items() if not isinstance(r, Predicted)}
    if not plans:
        raise InputError(f"--sweep: there is no plan at any size: {refused[sizes.sizes[0]]}")
    kept, found = Range(sizes.axes, tuple(plans)), list(plans.values())
    return Costs(
        view=lambda: sweep_view(kept, found, refused),
        data=lambda: sweep_json(kept, found, refused),
        rows=lambda: sweep_rows(kept, found),
        plot=lambda folder: _plots().plot_sweep(folder, kept, found),
    )


def against(request: Request, machines: str, prices: str | None) -> Costs:
    """The same on several machines."""
    names = [name.strip() for name in machines.split(",")]
    if not all(names):
        wrong = f"--against {machines!r}: a machine is empty"
        raise InputError(f"{wrong}; write --against a100,h100,b200")
    known = {} if prices is None else parse_prices(prices)
    from napkin.show.predictions import against_json, against_rows, against_view
    from napkin.studies.predicted import on_machines

    with console.progress() as tell:
        asked = request.diagram, names, request.sizes, request.dtype, known
        found, refused = on_machines(*asked, parts=request.parts, progress=tell)
    if not found:
        reasons = "".join(f"\n  {r.machine}: {r.reason}" for r in refused)
        raise InputError(f"--against: there is no plan on {', '.join(names)}{reasons}")
    return Costs(
        view=lambda: against_view(found, refused),
        data=lambda: against_json(found, refused),
        rows=lambda: against_rows(found),
        plot=lambda folder: _plots().plot_machines(folder, found),
    )


def _plots() -> Any:
    from napkin.show import cost_plots

    return cost_plots
