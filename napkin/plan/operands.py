"""Operands of reductions: what a kernel may store for them, and in which order of axes it does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from napkin.derive.contraction import in_axes
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


def layouts(order: Iterable[Node]) -> dict[Node, tuple[str, ...]]:
    """The axes in memory of operands that lie otherwise than their terms say.

    A group of a matrix product has one position of an axis that both operands carry into the
    result. Where an operand is contiguous along such an axis, the values of a group are each in a
    sector of its own, so the axis comes first where a kernel stores the operand.
    """
    found: dict[Node, tuple[str, ...]] = {}
    for n, m in operands(order):
        alone = _single(n) if n.op == "sum" else ()
        if m.axes and m.axes[-1] in alone:
            found.setdefault(m, tuple(sorted(m.axes, key=lambda a: a not in alone)))
    return found


@lru_cache(maxsize=4096)
def _single(n: Node) -> frozenset[str]:
    """The axes of which a group of a matrix product has one position."""
    return in_axes(n, tuple(dict.fromkeys((*n.axes, *n.args[0].axes)))).single
