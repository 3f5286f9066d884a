"""Which chunks of a streamed axis a group must visit.

Where every reduction over the streamed axes has its identity outside one key set, only chunks with
a key of some query in them change a result: the loops visit the hull of each box of the set, and
drop the test where every query of the group sees the whole chunk. A key that lies in several boxes
is visited in each of them, for the queries that see it there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from napkin.derive.fold import Stream
from napkin.derive.known import Known, depends, reductions_along, vanishes
from napkin.derive.residues import Split
from napkin.derive.rules.rule import Rule, verified, verifying
from napkin.derive.terms import combined, starting
from napkin.diagram.infer import along, pointwise, rebuilt
from napkin.diagram.keys.slots import guard
from napkin.diagram.keys.terms import Box, box_member, boxes_of, member, position, spec_of
from napkin.diagram.node import (
    REDUCTIONS,
    Node,
    factors,
    in_kind,
    node,
    number,
    over,
    postorder,
    rewrite,
    substitute,
)

VISITED = Rule(
    "visit boxes",
    "sum_x f(x) = sum_boxes sum_{x in the box, for queries that see it in none before} f(x)",
    ("f is what a sum begins with outside the set", "f adds up over queries, or boxes are apart"),
)


@dataclass(frozen=True, eq=False)
class Visits:
    """The key set that governs every loop of a stream.

    Attributes:
        keys: its node.
        boxes: its boxes, in the order in which they are visited.
        splits: the grouped axes that are places within a residue: the last group of some residues
            may have no query, and then it visits nothing.
        prefix: whether the first box begins at key 0 and is followed by others: these begin
            behind it, so that no key is visited twice on its account.
    """

    keys: Node
    boxes: tuple[Box, ...]
    splits: tuple[Split, ...] = ()

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

    def inside(
        self, terms: Iterable[Node], test: Node | None, but: Iterable[Node] = ()
    ) -> dict[Node, Node]:
        """`terms` with `test` for the key set, or without a test where all keys are seen; the nodes
        of `but` stay as they are."""

        def change(old: Node, args: tuple[Node, ...]) -> Node | None:
            if old is self.keys:
                return number(True) if test is None else test
            if old.op == "where" and args[0] == number(True):
                return args[1]
            if old.op in REDUCTIONS and args[0] == number(True):  # how many keys, say
                return _of_all(old)
            return None

        return rewrite(terms, change, {n: n for n in but})


def _of_all(reduction: Node) -> Node:
    """A reduction of a key set where it holds every lane."""
    axes = reduction.args[0].axes
    ones = node("ones", params=(axes,), axes=axes, kind="int")
    every = ones if reduction.op == "sum" else pointwise("equal", (ones, number(1)))
    return rebuilt(reduction, (every,))


def visits(stream: Stream, splits: Sequence[Split] = ()) -> Visits | None:
    """The key set that governs a stream, if there is one.

    A pass that stores something at each chunk must see every chunk, unless it stores what this key
    set sees. Every array that is read at the slots of a key set is read by all its queries, so
    that key set must be the one that governs.
    """
    if not stream.axes:
        return None
    emits = [e.node for p in stream.passes for e in p.emits]
    steps = [s.step for p in stream.passes for s in p.states]
    folds = [f for step in steps for f in reductions_along(step, set(stream.axes))]
    order = list(postorder([*steps, *emits]))
    bound = {guard(n) if n.op == "scatter" else None for n in emits}
    bound |= {guard(n) for n in order if n.op == "input" and guard(n) is not None}
    for n in order:
        if n.op != "keys" or set(spec_of(n).keys) != set(stream.axes) or bound - {n}:
            continue
        known: Known = {}
        found = Visits(n, boxes_of(n), tuple(splits))
        once = len(found.boxes) - found.prefix < 2
        if all(vanishes(f, n, known) and (once or _adds_up(f.args[0], f.op, n)) for f in folds):
            verified(VISITED, folds, [_visited(found, f) for f in folds] if verifying() else folds)
            return found
    return None


def _visited(seen: Visits, f: Node) -> Node:
    """A reduction over the keys of a set as visits of its boxes find it, one after another, by one
    group of all queries."""
    tests = [seen.test(i) for i in range(len(seen.boxes))]
    if seen.prefix:
        (axis,), end = seen.axes, seen.boxes[0].intervals[0].end
        past = along("max", end, end.axes, starting("max")) if end.axes else end
        before = pointwise("less", (position(axis), past))
        inside = [before, *[pointwise("not", (before,))] * (len(tests) - 1)]
        tests = [pointwise("and", pair) for pair in zip(tests, inside, strict=True)]
    slots = [n for n in postorder([f]) if n.op == "input" and guard(n) is seen.keys]
    each: list[Node] = []
    for test in tests:
        read = {n: pointwise("where", (test, n, number(in_kind(0.0, n.kind)))) for n in slots}
        found = seen.inside([f], test, slots)[f]
        each.append(substitute([found], read)[found])
    return functools.reduce(lambda a, b: combined(f.op, a, b), each)


def _adds_up(body: Node, op: str, keys: Node) -> bool:
    """Whether a key may be visited again for queries that see it in another box: `op` of what each
    visit makes of it is what all queries together make of it."""
    if not depends(body, keys):
        return True
    if body.op == op and body.op in REDUCTIONS:
        return _adds_up(body.args[0], op, keys)
    if op == "sum" and body.op == "mul":
        inner = [p for p in factors(body) if depends(p, keys)]
        if len(inner) == 1 and inner[0] is not body:
            return _adds_up(inner[0], op, keys)
    return not _mixes(body, keys)


def _mixes(body: Node, keys: Node) -> bool:
    """Whether a term takes queries of a key set together."""
    mixing = [n for n in postorder([body]) if set(over(n)) & set(keys.axes)]
    return any(depends(n, keys) for n in mixing)
