"""Differences under a sum, squared or weighted, multiplied out so that they are a matrix product.

The right side is exact in numbers without rounding alone. Its error is that of |x|^2 + |y|^2, about
2^-24 of them for each addition in float32, however small |x - y|^2 is; the left side is as exact as
x - y. So nothing applies these rules unless somebody asks for them. Gradients of sums of the first
form have the second.
"""

from __future__ import annotations

from napkin.algebra.rule import node_rule
from napkin.ir.infer import along, joined, pointwise, reals
from napkin.ir.node import Node, factors, number, over


def difference(n: Node) -> Node | None:
    """The difference whose square a sum adds up, where both sides of it have an axis of their own
    beside those of the sum: else there is no matrix product to gain."""
    if n.op != "sum" or n.kind != "real":
        return None
    parts = factors(n.args[0])
    twice = (p for p in parts if p.op == "sub" and parts.count(p) == 2)
    return next((p for p in twice if _is_product(p, {*over(n)})), None)


def _is_product(p: Node, gone: set[str]) -> bool:
    x, y = ({*a.axes} for a in p.args)
    return gone <= x & y and bool(x - y) and bool(y - x)


def _multiplied_out(old: Node, args: tuple[Node, ...]) -> Node | None:
    """For `rewrite`: sum_d w (x - y)^2 = sum_d w x^2 + sum_d w y^2 - 2 sum_d w x y."""
    if old.op != "sum":
        return None
    total = along("sum", args[0], over(old))
    square = difference(total)
    if square is None:
        return None
    x, y = square.args
    others = [p for p in factors(args[0]) if p is not square]
    xx, yy, xy = (
        along("sum", joined("mul", map(reals, [*p, *others])), over(old))
        for p in ((x, x), (y, y), (x, y))
    )
    return pointwise("sub", (pointwise("add", (xx, yy)), pointwise("mul", (number(2.0), xy))))


SQUARED = node_rule(
    "multiply squares out",
    "sum_d (x - y)^2 = sum_d x^2 + sum_d y^2 - 2 sum_d x y",
    lambda _: _multiplied_out,
    (
        "somebody asks for it, as digits of x - y are lost where x and y are far from 0",
        "x and y carry d, and each an axis that the other lacks",
    ),
    cancels=True,
)


def weighted(n: Node) -> Node | None:
    """The difference that a sum weighs, where one side of it lacks the sum's axes, and the other
    and the weights have them and an axis of their own: else there is no matrix product to gain."""
    if n.op != "sum" or n.kind != "real":
        return None
    parts, gone = factors(n.args[0]), {*over(n)}
    for p in (p for p in parts if p.op == "sub" and parts.count(p) == 1):
        weights = {a for q in parts if q is not p for a in q.axes}
        for one, other in (p.args, p.args[::-1]):
            apart, own = gone.isdisjoint(other.axes), {*one.axes}
            if apart and gone <= own & weights and own - weights and weights - own:
                return p
    return None


def _taken_apart(old: Node, args: tuple[Node, ...]) -> Node | None:
    """For `rewrite`: sum_m w (x - y) = x sum_m w - sum_m w y, where x lacks m."""
    if old.op != "sum":
        return None
    difference = weighted(along("sum", args[0], over(old)))
    if difference is None:
        return None
    others = [p for p in factors(args[0]) if p is not difference]

    def side(x: Node) -> Node:
        inside = [] if {*over(old)}.isdisjoint(x.axes) else [x]
        total = along("sum", joined("mul", map(reals, [*inside, *others])), over(old))
        return total if inside else pointwise("mul", (x, total))

    x, y = difference.args
    return pointwise("sub", (side(x), side(y)))


WEIGHTED = node_rule(
    "multiply weighted differences out",
    "sum_m w (x - y) = x sum_m w - sum_m w y",
    lambda _: _taken_apart,
    (
        "somebody asks for it, as digits of x - y are lost where x and y are far from 0",
        "x lacks m; w and y carry it, and each an axis that the other lacks",
    ),
    cancels=True,
)
