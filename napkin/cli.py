"""The command line.

How it ends, whatever happens, is for `napkin.show.ending`. Heavy imports wait for the command that
needs them, so that help is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from napkin.errors import InputError
from napkin.show.ending import FAILED, run, say

if TYPE_CHECKING:
    from napkin.diagram.diagram import Diagram
    from napkin.plan.plan import Plan

app = typer.Typer(
    name="napkin",
    help="Turns a diagram of named-axis arrays into a checked Triton kernel, with its cost.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

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
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, to stdout.")]


def _load(name: str) -> Diagram:
    found: Diagram = import_module("napkin.diagram.library").load(name)
    return found


def _plan(name: str, on: str, sizes: Sequence[str] | None, dtype: str) -> Plan:
    """The plan that the options ask for; what is cheap to find wrong is found first."""
    from napkin.show.options import parse_sizes

    given = parse_sizes(sizes or ())
    diagram = _load(name)
    known = diagram.check_sizes(given)
    from napkin.plan.derive import derive

    return derive(diagram, on, known, dtype)


@app.command("list")
def list_diagrams(json: Json = False) -> None:
    """List the shipped diagrams."""
    from napkin.show import console, overview

    if json:
        console.emit_json(overview.diagrams_json())
    else:
        console.emit(overview.diagrams_table())


@app.command("machines")
def list_machines(
    name: Annotated[
        str, typer.Argument(metavar="[MACHINE]", help="Show each figure of one, and its source.")
    ] = "",
    json: Json = False,
) -> None:
    """List the machines, or the figures of one."""
    from napkin.cost.machines import machine, machines
    from napkin.show import console, overview

    found = [machine(n) for n in ((name,) if name else machines())]
    if json:
        console.emit_json(overview.machines_json(found))
    else:
        console.emit(overview.machine_table(found[0]) if name else overview.machines_table(found))


@app.command("derive")
def derive_diagram(
    name: Name, on: On = "h100", sizes: Sizes = None, dtype: Dtype = "bf16", json: Json = False
) -> None:
    """Say how to run a diagram, and what that costs."""
    plan = _plan(name, on, sizes, dtype)
    from napkin.show import console, plans

    if json:
        console.emit_json(plan.to_json())
    else:
        console.emit(*plans.plan_view(plan))


@app.command("cost")
def cost_diagram(
    name: Name, on: On = "h100", sizes: Sizes = None, dtype: Dtype = "bf16", json: Json = False
) -> None:
    """Say what a diagram costs, and the least it could.

    In symbols and in numbers: transfers, memory, and the optimum for a memory.
    """
    plan = _plan(name, on, sizes, dtype)
    from napkin.show import console, costs

    if json:
        console.emit_json(costs.cost_json(plan))
    else:
        console.emit(*costs.cost_view(plan))


@app.command("draw")
def draw_diagram(
    name: Name,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write; stdout otherwise."),
    ] = None,
    dot: Annotated[bool, typer.Option("--dot", help="The dataflow graph in DOT.")] = False,
) -> None:
    """Draw a diagram as SVG, or its dataflow as DOT."""
    diagram = _load(name)
    room, function = ("dataflow", "dot") if dot else ("circuit", "draw")
    text: str = getattr(import_module(f"napkin.show.{room}"), function)(diagram)
    text = text if text.endswith("\n") else text + "\n"
    if output is None:
        sys.stdout.write(text)
        return
    from napkin.show.files import write_file

    write_file(output, text.encode())


@app.command("check")
def check_diagram(
    name: Name, on: On = "h100", sizes: Sizes = None, dtype: Dtype = "bf16", json: Json = False
) -> None:
    """Check every prediction against the kernels.

    The kernels are those for --sizes. They run in Triton's interpreter at just these sizes if that
    is a matter of seconds, and otherwise at smaller ones: whole tiles, primes, a transposed input
    and a batch.
    """
    plan = _plan(name, on, sizes, dtype)
    from napkin.show import console, verdicts

    with console.progress() as tell:
        verdict = plan.check(sizes=verdicts.asked_sizes(plan) if sizes else None, progress=tell)
    data: dict[str, Any] = verdict.to_json()
    if json:
        console.emit_json(data)
    else:
        console.emit(*verdicts.verdict_view(plan, data))
    if not verdict.ok:
        raise typer.Exit(FAILED)


@app.command("simulate")
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
        simulation.check_plot(plot)
    common: dict[str, Any] = {"heads": heads, "batch": batch, "share": share}
    common |= {"kv_tiling": kv_tiling} | shapes
    if sweep:
        from napkin.cost.sweep import sweep as run_sweep

        found = run_sweep(size, **common, top=top)
    else:
        from napkin.cost.simulate import simulate

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


@app.command("generate")
def generate_kernels(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="All shipped ones if none.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; say which files are not as they should.")
    ] = False,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder to write or to compare.")
    ] = Path("generated"),
) -> None:
    """Write the folder of kernels and costs, or compare it.

    Each diagram has its drawing, and for each architecture the kernel, its costs, its derivation
    and the verdict on it.
    """
    from napkin.show import console, goldens

    with console.progress() as tell:
        outcome = (goldens.compare if check else goldens.generate)(names or (), out, tell)
    for line in outcome.written:
        print(out / line)
    if outcome.wrong:
        what = f"{len(outcome.wrong)} found wrong in {out}"
        what += "; napkin generate writes what is missing or differs" if check else ""
        say("\n  ".join([what, *outcome.wrong]))
        raise typer.Exit(FAILED)
    print(f"{out} is up to date")


def _show_version(asked: bool) -> None:
    if asked:
        from napkin import __version__

        print(f"napkin {__version__}")
        raise typer.Exit


@app.callback()
def napkin(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Turns a diagram of named-axis arrays into a checked Triton kernel, with its cost."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process."""
    sys.exit(run(app, sys.argv[1:] if arguments is None else arguments))
