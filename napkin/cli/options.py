"""Arguments and options that several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A shipped diagram, or path/to/file.py:diagram.")
]
On = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="MACHINE",
        help="The machine: a name from `napkin machines`, or a .toml file.",
    ),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--sizes",
        metavar="AXIS=SIZE,...",
        help="Axis sizes, as in q=4096,x=4096,d=128. Others are the diagram's own.",
        show_default=False,
    ),
]
Dtype = Annotated[
    str,
    typer.Option("--dtype", metavar="TYPE", help="The storage type of reals: bf16, fp16 or fp32."),
]
Parts = Annotated[
    list[str] | None,
    typer.Option(
        "--parts",
        metavar="AXIS=N,...",
        help="Fold an axis in N parts and merge them (split-K). 1: never. By default the fastest.",
        show_default=False,
    ),
]
Storage = Annotated[
    list[str] | None,
    typer.Option(
        "--storage",
        metavar="INPUT=TYPE,...",
        help="Storage types of single inputs, as in K=fp8,V=fp8.",
        show_default=False,
    ),
]
Tune = Annotated[
    int,
    typer.Option(
        "--tune",
        metavar="N",
        help="Measure the first N settings on the CUDA device. Use and remember the fastest.",
        min=0,
    ),
]
Tuned = Annotated[
    bool, typer.Option("--tuned", help="Use the settings that --tune remembered, if any.")
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        help="The random seed of inputs on the device. By default a fresh one.",
        show_default=False,
        min=0,
    ),
]
Ranges = Annotated[
    list[str] | None,
    typer.Option(
        "--range",
        metavar="INPUT=LOW..HIGH,...",
        help="The ranges of random inputs, as in decay=0.9..1,S=-2..2.",
        show_default=False,
    ),
]
Inputs = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        metavar="FILE.npz",
        help="Values of inputs: numpy arrays by name. The check runs at their sizes.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print only JSON to stdout.")]
