"""Contractions in another order: one of several factors as a tree of smaller ones.

sum_{x d} A B C = sum_d A (sum_x B C), where A does not carry x: products distribute over sums, and
sums over maxima. The contractions inside a contraction are opened first, so (Q K^T) V and Q (K^T V)
are two orders of one. An order says which subsets of the factors are reduced before the others,
along the axes that neither another factor nor the result carries. Multiplications and stored values
rank the orders of a subset by those of its halves; the planner prices the least of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce

from napkin.algebra.rule import Instance, Rule, one_node
from napkin.algebra.terms import narrow_type, starting
from napkin.algebra.tracer import active
from napkin.ir.expansion import sunk
from napkin.ir.infer import along, joined, pointwise
from napkin.ir.listing import text
from napkin.ir.names import numbered, with_named
from napkin.ir.node import (
    REDUCTIONS,
    Node,
    factors,
    inside_sums,
    number,
    over,
    postorder,
    union_axes,
)
from napkin.ir.whole_numbers import length

ORDERS = 4
"""Orders of a contraction, and of each subset of its factors, that are kept."""

SEARCHED = 8
"""Factors of which every subset is looked at; of more, the smallest pairs are joined first."""

STORED = 512
"""Multiplications in the time that memory takes to store a value and to read it again: 990 TFLOP/s
in bf16 and 3.35 TB/s (H100 data sheet), at 4 bytes for both, to a power of two."""

FAR = 16
"""Times the least cost beyond which an order is left: matrix instructions multiply 15 times as fast
as others (H100: 495 to 33.5 tera-multiplications a second)."""

REMEMBERED = 512
"""Contractions whose orders are remembered: terms that are tried share most of theirs."""

Sizes = Mapping[str, int]


@dataclass(frozen=True, eq=False)
class _Order:
    """An order of a subset of factors.

    Attributes:
        bits: which factors, as bits.
        parts: what is left of them as factors, each after the place of its first one.
        cost: multiplications so far, and `STORED` for each value between.
        inner: the subsets that are reduced by themselves.
    """

    bits: int
    parts: tuple[tuple[int, Node], ...]
    cost: float = 0.0
    inner: frozenset[int] = frozenset()

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The axes of the product of its parts."""
        return union_axes(p for _, p in self.parts)

    @cached_property
    def carried(self) -> frozenset[str]:
        """The same, in no order."""
        return frozenset(self.axes)

    def times(self, sizes: Sizes, *others: _Order) -> _Order:
        """The product with an order of other factors; with several, as though all were multiplied
        at once."""
        every = (self, *others)
        axes = frozenset[str]().union(*(o.carried for o in every))
        multiplied = math.prod(sizes[a] for a in axes)
        return _Order(
            sum(o.bits for o in every),
            tuple(sorted((p for o in every for p in o.parts), key=lambda p: p[0])),
            sum(o.cost for o in every) + multiplied,
            frozenset[int]().union(*(o.inner for o in every)),
        )


@dataclass(frozen=True, eq=False)
class _Factor:
    """A factor of an opened contraction, and axes with the sizes of those along which it was summed
    there."""

    node: Node
    around: tuple[str, ...]

    def of_something(self) -> Node:
        """The factor where these sums have something to sum, else 1."""
        empty = [pointwise("equal", (length(a), number(0))) for a in dict.fromkeys(self.around)]
        nothing = reduce(lambda a, b: pointwise("or", (a, b)), empty)
        return pointwise("where", (nothing, number(1.0), self.node))


def _matches(terms: Sequence[Node], sizes: Sizes) -> Iterator[Instance]:
    """The least orders of every contraction, other than its own."""
    for opened in _each(terms, sizes):
        for made in opened.others():
            yield one_node(opened.node, made, opened.same_size)


def far(terms: Sequence[Node], sizes: Sizes) -> Iterator[Instance]:
    """The least order of every contraction whose own costs more than `FAR` times as much."""
    for opened in _each(terms, sizes):
        for made in opened.far_less():
            yield one_node(opened.node, made, opened.same_size)


def _each(terms: Sequence[Node], sizes: Sizes) -> list[_Opened]:
    """Every contraction but those that are read as factors of others alone."""
    order = list(postorder(terms))
    taken, inside = frozenset(a for n in order for a in n.axes), _only_inside(order, terms)
    known = tuple(sizes.items())
    return [_opened(n, taken, known) for n in order if contracts(n) and n not in inside]


ORDERED = Rule(
    "order contractions",
    "sum_{x d} A B C = sum_d A (sum_x B C), and so of maxima of sums",
    _matches,
    (
        "A does not carry x",
        "an inner sum has the items of the whole, as whole numbers wrap and reals do not",
        "an inner product of values in 8 bits is not opened",
        "an extremum starts from its identity",
        "an axis of an inner sum is renamed where another factor or the result carries its name",
        "a factor computed from the size of a reduced axis stays outside of the sum along it",
        "such a factor is 1 where an axis is empty along which it was summed",
    ),
    alternative=True,
)


