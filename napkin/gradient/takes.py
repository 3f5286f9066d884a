"""The transpose of a take: every value of the table gets what was read from it.

Where a position is a sum of multiples of others (a window, a shift, a reversal), it is solved for
one of them, and the transpose is a take, too. Any other position is compared with every place:
a scatter as a sum under a test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from napkin.gradient.products import Sums, chosen, filled, masked, total
from napkin.gradient.reached import Handed, Reached
from napkin.ir.infer import along, pointwise, renamed
from napkin.ir.linear import Form, linear, summed, whole_number
from napkin.ir.node import Node, names_of, number, over, postorder, union_axes
from napkin.ir.operators import POINTWISE
from napkin.ir.rewrite import substitute
from napkin.ir.selecting import all_of, position
from napkin.ir.sliding import slide_of
from napkin.ir.taking import spans_of, take, taken_axes
from napkin.ir.whole_numbers import greater, lesser, plus
from napkin.ir.windows import Span


@dataclass(frozen=True)
class Place:
    """Where a table is read along one axis.

    Attributes:
        axis: of the table.
        at: the positions.
        span: how far they reach if they are a window; None where they are clamped.
    """

    axis: str
    at: Node
    span: Span | None

    def clamped(self, size: Node) -> Node:
        """The positions that are read of an axis of a size."""
        if self.span is not None:
            return self.at
        return lesser(greater(self.at, number(0)), plus(size, -1))


@dataclass(frozen=True)
class Solved:
    """A place solved for an axis of its positions.

    Attributes:
        axis: that axis.
        at: where along it a position of the table was read from.
        tests: whether it was.
        onto: whether every position was read once.
    """

    axis: str
    at: Node
    tests: tuple[Node, ...] = ()
    onto: bool = False


def take_rule(at: Reached, n: Node, g: Node) -> Handed:
    """The cotangents of all positions that read a value, summed."""
    if (apart := _apart(at, n)) is not None:
        first, then = apart
        ((_, handed),) = take_rule(at, then, g)
        if handed is None:
            yield n.args[0], None
        else:
            yield from take_rule(at, first, handed)
        return
    if (q := _quotient(n)) is not None:
        yield n.args[0], _of_quotient(at.sums, q, n, g)
        return
    table, *positions = n.args
    along_positions = union_axes(positions)
    # An axis of positions that is called as one that they read along is another axis.
    names = {a: at.fresh(a) for a in taken_axes(n) if a in along_positions}
    given, read = g, [Place(*p) for p in zip(taken_axes(n), positions, spans_of(n), strict=True)]
    g = filled(g, [a for a in names if a in n.axes])  # so that the sizes of these are known
    g, positions = renamed(g, names.items()), [_positions(p, names) for p in positions]
    every = tuple(names.get(a, a) for a in n.axes)
    sizes = {new: at.sums.length(old) for old, new in names.items()}
    places = [Place(*p) for p in zip(taken_axes(n), positions, spans_of(n), strict=True)]
    solved = _solved(at, places, table, sizes)
    if solved is None:
        yield table, at.sums.onto(_compared(at, g, places), table.axes, (*every, *taken_axes(n)))
        return
    inside = _gathered(g, solved)
    left = [a for a in every if a not in {s.axis for s in solved}]
    found = [at.sums.onto(inside, table.axes, (*left, *taken_axes(n)))]
    for p, s in zip(read, solved, strict=True):
        if p.span is None and not s.onto:  # its axis is summed over, whatever it is called
            found += _beyond(at.sums, given, p, table, n.axes)
    kept = [x for x in found if x is not None]
    yield table, total(kept) if kept else None


def _apart(at: Reached, n: Node) -> tuple[Node, Node] | None:
    """A take along several axes as one along the others, and a take of that along an axis that is
    solved for; None where there is none. Windows along several axes are solved together."""
    table, *positions = n.args
    axes = taken_axes(n)
    if len(axes) == 1 or any(s is not None for s in spans_of(n)):
        return None
    for p, axis in zip(positions, axes, strict=True):
        others = {a: q for a, q in zip(axes, positions, strict=True) if a != axis}
        if any(axis in q.axes for q in others.values()):
            continue  # two axes of one name
        first = take(table, tuple(others.values()), tuple(others))
        then = take(first, (p,), (axis,))
        names = {axis: at.fresh(axis)} if axis in p.axes else {}
        sizes = {new: at.sums.length(axis) for new in names.values()}
        place = Place(axis, _positions(p, names), None)
        alone = _quotient(then) is not None or _solved(at, [place], first, sizes) is not None
        if {*then.axes} == {*n.axes} and alone:
            return first, then
    return None


def _positions(p: Node, names: Mapping[str, str]) -> Node:
    """Positions under other axis names, still arithmetic, so that they are solved."""
    if p.op == "index":
        return position(names.get(p.axes[0], p.axes[0]))
    if p.op in POINTWISE:
        return pointwise(p.op, [_positions(a, names) for a in p.args], p.params)
    return renamed(p, names.items())


def _compared(at: Reached, g: Node, places: Sequence[Place]) -> Node:
    """The cotangent at the place that it was read from."""
    for p in places:
        test = pointwise("equal", (p.clamped(at.sums.length(p.axis)), position(p.axis)))
        g = masked(test, g)
    return g


# --- quotients ----------------------------------------------------------------------------------

MOST = 16
"""The largest number that divides, of which each remainder is a term of its own."""


@dataclass(frozen=True)
class Quotient:
    """A table that is read at i // c, or at i // c and i % c, as one that is reshaped is.

    Attributes:
        axis: of the table, read at i // c.
        other: that read at i % c; "" where there is none.
        of: the axis of i.
        by: c; the size of the other axis, or a number up to `MOST`.
    """

    axis: str
    other: str
    of: str
    by: Node


def _quotient(n: Node) -> Quotient | None:
    """How a take reads quotients; None where it does not, or not alone."""
    table, *positions = n.args
    places = dict(zip(taken_axes(n), positions, strict=True))
    axis = next((a for a, p in places.items() if p.op == "floordiv"), "")
    if not axis or any(s is not None for s in spans_of(n)):
        return None
    i, by = places.pop(axis).args
    if i.op != "index" or i.axes[0] in table.axes:
        return None
    other = next((a for a, p in places.items() if p is pointwise("mod", (i, by))), "")
    if len(places) > bool(other):
        return None
    named = other and by.op == "size" and by.params[0] == other
    known = named or 1 <= (whole_number(by) or 0) <= MOST
    return Quotient(axis, other, i.axes[0], by) if known else None


def _of_quotient(sums: Sums, q: Quotient, n: Node, g: Node) -> Node | None:
    """The cotangents of the positions c h + r that read place h, and of those past an end of the
    table, which read that."""
    table, size, numbers = n.args[0], sums.length(q.of), range(whole_number(q.by) or 0)
    rows = pointwise("mul", (position(q.axis), q.by))
    left = [a for a in n.axes if a != q.of]

    def read(start: Node, *tests: Node) -> Node | None:
        moved = _moved(g, {q.of: start}, all_of([pointwise("less", (start, size)), *tests]))
        return sums.onto(moved, table.axes, (*left, *taken_axes(n)))

    i, last = position(q.of), plus(sums.length(q.axis), -1)
    beyond = masked(pointwise("greater", (pointwise("floordiv", (i, q.by)), last)), g)
    every = [*n.axes, *([q.other] if q.other else [])]
    if not q.other:
        found = [read(plus(rows, r)) for r in numbers]
    else:
        here, width = position(q.other), plus(sums.length(q.other), -1)
        beside = [pointwise("less", (here, q.by))] if numbers else []
        found = [read(pointwise("add", (rows, here)), *beside)]
        column = lesser(pointwise("mod", (i, q.by)), width)
        beyond = masked(pointwise("equal", (column, here)), beyond)
        wide = [read(plus(rows, r), pointwise("less", (width, number(r)))) for r in numbers[1:]]
        kept = [x for x in wide if x is not None]
        found.append(chosen(pointwise("equal", (here, width)), total(kept) if kept else None, None))
    ends = pointwise("equal", (position(q.axis), last))
    own = [a for a in table.axes if a != q.axis]
    found.append(chosen(ends, sums.onto(beyond, own, every), None))
    kept = [x for x in found if x is not None]
    return total(kept) if kept else None


# --- positions that are solved ------------------------------------------------------------------


def _solved(
    at: Reached, places: Sequence[Place], table: Node, sizes: Mapping[str, Node]
) -> list[Solved] | None:
    """All places solved, each for an axis of its own; None where one cannot be."""
    found = list[Solved]()
    if len(places) > 1 and any(p.span is None for p in places):
        return None
    for p in places:
        kept = set(table.axes) | set(union_axes(q.at for q in places if q is not p))
        kept |= {s.axis for s in found}
        one = _window(p, at) if p.span is not None else _shift(p, kept, at, sizes)
        if one is None or one.axis in kept:
            return None
        found.append(one)
    return found


def _window(p: Place, at: Reached) -> Solved:
    """A position of the axis as one of the windows, from the tap."""
    assert p.span is not None
    s = slide_of(p.axis, p.at, p.span)
    form: Form = {position(s.axis): 1, position(s.tap): -s.dilation, None: -s.offset}
    start = summed({t: f for t, f in form.items() if f})
    tests = [pointwise("greater_equal", (start, number(0)))]
    if s.stride > 1:
        start = pointwise("maximum", (start, number(0)))
        rest = pointwise("mod", (start, number(s.stride)))
        tests.append(pointwise("equal", (rest, number(0))))
        start = pointwise("floordiv", (start, number(s.stride)))
    tests.append(pointwise("less", (start, at.sums.length(s.out))))
    return Solved(s.out, start, tuple(tests))


def _shift(p: Place, kept: set[str], at: Reached, sizes: Mapping[str, Node]) -> Solved | None:
    """A position as one along an axis that stands in it once, as it is or negated."""
    form = linear(p.at)
    for term, factor in form.items():
        if term is None or term.op != "index" or abs(factor) != 1 or term.axes[0] in kept:
            continue
        (axis,) = term.axes
        rest = {t: f for t, f in form.items() if t is not term}
        if any(t is not None and axis in t.axes for t in rest):
            continue
        back = {t: -f * factor for t, f in rest.items()} | {position(p.axis): factor}
        start = summed(back)
        size, here = sizes.get(axis, at.sums.length(axis)), at.sums.length(p.axis)
        last = {here: 1, None: -1} if factor < 0 else {}
        if size is here and rest == last:  # the axis itself, or from its end
            return Solved(axis, start, onto=True)
        inside = (
            pointwise("greater_equal", (start, number(0))),
            pointwise("less", (start, size)),
        )
        return Solved(axis, start, inside)
    return None


def _gathered(g: Node, solved: Sequence[Solved]) -> Node:
    """The cotangent read where each position of the table was read from, 0 where none was."""
    test = all_of(t for s in solved for t in s.tests)
    places = {s.axis: s.at for s in solved}
    return _moved(g, places, test)


def _moved(n: Node, places: Mapping[str, Node], test: Node | None) -> Node:
    """A term at other positions, 0 where a test fails: of sums of products of inputs in these, and
    of the positions themselves, so that nothing is stored to be read."""
    here = {a: p for a, p in places.items() if a in n.axes}
    if n.op == "rename" and {new for _, new in names_of(n)} <= {*here}:
        old = {new: a for a, new in names_of(n)}  # the axis is taken, so its name goes
        return _moved(n.args[0], {old.get(a, a): p for a, p in here.items()}, test)
    if here and _of_positions(n, here):
        found = substitute([n], {position(a): p for a, p in here.items()})[n]
        return found if test is None else masked(test, found)
    free = {*union_axes(here.values()), *(() if test is None else test.axes)}
    if not here or n.op not in {"neg", "sum", "mul"} or not _of_inputs(n, set(here), free):
        found = take(n, tuple(here.values()), tuple(here)) if here else n
        return found if test is None else masked(test, found)
    first = next(i for i, a in enumerate(n.args) if set(a.axes) & set(here))
    each = [_moved(a, here, test if i == first else None) for i, a in enumerate(n.args)]
    return along("sum", each[0], over(n)) if n.op == "sum" else pointwise(n.op, each)


def _of_positions(n: Node, places: Mapping[str, Node]) -> bool:
    """Whether a term has the axes that are read elsewhere from their positions alone, as where
    these are compared with whole numbers: no array says then how long such an axis is."""
    within = {*places, *union_axes(places.values())}
    for m in postorder([n]):
        if m.op == "sum" and set(over(m)) & within:
            return False
        if set(m.axes) & set(places) and m.op not in {"index", "sum", *POINTWISE}:
            return False
    return True


def _of_inputs(n: Node, here: Set[str], free: Set[str]) -> bool:
    """Whether what has the axes that are read elsewhere is made of inputs, by sums of products
    over other axes than those that positions and tests are free in."""
    if not set(n.axes) & here or n.op == "input":
        return True
    if n.op == "sum" and set(over(n)) & free:
        return False
    return n.op in {"neg", "sum", "mul"} and all(_of_inputs(a, here, free) for a in n.args)


def _beyond(sums: Sums, g: Node, p: Place, table: Node, every: Sequence[str]) -> list[Node | None]:
    """The cotangents of positions before the axis and past it, which read its ends."""
    last = plus(sums.length(p.axis), -1)
    found = list[Node | None]()
    for op, end in (("less", number(0)), ("greater", last)):
        outside = masked(pointwise(op, (p.at, end)), g)
        sum_of = sums.onto(outside, [a for a in table.axes if a != p.axis], every)
        at_end = pointwise("equal", (position(p.axis), end))
        found.append(chosen(at_end, sum_of, None))
    return found
