"""Scales brought out of sums of products, so that the product of what is stored comes first."""

from __future__ import annotations

from functools import reduce

from napkin.algebra.rule import node_rule
from napkin.algebra.terms import is_read, narrow_type, scaled
from napkin.ir.infer import along, joined
from napkin.ir.node import Node, factors, over


def scales(n: Node) -> list[Node]:
    """The inputs that are factors of a sum of products and do not go along it, as scales are; of
    whole numbers that would wrap without them, none."""
    if n.op != "sum" or n.kind != "real":
        return []
    parts = factors(n.args[0])
    found = [p for p in parts if is_read(p) and p.axes and not set(p.axes) & set(over(n))]
    rest = [p for p in parts if p not in found]
    real = any(p.kind == "real" for p in rest) or narrow_type(rest) == "int8"
    return found if len(rest) > 1 and real else []


def _scaled_sum(old: Node, args: tuple[Node, ...]) -> Node | None:
    """For `rewrite`: sum_b S x = S sum_b x, S carrying no axis of b."""
    found = scales(along("sum", args[0], over(old))) if old.op == "sum" else []
    if not found:
        return None
    rest = [p for p in factors(args[0]) if p not in found]
    total = along("sum", joined("mul", rest), over(old))
    return reduce(scaled, found, total)


SCALED = node_rule(
    "scale sums",
    "sum_b S x = S sum_b x",
    lambda _: _scaled_sum,
    ("S carries no axis of b", "every occurrence of S comes out"),
)
