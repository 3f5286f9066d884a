"""Operands of reductions: what a kernel may store for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from napkin.ir.node import REDUCTIONS, Node, over
from napkin.plan.points import is_pointwise


def operands(order: Iterable[Node]) -> Iterator[tuple[Node, Node]]:
    """Each reduction with the largest terms that it reads and that lack some of its axes: groups
    along these need one again, each for itself. What two reductions along the same axes read by way
    of one term is given with the first."""
    seen = set[tuple[Node, frozenset[str], tuple[str, ...]]]()
    for n in order:
        every = frozenset({*n.axes, *over(n)})
        stack = [*n.args] if n.op in REDUCTIONS else []
        while stack:
            m = stack.pop()
            if not every.issubset(m.axes):
                yield n, m
            elif is_pointwise(m) and (m, every, over(n)) not in seen:
                seen.add((m, every, over(n)))
                stack += reversed(m.args)
