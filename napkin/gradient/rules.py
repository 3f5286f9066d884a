"""How each kind of node hands its cotangent on: one rule a kind.

A rule takes what all rules share, the node and its cotangent, and gives arguments with a cotangent
for each, None where it is 0. An argument may come more than once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeVar, cast

from napkin.errors import Refusal
from napkin.gradient import transposes
from napkin.gradient.products import is_number, negated, times, total
from napkin.gradient.reached import Handed, Reached
from napkin.gradient.stepwise import steps_rule
from napkin.ir.derivatives import of_operator, of_reduction
from napkin.ir.infer import joined, jointly, part_of, parts_of, pointwise
from napkin.ir.node import COMPOSITES, REDUCTIONS, Node, factors, over, preorder, union_axes
from napkin.ir.operators import POINTWISE
from napkin.ir.selecting import ranked_among

T = TypeVar("T")


def pointwise_rule(at: Reached, n: Node, g: Node) -> Handed:
    """The cotangent times the derivative, summed over the axes that an argument lacks."""
    for a, d in zip(n.args, _said(of_operator(n), n, "operator"), strict=True):
        if a in at.needed and d is not None:
            yield a, at.sums.onto(times(g, d), a.axes, n.axes)


def contraction_rule(at: Reached, n: Node, g: Node) -> Handed:
    """The cotangent contracted with the other factors, over all axes that a factor lacks."""
    parts = factors(n.args[0])
    every = union_axes(parts)
    sign = g.op == "neg"
    for i, p in enumerate(parts):
        if p in at.needed:
            product = joined("mul", [g.args[0] if sign else g, *parts[:i], *parts[i + 1 :]])
            found = at.sums.onto(product, p.axes, every)
            yield p, negated(found) if sign and found is not None else found


def reduction_rule(at: Reached, n: Node, g: Node) -> Handed:
    """The cotangent times the derivative of the result by each value; of a rank by all values that
    are ranked, so that equal ones share every rank that they hold."""
    x = ranked_among(n) if REDUCTIONS[n.op].order else n.args[0]
    yield x, times(g, _said(of_reduction(n, x), n, "reduction"))


def _said(found: T | None, n: Node, what: str) -> T:
    """What the record of a node says of its derivative.

    Raises:
        Refusal: nothing.
    """
    if found is None:
        instead = f"define it with nk.{what}({n.op!r}, ..., derivative=...)"
        raise Refusal("gradient", n.op, f"the {what} has no derivative", instead)
    return found


def mean_rule(at: Reached, n: Node, g: Node) -> Handed:
    """The cotangent over the number of values."""
    for axis in over(n):
        g = pointwise("div", (g, at.sums.length(axis)))
    yield n.args[0], g


def logsumexp_rule(at: Reached, n: Node, g: Node) -> Handed:
    """The cotangent times the weights."""
    parts = parts_of(n)
    for j, (x, _) in enumerate(parts):
        if x in at.needed:
            weights = jointly("softmax", parts, j)
            yield _unmasked(at, x), at.sums.onto(times(g, weights), x.axes, weights.axes)


def softmax_rule(at: Reached, n: Node, g: Node) -> Handed:
    """P (g - sum of P g): the maximum inside shifts all scores, which changes no weight."""
    parts, which, every = parts_of(n), part_of(n), n.axes
    left = [a for a in every if a not in parts[which][1]]
    delta = at.sums.onto(times(g, n), left, every)
    assert delta is not None
    for j, (x, _) in enumerate(parts):
        if x not in at.needed:
            continue
        if j == which:
            found = pointwise("mul", (n, pointwise("sub", (g, delta))))
            yield _unmasked(at, x), at.sums.onto(found, x.axes, every)
        else:
            weights = jointly("softmax", parts, j)
            found = at.sums.onto(times(delta, weights), x.axes, weights.axes)
            yield _unmasked(at, x), None if found is None else negated(found)


def _unmasked(at: Reached, x: Node) -> Node:
    """What is masked with -inf: the weights are 0 there already, so that what they multiply needs
    no mask, unless that may be no number."""
    masked = x.op == "where" and is_number(x.args[2], -math.inf)
    if not masked or set(x.args[1].axes) != set(x.axes):
        return x
    inner = preorder([x.args[1]], lambda m: m.op in POINTWISE)
    return x if any(_steep(m) for m in inner if m in at.needed) else x.args[1]


def _steep(n: Node) -> bool:
    """Whether the derivative of an operator may be infinite or NaN where its arguments are not."""
    if n.op not in POINTWISE:
        return False
    record, last = POINTWISE[n.op], n.args[-1]
    if n.op == "pow":
        return last.op != "number" or cast("float", last.params[0]) < 1
    return record.steep or bool(record.definition) or (record.pole and not last.constant)


_COMPOSED = {"mean": mean_rule, "logsumexp": logsumexp_rule, "softmax": softmax_rule}
assert set(_COMPOSED) == COMPOSITES

RULES: dict[str, Callable[[Reached, Node, Node], Handed]] = {
    **_COMPOSED,
    "sum": contraction_rule,
    "rename": transposes.rename_rule,
    "take": transposes.take_rule,
    "compress": transposes.compress_rule,
    "spread": transposes.spread_rule,
    "cumsum": transposes.cumsum_rule,
    "recurrence": transposes.recurrence_rule,
}
"""The rules of nodes by operator, beside those of all pointwise operators and reductions."""


def pulled(at: Reached, arriving: Mapping[Node, list[Node]]) -> dict[Node, Node]:
    """The cotangents of nodes, from those that arrive at some."""
    arrived, found = dict(arriving), dict[Node, Node]()
    for n in reversed(at.order):
        if n not in arrived:
            continue
        found[n] = total(arrived.pop(n))
        for a, g in handed(at, n, found[n]) if n.args else ():
            if g is not None and a in at.needed:
                arrived.setdefault(a, []).append(g)
    return found


def handed(at: Reached, n: Node, g: Node) -> Handed:
    """What a node hands to its arguments.

    Raises:
        Refusal: it has no derivative.
    """
    if n.op in RULES:
        return RULES[n.op](at, n, g)
    if n.op in POINTWISE:
        return pointwise_rule(at, n, g)
    if n.op in REDUCTIONS:
        return reduction_rule(at, n, g)
    if n.op == "steps":
        return steps_rule(at, n, g, pulled)
    raise Refusal(
        "gradient", n.op, "its transpose puts each value back where it came from, by a permutation "
        "that no term says", "take the gradient before, or of what is not sorted",
    )  # fmt: skip
