"""Linear recurrences on a chunk by pairs of its positions: a state that is only read in products is
never formed at every position.

h_t = a_t h_(t-1) + b_t is a sum over the positions of a chunk and the state h before it:
h_t = (a_1 .. a_t) h + sum_(s <= t) (a_(s+1) .. a_t) b_s. Where b is a product and h_t is read by a
sum of products, the sums change places: of queries and keys a number for each pair of positions is
left, as in attention (arXiv 2312.06635, section 4; arXiv 2405.21060, section 6). So matrix products
do what the recurrence of all numbers of the state did. No gate is divided by another one: the
weights of pairs are exponentials of differences of sums of logarithms, or where a gate may be
negative or the digits of float32 are wanted, a recurrence of the unit matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from napkin.algebra.fold import Twin
from napkin.algebra.relabel import listed
from napkin.algebra.rule import Instance, Rule, one_node
from napkin.algebra.signs import sign
from napkin.algebra.terms import carrying
from napkin.ir.infer import along, joined, pointwise, recurrence, renamed
from napkin.ir.node import SCANS, Node, factors, number, over, readers
from napkin.ir.selecting import end_of, first_of, position, where_all

NOTHING = -104.0
"""The logarithm of a gate of which float32 has no exponential: that of 0 is taken for it."""

LINEAR = frozenset({"cumsum", "recurrence"})
"""Scans whose state is linear in the one before."""


@dataclass(frozen=True, eq=False)
class Scanned:
    """A linear scan on a chunk.

    Attributes:
        value: the states of all positions.
        a: what a state is multiplied by; None where it is 1.
        b: what is added: a product, or a sum of products.
        old: the state before the chunk.
    """

    value: Node
    a: Node | None
    b: Node
    old: Node


def read_by_sums(order: Sequence[Node], roots: Iterable[Node], axis: str) -> dict[Node, Node]:
    """The sums of products that read a scan along an axis, where nothing else reads it; with the
    scan of each."""
    read_by, found = readers(order), dict[Node, Node]()
    for n in order:
        if n.op in SCANS and over(n) == (axis,):
            sums = list(_sums(n, read_by, {*roots}))
            if sums and all(c is not None and _reads(c, n, axis) for c in sums):
                found |= {c: n for c in sums if c is not None}
    return found


def adds_products(n: Node) -> bool:
    """Whether a linear scan adds up products of arrays that each lack an axis of the state, as its
    decay does."""
    if n.op not in LINEAR or n.kind != "real":  # whole numbers wrap
        return False
    parts = factors(n.args[-1])
    return len(parts) > 1 and smaller(n, [p.axes for p in (*parts, *n.args[:-1])])


def smaller(n: Node, parts: Iterable[Sequence[str]]) -> bool:
    """Whether arrays with these axes each lack an axis of the state of a scan."""
    state = {*n.axes} - {*over(n)}
    return bool(state) and not any(state <= {*axes} for axes in parts)


def _sums(
    n: Node, read_by: Mapping[Node, Iterable[Node]], roots: set[Node]
) -> Iterator[Node | None]:
    """The sums that read a term, of products; None for what reads it otherwise."""
    if n in roots:
        yield None
    for m in read_by.get(n, ()):
        if m.op == "sum":
            yield m
        elif m.op == "mul" and m.args[0] is not m.args[1]:
            yield from _sums(m, read_by, roots)
        else:
            yield None


def _reads(c: Node, n: Node, axis: str) -> bool:
    parts = factors(c.args[0])
    return axis not in over(c) and {*over(c)} < {*n.axes} and parts.count(n) == 1


# --- the terms ------------------------------------------------------------------------------


def later(x: Node, twin: Twin) -> Node:
    """An array at the later position of a pair."""
    return renamed(x, [(twin.axis, twin.name)])


def weights(s: Scanned, twin: Twin, before: bool = False) -> Node:
    """What is left at the later position of a pair of what comes in at the earlier one. With
    `before`, the later position's own gate does not count; gates are then to have logarithms."""
    here = position(twin.axis)
    seen = pointwise("greater" if before else "greater_equal", (later(here, twin), here))
    if s.a is None:
        return pointwise("where", (seen, number(1.0), number(0.0)))
    if (logs := _logarithms(s.a, twin)) is not None:
        total, end = _totals(logs, twin, before)
        left = pointwise("exp", (pointwise("sub", (later(end, twin), total)),))
        return pointwise("where", (seen, left, number(0.0)))
    assert not before
    same = pointwise("equal", (later(here, twin), here))
    unit = pointwise("where", (same, number(1.0), number(0.0)))
    return recurrence(later(s.a, twin), unit, twin.name)


