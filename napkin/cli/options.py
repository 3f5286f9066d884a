"""Arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Name = Annotated[
    str, Argument(metavar="NAME", help="A shipped diagram, or path/to/file.py:diagram.")
]
On = Annotated[
    str,
    Option(metavar="MACHINE", help="The machine: a name from `napkin machines`, or a .toml file."),
]
Sizes = Annotated[
    list[str] | None,
    Option(
        metavar="AXIS=SIZE,...",
        help="Axis sizes, as in q=4096,x=4096,d=128. Others are the diagram's own.",
    ),
]
Dtype = Annotated[
    str, Option(metavar="TYPE", help="The storage type of reals: bf16, fp16 or fp32.")
]
Parts = Annotated[
    list[str] | None,
    Option(
        metavar="AXIS=N,...",
        help="Fold an axis in N parts and merge them (split-K). 1: never. By default the fastest.",
    ),
]
Accumulate = Annotated[
    bool,
    Option(
        "--accumulate",
        help="Let groups add to one array in memory, in any order, where that is faster.",
    ),
]
Storage = Annotated[
    list[str] | None,
    Option(metavar="INPUT=TYPE,...", help="Storage types of single inputs, as in K=fp8,V=fp8."),
]
Gradient = Annotated[
    bool,
    Option(
        "--gradient",
        help="Take the diagram's gradient by its inputs of real numbers in place of the diagram.",
    ),
]
Tune = Annotated[
    int,
    Option(
        metavar="N",
        help="Measure the first N settings on the CUDA device. Use and remember the fastest.",
        min=0,
    ),
]
Tuned = Annotated[bool, Option("--tuned", help="Use the settings that --tune remembered, if any.")]
Seed = Annotated[
    int | None,
    Option(help="The random seed of inputs on the device. By default a fresh one.", min=0),
]
Ranges = Annotated[
    list[str] | None,
    Option(
        "--range",
        metavar="INPUT=LOW..HIGH,...",
        help="The ranges of random inputs, as in decay=0.9..1,S=-2..2.",
    ),
]
Scalars = Annotated[
    list[str] | None,
    Option(metavar="SCALAR=NUMBER,...", help="The values of scalars, as in scale=0.125,bias=-1."),
]
Inputs = Annotated[
    str | None,
    Option(
        metavar="FILE.npz",
        help="Values of inputs: numpy arrays by name. The check runs at their sizes.",
    ),
]
Json = Annotated[bool, Option("--json", help="Print only JSON to stdout.")]
Plot = Annotated[Path | None, Option(metavar="FILE", help="Also draw a plot: .svg, .png or .pdf.")]