def contracts(n: Node) -> bool:
    """Whether a reduction is one of products, which distribute over what it combines."""
    by = _by(n)
    return bool(by) and n.args[0].op == by and n.params[1:] == starting(n.op)


def contraction_inside(n: Node) -> Node | None:
    """A contraction that is a factor of a contraction over its axes; None where there is none."""
    parts = _factors(n) if contracts(n) else ()
    return next((p for p in parts if _opens(n, p) and set(over(n)) & set(p.axes)), None)


def _by(n: Node) -> str:
    """The product, "add" or "mul", that distributes over what a reduction combines; else ""."""
    return REDUCTIONS[n.op].over if n.op in REDUCTIONS else ""


def _factors(n: Node) -> tuple[Node, ...]:
    return factors(n.args[0], by=_by(n))


def _opens(n: Node, p: Node) -> bool:
    """Whether a factor of a contraction is one of its kind. A product of 8 bits stays as it is: its
    factors would be rounded with others to the type of the plan."""
    alike = p.op == n.op and p.kind == n.kind and contracts(p)
    return alike and not narrow_type(_factors(p))


def _sized_by(n: Node, axes: Collection[str]) -> bool:
    """Whether a factor is computed from the size of one of these axes."""
    return any(m.op == "size" and m.params[0] in axes for m in postorder([n]))


def _only_inside(order: Sequence[Node], roots: Sequence[Node]) -> set[Node]:
    """The contractions that are read as factors of contractions alone."""
    opened = {p for n in order if contracts(n) for p in _factors(n) if _opens(n, p)}
    summed = inside_sums(roots)
    read = {a for n in order if n not in summed and not contracts(n) for a in n.args}
    return opened - read - {*roots}


def _halved(s: int, known: Mapping[int, Sequence[_Order]], sizes: Sizes) -> Iterator[_Order]:
    """The orders of a subset, as bits, by those of its halves: of each kind the least, these in
    order."""
    lowest = s & -s
    first = [t for t in range(lowest, s) if t & s == t and t & lowest]
    pairs = ((a, b) for t in first for a in known[t] for b in known[s - t])
    multiplied: dict[frozenset[str], int] = {}
    least: dict[frozenset[int], tuple[float, int, _Order, _Order]] = {}
    for i, (a, b) in enumerate(pairs):
        axes, inner = a.carried | b.carried, a.inner | b.inner
        if axes not in multiplied:
            multiplied[axes] = math.prod(sizes[x] for x in axes)
        cost = a.cost + b.cost + multiplied[axes]
        if inner not in least or cost < least[inner][0]:
            least[inner] = cost, i, a, b
    found = sorted(least.values(), key=lambda x: x[:2])
    return (a.times(sizes, b) for _, _, a, b in found)


@lru_cache(maxsize=REMEMBERED)
def _opened(n: Node, taken: frozenset[str], sizes: tuple[tuple[str, int], ...]) -> _Opened:
    return _Opened(n, taken, dict(sizes))


