"""The least and the greatest value that a bound takes over the queries of a group.

A bound that never falls along an axis is evaluated at the group's first or last query, in scalars;
any other is computed for every query and reduced.
"""

from __future__ import annotations

from collections.abc import Container

from napkin.ir.node import Node, node
from napkin.ir.rewrite import rewrite


def corner(axis: str, which: str) -> Node:
    """The first or last position of this group along an axis, as a scalar."""
    return node("corner", params=(axis, which), kind="int")


def rises(n: Node, still: Container[str] = ()) -> bool:
    """Whether `n` never falls as positions grow, by its operators alone; positions along the axes
    of `still` do not."""
    if n.op == "index" or n.op in {"size", "number", "scalar"}:
        return True
    if n.op in {"add", "maximum", "minimum"}:
        return all(rises(a, still) for a in n.args)
    if n.op == "sub":
        return _stays(n.args[1], still) and rises(n.args[0], still)
    if n.op == "where":  # from 0 to a length
        test, high, low = n.args
        known = high.op == "size" and low.op == "number" and low.params[0] == 0
        first, last = test.args if test.op in {"less", "less_equal"} else (test, test)
        return known and first is not last and _stays(first, still) and rises(last, still)
    if n.op in {"mul", "floordiv"}:
        factor = n.args[1]
        positive = factor.op == "number" and float(str(factor.params[0])) > 0
        return positive and rises(n.args[0], still)
    return False


def _stays(n: Node, still: Container[str]) -> bool:
    """Whether `n` is the same at all positions but along the axes of `still`."""
    return n.constant or (n.op == "index" and n.axes[0] in still)


def at_corner(n: Node, which: str, still: Container[str]) -> Node:
    """A rising bound at the group's first or last position, as a scalar."""

    def change(old: Node, _: tuple[Node, ...]) -> Node | None:
        moves = old.op == "index" and old.axes[0] not in still
        return corner(old.axes[0], which) if moves else None

    return rewrite([n], change)[n]
