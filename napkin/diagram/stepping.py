"""Steps of scans that are not linear in their states: traced until the states' axes are known, and
taken apart into what a step reads and what it does.

A "steps" node has what its step reads as arguments, and the step itself as terms over leaves
(`napkin.ir.infer.iterated`). So every rewrite and every cut into kernels leaves the step whole, and
what is free of the states is an array as any other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from napkin.errors import InputError, Refusal
from napkin.ir.array import Array, lifted
from napkin.ir.expansion import opened
from napkin.ir.infer import iterated, pointwise, renamed, wider
from napkin.ir.listing import state_names, text
from napkin.ir.node import (
    COMPOSITES,
    REDUCTIONS,
    SCANS,
    Kind,
    Node,
    Pairs,
    Steps,
    built_on,
    names_of,
    node,
    number,
    ones,
    over,
    postorder,
)
from napkin.ir.operators import POINTWISE
from napkin.ir.rewrite import rewrite, substitute
from napkin.ir.selecting import position

State = tuple[tuple[str, ...], Kind]
"""Axes and item type."""

DONE = frozenset({*COMPOSITES, *SCANS, "rename"}) - {"steps"}
"""What a step may do with its states beside pointwise operators and reductions."""


SHIFT = (
    ", as in nk.reduce(nk.where(nk.index('e') == nk.index('d') - 1, h.rename(d='e'), 0.0), 'sum', "
    "over='e') for the value of h at d - 1"
)
"""How a step reads a state at another position."""


def stepping(
    step: Callable[..., Any], starts: Sequence[Node], axes: Sequence[Sequence[str]], axis: str
) -> list[Array]:
    """The states that a step takes along an axis, one position after another.

    Args:
        starts: the states before the first position.
        axes: axes that the states have in any case.

    Raises:
        InputError: the step gives another number of states, tests, or nothing with the axis.
        Refusal: it does more with the states than a kernel does at one position.
    """
    own: list[State] = [
        (tuple(dict.fromkeys(a)), "int" if x.kind == "int" else "real")
        for a, x in zip(axes, starts, strict=True)
    ]
    while True:
        leaves = [node("previous", params=(i,), axes=a, kind=k) for i, (a, k) in enumerate(own)]
        made = traced(step, leaves)
        grown = [_grown(state, n, axis) for state, n in zip(own, made, strict=True)]
        if grown == own:
            break
        own = grown
    moved = _moved(made, leaves)
    _check(made, moved, dict(zip(leaves, state_names(len(leaves)), strict=True)), axis)

    def change(old: Node, args: tuple[Node, ...]) -> Node | None:
        if old not in moved:
            return None
        if old.op != "rename":
            return opened(old, args)
        return _sunk(args[0], names_of(old), _moved(args, leaves))

    done = rewrite(made, change)
    return _apart([done[n] for n in made], leaves, starts, axis)


def _sunk(x: Node, names: Pairs, moved: set[Node]) -> Node:
    """A term under other axis names, with the renaming moved below arithmetic on states."""
    if x.op not in POINTWISE or x not in moved:
        return renamed(x, names)
    return pointwise(x.op, [_sunk(a, names, moved) for a in x.args], x.params)


def traced(step: Callable[..., Any], leaves: Sequence[Node]) -> list[Node]:
    """What a step makes of states.

    Raises:
        InputError: it gives another number of states, or is wrong in itself.
    """
    _check_step(step, len(leaves))
    try:
        found = step(*map(Array, leaves))
    except InputError as why:
        axes = " and ".join(f"'{' '.join(m.axes)}'" for m in leaves)
        hint = "scan(..., axes='d') gives a state axes that neither init nor its step has"
        raise InputError(f"{why} (in a step of scan, whose state has axes {axes}; {hint})") from why
    each = cast("Sequence[Any]", found if isinstance(found, tuple | list) else [found])
    if len(each) != len(leaves):
        raise InputError(
            f"the step of scan gives {len(each)} states, and init has {len(leaves)}; give as many"
        )
    return [lifted(x) for x in each]


def _check_step(step: object, states: int) -> None:
    """Refuse a step that is no function of as many states."""
    call = f"lambda {', '.join(state_names(states))}: ..."
    if not callable(step):
        raise InputError(f"the step of scan is {step!r}, which is no function; write {call}")
    try:
        inspect.signature(step).bind(*range(states))
    except TypeError as error:
        what = f"the step of scan does not take as many states as init has, {states}"
        raise InputError(f"{what}: {error}; write {call}") from None
    except ValueError:  # a function without a signature
        return


def _grown(state: State, made: Node, axis: str) -> State:
    """Axes and type of a state that is what a step makes, too."""
    axes, kind = state
    if made.kind == "bool":
        raise InputError("the step of scan gives a test; write nk.where(test, 1, 0)")
    more = (a for a in made.axes if a != axis)
    return tuple(dict.fromkeys((*axes, *more))), wider(kind, made)


def _moved(made: Sequence[Node], leaves: Sequence[Node]) -> set[Node]:
    """The terms that are computed from the states."""
    return built_on(postorder(made), {*leaves}.__contains__)


def _check(made: Sequence[Node], moved: set[Node], names: Mapping[Node, str], axis: str) -> None:
    """Check that what a step does with the states is done at one position.

    Args:
        names: what the states are called.

    Raises:
        Refusal: it is not.
    """
    for n in postorder(made):
        if n not in moved or n.op == "previous":
            continue
        pairs = names_of(n) if n.op == "rename" else ()
        reason = ""
        if n.op not in DONE and n.op not in POINTWISE and n.op not in REDUCTIONS:
            what = "scan by a step that is not linear" if n.op == "steps" else n.op
            reason = f"a step does no {what} of its state, which is in registers"
        elif axis in over(n) or any(axis in pair for pair in pairs):
            reason = f"the step is at one position of {axis}, and this takes in all of them"
        if reason:
            nearest = "write steps of arithmetic, and of reductions over other axes"
            raise Refusal("scan", text(n, names), reason, nearest + SHIFT * (n.op == "take"))


def _apart(
    made: Sequence[Node], leaves: Sequence[Node], starts: Sequence[Node], axis: str
) -> list[Array]:
    """The states, from the terms of their steps.

    Raises:
        InputError: no array in the step has the axis.
    """
    first = pointwise("equal", (position(axis), number(0)))
    begun = dict[Node, Node]()
    constants = list[float]()
    for leaf, start in zip(leaves, starts, strict=True):
        known = start.op == "number"
        value = cast(float, start.params[0]) if known else 0
        constants.append(int(value) if leaf.kind == "int" else float(value))
        if not known:
            begun[leaf] = pointwise("where", (first, start, leaf))
    done = substitute(made, begun)
    made = [done[n] for n in made]
    if not any(axis in n.axes for n in postorder(made)):
        raise InputError(f"scan along {axis!r}: no array in the step has this axis")
    made = [n if axis in n.axes else pointwise("mul", (n, ones((axis,)))) for n in made]
    moved = _moved(made, leaves)
    read = dict[Node, None]()
    for n in postorder(made):
        inner = n.args if n in moved else ()
        read |= dict.fromkeys(a for a in inner if a not in moved and not a.constant)
    read |= dict.fromkeys(n for n in made if n not in moved)
    operands = {
        n: node("operand", params=(j,), axes=n.axes, kind=n.kind) for j, n in enumerate(read)
    }
    done = substitute(made, operands)
    steps = tuple(done[n] for n in made)
    starting = tuple(constants)
    each = [Steps(i, steps, starting) for i in range(len(steps))]
    return [Array(iterated(axis, x, [*read])) for x in each]
