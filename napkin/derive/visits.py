"""Which chunks of a streamed axis a group must visit.

Where every reduction over the streamed axes has its identity outside one key set, only chunks with
a key of some query in them change a result: the loops visit the hull of each box of the set, and
drop the test where every query of the group sees the whole chunk.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from napkin.derive.fold import Stream
from napkin.derive.known import Known, reductions_along, vanishes
from napkin.diagram.infer import pointwise
from napkin.diagram.keys.terms import Box, box_member, boxes_of, member, spec_of
from napkin.diagram.node import Node, number, postorder, rewrite


@dataclass(frozen=True, eq=False)
class Visits:
    """The key set that governs every loop of a stream.

    Attributes:
        keys: its node.
        boxes: its boxes, in the order in which they are visited.
        prefix: whether the first box begins at key 0 and is followed by others: these begin
            behind it, so that no key is visited twice on its account.
    """

    keys: Node
    boxes: tuple[Box, ...]

    @property
    def axes(self) -> tuple[str, ...]:
        """The key axes, in the key set's order."""
        return spec_of(self.keys).keys

    @property
    def prefix(self) -> bool:
        if len(self.boxes) < 2 or len(self.axes) > 1:
            return False
        return self.boxes[0].intervals[0].first in (number(0), number(0.0))

    def test(self, box: int) -> Node:
        """What tells the keys apart that a visit of `box` must count, each once over all boxes."""
        if box == 0:
            return member(self.keys) if self.prefix else box_member(self.boxes[0], self.axes)
        found = box_member(self.boxes[box], self.axes)
        for earlier in self.boxes[1 if self.prefix else 0 : box]:
            seen = pointwise("not", (box_member(earlier, self.axes),))
            found = pointwise("and", (found, seen))
        return found

    def inside(self, terms: Iterable[Node], test: Node | None) -> dict[Node, Node]:
        """`terms` with `test` for the key set, or without a test where all keys are seen."""

        def change(old: Node, args: tuple[Node, ...]) -> Node | None:
            if old is self.keys:
                return number(True) if test is None else test
            if old.op == "where" and args[0] == number(True):
                return args[1]
            return None

        return rewrite(terms, change)


def visits(stream: Stream) -> Visits | None:
    """The key set that governs a stream, if there is one.

    A pass that stores something at each chunk must see every chunk.
    """
    if not stream.axes or any(p.emits for p in stream.passes):
        return None
    steps = [s.step for p in stream.passes for s in p.states]
    folds = [f for step in steps for f in reductions_along(step, set(stream.axes))]
    for n in postorder(steps):
        if n.op != "keys" or set(spec_of(n).keys) != set(stream.axes):
            continue
        known: Known = {}
        if all(vanishes(f, n, known) for f in folds):
            return Visits(n, boxes_of(n))
    return None
