"""`napkin generate`: the folder of kernels and costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from napkin.cli.ending import FAILED, say


def generate_kernels(
    names: Annotated[
        list[str] | None,
        Argument(metavar="[NAME]...", help="Diagrams. By default all shipped ones."),
    ] = None,
    check: Annotated[
        bool, Option("--check", help="Write nothing. List the files that are out of date.")
    ] = False,
    out: Annotated[Path, Option(metavar="DIR", help="The folder to write or to compare.")] = Path(
        "generated"
    ),
) -> None:
    """Write the folder of kernels and costs, or compare it.

    Each diagram has a drawing, and for each machine the kernels and their derivation. costs.csv has
    the predictions for all kernels, verdicts.csv the results of their checks.
    """
    from napkin.show import console, goldens

    with console.progress() as tell:
        outcome = (goldens.compare if check else goldens.generate)(names or (), out, tell)
    for line in outcome.written:
        print(out / line)
    if outcome.wrong:
        what = f"{len(outcome.wrong)} found wrong in {out}"
        what += "; napkin generate writes what is missing or differs" if check else ""
        say("\n  ".join([what, *outcome.wrong]))
        raise typer.Exit(FAILED)
    print(f"{out} is up to date")
