"""Reductions nested, and joined.

sum_{n d} A = sum_n sum_d A, and so of max, min and prod: on the right the positions of n are summed
by groups of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from napkin.algebra.rule import Instance, Rule, one_node
from napkin.algebra.terms import in_float32, is_count
from napkin.ir.infer import along, joined
from napkin.ir.node import REDUCTIONS, Node, factors, over, postorder
from napkin.ir.sliding import taps
from napkin.rewrite.order import contraction_inside


def _matches(terms: Sequence[Node], _: Mapping[str, int]) -> Iterator[Instance]:
    order = list(postorder(terms))
    every = set(order)
    shared = {tap for n in order if n.op == "input" for tap in taps(n)}
    for n in order:
        if n.op in REDUCTIONS and contraction_inside(n) is None:
            found = _nested(n, shared, in_float32(n) in every)
            if found is not None:
                yield one_node(n, found)


NESTED = Rule(
    "nest reductions",
    "sum_{n d} A = sum_n sum_d A, and so of max, min and prod",
    _matches,
    ("every reduction starts from the same value", "axes are no taps of windows"),
    infinite=True,
    alternative=True,
)


def _nested(n: Node, shared: Collection[str], exact: bool) -> Node | None:
    """A reduction over several axes as one over the first of one over the others, which is kept in
    float32 if the whole is; None of one axis, of a window, and of a contraction, which would have
    more values in between."""
    first, *others = over(n)
    gone = set(over(n))
    contracts = n.op == "sum" and any(gone - set(p.axes) for p in factors(n.args[0]) if p.axes)
    if not others or contracts or is_count(n) or gone & set(shared):
        return None
    inner = along(n.op, n.args[0], tuple(others), n.params[1:])
    inner = in_float32(inner) if exact else inner
    return along(n.op, inner, (first,), n.params[1:])


def joined_with_inner(n: Node, chosen: Callable[[Node], bool]) -> Node | None:
    """The inverse of a nesting: sum_x y sum_a g = sum_{x a} y g, where y does not carry a; of max,
    min and prod, without y. None where no inner reduction is `chosen`."""
    parts = factors(n.args[0]) if n.op == "sum" else (n.args[0],)
    inner = next((p for p in parts if p.op == n.op and chosen(p)), None)
    if inner is None or inner.params[1:] != n.params[1:] or set(over(n)) & set(over(inner)):
        return None
    at = parts.index(inner)
    others = [*parts[:at], *parts[at + 1 :]]
    if any(set(over(inner)) & set(p.axes) for p in others):
        return None
    body = joined("mul", [inner.args[0], *others])
    return along(n.op, body, (*over(n), *over(inner)), n.params[1:])
