"""Sums swapped: a contraction of a contraction the other way round.

sum_x (sum_d A B) C = sum_d A (sum_x B C), where only B and C carry x: both sides are the same
linear map. Linear attention is the known case: (Q K^T) V against Q (K^T V). The bound axis d takes
a new name if C carries one like it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from napkin.derive.rules.rule import Instance, Rule, one_node
from napkin.ir.expansion import sunk
from napkin.ir.infer import along, joined
from napkin.ir.node import Node, factors, over, postorder


def _matches(terms: Sequence[Node]) -> Iterator[Instance]:
    order = list(postorder(terms))
    taken = {a for n in order for a in n.axes}
    for n in order:
        inner = contraction_inside(n)
        found = _swapped(n, inner, taken) if inner else None
        if found is not None:
            yield one_node(n, *found)


SWAPPED = Rule(
    "swap sums",
    "sum_x (sum_d A B) C = sum_d A (sum_x B C)",
    _matches,
    (
        "A does not carry x",
        "one occurrence of the inner sum is opened, and others stay among C",
        "d is renamed where C or the result carries an axis of its name",
    ),
    alternative=True,
)


def contraction_inside(n: Node) -> Node | None:
    """The contraction inside a contraction, over other axes; None where there is none."""
    if n.op != "sum" or n.args[0].op != "mul":
        return None
    parts, gone = factors(n.args[0]), over(n)
    inner = next((p for p in parts if p.op == "sum" and set(gone) & set(p.axes)), None)
    return inner if inner is not None and inner.args[0].op == "mul" else None


def _swapped(n: Node, inner: Node, taken: set[str]) -> tuple[Node, dict[str, str]] | None:
    parts, gone = factors(n.args[0]), over(n)
    outer = without(parts, inner)
    if not any(set(gone) & set(p.axes) for p in outer):
        return None
    sides = factors(inner.args[0])
    free = [p for p in sides if not set(gone) & set(p.axes)]
    bound = [p for p in sides if set(gone) & set(p.axes)]
    if not free or not any(set(over(inner)) & set(p.axes) for p in free):
        return None
    table: dict[str, str] = {}
    clash = {a for p in outer for a in p.axes} | set(n.axes)
    for axis in over(inner):
        if axis in clash:
            table[axis] = _fresh(axis, taken | set(table.values()))
    pairs = tuple(table.items())
    if pairs:
        free = [sunk(p, pairs) for p in free]
        bound = [sunk(p, pairs) for p in bound]
    first = along("sum", joined("mul", [*bound, *outer]), gone)
    again = tuple(table.get(a, a) for a in over(inner))
    return along("sum", joined("mul", [*free, first]), again), {
        new: old for old, new in table.items()
    }


def without(parts: Sequence[Node], one: Node) -> list[Node]:
    """The factors beside one occurrence of a factor; equal factors are one object."""
    at = parts.index(one)
    return [*parts[:at], *parts[at + 1 :]]


def _fresh(axis: str, taken: set[str]) -> str:
    i = 2
    while f"{axis}{i}" in taken:
        i += 1
    return f"{axis}{i}"
