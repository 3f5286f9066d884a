"""Scans: what a term holds that runs along a streamed axis and is emitted position by position.

A scan is a fold whose state is not only finished but seen at every position. Of a chunk it is the
scan of the chunk alone, joined with the state of all chunks before it:
scan(x (+) y) = scan(x) (+) (fold(x) o scan(y)), where o is the operation that is repeated. So a
running sum needs the state of a sum, and nothing else. What sorts has no such state.
"""

from __future__ import annotations

from typing import Protocol

from napkin.derive.fold import State
from napkin.ir.infer import along, pointwise
from napkin.ir.node import Node, over

CARRIED = frozenset({"cumsum"})
"""The scans of which a state says all that comes before."""


class Held(Protocol):
    """What a scan needs of the states that an axis is folded into."""

    names: dict[Node, str]

    def plain(self, f: Node, p: int) -> State: ...


def on_chunk(n: Node, alone: Node, p: int, folding: Held) -> Node:
    """The value of a scan on a chunk of pass `p`, from its value on the chunk alone."""
    total = along("sum", n.args[0], over(n))
    folding.names.setdefault(total, f"{folding.names.get(n, n.op)}_before")
    return pointwise("add", (folding.plain(total, p).leaf("old"), alone))
