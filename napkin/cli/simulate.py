"""`napkin simulate`: what neighborhood attention gains."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from napkin.cli.options import Json
from napkin.errors import InputError


def simulate_tiles(
    layout: Annotated[
        str, typer.Argument(metavar="LAYOUT", help="Tokens along each axis, as in 30x48x80.")
    ],
    kernel: Annotated[
        str, typer.Option("--kernel", metavar="SHAPE", help="The window, as in 18x24x24.")
    ],
    stride: Annotated[
        str | None,
        typer.Option(
            "--stride", metavar="SHAPE", help="1, or with --sweep every one.", show_default=False
        ),
    ] = None,
    dilation: Annotated[str, typer.Option("--dilation", metavar="SHAPE")] = "1",
    causal: Annotated[
        str, typer.Option("--causal", metavar="SHAPE", help="0 or 1 for each axis.")
    ] = "0",
    q_tile: Annotated[
        str | None,
        typer.Option("--q-tile", metavar="SHAPE", help="A tile of queries.", show_default=False),
    ] = None,
    kv_tile: Annotated[
        str | None,
        typer.Option("--kv-tile", metavar="SHAPE", help="A tile of keys.", show_default=False),
    ] = None,
    kv_tiling: Annotated[
        str,
        typer.Option(
            "--kv-tiling",
            metavar="static|dynamic",
            help="Key tiles begin at key 0, or where the windows do.",
        ),
    ] = "static",
    heads: Annotated[int, typer.Option("--heads", metavar="N")] = 1,
    batch: Annotated[int, typer.Option("--batch", metavar="N")] = 1,
    share: Annotated[
        float | None,
        typer.Option(
            "--share",
            metavar="P",
            help="Attention's share of the time of a run, as in 0.6: says what the run gains.",
            show_default=False,
        ),
    ] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Try strides and tiles where they are not given.")
    ] = False,
    top: Annotated[int, typer.Option("--top", metavar="N", help="Results of a sweep.")] = 20,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw it, too: .svg, .png or .pdf."),
    ] = None,
    json: Json = False,
) -> None:
    """Count what neighborhood attention gains, in tiles.

    SHAPE is a number for each axis, as in 18x24x24, or one for all.
    """
    from napkin.show import console, simulation

    size = simulation.parse_shape(layout, "LAYOUT")
    options = {"stride": stride, "q_tile": q_tile, "kv_tile": kv_tile}
    options |= {"kernel_size": kernel, "dilation": dilation, "is_causal": causal}
    spelt = {"kernel_size": "--kernel", "is_causal": "--causal"}
    shapes: dict[str, Any] = {
        name: simulation.per_axis(text, spelt.get(name, f"--{name.replace('_', '-')}"))
        for name, text in options.items()
        if text is not None
    }
    if plot is not None:
        from napkin.show.plots import check_plot

        check_plot(plot)
    common: dict[str, Any] = {"heads": heads, "batch": batch, "share": share}
    common |= {"kv_tiling": kv_tiling} | shapes
    if sweep:
        from napkin.studies.sweep import sweep as run_sweep

        found = run_sweep(size, **common, top=top)
    else:
        from napkin.studies.simulator import simulate

        for name in ("q_tile", "kv_tile"):
            if name not in shapes:
                option = f"--{name.replace('_', '-')}"
                raise InputError(f"simulate needs {option}, as in {option} 4x8x8; or --sweep")
        found = simulate(size, **common)
    if plot is not None:
        simulation.write_plot(plot, found)
    if json:
        console.emit_json(found.to_json())
    else:
        console.emit(simulation.view(found))
