"""`napkin report`: one page of everything that is predicted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from napkin.cli import options
from napkin.cli.request import request


def report_diagram(
    name: options.Name,
    output: Annotated[
        Path, Option("--output", "-o", metavar="DIR", help="The folder to write into.")
    ],
    on: options.On = "h100",
    sizes: options.Sizes = None,
    dtype: options.Dtype = "bf16",
    parts: options.Parts = None,
    storage: options.Storage = None,
    gradient: options.Gradient = False,
) -> None:
    """Write a page with every prediction for a diagram, and plots.

    It has the derivation, costs, strategies compared with the optimum, levels of memory and
    rooflines.
    """
    wanted = request(name, on, sizes, dtype, parts, storage, gradient=gradient)
    from napkin.machine.machines import machine
    from napkin.show import console
    from napkin.show.cost_plots import check_folder
    from napkin.show.report import write_report
    from napkin.studies.strategies import compare

    hardware = machine(on)
    check_folder(output, "report")
    with console.progress() as tell:
        found = compare(
            wanted.diagram, hardware, wanted.sizes, dtype, parts=wanted.parts, progress=tell
        )
        tell("plots", 2, 3)
        page = write_report(found, output)
        tell("plots", 3, 3)
    console.emit(f"Written: {page}")
