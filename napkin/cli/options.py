"""Arguments and options that several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A shipped diagram, or path/to/file.py:diagram.")
]
On = Annotated[str, typer.Option("--on", metavar="MACHINE", help="A machine, or its .toml file.")]
Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--sizes",
        metavar="AXIS=SIZE,...",
        help="Axis sizes, as in q=4096,x=4096,d=128; the diagram's own for those not given.",
        show_default=False,
    ),
]
Dtype = Annotated[
    str, typer.Option("--dtype", metavar="TYPE", help="How reals are stored: bf16, fp16, fp32.")
]
Parts = Annotated[
    list[str] | None,
    typer.Option(
        "--parts",
        metavar="AXIS=N,...",
        help="Fold an axis in N parts and merge them (1: never); else what is fastest.",
        show_default=False,
    ),
]
Storage = Annotated[
    list[str] | None,
    typer.Option(
        "--storage",
        metavar="INPUT=TYPE,...",
        help="How inputs are stored that have a type of their own, as in K=fp8,V=fp8.",
        show_default=False,
    ),
]
Tune = Annotated[
    int,
    typer.Option(
        "--tune",
        metavar="N",
        help="Measure the first N settings on the CUDA device; take and remember the fastest.",
        min=0,
    ),
]
Tuned = Annotated[
    bool, typer.Option("--tuned", help="Take the settings that --tune remembered, if any.")
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed", help="Of the inputs on the device; fresh if none.", show_default=False, min=0
    ),
]
Ranges = Annotated[
    list[str] | None,
    typer.Option(
        "--range",
        metavar="INPUT=LOW..HIGH,...",
        help="From where to where inputs are drawn, as in decay=0.9..1,S=-2..2.",
        show_default=False,
    ),
]
Inputs = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        metavar="FILE.npz",
        help="The numbers of inputs, arrays of numpy by name; their sizes are those checked at.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, to stdout.")]
