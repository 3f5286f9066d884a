"""`napkin verify`: every kernel over a matrix of problems on the device."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from napkin.cli import options
from napkin.cli.ending import FAILED
from napkin.errors import InputError

_Quick = Annotated[
    bool, Option("--quick", help="Cover every value of every factor, and not every pair.")
]
_Sanitize = Annotated[bool, Option("--sanitize", help="Also run a sample under compute-sanitizer.")]
_Only = Annotated[
    list[str] | None,
    Option(metavar="TEXT", help="Run only problems with this text in their name. May be repeated."),
]
_Output = Annotated[
    Path | None,
    Option("--output", "-o", metavar="FILE.json", help="Also write every outcome as JSON."),
]


def verify_kernels(
    gpu: Annotated[bool, Option("--gpu", help="Run on the CUDA device. Required.")] = False,
    quick: _Quick = False,
    sanitize: _Sanitize = False,
    only: _Only = None,
    seed: options.Seed = None,
    output: _Output = None,
    json: options.Json = False,
) -> None:
    """Run every kernel and function over a matrix on the GPU.

    The matrix covers shapes, strides, types and key sets. Results are compared with float64.
    Outputs start full of NaN, and every run is repeated. Each verdict is printed as it is reached.
    """
    if not gpu:
        raise InputError(
            "verify runs on a CUDA device: write napkin verify --gpu (on the CPU, napkin check NAME"
            " checks the same kernels)"
        )
    from napkin.show.files import check_file, write_file

    check_file(output)
    from napkin.measure import matrix
    from napkin.measure.device import described, fresh_seed, require

    every = matrix.problems(quick)
    for text in only or ():
        if not any(text in str(p) for p in every):
            groups = ", ".join(dict.fromkeys(p.group for p in every))
            raise InputError(f"--only {text!r}: no problem has that in its name; groups: {groups}")
    chosen = [p for p in every if not only or any(text in str(p) for text in only)]
    require("verify --gpu")
    from napkin.measure.outcome import Outcome
    from napkin.measure.sanitize import sanitized
    from napkin.measure.verify import Verified, verify
    from napkin.show import console, measured
    from napkin.torch.device_machine import shipped

    about, seed = described(), fresh_seed() if seed is None else seed
    machine = shipped().name

    def told(outcome: Outcome) -> None:
        console.emit_plain(f"{outcome} ({outcome.seconds:.1f} s)\n")
        sys.stdout.flush()

    with console.progress() as tell:
        outcomes = verify(chosen, machine, seed, tell, *([] if json else [told]))
        tools = sanitized(machine, seed) if sanitize else []
    found = Verified(about, machine, seed, tuple(outcomes), tuple(tools))
    if output is not None:
        write_file(output, console.json_text(found.to_json()).encode())
    console.answer(json, found.to_json, lambda: measured.verified_view(found))
    if not found.ok:
        raise typer.Exit(FAILED)
