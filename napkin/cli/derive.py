"""`napkin derive`: how to run a diagram."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from napkin.cli import options
from napkin.cli.request import check_tuning, request, tuned_plan
from napkin.show.files import check_folder, remove_file, writable_folder, write_file

if TYPE_CHECKING:
    from napkin.plan.plan import Plan


def derive_diagram(
    name: options.Name,
    on: options.On = "h100",
    sizes: options.Sizes = None,
    dtype: options.Dtype = "bf16",
    storage: options.Storage = None,
    gradient: options.Gradient = False,
    top: Annotated[int, Option(metavar="N", help="Also show the first N settings.", min=0)] = 0,
    tune: options.Tune = 0,
    tuned: options.Tuned = False,
    parts: options.Parts = None,
    accumulate: options.Accumulate = False,
    out: Annotated[
        Path | None,
        Option(
            metavar="DIR", help="Also write the kernel files, which need only torch and Triton."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Derive kernels for a diagram, and show their cost."""
    check_tuning(tune, tuned)
    on_what = name, on, sizes, dtype, parts, storage
    wanted = request(*on_what, gradient=gradient, accumulate=accumulate)
    if tune:
        from napkin.measure.device import require

        require("derive --tune")
    if out is not None:
        check_folder(out)
    plan = wanted.plan(tuned)
    from napkin.show import console, measured, plans

    first = measured.settings(plan, top)
    rankings: Sequence[Any] = ()
    about: dict[str, str] = {}
    if tune:
        plan, rankings, about = tuned_plan(plan, tune)
    if out is not None:
        _write(plan, out)
    if json:
        console.emit_json(measured.with_settings(plan.to_json(), first, rankings, about))
    else:
        console.emit(*plans.plan_view(plan), *measured.settings_view(first))
        console.emit(*measured.rankings_view(rankings, about)) if rankings else None


def _write(plan: Plan, folder: Path) -> None:
    """Write the files of a plan that run alone; none of another plan is left beside them."""
    from napkin.plan.file import GENERATED
    from napkin.plan.standalone import NAMES, standalone

    writable_folder(folder)
    files = standalone(plan)
    for name, text in files.items():
        write_file(folder / name, text.encode())
    for name in NAMES:
        if name not in files:
            remove_file(folder / name, GENERATED)
