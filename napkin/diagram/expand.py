"""Composite operators opened into reductions by a monoid and pointwise operators.

Each rule is an identity; nothing here knows what the result will be used for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from napkin.diagram.infer import along, pointwise
from napkin.diagram.node import COMPOSITES, FLOOR, Node, node, number, over, rewrite


def count(axes: tuple[str, ...]) -> Node:
    """How many positions `axes` have, as a reduction: streamed, it counts those seen so far."""
    return along("sum", node("ones", params=(axes,), axes=axes, kind="int"), axes)


def shifted(x: Node, axes: tuple[str, ...]) -> tuple[Node, Node]:
    """The maximum of `x` over `axes`, and exp(x - maximum), which stays in range."""
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
    """The map from every node under `roots` to its form without composites."""

    def change(old: Node, args: tuple[Node, ...]) -> Node | None:
        rule = RULES.get(old.op)
        return rule(args[0], over(old)) if rule else None

    return rewrite(roots, change)
