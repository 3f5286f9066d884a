"""Axes and item types of a node from its arguments, with the checks that go with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import cast

from napkin.errors import InputError, did_you_mean
from napkin.ir import slots
from napkin.ir.node import (
    COMPOSITES,
    LEAVES,
    MOVES,
    REDUCTIONS,
    SCANS,
    WRAPPERS,
    Kind,
    Node,
    Param,
    Steps,
    names_of,
    node,
    number,
    over,
    postorder,
    steps_of,
    union_axes,
)
from napkin.ir.operators import POINTWISE
from napkin.ir.taking import spans_of, take, taken_axes

_WIDTH: dict[Kind, int] = {"bool": 0, "int": 1, "real": 2}

DTYPES: dict[str, Kind] = {
    "fp64": "real",
    "fp32": "real",
    "fp16": "real",
    "bf16": "real",
    "fp8": "real",
    "int64": "int",
    "int32": "int",
    "bool": "bool",
}
"""The item types a cast may name, with the kind of each."""


def widest(nodes: Iterable[Node]) -> Kind:
    """The item type that holds values of all nodes."""
    return max((n.kind for n in nodes), key=lambda k: _WIDTH[k])


def wider(kind: Kind, n: Node) -> Kind:
    """The item type that holds values of this one and of a node."""
    return max(kind, n.kind, key=lambda k: _WIDTH[k])


def pointwise(op: str, args: Sequence[Node], params: tuple[Param, ...] = ()) -> Node:
    """`op` on arrays aligned by axis name; the result has every axis of every argument."""
    row = POINTWISE[op]
    assert len(args) == row.arity, (op, len(args))
    kind = row.kind
    if op == "cast":
        kind = DTYPES[str(params[0])]
    elif op == "where":
        kind = widest(args[1:])
    elif kind is None:
        kind = widest(args)
        if kind == "bool":
            kind = "int"
    return node(op, args, params, union_axes(args), kind)


def joined(op: str, parts: Iterable[Node]) -> Node:
    """`op` of the first two of one array or more, of that and the third, and so on."""
    return reduce(lambda a, b: pointwise(op, (a, b)), parts)


def reals(x: Node) -> Node:
    """`x`, whole numbers as reals, of which a sum does not wrap. Tests are counted as they are."""
    return pointwise("cast", (x,), ("fp32",)) if x.kind == "int" else x


def along(op: str, x: Node, axes: tuple[str, ...], extra: tuple[Param, ...] = ()) -> Node:
    """A reduction, composite or scan of `x` along `axes`.

    Raises:
        InputError: `x` lacks an axis, or an axis is named twice.
    """
    if not axes:
        raise InputError(f"{op} names no axis; write over='...' with one of: {' '.join(x.axes)}")
    for axis in axes:
        if axis not in x.axes:
            raise InputError(
                f"{op} over {axis!r}: the array has axes '{' '.join(x.axes)}', not {axis!r}; "
                + did_you_mean(axis, x.axes)
            )
    if len(set(axes)) != len(axes):
        raise InputError(f"{op} over '{' '.join(axes)}': an axis is named twice; name each once")
    kept = x.axes
    if op not in SCANS and op != "softmax":
        kept = tuple(a for a in x.axes if a not in axes)
    record = REDUCTIONS.get(op)
    kind: Kind = "real" if op in COMPOSITES else x.kind
    if record is not None and POINTWISE[record.combine].kind == "real":
        kind = "real"
    if kind == "bool" and (op == "cumsum" or (record is not None and record.counts)):
        kind = "int"
    return node(op, (x,), (axes, *extra), kept, kind)


def recurrence(a: Node, b: Node, axis: str) -> Node:
    """h_t = a_t h_(t-1) + b_t along an axis that `a` or `b` has, with 0 before the first."""
    return node("recurrence", (a, b), ((axis,),), union_axes((a, b)), "real")


def iterated(axis: str, steps: Steps, args: Sequence[Node]) -> Node:
    """A state of several that move along an axis together, one position after another, by steps
    that read these arguments."""
    states = dict[int, tuple[tuple[str, ...], Kind]]()
    for i, start in enumerate(steps.starts):
        states[i] = (), widest([number(start)])
    for m, i in steps.leaves.items():
        if m.op == "previous":
            states[i] = m.axes, m.kind
    grown, made = states, list[Node]()
    while grown != states or not made:  # a state has the axes of its step, which reads states
        states, leaves = grown, dict[Node, Node]()
        for m, i in steps.leaves.items():
            axes, kind = states[i] if m.op == "previous" else (args[i].axes, args[i].kind)
            leaves[m] = node(m.op, (), m.params, axes, kind)
        for m in postorder(steps.made):
            if m not in leaves:
                leaves[m] = rebuilt(m, tuple(leaves[a] for a in m.args))
        made = [leaves[m] for m in steps.made]
        grown = dict(states)
        for (i, (axes, kind)), m in zip(states.items(), made, strict=True):
            own = (a for a in m.axes if a != axis)
            grown[i] = tuple(dict.fromkeys((*axes, *own))), wider(kind, m)
    axes, kind = states[steps.which]
    params = ((axis,), steps.which, tuple(made), steps.starts)
    return node("steps", args, params, (*axes, axis), kind)


Parts = Sequence[tuple[Node, tuple[str, ...]]]
"""Arrays that a composite joins, and the axes that each is reduced along."""


def jointly(op: str, parts: Parts, which: int = 0) -> Node:
    """The composite `op` over arrays that share one maximum and one sum, each along axes of its
    own; of softmax it is the weights of array `which`.

    Raises:
        InputError: as `along`, or an array keeps an axis along which another is reduced.
    """
    if len(parts) == 1:
        return along(op, *parts[0])
    kept = [along("logsumexp", n, gone).axes for n, gone in parts]
    for i, (_, gone) in enumerate(parts):
        for axis in gone:
            j = next((j for j, k in enumerate(kept) if axis in k), None)
            if j is not None:
                raise InputError(
                    f"{op} of {len(parts)} arrays: array {i + 1} goes over {axis!r}, which array "
                    f"{j + 1} keeps; add it to over[{j}], or rename one of the two"
                )
    every = [a for k in kept for a in k]
    if op == "softmax":
        every = [*parts[which][0].axes, *every]
    params = (*(gone for _, gone in parts), which)
    return node(op, [n for n, _ in parts], params, dict.fromkeys(every), "real")


def parts_of(n: Node, args: Sequence[Node] = ()) -> Parts:
    """The arrays of a composite (or others in their place), each with its axes."""
    return tuple(zip(args or n.args, cast("tuple[tuple[str, ...], ...]", n.params), strict=False))


def part_of(n: Node) -> int:
    """Which of its arrays a composite has the weights of."""
    return cast(int, n.params[-1]) if len(n.args) > 1 else 0


def renamed(x: Node, names: Iterable[tuple[str, str]]) -> Node:
    """`x` read with some axes under other names, of those that it has (the same values, the same
    sizes)."""
    table = {old: new for old, new in names if old in x.axes}
    axes = tuple(table.get(a, a) for a in x.axes)
    return node("rename", (x,), (tuple(table.items()),), axes, x.kind) if table else x


def rebuilt(old: Node, args: tuple[Node, ...]) -> Node:
    """The operator of `old` on other arguments, inferred again."""
    if old.op in LEAVES:
        return node(old.op, args, old.params, old.axes, old.kind) if args else old
    if old.op in COMPOSITES:
        return jointly(old.op, parts_of(old, args), part_of(old))
    if old.op == "recurrence":
        a, b = args
        return recurrence(a, b, *over(old))
    if old.op == "steps":
        return iterated(over(old)[0], steps_of(old), args)
    if old.op in REDUCTIONS or old.op in SCANS:
        return along(old.op, args[0], over(old), old.params[1:])
    if old.op == "rename":
        return renamed(args[0], names_of(old))
    if old.op == "take":
        return take(args[0], args[1:], taken_axes(old), spans_of(old))
    if old.op in MOVES:
        made = slots.compress if old.op == "compress" else slots.spread
        return made(args[0], args[1], slots.slots_of(old))
    if old.op == "scatter":
        return node(old.op, args, old.params, args[0].axes, args[0].kind)
    if old.op == "keys":
        keys = tuple(a for a in old.axes if a not in union_axes(old.args))
        return node("keys", args, old.params, (*union_axes(args), *keys), "bool")
    if old.op in WRAPPERS:
        return node(old.op, args, old.params, args[0].axes, args[0].kind)
    return pointwise(old.op, args, old.params)