def kept(s: Scanned, twin: Twin, before: bool = False) -> list[Node]:
    """What is left, at a later position, of the state before the chunk; nothing where it is 1.
    `before` as in `weights`."""
    if s.a is None:
        return []
    if (logs := _logarithms(s.a, twin)) is not None:
        _, end = _totals(logs, twin, before)
        return [later(pointwise("exp", (end,)), twin)]
    assert not before
    first = pointwise("equal", (later(position(twin.axis), twin), first_of(twin.axis)))
    a = later(s.a, twin)
    return [recurrence(a, pointwise("where", (first, a, number(0.0))), twin.name)]


def _totals(logs: Node, twin: Twin, before: bool) -> tuple[Node, Node]:
    """The sums of the logarithms of gates up to each position, and those up to the one before."""
    total = along("cumsum", logs, (twin.axis,))
    return total, pointwise("sub", (total, logs)) if before else total


def has_logarithms(a: Node | None) -> bool:
    """Whether a gate is never negative."""
    return a is None or sign(a) in {"positive", "nonnegative"}


def _logarithms(a: Node, twin: Twin) -> Node | None:
    """Of a gate that is never negative its logarithm, sums of which say the weight of a pair where
    the gate itself would be divided; None of another. After gates near 0 these sums lose digits
    that 16 bits have not, and float32 has."""
    if not twin.rounded or not has_logarithms(a):
        return None
    return pointwise("maximum", (pointwise("log", (carrying(a, (twin.axis,)),)), number(NOTHING)))


def _after(s: Scanned, twin: Twin) -> tuple[Node, Node]:
    """What is left at the end of a chunk of the state before it, and of what comes in."""
    assert s.a is not None
    if (logs := _logarithms(s.a, twin)) is not None:
        every = along("sum", logs, (twin.axis,))
        since = pointwise("sub", (every, along("cumsum", logs, (twin.axis,))))
        return pointwise("exp", (every,)), pointwise("exp", (since,))
    ends = pointwise("equal", (later(position(twin.axis), twin), end_of(twin.axis)))
    left = along("sum", where_all([ends], weights(s, twin), 0.0), (twin.name,))
    return along("prod", carrying(s.a, (twin.axis,)), (twin.axis,)), left


def _read(c: Node, s: Scanned, others: Sequence[Node], twin: Twin) -> Node:
    """A sum of products of `others` and the states, by pairs."""
    queries = [later(p, twin) for p in others]
    before = along("sum", joined("mul", [*queries, *kept(s, twin), s.old]), over(c))
    inside = (by_scores([*queries, weights(s, twin), *b], over(c), twin) for b in _products(s.b))
    return renamed(joined("add", [before, *inside]), [(twin.name, twin.axis)])


def by_scores(parts: Sequence[Node], gone: Sequence[str], twin: Twin) -> Node:
    """A sum of products along some axes and the earlier position of pairs: along these axes first,
    so that a number for each pair of positions is left."""
    inner = [p for p in parts if not {*gone}.isdisjoint(p.axes)]
    rest = [p for p in parts if p not in inner]
    scores = along("sum", joined("mul", inner), tuple(gone))
    return along("sum", carrying(joined("mul", [scores, *rest]), (twin.axis,)), (twin.axis,))


def _products(b: Node) -> list[tuple[Node, ...]]:
    """The products that are added at a position, by their factors."""
    return [factors(x) for x in factors(b, by="add")]


def _last(s: Scanned, twin: Twin) -> Node:
    """The state after the chunk."""
    if s.a is None:
        fed = (joined("mul", b) for b in _products(s.b))
        fed = (along("sum", carrying(x, (twin.axis,)), (twin.axis,)) for x in fed)
        return joined("add", [s.old, *fed])
    decay, left = _after(s, twin)
    fed = (along("sum", joined("mul", [left, *b]), (twin.axis,)) for b in _products(s.b))
    return joined("add", [pointwise("mul", (decay, s.old)), *fed])


# --- the rule -------------------------------------------------------------------------------


def _matches(n: Node, s: Scanned, twin: Twin) -> Iterator[Instance]:
    """A sum that reads the states of a chunk, or that finds the last of them, by pairs."""
    if n.op != "sum":
        return
    if over(n) == (twin.axis,):
        made = _last(s, twin)
    else:
        made = _read(n, s, [p for p in factors(n.args[0]) if p is not s.value], twin)
    yield one_node(n, made, {twin.name: twin.axis})


PAIRED = Rule(
    "pair",
    "h_t = (a_1 .. a_t) h_0 + sum_(s <= t) (a_(s+1) .. a_t) b_s, where h_t = a_t h_(t-1) + b_t",
    _matches,
    (
        "states are read by sums of products alone",
        "b is a product of arrays that each lack an axis of the state, as a does",
    ),
    relabel=listed("pair", lambda m: (m.argument, m.value)),
)
