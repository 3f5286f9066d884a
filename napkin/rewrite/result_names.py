"""Sums that only results are computed of, under the names of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.algebra.rule import Change, node_rule
from napkin.ir.expansion import sunk
from napkin.ir.infer import along
from napkin.ir.node import REDUCTIONS, Node, names_of, over, postorder, readers
from napkin.ir.operators import POINTWISE


def _change(roots: Sequence[Node]) -> Change:
    """A sum that only results are computed of, under other axis names, has these names itself:
    nothing need store it to read it again."""
    order = list(postorder(roots))
    users = readers(order)
    read: set[Node] = set()  # by a reduction, or at computed addresses
    for n in reversed(order):
        if n in read or n.op not in {*POINTWISE, "rename"}:
            read.update(n.args)

    def change(old: Node, args: tuple[Node, ...]) -> Node | None:
        if old.op != "rename" or old in read:
            return None
        (inner,), names = args, names_of(old)
        alone = users[old.args[0]] == {old} and old.args[0] not in roots
        if not alone or inner.op not in REDUCTIONS or not _free(inner.args[0], dict(names)):
            return None
        return along(inner.op, sunk(inner.args[0], names), over(inner), inner.params[1:])

    return change


def _free(body: Node, names: Mapping[str, str]) -> bool:
    """Whether only inputs and arithmetic carry the axes that are renamed, and none has a name that
    they are given."""
    return not set(names.values()) & set(body.axes) and all(
        n.op in POINTWISE or not n.args or not set(names) & {*n.axes, *over(n)}
        for n in postorder([body])
    )


RENAMED = node_rule(
    "compute under result names",
    "rename(sum_b x) = sum_b rename(x)",
    _change,
    ("nothing else reads the sum", "x carries none of the new names"),
    infinite=True,
)
