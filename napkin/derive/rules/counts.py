"""Counts of positions as sizes, where no stream makes them grow."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from napkin.algebra.terms import extent, is_count
from napkin.derive.rules.rule import Change, node_rule
from napkin.ir.node import Node, over


def _change(_: Sequence[Node], streamed: Collection[str]) -> Change:
    def change(old: Node, _: tuple[Node, ...]) -> Node | None:
        return extent(over(old)) if is_count(old) and not set(streamed) & set(over(old)) else None

    return change


COUNTED = node_rule(
    "know counts", "sum_x 1 = size of x", _change, ("x is not streamed",), infinite=True
)
