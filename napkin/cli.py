"""The command line.

How it ends, whatever happens, is for `napkin.show.ending`. Heavy imports wait for the command that
needs them, so that help is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
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
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, to stdout.")]


def _load(name: str) -> Diagram:
    found: Diagram = import_module("napkin.diagram.library").load(name)
    return found


def _plan(
    name: str,
    on: str,
    sizes: Sequence[str] | None,
    dtype: str,
    tuned: bool = False,
    parts: Sequence[str] | None = None,
    storage: Sequence[str] | None = None,
) -> Plan:
    """The plan that the options ask for; what is cheap to find wrong is found first."""
    from napkin.show.options import parse_sizes

    given, cut = parse_sizes(sizes or ()), _parts(parts)
    diagram = _stored(name, storage)
    known = diagram.check_sizes(given)
    from napkin.plan.derive import derive

    return derive(diagram, on, known, dtype, parts=cut, tuned=tuned)


def _stored(name: str, storage: Sequence[str] | None) -> Diagram:
    """A diagram with inputs stored as --storage says."""
    from napkin.show.options import parse_types

    return _load(name).stored(**parse_types(storage or ()))


def _parts(texts: Sequence[str] | None) -> dict[str, int]:
    from napkin.show.options import parse_sizes

    return parse_sizes(texts or (), "--parts")


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
        str,
        typer.Argument(
            metavar="[MACHINE|measure]",
            help="Show each figure of one, and its source; or measure the GPU that is there.",
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE.toml", help="With measure: where to write the file."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the machines, or the figures of one, or measure one.

    measure times a copy, products and exponentials on the CUDA device and writes a machine file.
    """
    from napkin.cost.machines import machine, machines
    from napkin.show import console, overview

    if name == "measure":
        _measure_machine(output, json)
        return
    if output is not None:
        raise InputError("--output goes with napkin machines measure")
    found = [machine(n) for n in ((name,) if name else machines())]
    if json:
        console.emit_json(overview.machines_json(found))
    else:
        console.emit(overview.machine_table(found[0]) if name else overview.machines_table(found))


def _measure_machine(output: Path | None, json: bool) -> None:
    if output is not None and output.suffix != ".toml":
        raise InputError(f"--output {output}: a machine file ends in .toml")
    import_module("napkin.measure.device").require("machines measure")
    from napkin.cost.machine_file import written
    from napkin.measure.machine import measure
    from napkin.show import console, overview
    from napkin.show.files import write_file

    found = measure()
    if output is not None:
        write_file(output, written(found).encode())
    if json:
        console.emit_json(overview.machines_json([found])[0])
    elif output is None:
        sys.stdout.write(written(found))
    else:
        console.emit(overview.machine_table(found))


@app.command("derive")
def derive_diagram(
    name: Name,
    on: On = "h100",
    sizes: Sizes = None,
    dtype: Dtype = "bf16",
    storage: Storage = None,
    top: Annotated[
        int, typer.Option("--top", metavar="N", help="Show the first N settings, too.", min=0)
    ] = 0,
    tune: Tune = 0,
    tuned: Tuned = False,
    parts: Parts = None,
    json: Json = False,
) -> None:
    """Say how to run a diagram, and what that costs."""
    if tune:
        _needs_device(name, sizes, "derive --tune")
    plan = _plan(name, on, sizes, dtype, tuned and not tune, parts, storage)
    from napkin.show import console, measured, plans

    first = measured.settings(plan, top)
    rankings: Sequence[Any] = ()
    about: dict[str, str] = {}
    if tune:
        plan, rankings, about = _tuned(plan, tune)
    if json:
        console.emit_json(measured.with_settings(plan.to_json(), first, rankings, about))
    else:
        console.emit(*plans.plan_view(plan), *measured.settings_view(first))
        console.emit(*measured.rankings_view(rankings, about)) if rankings else None


