"""Scans of the user's language: a state that a step takes from position to position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast, overload

from napkin.diagram.reductions import axes_of, each_of
from napkin.diagram.stepping import stepping, traced
from napkin.errors import InputError
from napkin.ir import infer
from napkin.ir.array import Array, Operand, lifted, real_beyond_int32
from napkin.ir.infer import pointwise
from napkin.ir.names import axis_names
from napkin.ir.node import Node, node, number, postorder
from napkin.ir.selecting import position

Affine: TypeAlias = "tuple[Node | None, Node | None]"
"""a and b of a h + b; None where one is 0."""

_ONE = number(1.0)


@overload
def scan(step: Callable[[Array], Operand], init: Operand, along: str, axes: str = "") -> Array: ...
@overload
def scan(
    step: Callable[..., Sequence[Operand]],
    init: Sequence[Operand],
    along: str,
    axes: str | Sequence[str] = "",
) -> tuple[Array, ...]: ...
def scan(
    step: Callable[..., Any], init: Any, along: str, axes: str | Sequence[str] = ""
) -> Array | tuple[Array, ...]:
    """The states h_t = step(h_(t-1)) along an axis, with `init` before its first position.

    `step` is written with arrays that have the axis, each at position t, as in
    `nk.scan(lambda h: A * h + X, 0.0, along="t")`. Two steps that are linear in the state,
    a_t h + b_t, are one such step, so that a chunk of positions is computed side by side. Any other
    step is taken one position after another, as in
    `nk.scan(lambda h: nk.tanh(nk.contract(h, W, over="d").rename(e="d") + X), 0.0, along="t",
    axes="b d")`. Several states move together where `init` has several: `step` takes and gives as
    many, and so does `scan`.

    Args:
        axes: the axes that a state has where the step names them; of several states, those of each
            or of all. A state has the axes of `init` and of what the step makes of it besides.

    Raises:
        InputError: `along` is not one axis, no array in the step has it, `init` has it, or the step
            gives another number of states.
        Refusal: the step does more with the state than a kernel does at one position.
    """
    axis, *others = axes_of(along, "along") or ("",)
    if others or not axis:
        raise InputError(f"scan along={along!r}: write the one axis that the state moves along")
    return moved_along(step, init, axis, axes)


def moved_along(
    step: Callable[..., Any], init: Any, axis: str, axes: str | Sequence[str] = ""
) -> Array | tuple[Array, ...]:
    """`scan` along an axis of any name, such as that of blocks, which no user may choose."""
    several = isinstance(init, Sequence)
    each = cast("Sequence[Operand]", init) if several else (init,)
    starts = [real_beyond_int32(lifted(x)) for x in each]
    if not starts:
        raise InputError("scan init has no state; write one, such as 0.0")
    if any(axis in x.axes for x in starts):
        raise InputError(f"scan init has axis {axis!r}, which the state moves along")
    named = [axes] * len(starts) if isinstance(axes, str) else each_of(axes)
    if len(named) != len(starts):
        raise InputError(f"scan has axes of {len(named)} states, and init has {len(starts)}")
    own = [
        (*x.axes, *axis_names(text, f"axes='{text}'"))
        for x, text in zip(starts, named, strict=True)
    ]
    if not several:
        kind = "int" if starts[0].kind == "int" else "real"
        state = node("input", params=("h",), axes=dict.fromkeys(own[0]), kind=kind)
        stepped = traced(step, [state])[0]
        form = _affine(stepped, state)
        if form is not None:
            real = "real" in {starts[0].kind, stepped.kind}
            return Array(_scanned(*form, starts[0], axis, real))
    made = stepping(step, starts, own, axis)
    return tuple(made) if several else made[0]


def _scanned(a: Node | None, b: Node | None, start: Node, axis: str, real: bool) -> Node:
    """The states of a step a h + b: real numbers where the start or the step is one, for whole
    numbers wrap, and where a is not 1.

    Raises:
        InputError: neither has the axis.
    """
    if axis not in {*(a.axes if a else ()), *(b.axes if b else ())}:
        raise InputError(f"scan along {axis!r}: no array in the step has this axis")
    b = infer.reals(b) if real and b is not None else b
    if a is None:
        assert b is not None
        return b
    begins = start.op == "number" and start.params[0] == 0
    if a is _ONE and b is not None:
        if begins:
            return infer.along("cumsum", b, (axis,))
        return pointwise("add", (start, infer.along("cumsum", b, (axis,))))
    a, b = infer.reals(a), None if b is None else infer.reals(b)  # as a recurrence is
    if not begins:
        first = pointwise("equal", (position(axis), number(0)))
        moved, otherwise = pointwise("mul", (a, start)), number(0.0) if b is None else b
        begun = moved if b is None else pointwise("add", (b, moved))
        b = pointwise("where", (first, begun, otherwise))
    return infer.recurrence(a, number(0.0) if b is None else b, axis)


def _plus(x: Node | None, y: Node | None, op: str = "add") -> Node | None:
    if y is None:
        return x
    if x is None:
        return y if op == "add" else pointwise("neg", (y,))
    return pointwise(op, (x, y))


def _affine(step: Node, state: Node) -> Affine | None:
    """a and b of a step that is a h + b; None where it is not."""
    forms: dict[Node, Affine] = {state: (_ONE, None)}
    for n in postorder([step]):
        if n not in forms:
            form = _form(n, forms)
            if form is None:
                return None
            forms[n] = form
    return forms[step]


def _form(n: Node, forms: dict[Node, Affine]) -> Affine | None:
    """a and b of a term from those of its arguments; None where it is not linear in the state."""
    moved = [x for x in n.args if forms[x][0] is not None]  # twice, where it is squared
    if not moved:
        return None, n
    each = [forms[x] for x in n.args]
    if n.op in {"add", "sub"}:
        (a, b), (c, d) = each
        return _plus(a, c, n.op), _plus(b, d, n.op)
    if n.op == "neg" or (n.op == "div" and len(moved) == 1 and moved[0] is n.args[0]):
        return _through(n, each[0])
    if n.op == "mul" and len(moved) == 1:
        x, y = n.args
        return _times(y if x is moved[0] else x, forms[moved[0]])
    if n.op == "where" and forms[n.args[0]][0] is None:
        return _chosen(n.args[0], each[1], each[2])
    return None


def _through(n: Node, form: Affine) -> Affine:
    """An operator that is linear in its first argument, of both parts."""
    a, b = (None if x is None else pointwise(n.op, (x, *n.args[1:])) for x in form)
    return a, b


def _times(factor: Node, form: Affine) -> Affine:
    a, b = form
    scaled = factor if a is _ONE else None if a is None else pointwise("mul", (factor, a))
    return scaled, None if b is None else pointwise("mul", (factor, b))


def _chosen(test: Node, yes: Affine, no: Affine) -> Affine:
    """The choice between two steps by a test that is free of the state."""

    def part(x: Node | None, y: Node | None) -> Node | None:
        pair = [number(0.0) if z is None else z for z in (x, y)]
        return None if x is y is None else pointwise("where", (test, *pair))

    return part(yes[0], no[0]), part(yes[1], no[1])
