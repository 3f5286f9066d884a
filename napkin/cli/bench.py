"""`napkin bench`: times on the device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from napkin.cli import options
from napkin.cli.ending import FAILED
from napkin.cli.request import check_tuning, request, tuned_plan

_Against = Annotated[
    str | None,
    Option(
        metavar="NAME,...",
        help="Baselines: torch, compile, sdpa, flex, fa3, natten, or names of the file.",
    ),
]
_Output = Annotated[
    Path | None,
    Option("--output", "-o", metavar="FILE.json", help="Also write the table as JSON."),
]


def bench_diagram(
    name: options.Name,
    on: options.On = "h100",
    sizes: options.Sizes = None,
    dtype: options.Dtype = "bf16",
    storage: options.Storage = None,
    gradient: options.Gradient = False,
    against: _Against = None,
    tune: options.Tune = 0,
    tuned: options.Tuned = False,
    seed: options.Seed = None,
    output: _Output = None,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Time a plan and other implementations on the CUDA device.

    One run times them alternately, each with a cold L2, and prints medians, quartiles and ratios.
    Every result is compared with float64.

    With --gradient the plan is that of the gradient, and the others are backward passes of torch's
    autograd, each after its forward pass and with what that has kept. The plan reads inputs alone.
    """
    check_tuning(tune, tuned)
    if plot is not None:
        from napkin.show.plots import check_plot

        check_plot(plot)
    from napkin.show.files import check_file, write_file

    check_file(output)
    from napkin.diagram.library import baselines
    from napkin.measure.bench import bench, named, usual
    from napkin.measure.device import fresh_seed, require

    own = baselines(name)
    chosen = None if against is None else named(against, own)
    wanted = request(name, on, sizes, dtype, storage=storage, gradient=gradient)
    require("bench")
    from napkin.show import console, measured

    plan = wanted.plan(tuned)
    rankings: Sequence[Any] = ()
    if tune:
        plan, rankings, _ = tuned_plan(plan, tune)
    of, seed = wanted.gradient_of, fresh_seed() if seed is None else seed
    chosen = usual(of or plan.diagram, own) if chosen is None else chosen
    with console.progress() as tell:
        found = bench(plan, chosen, own, seed, tell, of)
    data = found.to_json()
    if rankings:
        data["tuned"] = [r.to_json() for r in rankings]
    if output is not None:
        write_file(output, console.json_text(data).encode())
    if plot is not None:
        measured.write_bench_plot(plot, data)
    console.answer(
        json, lambda: data, lambda: [*measured.bench_view(data), *measured.rankings_view(rankings)]
    )
    if not found.ok:
        raise typer.Exit(FAILED)
