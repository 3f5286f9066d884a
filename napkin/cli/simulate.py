"""`napkin simulate`: what neighborhood attention gains."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Argument, Option

from napkin.cli import options
from napkin.cli.parse import parse_shape, per_axis
from napkin.errors import InputError

_Layout = Annotated[str, Argument(metavar="LAYOUT", help="Tokens along each axis, as in 30x48x80.")]
_Stride = Annotated[
    str | None,
    Option(metavar="SHAPE", help="The stride. By default 1, and with --sweep every one."),
]
_Causal = Annotated[str, Option(metavar="SHAPE", help="Whether each axis is causal: 0 or 1.")]
_KvTiling = Annotated[
    str,
    Option(metavar="static|dynamic", help="Whether key tiles start at key 0 or at the windows."),
]
_Share = Annotated[
    float | None,
    Option(
        metavar="P",
        help="Attention's share of a whole run's time, as in 0.6. Shows the gain of that run.",
    ),
]
_Top = Annotated[
    int | None, Option(metavar="N", help="The number of results of a sweep. By default 20.")
]
_Sweep = Annotated[bool, Option("--sweep", help="Try all strides and tiles that are not given.")]


def simulate_tiles(
    layout: _Layout,
    kernel: Annotated[str, Option(metavar="SHAPE", help="The window, as in 18x24x24.")],
    stride: _Stride = None,
    dilation: Annotated[str, Option(metavar="SHAPE", help="The dilation.")] = "1",
    causal: _Causal = "0",
    q_tile: Annotated[str | None, Option(metavar="SHAPE", help="The tile of queries.")] = None,
    kv_tile: Annotated[str | None, Option(metavar="SHAPE", help="The tile of keys.")] = None,
    kv_tiling: _KvTiling = "static",
    heads: Annotated[int, Option(metavar="N", help="Heads.")] = 1,
    batch: Annotated[int, Option(metavar="N", help="Batch size.")] = 1,
    share: _Share = None,
    sweep: _Sweep = False,
    top: _Top = None,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Count the tiles that neighborhood attention saves.

    SHAPE is a number for each axis, as in 18x24x24, or one for all.
    """
    from napkin.show import console, simulation

    size = parse_shape(layout, "LAYOUT")
    given = {"stride": stride, "q_tile": q_tile, "kv_tile": kv_tile}
    given |= {"kernel_size": kernel, "dilation": dilation, "is_causal": causal}
    spelt = {"kernel_size": "--kernel", "is_causal": "--causal"}
    shapes: dict[str, Any] = {
        name: per_axis(text, spelt.get(name, f"--{name.replace('_', '-')}"))
        for name, text in given.items()
        if text is not None
    }
    if plot is not None:
        from napkin.show.plots import check_plot

        check_plot(plot)
    common: dict[str, Any] = {"heads": heads, "batch": batch, "share": share}
    common |= {"kv_tiling": kv_tiling} | shapes
    if sweep:
        from napkin.studies.sweep import sweep as run_sweep

        found = run_sweep(size, **common, top=20 if top is None else top)
    else:
        from napkin.studies.simulator import simulate

        if top is not None:
            raise InputError("--top goes with --sweep, which has several results")
        for name in ("q_tile", "kv_tile"):
            if name not in shapes:
                option = f"--{name.replace('_', '-')}"
                raise InputError(f"simulate needs {option}, as in {option} 4x8x8; or --sweep")
        found = simulate(size, **common)
    if plot is not None:
        simulation.write_plot(plot, found)
    console.answer(json, found.to_json, lambda: [simulation.view(found)])