@app.command("cost")
def cost_diagram(
    name: Name,
    on: On = "h100",
    sizes: Sizes = None,
    dtype: Dtype = "bf16",
    parts: Parts = None,
    storage: Storage = None,
    levels: Annotated[
        bool, typer.Option("--levels", help="Tiles, traffic and cost at every level of memory.")
    ] = False,
    through: Annotated[
        str | None,
        typer.Option(
            "--through",
            metavar="LEVEL,...",
            help="With --levels: the levels, as in host,dram,l2,shared or dram,cluster,shared.",
            show_default=False,
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="STRATEGY,...",
            help="Strategies beside the least there is: of naive, unfused, fused.",
            show_default=False,
        ),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep",
            metavar="AXIS,...=FROM..TO[:STEP]",
            help="A row for each size: doubled, as in q,x=1024..65536, or in steps.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="MACHINE,...",
            help="The same on several machines, instead of --on, the fastest first.",
            show_default=False,
        ),
    ] = None,
    prices: Annotated[
        str | None,
        typer.Option(
            "--prices",
            metavar="MACHINE=USD,...",
            help="With --against: prices of an hour, where a machine's file has none.",
            show_default=False,
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE.csv", help="Write the rows as CSV, too."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="DIR", help="Draw it, too: SVG files in a folder."),
    ] = None,
    json: Json = False,
) -> None:
    """Say what a diagram costs, and the least it could.

    In symbols and in numbers: transfers, memory, and the optimum for a memory.
    """
    from napkin.show.cost_command import run

    what: dict[str, Any] = {"levels": levels, "through": through, "compare": compare}
    what |= {"sweep": sweep, "against": against, "prices": prices, "csv": csv, "plot": plot}
    run(_stored(name, storage), on, sizes, dtype, parts, **what, json=json)


@app.command("report")
def report_diagram(
    name: Name,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write into.")
    ],
    on: On = "h100",
    sizes: Sizes = None,
    dtype: Dtype = "bf16",
    parts: Parts = None,
) -> None:
    """Write a page with all that is predicted of a diagram, and its plots.

    The derivation, costs, strategies beside the least there is, levels of memory and rooflines.
    """
    from napkin.show.report import run

    run(_load(name), on, sizes, dtype, parts, output)


