"""Counts of positions as sizes, where no stream makes them grow."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from napkin.algebra.rule import Change, node_rule
from napkin.algebra.terms import extent, is_count
from napkin.ir.node import REDUCTIONS, Node, over, postorder


def _change(roots: Sequence[Node], streamed: Collection[str]) -> Change:
    reduced = (n for n in postorder(roots) if n.op in REDUCTIONS and not is_count(n))
    beside = [axes for n in reduced if not (axes := {*over(n)}).isdisjoint(streamed)]

    def grows(count: Node) -> bool:
        return any(axes <= {*over(count)} for axes in beside)

    def change(old: Node, _: tuple[Node, ...]) -> Node | None:
        return extent(over(old)) if is_count(old) and not grows(old) else None

    return change


COUNTED = node_rule(
    "know counts",
    "sum_x 1 = size of x",
    _change,
    ("x is not streamed, or nothing else is reduced along it, or along some of it",),
    infinite=True,
)
