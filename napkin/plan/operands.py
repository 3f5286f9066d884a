"""Operands of reductions: what a kernel may store for them, and in which order of axes it does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from napkin.derive.contraction import in_axes
from napkin.ir.node import Node, over
from napkin.plan.points import is_pointwise


def operands(n: Node) -> Iterator[Node]:
    """The largest terms that a reduction reads, each without some of its axes: groups along these
    need one again, each for itself."""
    every = {*n.axes, *over(n)}
    stack = [*n.args]
    while stack:
        m = stack.pop()
        if not {*m.axes} >= every:
            yield m
        elif is_pointwise(m):
            stack += reversed(m.args)


def layouts(order: Iterable[Node]) -> dict[Node, tuple[str, ...]]:
    """The axes in memory of operands that lie otherwise than their terms say.

    A group of a matrix product has one position of an axis that both operands carry into the
    result. Where an operand is contiguous along such an axis, the values of a group are each in a
    sector of its own, so the axis comes first where a kernel stores the operand.
    """
    found: dict[Node, tuple[str, ...]] = {}
    for n in order:
        for m in operands(n) if n.op == "sum" else ():
            alone = _single(n)
            if m.axes and m.axes[-1] in alone:
                first = sorted(m.axes, key=lambda a: a not in alone)
                found.setdefault(m, tuple(first))
    return found


@lru_cache(maxsize=4096)
def _single(n: Node) -> frozenset[str]:
    """The axes of which a group of a matrix product has one position."""
    return in_axes(n, tuple(dict.fromkeys((*n.axes, *n.args[0].axes)))).single