@app.command("pipeline")
def pipeline_diagram(
    name: Name,
    on: On = "h100",
    sizes: Sizes = None,
    dtype: Dtype = "fp16",
    storage: Annotated[
        list[str] | None,
        typer.Option(
            "--storage",
            metavar="TENSOR=TYPE,...",
            help="Types of tensors that --dtype is not for, as in Q=fp8,K=fp8.",
            show_default=False,
        ),
    ] = None,
    computed: Annotated[
        str, typer.Option("--computed", metavar="TYPE", help="Of what registers hold.")
    ] = "fp32",
    stream: Annotated[
        str,
        typer.Option("--stream", metavar="AXIS", help="Default: what leaves least to be held."),
    ] = "",
    tiles: Annotated[
        list[str] | None,
        typer.Option(
            "--tiles",
            metavar="AXIS=SIZE,...",
            help="Of one warpgroup, and of a chunk, as in q=128,x=64.",
            show_default=False,
        ),
    ] = None,
    inner: Annotated[
        list[str] | None,
        typer.Option(
            "--inner",
            metavar="AXIS=SIZE,...",
            help="What of a chunk is computed at once, as in x=32.",
            show_default=False,
        ),
    ] = None,
    cut: Annotated[
        list[str] | None,
        typer.Option(
            "--cut",
            metavar="ARRAY.AXIS=SIZE,...",
            help="Pieces in which the loop computes an array, as in O_x.d=32.",
            show_default=False,
        ),
    ] = None,
    buffers: Annotated[
        int, typer.Option("--buffers", metavar="N", help="Copies of what is streamed.", min=1)
    ] = 2,
    overhead: Annotated[
        str,
        typer.Option(
            "--overhead", metavar="E", help="Of arithmetic over what is counted, as in 2/3."
        ),
    ] = "0",
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Draw who has which pipe when: .svg, .png or .pdf."
        ),
    ] = None,
    draw: Annotated[
        Path | None,
        typer.Option("--draw", metavar="FILE.svg", help="Draw the loop in colours of levels."),
    ] = None,
    json: Json = False,
) -> None:
    """Lay a streamed diagram out as a pipelined algorithm.

    Pseudocode with a level for every array, divisibility marks, how many warpgroups fit, clocks on
    each pipe, and how products and arithmetic overlap: each figure with what it was computed from.
    """
    from napkin.show.pipeline_command import run

    texts = {"sizes": sizes, "tiles": tiles, "inner": inner, "cut": cut, "storage": storage}
    given = {"stream": stream, "dtype": dtype, "computed": computed, "buffers": buffers}
    run(_load(name), on, texts, given, overhead=overhead, plot=plot, draw=draw, json=json)


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
    name: Name,
    on: On = "h100",
    sizes: Sizes = None,
    dtype: Dtype = "bf16",
    storage: Storage = None,
    gpu: Annotated[
        bool,
        typer.Option(
            "--gpu", help="Also on the CUDA device: values, counters of Nsight Compute, time."
        ),
    ] = False,
    tuned: Tuned = False,
    parts: Parts = None,
    seed: Seed = None,
    json: Json = False,
) -> None:
    """Check every prediction against the kernels.

    The kernels are those for --sizes. They run in Triton's interpreter at just these sizes if that
    is a matter of seconds, and otherwise at smaller ones: whole tiles, primes, a transposed input
    and a batch. With --gpu they run on the device at just these sizes.
    """
    if gpu:
        _needs_device(name, sizes, "check --gpu")
    plan = _plan(name, on, sizes, dtype, tuned, parts, storage)
    from napkin.show import console, verdicts

    with console.progress() as tell:
        verdict = plan.check(sizes=verdicts.asked_sizes(plan) if sizes else None, progress=tell)
        data: dict[str, Any] = verdict.to_json()
        if gpu:
            tell("on the device", 0, 1)
            how = {"on": on, "tuned": tuned, "parts": _parts(parts)}
            data["device"] = _on_device(plan, name, how, seed)
            data["ok"] = data["ok"] and data["device"]["ok"]
    if json:
        console.emit_json(data)
    else:
        console.emit(*verdicts.verdict_view(plan, data))
    if not data["ok"]:
        raise typer.Exit(FAILED)


def _on_device(plan: Plan, name: str, how: Mapping[str, Any], seed: int | None) -> dict[str, Any]:
    """A plan's values, counters and time on the device, as plain data."""
    from napkin.diagram.storage import own_type
    from napkin.measure.check import on_device
    from napkin.measure.device import fresh_seed
    from napkin.measure.driver import command

    seed = fresh_seed() if seed is None else seed
    stored = {str(n.params[0]): own_type(n) for n in plan.diagram.inputs if own_type(n)}
    job = {"name": name, "sizes": dict(plan.sizes), "dtype": plan.dtype, "storage": stored, **how}
    return on_device(plan, command([{**job, "seed": seed}]), seed).to_json()


@app.command("bench")
def bench_diagram(
    name: Name,
    on: On = "h100",
    sizes: Sizes = None,
    dtype: Dtype = "bf16",
    storage: Storage = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="NAME,...",
            help="Of torch, compile, sdpa, flex, fa3, natten and those that the file declares.",
            show_default=False,
        ),
    ] = None,
    tune: Tune = 0,
    tuned: Tuned = False,
    seed: Seed = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.json", help="Write the table as JSON, too."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw it, too: .svg, .png or .pdf."),
    ] = None,
    json: Json = False,
) -> None:
    """Time a plan on the CUDA device, beside other ways to compute the same.

    All in one run, in turns, each with a cold L2: medians, quartiles, ratios. Every result is
    compared with float64.
    """
    if plot is not None:
        from napkin.show.plots import check_plot

        check_plot(plot)
    from napkin.measure.bench import bench, named, usual

    own = import_module("napkin.diagram.library").baselines(name)
    chosen = None if against is None else named(against, own)
    _needs_device(name, sizes, "bench")
    from napkin.measure.device import fresh_seed
    from napkin.show import console, measured
    from napkin.show.files import write_file

    plan = _plan(name, on, sizes, dtype, tuned and not tune, storage)
    rankings: Sequence[Any] = ()
    if tune:
        plan, rankings, _ = _tuned(plan, tune)
    chosen = usual(plan.diagram, own) if chosen is None else chosen
    with console.progress() as tell:
        found = bench(plan, chosen, own, fresh_seed() if seed is None else seed, tell)
    data = found.to_json()
    if rankings:
        data["tuned"] = [r.to_json() for r in rankings]
    if output is not None:
        write_file(output, console.json_text(data).encode())
    if plot is not None:
        measured.write_bench_plot(plot, data)
    if json:
        console.emit_json(data)
    else:
        console.emit(*measured.bench_view(data), *measured.rankings_view(rankings))
    if not found.ok:
        raise typer.Exit(FAILED)


