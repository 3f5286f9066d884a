"""The commands, in the order in which help lists them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from typer import Option

from napkin.cli.bench import bench_diagram
from napkin.cli.check import check_diagram
from napkin.cli.cost import cost_diagram
from napkin.cli.derive import derive_diagram
from napkin.cli.draw import draw_diagram
from napkin.cli.ending import run
from napkin.cli.explain import explain_diagram
from napkin.cli.generate import generate_kernels
from napkin.cli.list_diagrams import list_diagrams
from napkin.cli.machines import list_machines
from napkin.cli.pipeline import pipeline_diagram
from napkin.cli.report import report_diagram
from napkin.cli.simulate import simulate_tiles
from napkin.cli.verify import verify_kernels

_COMMANDS: dict[str, Callable[..., None]] = {
    "list": list_diagrams,
    "machines": list_machines,
    "derive": derive_diagram,
    "explain": explain_diagram,
    "cost": cost_diagram,
    "report": report_diagram,
    "pipeline": pipeline_diagram,
    "draw": draw_diagram,
    "check": check_diagram,
    "bench": bench_diagram,
    "verify": verify_kernels,
    "simulate": simulate_tiles,
    "generate": generate_kernels,
}

app = typer.Typer(
    name="napkin",
    help="Turn a diagram of named-axis arrays into a checked GPU kernel, with its cost.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for _name, _command in _COMMANDS.items():
    app.command(_name)(_command)


def _show_version(asked: bool) -> None:
    if asked:
        from napkin import __version__

        print(f"napkin {__version__}")
        raise typer.Exit


@app.callback()
def napkin(
    version: Annotated[
        bool, Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Turn a diagram of named-axis arrays into a checked GPU kernel, with its cost."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process."""
    sys.exit(run(app, sys.argv[1:] if arguments is None else arguments))
