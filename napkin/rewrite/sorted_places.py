"""Additions at places, in the order of the places.

In sum_t [P(t) = v] x(t) each v takes its own positions t, and all v together take no t twice. Once
positions are in the order of their places, those of one v lie beside each other: a key set says
where, and every x is read once. Without it every v tests every t. This is how the gradient of a
table is found from those of the rows that were looked up in it.

How many positions come before one is counted, by a test of each pair of positions. In the ordered
places each v is searched by halves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from napkin.algebra.rule import Instance, Rule, one_node
from napkin.ir.added_at import AddedAt, added_at
from napkin.ir.expansion import sunk
from napkin.ir.infer import along, joined, pointwise, rebuilt
from napkin.ir.key_sets import Box, Interval, Spec, keys_node
from napkin.ir.names import numbered
from napkin.ir.node import REDUCTIONS, SCANS, Node, node, number, over, postorder, union_axes
from napkin.ir.operators import POINTWISE
from napkin.ir.selecting import position, where_all
from napkin.ir.slotted import guard
from napkin.ir.taking import Taken, own_axes, take, taken_of
from napkin.ir.whole_numbers import length, plus
from napkin.ir.windows import Span

BITS = 31
"""Bits of a number of positions, an int32."""


def _matches(terms: Sequence[Node], sizes: Mapping[str, int]) -> Iterator[Instance]:
    """The additions whose positions can be put in the order of their places."""
    order = list(postorder(terms))
    taken = {*sizes, *(a for n in order for a in n.axes)}
    for n in order:
        if (s := added_at(n)) is None:
            continue
        found = union_axes(s.places.values())
        axes = tuple(a for a in over(n) if a in found)
        if axes and (made := _in_order(n, s, axes, names := _names(axes, taken))) is not None:
            new = (a for a in names if a not in axes)
            yield one_node(n, made, dict.fromkeys(new, " ".join(axes)))


SORTED = Rule(
    "sort places",
    "sum_t [P(t) = v] x(t) = sum_{i in first(v) .. end(v)} x(order(i)), "
    "where P(order(i)) rises with i",
    _matches,
    ("places are read from an input", "neither P nor x carries v"),
    infinite=True,
    alternative=True,
)


def _names(axes: tuple[str, ...], taken: Collection[str]) -> tuple[str, str, str]:
    """The axis of all positions along some axes, the same for a second position, and that of
    positions in order."""
    every = "_".join(axes)
    one = axes[0] if len(axes) == 1 else numbered(every, taken)
    return one, numbered(f"{every}_other", taken), numbered(f"{every}_in_order", taken)


def _in_order(
    n: Node, s: AddedAt, axes: tuple[str, ...], names: tuple[str, str, str]
) -> Node | None:
    """An addition of positions along some axes in the order of their places; None where an array
    would be read elsewhere that no kernel stores."""
    lengths, (one, other, own) = [length(a) for a in axes], names

    def at(terms: Iterable[Node], flat: Node) -> list[Node]:
        to = dict(zip(axes, _unflattened(flat, lengths), strict=True))
        return [x for x in (_moved(x, to) for x in terms) if x is not None]

    here, there = (at(s.places.values(), position(a)) for a in (one, other))
    if len(here) < len(s.places) or len(there) < len(s.places):
        return None
    ahead = _before([*there, position(other)], [*here, position(one)])
    rank = along("sum", where_all([ahead], number(1), 0), (other,))
    ordered = pointwise("equal", (rank, position(own)))
    order = along("sum", where_all([ordered], position(one), 0), (one,))
    moved = at((s.value, *s.places.values()), order)
    if len(moved) <= len(s.places):
        return None
    value, *places = moved
    count, wanted = joined("mul", lengths), [position(v) for v in s.places]
    first, end = (_searched(places, own, count, wanted, last) for last in ("less", "less_equal"))
    spec = Spec((own,), ((1,),), (), (), f"places({' '.join(s.places)})")
    seen = keys_node([Box((Interval(first, end),))], spec)
    left = tuple(a for a in over(n) if a not in axes)
    return along("sum", where_all([seen], value, 0.0), (own, *left), n.params[1:])


def _unflattened(flat: Node, lengths: Sequence[Node]) -> list[Node]:
    """A position along several axes as one along each, the last one fastest."""
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
        own = {a: p for a, p in to.items() if a in n.axes and p is not position(a)}
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
