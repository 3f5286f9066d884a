"""`napkin check`: whether what is predicted is true of the kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from napkin.cli import options
from napkin.cli.ending import FAILED
from napkin.cli.parse import parse_ranges, parse_scalars, parse_types, read_inputs
from napkin.cli.request import request
from napkin.errors import InputError

if TYPE_CHECKING:
    from napkin.plan.plan import Plan


_Gpu = Annotated[
    bool,
    Option(
        "--gpu", help="Also check on the CUDA device: values, counters of Nsight Compute, time."
    ),
]


def check_diagram(
    name: options.Name,
    on: options.On = "h100",
    sizes: options.Sizes = None,
    dtype: options.Dtype = "bf16",
    storage: options.Storage = None,
    gradient: options.Gradient = False,
    gpu: _Gpu = False,
    tuned: options.Tuned = False,
    parts: options.Parts = None,
    accumulate: options.Accumulate = False,
    seed: options.Seed = None,
    ranges: options.Ranges = None,
    inputs: options.Inputs = None,
    scalars: options.Scalars = None,
    json: options.Json = False,
) -> None:
    """Check every prediction against the kernels.

    The kernels are derived for --sizes. They run in Triton's interpreter at these sizes if that
    takes only seconds. Otherwise they run at smaller sizes: whole tiles, primes, a transposed input
    and a batch. With --gpu they also run on the device, at these sizes.

    Inputs are random; reals come from the normal distribution. If the diagram overflows on them,
    as with a positive exponent, set their ranges with --range or their values with --inputs.

    With --gradient the kernels are those of the gradient. It is also compared, in float64, with
    central differences of the diagram and, where torch is installed, with torch's autograd.
    """
    spans, arrays = parse_ranges(ranges or ()), read_inputs(inputs)
    on_what = name, on, sizes, dtype, parts, storage
    wanted = request(*on_what, sized=not arrays, gradient=gradient, accumulate=accumulate)
    if gpu and (spans or arrays):
        raise InputError("--gpu draws inputs of its own; leave --range and --inputs out beside it")
    if seed is not None and not gpu:
        raise InputError("--seed goes with --gpu; without it, inputs are the same in every run")
    if gpu and scalars:
        raise InputError(
            "--gpu takes the values that the diagram gives its scalars; leave --scalars out beside "
            "it, and write them in the function, as in s=1.0"
        )
    numbers = parse_scalars(scalars or ())
    missing = [k for k, v in wanted.diagram.scalars.items() if v != v and k not in numbers]
    if missing:
        wrong = f"{wanted.diagram.name} has no value for the scalar {missing[0]}"
        how = "in the function, as its default," if gpu else "--scalars"
        raise InputError(f"{wrong}; write {how} {missing[0]}=1.0")
    if spans or arrays:
        from napkin.check.inputs import given

        said = given(wanted.diagram, arrays, spans, wanted.sizes)
        wanted = replace(wanted, sizes={**said.sizes, **wanted.sizes})
    if gpu:
        from napkin.measure.device import require

        require("check --gpu")
    plan = wanted.plan(tuned)
    from napkin.show import console, verdicts

    with console.progress() as tell:
        asked_for = verdicts.requested_sizes(plan) if sizes else None
        verdict = plan.check(
            sizes=asked_for, inputs=arrays, ranges=spans, progress=tell,
            scalars=numbers, gradient_of=wanted.gradient_of,
        )  # fmt: skip
        data: dict[str, Any] = verdict.to_json()
        if gpu:
            tell("on the device", 0, 1)
            how = {"on": on, "tuned": tuned, "parts": wanted.parts, "gradient": gradient}
            how |= {"deterministic": not accumulate, "storage": parse_types(storage or ())}
            data["device"] = _on_device(plan, name, how, seed)
            data["ok"] = data["ok"] and data["device"]["ok"]
    console.answer(
        json, lambda: data, lambda: verdicts.verdict_view(plan, verdict, data.get("device"))
    )
    if not data["ok"]:
        raise typer.Exit(FAILED)


def _on_device(plan: Plan, name: str, how: Mapping[str, Any], seed: int | None) -> dict[str, Any]:
    """A plan's values, counters and time on the device, as plain data."""
    from napkin.measure.check import on_device
    from napkin.measure.device import fresh_seed
    from napkin.measure.driver import command

    seed = fresh_seed() if seed is None else seed
    job = {"name": name, "sizes": dict(plan.sizes), "dtype": plan.dtype, **how}
    return on_device(plan, command([{**job, "seed": seed}]), seed).to_json()
