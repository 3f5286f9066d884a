"""`napkin cost`: the tables of what a diagram costs, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from napkin.cli import cost_tables, options
from napkin.cli.cost_tables import Costs, Output
from napkin.cli.request import Request, request
from napkin.errors import InputError

_Levels = Annotated[
    bool, Option("--levels", help="Show tiles, traffic and cost at every level of memory.")
]
_Through = Annotated[
    str | None,
    Option(
        metavar="LEVEL,...",
        help="The levels for --levels, as in host,dram,l2,shared or dram,cluster,shared.",
    ),
]
_Compare = Annotated[
    str | None,
    Option(
        metavar="STRATEGY,...",
        help="Compare strategies with the optimum: naive, unfused, fused.",
    ),
]
_Sweep = Annotated[
    str | None,
    Option(
        metavar="AXIS,...=FROM..TO[:STEP]",
        help="Show a row for each size. Sizes double, as in q,x=1024..65536, or go in steps.",
    ),
]
_Against = Annotated[
    str | None,
    Option(metavar="MACHINE,...", help="Compare machines, the fastest first. Replaces --on."),
]
_Prices = Annotated[
    str | None,
    Option(
        metavar="MACHINE=USD,...",
        help="Prices an hour for --against, in place of those of the machine files.",
    ),
]
_Csv = Annotated[Path | None, Option(metavar="FILE.csv", help="Also write the rows as CSV.")]
_Plot = Annotated[Path | None, Option(metavar="DIR", help="Also draw SVG files into a folder.")]


def cost_diagram(
    context: typer.Context,
    name: options.Name,
    on: options.On = "h100",
    sizes: options.Sizes = None,
    dtype: options.Dtype = "bf16",
    parts: options.Parts = None,
    storage: options.Storage = None,
    gradient: options.Gradient = False,
    levels: _Levels = False,
    through: _Through = None,
    compare: _Compare = None,
    sweep: _Sweep = None,
    against: _Against = None,
    prices: _Prices = None,
    csv: _Csv = None,
    plot: _Plot = None,
    json: options.Json = False,
) -> None:
    """Show what a diagram costs, and the least that it could cost.

    Transfers, memory and the optimum for a memory, as formulas and as numbers. docs/cost.md
    explains the tables and every limit.
    """
    chosen: dict[str, Callable[[Request], Costs]] = {}
    if levels or through is not None:
        chosen["--levels"] = lambda wanted: cost_tables.levels(wanted, through)
    if compare is not None:
        chosen["--compare"] = lambda wanted: cost_tables.compared(wanted, compare)
    if sweep is not None:
        chosen["--sweep"] = lambda wanted: cost_tables.swept(wanted, sweep)
    if against is not None:
        chosen["--against"] = lambda wanted: cost_tables.against(wanted, against, prices)
    into = Output(csv, plot, json)
    _check([*chosen], prices, into)
    source = context.get_parameter_source("on")
    if against is not None and source is not None and source.name != "DEFAULT":
        raise InputError(f"--against says which machines; add {on} to them, and leave --on out")
    wanted = request(name, on, sizes, dtype, parts, storage, sized=sweep is None, gradient=gradient)
    costs = next(iter(chosen.values()), cost_tables.plain)
    into.write(costs(wanted))


def _check(chosen: Sequence[str], prices: str | None, into: Output) -> None:
    """Check that options go together."""
    if len(chosen) > 1:
        raise InputError(f"{' and '.join(chosen)} are tables of their own; ask for one at a time")
    if into.csv is not None and not {"--compare", "--sweep", "--against"} & {*chosen}:
        raise InputError("--csv goes with --compare, --sweep or --against, which have rows")
    if prices is not None and "--against" not in chosen:
        raise InputError("--prices goes with --against, as in --against a100,h100")
    if into.plot is not None and "--levels" in chosen:
        raise InputError("--plot goes with every table but that of --levels")
    into.check()
