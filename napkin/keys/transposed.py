"""A key set seen from its keys: which queries see each key, as boxes over the query axes.

A kernel that streams queries visits those that its keys are seen by. Near borders this is not the
mirrored window: of 7 tokens with windows of 3, query 0 sees key 2, and query 2 does not see key 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from napkin.ir.infer import pointwise, union_axes
from napkin.ir.key_sets import Box, Interval, Spec, boxes_of, keys_node, spec_of
from napkin.ir.linear import linear, summed, whole_number
from napkin.ir.node import Node, number
from napkin.ir.selecting import position
from napkin.ir.whole_numbers import greater, length, lesser, over, plus, times


def transposed(keys: Node, queries: Sequence[str]) -> Node | None:
    """The same pairs as a key set over `queries`, which are as many as the key axes; None where
    the bounds are none that can be solved for the query: they rise with it, by sums, multiples,
    whole quotients, maxima and minima."""
    spec, boxes = spec_of(keys), list[Box]()
    if len(queries) != len(spec.keys):
        return None
    for box in boxes_of(keys):
        found = _box(box, spec.keys, queries)
        if found is None:
            return None
        boxes.append(found)
    tied = tuple((x, q) for q, x in spec.tied)
    steps = ((1,) * len(queries),) * len(boxes)
    text = f"{spec.text} seen from {' '.join(spec.keys)}"
    return keys_node(boxes, Spec(tuple(queries), steps, tied, spec.needs, text))


def _box(box: Box, keys: Sequence[str], queries: Sequence[str]) -> Box | None:
    """The queries of a box: each key axis is solved for a query axis of its own."""
    found: dict[str, Interval] = {}
    for x, i in zip(keys, box.intervals, strict=True):
        uses = [q for q in queries if q in union_axes((i.first, i.end))]
        free = [q for q in queries if q not in found and q in (uses or queries)]
        seen = _interval(i, x, free[0]) if free and len(uses) < 2 else None
        if seen is None:
            return None
        found[free[0]] = seen
    return Box(tuple(found[q] for q in queries))


def _interval(i: Interval, key: str, query: str) -> Interval | None:
    """The queries whose interval has a key."""
    if i.step > 1:
        return None
    x = position(key)
    # first(q) <= x for all queries before one, and end(q) <= x for all before another.
    past, first = _before(i.first, x, query), _before(i.end, x, query)
    if past is None or first is None:
        return None
    return Interval(greater(first, number(0)), lesser(past, length(query)))


def _before(t: Node, c: Node, query: str) -> Node | None:
    """The query before which all have t <= c, and no other has."""
    if query not in t.axes:
        if _never_less(c, t):
            return length(query)
        every = pointwise("less_equal", (t, c))
        return pointwise("where", (every, length(query), number(0)))
    if t.op == "index":
        return plus(c, 1)
    if t.op in {"maximum", "minimum"}:
        each = [_before(a, c, query) for a in t.args]
        known = [u for u in each if u is not None]
        if len(known) < 2:
            return None
        return (lesser if t.op == "maximum" else greater)(*known)
    if t.op == "floordiv" and (step := whole_number(t.args[1])) is not None:
        return _before(t.args[0], plus(times(c, step), step - 1), query) if step > 0 else None
    form = linear(t)
    moving = [u for u in form if u is not None and query in u.axes]
    if len(moving) != 1 or moving[0] is t or form[moving[0]] < 1:
        return None
    (u,) = moving
    rest = linear(c)
    for v, f in form.items():
        if v is not u:
            rest[v] = rest.get(v, 0) - f
    left = summed({v: f for v, f in rest.items() if f})
    return _before(u, over(left, form[u]), query)


def _never_less(c: Node, t: Node) -> bool:
    """Whether c >= t as positions and sizes are none below 0."""
    form = linear(pointwise("sub", (c, t)))
    known = all(u is None or u.op in {"index", "size"} for u in form)
    return known and all(f >= 0 for f in form.values())
