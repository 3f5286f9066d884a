"""`napkin draw`: a diagram as a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Option

from napkin.cli import options
from napkin.cli.request import load


def draw_diagram(
    name: options.Name,
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="FILE", help="The file to write. By default stdout."),
    ] = None,
    dot: Annotated[bool, Option("--dot", help="Draw the dataflow graph in DOT.")] = False,
) -> None:
    """Draw a diagram as SVG, or its dataflow as DOT."""
    from napkin.show.files import check_drawing, write_file

    if output is not None:
        check_drawing(output, "--output", *((".dot", ".gv") if dot else (".svg",)))
    diagram = load(name)
    if dot:
        from napkin.show.dataflow import dot as written
    else:
        from napkin.show.circuit import draw as written
    text = written(diagram)
    text = text if text.endswith("\n") else text + "\n"
    if output is None:
        sys.stdout.write(text)
        return
    write_file(output, text.encode())
