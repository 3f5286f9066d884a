"""`napkin cost`: from what is written on the command line to what is printed and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    json: bool = False,
) -> None:
    """Print costs as tables or as JSON, and write rows as CSV.

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
        _compare(asked, compare, csv, json)
    elif sweep is not None:
        _sweep(asked, sweep, csv, json)
    elif against is not None:
        _against(asked, against, prices, csv, json)
    elif chosen:
        _levels(asked, through, json)
    else:
        _plain(asked, json)


def _plan(asked: Asked) -> Any:
    from napkin.plan.derive import derive

    return derive(asked.diagram, asked.on, asked.given, asked.dtype, parts=asked.parts)


def _plain(asked: Asked, json: bool) -> None:
    plan = _plan(asked)
    from napkin.show import costs

    if json:
        console.emit_json(costs.cost_json(plan))
    else:
        console.emit(*costs.cost_view(plan))


def _levels(asked: Asked, through: str | None, json: bool) -> None:
    from napkin.show import costs, levels

    names = levels.through_levels(asked.on, through)  # a wrong one is said before any work
    plan = _plan(asked)
    if json:
        console.emit_json(costs.cost_json(plan) | {"levels": levels.levels_json(plan, names)})
    else:
        console.emit(*levels.levels_view(plan, names))


def _compare(asked: Asked, text: str, csv: Path | None, json: bool) -> None:
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
    if json:
        console.emit_json(strategies.comparison_json(found))
    else:
        console.emit(*strategies.comparison_view(found))


def _sweep(asked: Asked, text: str, csv: Path | None, json: bool) -> None:
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
    if json:
        console.emit_json(predicted.sweep_json(swept, found))
    else:
        console.emit(*predicted.sweep_view(swept, found))


def _against(asked: Asked, text: str, prices: str | None, csv: Path | None, json: bool) -> None:
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
    if json:
        console.emit_json(predicted.against_json(found, refused))
    else:
        console.emit(*predicted.against_view(found, refused))
