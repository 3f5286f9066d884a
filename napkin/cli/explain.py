"""`napkin explain`: every step from a diagram to its kernels."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from napkin.cli import options
from napkin.cli.request import request
from napkin.errors import Refusal


def explain_diagram(
    name: options.Name,
    on: options.On = "h100",
    sizes: options.Sizes = None,
    dtype: options.Dtype = "bf16",
    storage: options.Storage = None,
    gradient: options.Gradient = False,
    parts: options.Parts = None,
    after: Annotated[
        str | None,
        Option(metavar="RULE", help="Stop after the last step of a rule, as in --after separate."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Print every step from a diagram to the source of its kernels.

    The steps are rewrites with their rules and laws, the alternatives that were considered and why
    each was dropped, labels, settings, and the source. NAPKIN_TRACE=1 prints the same to stderr
    whenever a plan is derived.
    """
    wanted = request(name, on, sizes, dtype, parts, storage, gradient=gradient)
    from napkin.algebra.tracer import tracing
    from napkin.plan import explained
    from napkin.show import console

    if after is not None:
        explained.check_rule(after)
    with tracing() as tracer:
        try:
            plan = wanted.plan()
        except Refusal:
            if not json:
                found = explained.explained(wanted.diagram, tracer, None)
                console.emit_plain(explained.explanation(found))
            raise
    items = explained.explained(wanted.diagram, tracer, plan)
    items = items if after is None else explained.up_to(items, after)
    if json:
        console.emit_json(explained.to_json(plan, items))
    else:
        console.emit_plain(explained.explanation(items))
