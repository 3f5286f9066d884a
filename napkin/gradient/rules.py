"""How each kind of node hands its cotangent on: one rule a kind.

A rule takes what all rules share, the node and its cotangent, and gives arguments with a cotangent
for each, None where it is 0. An argument may come more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

from napkin.errors import Refusal
from napkin.gradient import moves
from napkin.gradient.products import negated, times
from napkin.gradient.reached import Reached
from napkin.ir.array import Array, applied, lifted
from napkin.ir.infer import along, joined, jointly, part_of, parts_of, pointwise
from napkin.ir.node import COMPOSITES, REDUCTIONS, Node, factors, over, union_axes
from napkin.ir.operators import POINTWISE
from napkin.ir.operators.meant import joins_as
from napkin.ir.whole_numbers import length

Handed: TypeAlias = Iterator[tuple[Node, "Node | None"]]


@dataclass(frozen=True)
class Functions:
    """The operators by name, as derivatives are written with them.

    Attributes:
        axes: of `along`, the axes of the reduction.
    """

    axes: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Callable[..., Array]:
        return partial(applied, name)

    def along(self, how: str, x: Array) -> Array:
        """A reduction along the axes."""
        return Array(along(how, x.node, self.axes))


def pointwise_rule(at: Reached, n: Node, g: Node) -> Handed:
    """The cotangent times the derivative, summed over the axes that an argument lacks."""
    each = derivatives(n)
    if each is None:
        raise Refusal(
            "gradient", n.op, "the operator has no derivative",
            f"define it with nk.operator({n.op!r}, ..., derivative=...)",
        )  # fmt: skip
    for a, d in zip(n.args, each, strict=True):
        if a in at.needed and d is not None:
            yield a, at.sums.onto(times(g, d), a.axes, n.axes)


def derivatives(n: Node) -> list[Node | None] | None:
    """The derivatives of a pointwise operator by its arguments; None where none are known."""
    given = POINTWISE[n.op].derivative
    if given is None:
        return None
    found = given(Functions(), Array(n), *map(Array, n.args))
    each = cast("tuple[Any, ...]", found if isinstance(found, tuple) else (found,))
    return [None if d is None else lifted(d) for d in each]


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
    """The cotangent times the derivative of the result by each value."""
    record, (x,) = REDUCTIONS[n.op], n.args
    if record.derivative is None and joins_as(record) != "add":
        raise Refusal(
            "gradient", n.op, "the reduction has no derivative",
            f"define it with nk.reduction({n.op!r}, ..., derivative=...)",
        )  # fmt: skip
    if record.derivative is None:
        yield x, g
    else:
        yield x, times(g, lifted(record.derivative(Functions(over(n)), Array(n), Array(x))))


def mean_rule(at: Reached, n: Node, g: Node) -> Handed:
    """The cotangent over the number of values."""
    for axis in over(n):
        g = pointwise("div", (g, length(axis)))
    yield n.args[0], g


def logsumexp_rule(at: Reached, n: Node, g: Node) -> Handed:
    """The cotangent times the weights."""
    parts, every = parts_of(n), union_axes(n.args)
    for j, (x, _) in enumerate(parts):
        if x in at.needed:
            yield x, at.sums.onto(times(g, jointly("softmax", parts, j)), x.axes, every)


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
            yield x, at.sums.onto(found, x.axes, every)
        else:
            weights = jointly("softmax", parts, j)
            found = at.sums.onto(times(delta, weights), x.axes, (*left, *x.axes))
            yield x, None if found is None else negated(found)


_COMPOSED = {"mean": mean_rule, "logsumexp": logsumexp_rule, "softmax": softmax_rule}
assert set(_COMPOSED) == COMPOSITES

RULES: dict[str, Callable[[Reached, Node, Node], Handed]] = {
    **_COMPOSED,
    "sum": contraction_rule,
    "rename": moves.rename_rule,
    "take": moves.take_rule,
    "compress": moves.compress_rule,
    "spread": moves.spread_rule,
    "cumsum": moves.cumsum_rule,
    "recurrence": moves.recurrence_rule,
}
"""The rules of nodes by operator, beside those of all pointwise operators and reductions."""


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
    raise Refusal(
        "gradient", n.op, "its transpose puts each value back where it came from, by a permutation "
        "that no term says", "take the gradient before, or of what is not sorted",
    )  # fmt: skip
