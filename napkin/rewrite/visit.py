"""The key set that says which chunks of a stream a group visits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from napkin.algebra.fold import Stream
from napkin.algebra.known import Known, depends, vanishes
from napkin.algebra.rule import Instance, Rule, Sides
from napkin.algebra.terms import starting
from napkin.ir.infer import along, joined, pointwise
from napkin.ir.key_sets import boxes_of, spec_of, with_whole
from napkin.ir.node import REDUCTIONS, Node, factors, in_kind, number, over, postorder
from napkin.ir.rewrite import substitute
from napkin.ir.selecting import position
from napkin.ir.slotted import guard
from napkin.keys.residues import Split
from napkin.keys.visits import Visits


def visits(
    stream: Stream, splits: Sequence[Split] = (), added: Collection[str] = ()
) -> Visits | None:
    """The key set that governs a stream, if there is one."""
    return VISITED.first(stream, splits, added)


def _matches(
    stream: Stream, splits: Sequence[Split] = (), added: Collection[str] = ()
) -> Iterator[Instance]:
    """The key sets that govern a stream.

    A pass that stores something at each chunk must see every chunk, unless it stores what this key
    set sees, or adds to the outputs `added` and has 0 to add for other chunks; a scan goes over all
    of them. Every array that is read at the slots of a key set is read by all its queries, so that
    key set must be the one that governs. Of axes that are streamed beside those of the key set all
    chunks are visited.
    """
    if not stream.axes or any(n.op == "state" for n in postorder(e.node for e in stream.emits)):
        return
    emits = [e.node for e in stream.emits if e.output not in added]
    adds = [e.node for e in stream.emits if e.output in added]
    steps = [s.step for s in stream.states]
    folds = [f for step in steps for f in _along(step, stream)]
    order = list(postorder([*steps, *emits, *adds]))
    bound = {guard(n) if n.op == "scatter" else None for n in emits}
    bound |= {guard(n) for n in order if n.op == "input" and guard(n) is not None}
    sets = [n for n in order if n.op == "keys" and stream.carried(spec_of(n).keys)]
    for n in sorted(sets, key=lambda n: -len(spec_of(n).keys)):
        beside = [a for a in stream.axes if a not in spec_of(n).keys]
        if not {*spec_of(n).keys} <= {*stream.axes} or bound - {n} or (bound and beside):
            continue
        if not {*n.axes}.isdisjoint(beside):  # boxes are bounded by the queries of the group
            continue
        known: Known = {}
        keys = with_whole(n, beside)
        found = Visits(keys, boxes_of(keys), tuple(splits), n)
        once = len(found.boxes) - found.prefix < 2
        apart = all(vanishes(f, n, known) and (once or not _mixes(f.args[0], n)) for f in adds)
        if apart and all(
            vanishes(f, n, known) and (once or _adds_up(f.args[0], f.op, n)) for f in folds
        ):
            yield Instance(spec_of(n).text, found, partial(_sides, found, [*folds, *adds]))


def _along(n: Node, stream: Stream) -> list[Node]:
    """The reductions under `n` that work along a streamed axis."""
    return [m for m in postorder([n]) if m.op in REDUCTIONS and stream.carried(over(m))]


def _sides(seen: Visits, folds: Sequence[Node]) -> Sides:
    return folds, [_visited(seen, f) for f in folds]


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
    slots = [n for n in postorder([f]) if n.op == "input" and guard(n) is seen.own]
    each: list[Node] = []
    for test in tests:
        read = {n: pointwise("where", (test, n, number(in_kind(0.0, n.kind)))) for n in slots}
        found = seen.inside([f], test, slots)[f]
        each.append(substitute([found], read)[found])
    return joined(REDUCTIONS[f.op].combine, each)


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


VISITED = Rule(
    "visit boxes",
    "sum_x f(x) = sum_boxes sum_{x in the box, for queries that see it in none before} f(x)",
    _matches,
    (
        "f is what a sum begins with outside the set",
        "f adds up over queries, or boxes are apart",
        "nothing is scanned along x",
        "every position of other streamed axes is in a box, and none of these is of queries",
    ),
)
