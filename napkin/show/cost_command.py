"""`napkin cost`: from what is written on the command line to what is printed and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from napkin.diagram.diagram import Diagram
from napkin.errors import InputError
from napkin.show import console, options
from napkin.show.rows import check_csv, write_csv


@dataclass(frozen=True)
class Asked:
    """What is costed: a diagram at sizes, on a machine.

    Attributes:
        on: a machine, or its file.
        given: the sizes that are given; the diagram's own for the others.
        parts: numbers of parts of streamed axes.
    """

    diagram: Diagram
    on: str
    given: Mapping[str, int]
    dtype: str
    parts: Mapping[str, int]


def run(
    diagram: Diagram,
    on: str,
    sizes: Sequence[str] | None,
    dtype: str,
    parts: Sequence[str] | None,
    *,
    levels: bool = False,
    through: str | None = None,
    compare: str | None = None,
    sweep: str | None = None,
    against: str | None = None,
    prices: str | None = None,
    csv: Path | None = None,
    plot: Path | None = None,
    json: bool = False,
) -> None:
    """Print costs as tables or as JSON, write rows as CSV, and draw plots into a folder.

    Args:
        levels, compare, sweep, against: which costs, one of them; those of the plan if none.
        through: the levels; see `napkin.show.levels.through_levels`.

    Raises:
        InputError: something that is written is wrong, or does not go together.
        Refusal: no kernel fits the machine.
    """
    views = {
        "--levels": True if levels or through is not None else None,
        "--compare": compare,
        "--sweep": sweep,
        "--against": against,
    }
    chosen = [name for name, wanted in views.items() if wanted is not None]
    if len(chosen) > 1:
        raise InputError(f"{' and '.join(chosen)} are tables of their own; ask for one at a time")
    check_csv(csv)
    if csv is not None and chosen in ([], ["--levels"]):
        raise InputError("--csv goes with --compare, --sweep or --against, which have rows")
    if prices is not None and against is None:
        raise InputError("--prices goes with --against, as in --against a100,h100")
    if plot is not None:
        if chosen == ["--levels"]:
            raise InputError("--plot goes with every table but that of --levels")
        _plots().check_folder(plot)
    given = options.parse_sizes(sizes or ())
    if sweep is None:
        diagram.check_sizes(given)
    asked = Asked(
        diagram,
        on,
        given,
        dtype,
        options.parse_sizes(parts or (), "--parts"),
    )
    if compare is not None:
        _compare(asked, compare, csv, plot, json)
    elif sweep is not None:
        _sweep(asked, sweep, csv, plot, json)
    elif against is not None:
        _against(asked, against, prices, csv, plot, json)
    elif chosen:
        _levels(asked, through, json)
    else:
        _plain(asked, plot, json)


def _plan(asked: Asked) -> Any:
    from napkin.plan.derive import derive

    return derive(asked.diagram, asked.on, asked.given, asked.dtype, parts=asked.parts)


def _plain(asked: Asked, plot: Path | None, json: bool) -> None:
    plan = _plan(asked)
    from napkin.show import costs

    drawn = [] if plot is None else _plots().plot_plan(plot, plan)
    if json:
        console.emit_json(costs.cost_json(plan))
    else:
        console.emit(*costs.cost_view(plan), *_drawn(plot, drawn))


def _levels(asked: Asked, through: str | None, json: bool) -> None:
    from napkin.show import costs, levels

    names = levels.through_levels(asked.on, through)  # a wrong one is said before any work
    plan = _plan(asked)
    if json:
        console.emit_json(costs.cost_json(plan) | {"levels": levels.levels_json(plan, names)})
    else:
        console.emit(*levels.levels_view(plan, names))


def _compare(asked: Asked, text: str, csv: Path | None, plot: Path | None, json: bool) -> None:
    from napkin.plan.strategies import compare, named
    from napkin.show import strategies

    names = named(text)
    with console.progress() as tell:
        found = compare(
            asked.diagram,
            asked.on,
            asked.given,
            asked.dtype,
            names,
            parts=asked.parts,
            progress=tell,
        )
    if csv is not None:
        write_csv(csv, strategies.comparison_rows(found))
    drawn = [] if plot is None else _plots().plot_comparison(plot, found)
    if json:
        console.emit_json(strategies.comparison_json(found))
    else:
        console.emit(*strategies.comparison_view(found), *_drawn(plot, drawn))


def _sweep(asked: Asked, text: str, csv: Path | None, plot: Path | None, json: bool) -> None:
    swept = options.parse_sweep(text)
    for axis in swept.axes:
        if axis in asked.given:
            raise InputError(f"--sweep: {axis} is swept, so leave it out of --sizes")
    from napkin.plan.predicted import over_sizes
    from napkin.show import predicted

    every = [{**asked.given, **dict.fromkeys(swept.axes, size)} for size in swept.sizes]
    with console.progress() as tell:
        found = over_sizes(
            asked.diagram, asked.on, every, asked.dtype, parts=asked.parts, progress=tell
        )
    if csv is not None:
        write_csv(csv, predicted.sweep_rows(swept, found))
    drawn = [] if plot is None else _plots().plot_sweep(plot, swept, found)
    if json:
        console.emit_json(predicted.sweep_json(swept, found))
    else:
        console.emit(*predicted.sweep_view(swept, found), *_drawn(plot, drawn))


def _against(
    asked: Asked, text: str, prices: str | None, csv: Path | None, plot: Path | None, json: bool
) -> None:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InputError(f"--against {text!r}: a machine is empty; write --against a100,h100,b200")
    known = {} if prices is None else options.parse_prices(prices)
    from napkin.plan.predicted import on_machines
    from napkin.show import predicted

    with console.progress() as tell:
        found, refused = on_machines(
            asked.diagram,
            names,
            asked.given,
            asked.dtype,
            known,
            parts=asked.parts,
            progress=tell,
        )
    if csv is not None:
        write_csv(csv, predicted.against_rows(found))
    drawn = [] if plot is None or not found else _plots().plot_machines(plot, found)
    if json:
        console.emit_json(predicted.against_json(found, refused))
    else:
        console.emit(*predicted.against_view(found, refused), *_drawn(plot, drawn))


def _plots() -> Any:
    return import_module("napkin.show.cost_plots")


def _drawn(folder: Path | None, names: Sequence[str]) -> list[str]:
    return [f"Drawn in {folder}: {', '.join(names)}."] if names else []
