"""Additions at places: sums in which a position counts at the place that a test names.

sum_t where(P(t) = v, x(t), 0) is x added at P. Evaluation adds so, and makes no array with t and v.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from napkin.ir.node import Node, factors, number, over, postorder
from napkin.ir.selecting import where_all

KEPT = 4096
"""Sums of which it is kept whether they are additions at places."""


@dataclass(frozen=True)
class AddedAt:
    """A sum as an addition at places.

    Attributes:
        value: what is added.
        places: where it is, by the axes of the result along which the places lie.
    """

    value: Node
    places: Mapping[str, Node]


@lru_cache(maxsize=KEPT)
def added_at(n: Node) -> AddedAt | None:
    """A sum of real numbers under tests of places that are read from inputs; None of another."""
    if n.op != "sum" or n.kind != "real":
        return None
    value, places, others = n.args[0], dict[str, Node](), list[Node]()
    while value.op == "where" and value.args[2] is number(0.0):
        for test in factors(value.args[0], by="and"):
            v, at = _place(test)
            if v in n.axes and v not in places:
                places[v] = at
            else:
                others.append(test)
        value = value.args[1]
    value = where_all(others, value, 0.0)
    carried = {*value.axes, *(a for at in places.values() for a in at.axes)}
    free = places.keys().isdisjoint(carried) and carried.issuperset(over(n))
    return AddedAt(value, places) if places and free else None


def _place(test: Node) -> tuple[str, Node]:
    """The axis and the places on it that a test compares; "" where they are read from no input."""
    for v, at in (test.args, test.args[::-1]) if test.op == "equal" else ():
        if v.op == "index" and any(m.op == "input" for m in postorder([at])):
            return v.axes[0], at
    return "", test