class _Opened:
    """A contraction of the factors of those inside it.

    Attributes:
        node: the contraction as it was.
        parts: the factors that carry something that is reduced, and `outside` the others.
        gone: what is reduced.
        own: the subsets of the parts that the contraction reduces by themselves, as bits.
        same_size: axes of inner contractions under new names, to those whose sizes they have.
        sizes: of all axes, these too.
    """

    def __init__(self, n: Node, taken: Collection[str], sizes: Sizes) -> None:
        self.node, self.gone, self.same_size = n, list(over(n)), dict[str, str]()
        self._taken, self._known = taken, {*n.axes, *n.args[0].axes}
        self._left = SEARCHED - len(_factors(n))
        found, inner = list[_Factor](), list[range]()
        for p in _factors(n):
            self._open(p, over(n), found, inner)
        carried = [bool(set(f.node.axes) & set(self.gone)) for f in found]
        self.parts = tuple(f.node for f, c in zip(found, carried, strict=True) if c)
        self.outside = tuple(f for f, c in zip(found, carried, strict=True) if not c)
        at = list(itertools.accumulate(carried, initial=0))
        self.own = frozenset(2 ** at[r.stop] - 2 ** at[r.start] for r in inner)
        self.sizes = with_named(sizes, self.same_size)

    def _open(
        self, p: Node, around: tuple[str, ...], found: list[_Factor], inner: list[range]
    ) -> None:
        """Add a factor, or those of a contraction as long as all are at most `SEARCHED`."""
        own = _factors(p) if _opens(self.node, p) else ()
        if not own or len(own) - 1 > self._left:
            found.append(_Factor(p, tuple(self.same_size.get(a, a) for a in around)))
            return
        self._left -= len(own) - 1
        taken = {*self._taken, *self.same_size}
        fresh = {a: numbered(a, taken) for a in over(p) if a in self._known}
        self.gone += [fresh.get(a, a) for a in over(p)]
        self.same_size |= {new: old for old, new in fresh.items()}
        renamed = [sunk(q, tuple(fresh.items())) for q in own]
        self._known |= {*union_axes(renamed)}
        begin, around = len(found), (*around, *(fresh.get(a, a) for a in over(p)))
        for q in renamed:
            self._open(q, around, found, inner)
        inner.append(range(begin, len(found)))

    def others(self) -> Iterator[Node]:
        """The contraction in its least orders but its own."""
        found = self._least if len(self.parts) > 1 else []
        near = [o for o in found[:ORDERS] if o.cost <= FAR * found[0].cost]
        self._tell_left([o for o in found[len(near) :] if o.inner != self.own])
        yield from (self._written(o) for o in near if o.inner != self.own)

    def far_less(self) -> Iterator[Node]:
        """The contraction in its least order, where its own costs more than `FAR` times as much."""
        if 1 < len(self.parts) <= SEARCHED:
            least, *others = self._least
            if least.inner != self.own and self._own().cost > FAR * least.cost:
                self._tell_left(others)
                yield self._written(least)

    def _own(self) -> _Order:
        """Its own order, which costs at least so much."""
        left = self._joined()
        for bits in sorted(self.own, key=int.bit_count):
            inside = [p for p in left if p.bits & bits == p.bits]
            if len(inside) > 1:
                made = self._reduced(inside[0].times(self.sizes, *inside[1:]))
                left = [p for p in left if p not in inside] + [made]
        return left[0].times(self.sizes, *left[1:])

    @cached_property
    def _least(self) -> list[_Order]:
        """Orders of all parts, the least first."""
        single = self._joined()
        every = 2 ** len(single) - 1
        known = {2**i: [one] for i, one in enumerate(single)}
        for s in range(1, every):
            if s not in known:
                least = itertools.islice(_halved(s, known, self.sizes), ORDERS)
                known[s] = [*map(self._reduced, least)]
        return list(_halved(every, known, self.sizes))

    def _joined(self) -> list[_Order]:
        """The parts one by one; of more than `SEARCHED`, the smallest pairs are products first."""
        parts = [_Order(2**i, ((i, p),)) for i, p in enumerate(self.parts)]
        parts = [self._reduced(p) for p in parts]
        while len(parts) > SEARCHED:
            pairs = itertools.combinations(parts, 2)
            a, b = min(pairs, key=lambda pair: pair[0].times(self.sizes, pair[1]).cost)
            parts = [p for p in parts if p is not a and p is not b]
            parts.append(self._reduced(a.times(self.sizes, b)))
        return parts

    def _reduced(self, order: _Order) -> _Order:
        """An order after the reduction along the axes that nothing else carries."""
        gone = self._private(order)
        made = self._along(order.parts, gone) if gone else None
        if made is None or made.kind != self.node.kind:
            return order
        cost = order.cost + STORED * math.prod(self.sizes[a] for a in made.axes)
        first, _ = order.parts[0]
        return _Order(order.bits, ((first, made),), cost, order.inner | {order.bits})

    def _private(self, order: _Order) -> tuple[str, ...]:
        """The axes that are reduced and that no other factor carries."""
        others = (p.axes for i, p in enumerate(self.parts) if not order.bits >> i & 1)
        kept = {a for axes in others for a in axes}
        return tuple(a for a in self.gone if a in order.axes and a not in kept)

    def _along(self, parts: Sequence[tuple[int, Node]], axes: tuple[str, ...]) -> Node:
        body = joined(_by(self.node), [p for _, p in parts])
        return along(self.node.op, body, axes, self.node.params[1:])

    def _written(self, order: _Order) -> Node:
        """The contraction in an order. A factor that the size of a reduced axis scales, such as
        size(d) ** -0.5, stays outside of the sum along it: where the axis is empty it is infinite,
        and times a sum of nothing no number. Where another axis was empty along which it was summed
        before, it scales nothing, and is 1."""
        left = tuple(a for a in self.gone if a in order.axes)
        sizes = {self.same_size.get(a, a) for a in left} | {*left}
        scales = [f for f in self.outside if f.node.kind == "real" and _sized_by(f.node, sizes)]
        parts = (*order.parts, *((0, f.node) for f in self.outside if f not in scales))
        found = [self._along(parts, left)] if left else [p for _, p in parts]
        return joined(_by(self.node), [*found, *(f.of_something() for f in scales)])

    def _tell_left(self, orders: Sequence[_Order]) -> None:
        """Report the orders that are not priced."""
        if (tracer := active()) is not None and orders:
            number = "another order" if len(orders) == 1 else f"{len(orders)} other orders"
            what = f"{text(self.node, {})} in {number}"
            why = f"of those found, {ORDERS} at most are priced, and none of {FAR} times the least"
            tracer.dropped("term", what, f"{why} operations and stored values")
