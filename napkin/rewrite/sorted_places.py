"""Scatters in the order of their places: sums under a test of one place for each position.

In sum_t [P(t) = v] x(t) each v takes its own positions t, and all v together take no t twice. Once
positions are in the order of their places, those of one v lie beside each other: a key set says
where, and every x is read once. Without it every v tests every t. This is how the gradient of a
table is found from those of the rows that were looked up in it.

How many positions come before one is counted, by a test of each pair of positions. In the ordered
places each v is searched by halves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from napkin.algebra.rule import Instance, Rule, one_node
from napkin.ir.expansion import sunk
from napkin.ir.infer import along, joined, pointwise, rebuilt
from napkin.ir.key_sets import Box, Interval, Spec, keys_node
from napkin.ir.names import numbered
from napkin.ir.node import (
    REDUCTIONS,
    SCANS,
    Node,
    factors,
    node,
    number,
    over,
    postorder,
    union_axes,
)
from napkin.ir.operators import POINTWISE
from napkin.ir.selecting import position, where_all
from napkin.ir.slotted import guard
from napkin.ir.taking import Taken, own_axes, take, taken_of
from napkin.ir.whole_numbers import length, plus
from napkin.ir.windows import Span

BITS = 31
"""Bits of a number of positions, an int32."""


@dataclass(frozen=True)
class _Scatter:
    """A sum under tests of places.

    Attributes:
        n: the sum.
        axes: those of its axes along which places differ.
        places: the place of each position along some axes of the result, by these axes.
        value: what is added there.
    """

    n: Node
    axes: tuple[str, ...]
    places: Mapping[str, Node]
    value: Node


def _matches(terms: Sequence[Node], sizes: Mapping[str, int]) -> Iterator[Instance]:
    """The sums under tests of places."""
    order = list(postorder(terms))
    taken = {*sizes, *(a for n in order for a in n.axes)}
    for n in order:
        if (s := _scatter(n)) is not None:
            own = numbered("_".join((*s.axes, "in_order")), taken)
            others = {a: numbered(f"{a}_other", taken) for a in s.axes}
            made = _in_order(s, own, others)
            if made is not None:
                same_size = {own: " ".join(s.axes), **{new: a for a, new in others.items()}}
                yield one_node(n, made, same_size)


SORTED = Rule(
    "sort places",
    "sum_t [P(t) = v] x(t) = sum_{i in first(v) .. end(v)} x(order(i)), "
    "where P(order(i)) rises with i",
    _matches,
    ("places are read from an input", "neither P nor x carries v"),
    infinite=True,
    alternative=True,
)


def _scatter(n: Node) -> _Scatter | None:
    """A sum as one under tests of places; None of another."""
    if n.op != "sum" or n.kind != "real":
        return None
    places, others, value = dict[str, Node](), list[Node](), n.args[0]
    while value.op == "where" and value.args[2] is number(0.0):
        for test in factors(value.args[0], by="and"):
            onto, at = _place(test) or ("", test)
            if onto in n.axes and onto not in places:
                places[onto] = at
            else:
                others.append(test)
        value = value.args[1]
    value = where_all(others, value, 0.0)
    found = union_axes(places.values())
    axes = tuple(a for a in over(n) if a in found)
    if not axes or not places.keys().isdisjoint((*value.axes, *found)):
        return None
    return _Scatter(n, axes, places, value)


def _place(test: Node) -> tuple[str, Node] | None:
    """The axis and the places on it that a test compares, where those are read from an input."""
    if test.op == "equal":
        for v, at in (test.args, test.args[::-1]):
            if v.op == "index" and any(m.op == "input" for m in postorder([at])):
                return v.axes[0], at
    return None


def _in_order(s: _Scatter, own: str, others: Mapping[str, str]) -> Node | None:
    """The sum over positions in the order of their places; None where an array would be read
    elsewhere that no kernel stores."""
    lengths = [length(a) for a in s.axes]
    flat = _flat([position(a) for a in s.axes], lengths)
    here = [*s.places.values(), flat]
    beside = {a: position(new) for a, new in others.items()}
    there = [x for x in (_moved(x, beside) for x in here) if x is not None]
    if len(there) < len(here):
        return None
    rank = _sum(_before(there, here), number(1), tuple(others.values()))
    order = _sum(pointwise("equal", (rank, position(own))), flat, s.axes)

    to = dict(zip(s.axes, _unflattened(order, lengths), strict=True))
    value, *places = (_moved(x, to) for x in (s.value, *s.places.values()))
    found = [x for x in places if x is not None]
    if value is None or len(found) < len(places):
        return None
    count, wanted = joined("mul", lengths), [position(v) for v in s.places]
    first, end = (_searched(found, own, count, wanted, last) for last in ("less", "less_equal"))
    spec = Spec((own,), ((1,),), (), (), f"places({' '.join(s.places)})")
    seen = keys_node([Box((Interval(first, end),))], spec)
    left = tuple(a for a in over(s.n) if a not in s.axes)
    return along("sum", where_all([seen], value, 0.0), (own, *left), s.n.params[1:])


def _flat(positions: Sequence[Node], lengths: Sequence[Node]) -> Node:
    """Positions along axes as one along all of them, the last one fastest."""
    found = positions[0]
    for x, n in zip(positions[1:], lengths[1:], strict=True):
        found = pointwise("add", (pointwise("mul", (found, n)), x))
    return found


def _unflattened(flat: Node, lengths: Sequence[Node]) -> list[Node]:
    """The inverse of `_flat`."""
    found = list[Node]()
    for n in reversed(lengths[1:]):
        found.insert(0, pointwise("mod", (flat, n)))
        flat = pointwise("floordiv", (flat, n))
    return [flat, *found]


def _before(a: Sequence[Node], b: Sequence[Node], last: str = "less") -> Node:
    """Whether numbers come before others by the first that differs; `last` compares the last."""
    *first, final = zip(a, b, strict=True)
    found = pointwise(last, final)
    for pair in reversed(first):
        found = pointwise("and", (pointwise("equal", pair), found))
        found = pointwise("or", (pointwise("less", pair), found))
    return found


def _sum(test: Node, x: Node, axes: tuple[str, ...]) -> Node:
    """The sum of numbers where a test holds."""
    return along("sum", where_all([test], x, 0), axes)


def _searched(
    places: Sequence[Node], axis: str, count: Node, wanted: Sequence[Node], last: str
) -> Node:
    """How many of the `count` places in order come before those that are `wanted`, by halves."""
    found = number(0)
    for bit in reversed(range(BITS)):
        tried = plus(found, 2**bit)
        tried_last = plus(tried, -1)  # a take clamps it
        passed = _before([take(x, (tried_last,), (axis,)) for x in places], wanted, last)
        passed = pointwise("and", (pointwise("less_equal", (tried, count)), passed))
        found = pointwise("where", (passed, tried, found))
    return found


def _moved(x: Node, to: Mapping[str, Node]) -> Node | None:
    """A term at other positions along some axes, of which what it is computed from is read there;
    None where that is no array in memory."""
    done: dict[Node, Node] = {}
    for n in postorder([x], {n for n in postorder([x]) if n.op not in POINTWISE}):
        own = {a: p for a, p in to.items() if a in n.axes}
        arithmetic = n.op in POINTWISE or not own
        new = rebuilt(n, tuple(done[a] for a in n.args)) if own and arithmetic else n
        new = new if arithmetic else _read(n, own)
        if new is None:
            return None
        done[n] = new
    return done[x]


def _read(n: Node, to: Mapping[str, Node]) -> Node | None:
    """What is no arithmetic at other positions."""
    if n.op == "index":
        return to[n.axes[0]]
    if n.op not in {"input", *REDUCTIONS, *SCANS} or guard(n) is not None:
        return None
    if all(p.op == "index" for p in to.values()):
        return sunk(n, tuple((a, p.axes[0]) for a, p in to.items()))
    if n.op != "input":
        return take(n, tuple(to.values()), tuple(to))
    taken = taken_of(n) or Taken(n.axes, ())
    under, positions, spans = list[str | int](), list[Node](), list[Span | None]()
    for u in taken.under:
        at = to.get(u) if isinstance(u, str) else _moved(n.args[u], to)
        span = None if isinstance(u, str) else taken.spans[u]
        if at is None and isinstance(u, str):
            under.append(u)
            continue
        if at is None or (span is not None and at not in n.args):
            return None
        under.append(len(positions))
        positions.append(at)
        spans.append(span)
    every = ((u,) if isinstance(u, str) else positions[u].axes for u in under)
    axes = dict.fromkeys(a for own in every for a in own)
    params = (n.params[0], own_axes(n), Taken(tuple(under), tuple(spans)))
    return node("input", positions, params, axes, n.kind)
