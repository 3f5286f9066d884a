"""Composite operators opened into reductions by a monoid and pointwise operators.

Each rule is an identity; nothing here knows what the result will be used for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from napkin.diagram.infer import along, pointwise, renamed
from napkin.diagram.keys.terms import from_arguments, spec_of
from napkin.diagram.node import COMPOSITES, FLOOR, Node, node, number, over, rewrite
from napkin.diagram.operators import POINTWISE


def count(axes: tuple[str, ...]) -> Node:
    """How many positions `axes` have, as a reduction: streamed, it counts those seen so far."""
    return along("sum", node("ones", params=(axes,), axes=axes, kind="int"), axes)


def shifted(x: Node, axes: tuple[str, ...]) -> tuple[Node, Node]:
    """The maximum of `x` over `axes`, and exp(x - maximum), which stays in range."""
    if x.kind != "real":  # no whole number lies as far below all others as FLOOR
        x = pointwise("cast", (x,), ("fp32",))
    top = along("max", x, axes, (FLOOR,))
    return top, pointwise("exp", (pointwise("sub", (x, top)),))


def _softmax(x: Node, axes: tuple[str, ...]) -> Node:
    _, weights = shifted(x, axes)
    total = along("sum", weights, axes)
    # A row without a single finite score has total 0: its weights are 0, not 0/0.
    empty = pointwise("equal", (total, number(0)))
    return pointwise("div", (weights, pointwise("where", (empty, number(1.0), total))))


def _logsumexp(x: Node, axes: tuple[str, ...]) -> Node:
    top, weights = shifted(x, axes)
    return pointwise("add", (top, pointwise("log", (along("sum", weights, axes),))))


def _mean(x: Node, axes: tuple[str, ...]) -> Node:
    return pointwise("div", (along("sum", x, axes), count(axes)))


RULES: dict[str, Callable[[Node, tuple[str, ...]], Node]] = {
    "softmax": _softmax,
    "logsumexp": _logsumexp,
    "mean": _mean,
}
assert set(RULES) == COMPOSITES


def expanded(roots: Iterable[Node]) -> dict[Node, Node]:
    """The map from every node under `roots` to its form without composites, in which only inputs
    and results of reductions are read under other axis names."""

    def change(old: Node, args: tuple[Node, ...]) -> Node | None:
        rule = RULES.get(old.op)
        if rule:
            return rule(args[0], over(old))
        if old.op == "rename":
            return sunk(args[0], cast("tuple[tuple[str, str], ...]", old.params[0]))
        return None

    return rewrite(roots, change)


def view(x: Node, names: tuple[tuple[str, str], ...]) -> Node:
    """An input read under other axis names: a leaf that knows the tensor's own names."""
    table = dict(names)
    axes = tuple(table.get(a, a) for a in x.axes)
    return node("input", params=(*x.params[:1], own_axes(x)), axes=axes, kind=x.kind)


def own_axes(leaf: Node) -> tuple[str, ...]:
    """The tensor's own names for the axes of an input leaf."""
    return cast("tuple[str, ...]", leaf.params[1]) if len(leaf.params) > 1 else leaf.axes


def sunk(x: Node, names: tuple[tuple[str, str], ...]) -> Node:
    """`x` under other axis names, with the renaming moved below pointwise operators."""
    table = dict(names)
    if not any(a in table for a in x.axes):
        return x
    if x.op == "index":
        axis = table[x.axes[0]]
        return node("index", params=(axis,), axes=(axis,), kind="int")
    if x.op == "input":
        return view(x, names)
    if x.op == "keys":
        return from_arguments([sunk(a, names) for a in x.args], spec_of(x).renamed(table))
    if x.op in POINTWISE:
        return pointwise(x.op, [sunk(a, names) for a in x.args], x.params)
    kept = tuple((a, b) for a, b in names if a in x.axes)
    if x.op == "rename":
        inner = dict(cast("tuple[tuple[str, str], ...]", x.params[0]))
        joined = tuple((a, table.get(inner.get(a, a), inner.get(a, a))) for a in x.args[0].axes)
        return renamed(x.args[0], tuple((a, b) for a, b in joined if a != b))
    return renamed(x, kept)