@app.command("verify")
def verify_kernels(
    gpu: Annotated[bool, typer.Option("--gpu", help="On the CUDA device that is there.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Every value of every factor once, and not every pair.")
    ] = False,
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="A sample under compute-sanitizer, too.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="TEXT",
            help="Problems with this in their name; may be given again.",
            show_default=False,
        ),
    ] = None,
    seed: Seed = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.json", help="Write every outcome as JSON."),
    ] = None,
    json: Json = False,
) -> None:
    """Run every kernel and function over a wide matrix on the CUDA device.

    Shapes, strides, types and key sets, against float64, into poisoned outputs, again and again.
    """
    if not gpu:
        raise InputError(
            "verify runs on a CUDA device: write napkin verify --gpu (on the CPU, napkin check NAME"
            " checks the same kernels)"
        )
    from napkin.measure import matrix
    from napkin.measure.device import described, fresh_seed, require

    every = matrix.problems(quick)
    for text in only or ():
        if not any(text in str(p) for p in every):
            groups = ", ".join(dict.fromkeys(p.group for p in every))
            raise InputError(f"--only {text!r}: no problem has that in its name; groups: {groups}")
    chosen = [p for p in every if not only or any(text in str(p) for text in only)]
    require("verify --gpu")
    from napkin.measure.sanitize import sanitized
    from napkin.measure.verify import Verified, machine_for, verify
    from napkin.show import console, measured
    from napkin.show.files import write_file

    about, seed = described(), fresh_seed() if seed is None else seed
    machine = machine_for(about["arch"])
    with console.progress() as tell:
        outcomes = verify(chosen, machine, seed, tell)
        tools = sanitized(machine, seed) if sanitize else []
    found = Verified(about, machine, seed, tuple(outcomes), tuple(tools))
    if output is not None:
        write_file(output, console.json_text(found.to_json()).encode())
    if json:
        console.emit_json(found.to_json())
    else:
        console.emit(*measured.verified_view(found))
    if not found.ok:
        raise typer.Exit(FAILED)


def _needs_device(name: str, sizes: Sequence[str] | None, what: str) -> None:
    """Say that a command needs a device: after what is wrong with the input, before any work."""
    from napkin.show.options import parse_sizes

    _load(name).check_sizes(parse_sizes(sizes or ()))
    import_module("napkin.measure.device").require(what)


def _tuned(plan: Plan, most: int) -> tuple[Plan, Sequence[Any], dict[str, str]]:
    """A plan with the fastest of its first settings, which are remembered; the measurement."""
    from napkin.measure.device import described, fresh_seed
    from napkin.measure.tune import tune
    from napkin.plan.tuned import remember
    from napkin.show import console

    with console.progress() as tell:
        best, rankings = tune(plan, most, fresh_seed(), tell)
    about = described()
    measured = [r.to_json() for r in rankings]
    path = remember(plan, [r.best.choice for r in rankings], {**about, "measured": measured})
    return best, rankings, {**about, "remembered": str(path)}


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
        from napkin.show.plots import check_plot

        check_plot(plot)
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
