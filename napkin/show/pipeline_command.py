"""`napkin pipeline`: from what is written on the command line to what is printed and drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from napkin.diagram.diagram import Diagram
from napkin.show import console, options

Texts = Sequence[str] | None


def run(
    diagram: Diagram,
    on: str,
    texts: Mapping[str, Texts],
    given: Mapping[str, Any],
    *,
    overhead: str,
    plot: Path | None,
    draw: Path | None,
    json: bool,
) -> None:
    """Print a pipeline as tables or as JSON, and draw it.

    Args:
        texts: what options of several entries say, by their names without dashes.
        given: the other arguments of `napkin.cost.pipeline.model.pipeline`.

    Raises:
        InputError: something that is written is wrong.
        Refusal: the diagram has no pipeline.
    """
    if plot is not None:
        from napkin.show.plots import check_plot

        check_plot(plot)
    sizes, tiles, inner = (
        options.parse_sizes(texts[name] or (), f"--{name}") for name in ("sizes", "tiles", "inner")
    )
    cuts = options.parse_cuts(texts["cut"] or ())
    storage = options.parse_types(texts["storage"] or ())
    share = options.parse_share(overhead, "--overhead")
    from napkin.cost.machines import machine
    from napkin.cost.pipeline.model import pipeline
    from napkin.show.pipeline import drawn_body, pipeline_json

    made = pipeline(
        diagram, machine(on), sizes, tiles=tiles, inner=inner, cuts=cuts, storage=storage, **given
    )
    data = pipeline_json(made, share)
    if plot is not None:
        from napkin.show.gantt import write_gantt

        write_gantt(plot, made, share)
    if draw is not None:
        from napkin.show.files import write_file

        write_file(draw, drawn_body(made).encode())
    if json:
        console.emit_json(data)
    else:
        from napkin.show.pipeline_view import pipeline_view

        console.emit(*pipeline_view(data))
