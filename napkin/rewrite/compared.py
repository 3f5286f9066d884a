"""Extrema that something is compared with, computed as they are written."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.algebra.rule import Change, node_rule
from napkin.algebra.terms import EXTREMA, WRITTEN, compares
from napkin.ir.infer import along
from napkin.ir.node import Node, over, postorder


def _change(roots: Sequence[Node]) -> Change:
    """Every maximum and minimum of reals that something is compared with is marked to be computed
    as it is written: x == max_x x holds where both are rounded alike, and in another
    kernel b max_x a would not be rounded as max_x (a b)."""
    tests = [n for n in postorder(roots) if compares(n)]
    found = {n for n in postorder(tests) if n.op in EXTREMA and n.kind == "real"}

    def marked(old: Node, args: tuple[Node, ...]) -> Node | None:
        start = (*old.params[1:], WRITTEN)
        return along(old.op, args[0], over(old), start) if old in found else None

    return marked


COMPARED = node_rule(
    "compute as it is written",
    "max_x a = max_x a, rounded as a is",
    _change,
    ("something is compared with it",),
    infinite=True,
)
