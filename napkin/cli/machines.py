"""`napkin machines`: their figures, or those of the GPU that is there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from napkin.cli import options
from napkin.errors import InputError


def list_machines(
    name: Annotated[
        str,
        Argument(
            metavar="[MACHINE|measure]",
            help="Show each figure of a machine and its source, or measure the local GPU.",
        ),
    ] = "",
    output: Annotated[
        Path | None,
        Option(
            "--output", "-o", metavar="FILE.toml", help="The machine file to write, with measure."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """List the machines, show the figures of one, or measure one.

    `measure` times a copy, products and exponentials on the CUDA device and writes a machine file.
    """
    from napkin.machine.machines import machine, machines
    from napkin.show import console, overview

    if name == "measure":
        _measure_machine(output, json)
        return
    if output is not None:
        raise InputError("--output goes with napkin machines measure")
    found = [machine(n) for n in ((name,) if name else machines())]
    console.answer(
        json,
        lambda: overview.machines_json(found),
        lambda: [overview.machine_table(found[0]) if name else overview.machines_table(found)],
    )


def _measure_machine(output: Path | None, json: bool) -> None:
    if output is not None and output.suffix != ".toml":
        raise InputError(f"--output {output}: a machine file ends in .toml")
    from napkin.measure.device import require
    from napkin.show.files import check_file, write_file

    check_file(output)
    require("machines measure")
    from napkin.machine.machine_file import written
    from napkin.measure.machine import measure
    from napkin.show import console, overview

    found = measure()
    if output is not None:
        write_file(output, written(found).encode())
    if json:
        console.emit_json(overview.machines_json([found])[0])
    elif output is None:
        sys.stdout.write(written(found))
    else:
        console.emit(overview.machine_table(found))
