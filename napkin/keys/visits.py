"""Which chunks of a streamed axis a group must visit.

Where every reduction over the streamed axes has its identity outside one key set, only chunks with
a key of some query in them change a result: the loops visit the hull of each box of the set, and
drop the test where every query of the group sees the whole chunk. A key that lies in several boxes
is visited in each of them, for the queries that see it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from napkin.ir.infer import joined, pointwise, rebuilt
from napkin.ir.key_sets import Box, box_member, boxes_of, member, spec_of
from napkin.ir.node import REDUCTIONS, Node, in_kind, number, ones, over
from napkin.ir.rewrite import rewrite
from napkin.keys.residues import Split


@dataclass(frozen=True, eq=False)
class Visits:
    """The key set that governs every loop of a stream.

    Attributes:
        keys: its node, with every position of the axes that are streamed beside its own.
        boxes: its boxes, in the order in which they are visited.
        splits: the query axes that are places within a residue: some residues have one place fewer,
            so that their last group may have no query, and then it visits nothing.
        given: its node in the terms; by default `keys`.
        prefix: whether the first box begins at key 0 and is followed by others: these begin
            behind it, so that no key is visited twice on its account.
    """

    keys: Node
    boxes: tuple[Box, ...]
    splits: tuple[Split, ...] = ()
    given: Node | None = None

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that are visited: those beside, and the key axes in the key set's order."""
        return spec_of(self.keys).keys

    @property
    def own(self) -> Node:
        """The key set's node in the terms."""
        return self.given or self.keys

    @property
    def key_axes(self) -> tuple[str, ...]:
        """The key axes, in the key set's order."""
        return spec_of(self.own).keys

    @property
    def key_boxes(self) -> tuple[Box, ...]:
        """The boxes along these alone."""
        return boxes_of(self.own)

    @property
    def prefix(self) -> bool:
        if len(self.boxes) < 2 or len(self.axes) > 1:
            return False
        return self.boxes[0].intervals[0].first in (number(0), number(0.0))

    def test(self, box: int) -> Node:
        """What tells the keys apart that a visit of `box` must count, each once over all boxes."""
        if box == 0 and self.prefix:
            return member(self.own)
        inside = [box_member(b, self.key_axes) for b in self.key_boxes]
        earlier = inside[1 if self.prefix else 0 : box]
        return joined("and", [inside[box], *(pointwise("not", (b,)) for b in earlier)])

    def inside(
        self, terms: Iterable[Node], test: Node | None, but: Iterable[Node] = ()
    ) -> dict[Node, Node]:
        """`terms` with `test` for the key set, or without a test where all keys are seen; the nodes
        of `but` stay as they are."""

        def change(old: Node, args: tuple[Node, ...]) -> Node | None:
            if old is self.own:
                return number(True) if test is None else test
            if old.op == "where" and args[0] == number(True):
                return args[1]
            if old.op in REDUCTIONS and args[0] == number(True):  # how many keys, say
                return _of_all(old)
            lost = [a for a in over(old) if a not in args[0].axes] if old.op in REDUCTIONS else []
            return rebuilt(old, (_along(args[0], lost, old.op),)) if lost else None

        return rewrite(terms, change, {n: n for n in but})


def _along(x: Node, axes: Sequence[str], how: str) -> Node:
    """`x`, which is the same along `axes`, for a reduction along them."""
    every = pointwise("equal", (ones(tuple(axes)), number(1)))
    return pointwise("where", (every, x, number(in_kind(REDUCTIONS[how].identity, x.kind))))


def _of_all(reduction: Node) -> Node:
    """A reduction of a key set where it holds every lane."""
    axes = reduction.args[0].axes
    every = ones(axes) if reduction.op == "sum" else pointwise("equal", (ones(axes), number(1)))
    return rebuilt(reduction, (every,))
