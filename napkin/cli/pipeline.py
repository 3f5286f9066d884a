"""`napkin pipeline`: a streamed diagram as a pipelined algorithm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from napkin.cli import options
from napkin.cli.parse import parse_cuts, parse_share, parse_sizes, parse_types
from napkin.cli.request import load
from napkin.errors import InputError

_Storage = Annotated[
    list[str] | None,
    Option(metavar="TENSOR=TYPE,...", help="Storage types of single tensors, as in Q=fp8,K=fp8."),
]
_Stream = Annotated[
    str,
    Option(
        metavar="AXIS",
        help="The axis to stream. By default the one that needs the least memory.",
    ),
]
_Tiles = Annotated[
    list[str] | None,
    Option(
        metavar="AXIS=SIZE,...",
        help="The tile of one warpgroup and the chunk, as in q=128,x=64.",
    ),
]
_Inner = Annotated[
    list[str] | None,
    Option(metavar="AXIS=SIZE,...", help="The part of a chunk to compute at once, as in x=32."),
]
_Cut = Annotated[
    list[str] | None,
    Option(
        metavar="ARRAY.AXIS=SIZE,...",
        help="Compute an array in pieces of this size, as in O_x.d=32.",
    ),
]
_Overhead = Annotated[
    str, Option(metavar="E", help="Overhead on the counted arithmetic, as in 2/3.")
]
_Plot = Annotated[
    Path | None,
    Option(metavar="FILE", help="Also draw a timeline of the pipes: .svg, .png or .pdf."),
]
_Draw = Annotated[
    Path | None,
    Option(metavar="FILE.svg", help="Also draw the loop, coloured by memory level."),
]


def pipeline_diagram(
    name: options.Name,
    on: options.On = "h100",
    sizes: options.Sizes = None,
    dtype: options.Dtype = "fp16",
    storage: _Storage = None,
    computed: Annotated[str, Option(metavar="TYPE", help="The type of registers.")] = "fp32",
    stream: _Stream = "",
    tiles: _Tiles = None,
    inner: _Inner = None,
    cut: _Cut = None,
    buffers: Annotated[int, Option(metavar="N", help="Buffers of each streamed array.", min=1)] = 2,
    overhead: _Overhead = "0",
    plot: _Plot = None,
    draw: _Draw = None,
    json: options.Json = False,
) -> None:
    """Lay a streamed diagram out as a pipelined algorithm.

    Shows pseudocode with a level for every array, divisibility of sizes, the number of warpgroups
    that fit, clocks on each pipe, and the overlap of products and arithmetic. Each figure comes
    with its inputs. docs/hopper.md has an example.
    """
    if plot is not None:
        from napkin.show.plots import check_plot

        check_plot(plot)
    from napkin.show.files import check_drawing, write_file

    if draw is not None:
        check_drawing(draw, "--draw", ".svg")
        if plot is not None and plot.resolve() == draw.resolve():
            raise InputError(f"--plot and --draw both name {draw}; name two files")
    diagram, share = load(name), parse_share(overhead)
    given: dict[str, Any] = {
        "tiles": parse_sizes(tiles or (), "--tiles"),
        "inner": parse_sizes(inner or (), "--inner"),
        "cuts": parse_cuts(cut or ()),
        "storage": parse_types(storage or ()),
    }
    given |= {"stream": stream, "dtype": dtype, "computed": computed, "buffers": buffers}
    known = parse_sizes(sizes or ())
    from napkin.machine.machines import machine
    from napkin.show import console
    from napkin.show.pipeline import drawn_body, pipeline_json
    from napkin.studies.pipeline.model import pipeline

    made = pipeline(diagram, machine(on), known, **given)
    data = pipeline_json(made, share)
    if plot is not None:
        from napkin.show.gantt import write_gantt

        write_gantt(plot, made, share)
    if draw is not None:
        write_file(draw, drawn_body(made).encode())
    if json:
        console.emit_json(data)
    else:
        from napkin.show.pipeline_view import pipeline_view

        console.emit(*pipeline_view(data))
