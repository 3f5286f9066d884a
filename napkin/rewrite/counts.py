"""Counts of positions as sizes, where no stream makes them grow, and sizes as counts, where it has
to."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from napkin.algebra.rule import Change, node_rule
from napkin.algebra.terms import extent, is_count
from napkin.ir.expansion import count
from napkin.ir.infer import pointwise
from napkin.ir.node import REDUCTIONS, Node, over, postorder


def _change(roots: Sequence[Node], streamed: Collection[str]) -> Change:
    reduced = (n for n in postorder(roots) if n.op in REDUCTIONS and not is_count(n))
    beside = [axes for n in reduced if not (axes := {*over(n)}).isdisjoint(streamed)]

    def grows(ones: Node) -> bool:
        return any(axes <= {*over(ones)} for axes in beside)

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


def _means(roots: Sequence[Node]) -> Change:
    """Sums over a size, from which differences are taken, count what they have seen: a sum so far
    over the positions of the whole axis goes far from the data, and a mean so far does not."""
    differences = (n for n in postorder(roots) if n.op == "sub")
    found = {a for n in differences for a in n.args if _is_mean(a)}

    def change(old: Node, args: tuple[Node, ...]) -> Node | None:
        return pointwise("div", (args[0], count(over(old.args[0])))) if old in found else None

    return change


def _is_mean(n: Node) -> bool:
    """Whether a term is a sum of reals along axes over their sizes."""
    if n.op != "div" or n.args[0].op != "sum" or n.args[0].kind != "real":
        return False
    parts = list(postorder([n.args[1]]))
    sizes = sorted(str(s.params[0]) for s in parts if s.op == "size")
    product = len(sizes) == sum(s.op == "mul" for s in parts) + 1
    return product and {s.op for s in parts} <= {"size", "mul"} and sizes == sorted(over(n.args[0]))


MEANS = node_rule(
    "count a mean",
    "sum_x t / size of x = sum_x t / sum_x 1",
    _means,
    ("a difference from it is taken",),
    infinite=True,
)
