"""Key sets seen from their keys, where queries are streamed: the loop visits those that see a key
of the tile."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.algebra.rule import Change, node_rule
from napkin.ir.key_sets import spec_of
from napkin.ir.node import Node, postorder
from napkin.ir.slotted import guard
from napkin.keys.transposed import transposed


def _change(roots: Sequence[Node], streamed: Sequence[str]) -> Change:
    order = list(postorder(roots))
    slotted = {n.args[1] for n in order if n.op in {"compress", "spread"}}
    slotted |= {keys for n in order if (keys := guard(n)) is not None}

    def change(old: Node, args: tuple[Node, ...]) -> Node | None:
        if old.op != "keys" or not streamed or set(spec_of(old).keys) & set(streamed):
            return None
        if old in slotted:  # it says in which slot a query's key lies
            return None
        own = [a for a in streamed if a in old.axes]
        return transposed(old, own) if own else None

    return change


SEEN = node_rule(
    "see from keys",
    "x in keys(q) = q in queries(x)",
    _change,
    (
        "the bounds rise with the query",
        "queries are streamed, and keys are not",
        "no array is stored in slots of the keys",
    ),
    infinite=True,
)
