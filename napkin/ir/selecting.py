"""Terms that select positions along an axis: by an extremum of their values, and by rank."""

from __future__ import annotations

from collections.abc import Iterable

from napkin.ir.infer import along, joined, pointwise
from napkin.ir.node import INT32, Node, Param, factors, in_kind, node, number, over
from napkin.ir.operators import REDUCTIONS

NONE = INT32[-1]
"""The position of an extremum of nothing."""


def at_extremum(a: Node, most: Node) -> Node:
    """Whether `a` is the extremum `most`; where a NaN is among the values, whether it is NaN."""
    hit = pointwise("equal", (a, most))
    if a.kind != "real":
        return hit
    return pointwise("or", (hit, pointwise("not_equal", (a, a))))


def all_of(tests: Iterable[Node]) -> Node | None:
    """Whether all of some tests hold; None of no test."""
    found = tuple(tests)
    return joined("and", found) if found else None


def where_all(tests: Iterable[Node], x: Node, otherwise: float) -> Node:
    """`x` where all of some tests hold, else a number in its item type."""
    test = all_of(tests)
    return x if test is None else pointwise("where", (test, x, number(in_kind(otherwise, x.kind))))


def position(axis: str) -> Node:
    """The position along an axis."""
    return node("index", params=(axis,), axes=(axis,), kind="int")


def first_of(axis: str) -> Node:
    """The first position of a chunk, or of what a group holds."""
    return _extreme(axis, "min")


def end_of(axis: str) -> Node:
    """The last position of a chunk, or of what a group holds."""
    return _extreme(axis, "max")


def last_of(x: Node, axis: str) -> Node:
    """The value of `x` at the last position of a chunk."""
    end = pointwise("equal", (position(axis), end_of(axis)))
    return along("sum", where_all([end], x, 0.0), (axis,))


def _extreme(axis: str, which: str) -> Node:
    return along(which, position(axis), (axis,), (REDUCTIONS[which].identity,))


def ranked(
    how: str,
    x: Node,
    axis: str,
    k: int,
    seen: tuple[Node, ...] = (),
    more: tuple[Param, ...] = (),
    last: tuple[Param, ...] | None = None,
    at: Node | None = None,
) -> list[tuple[Node, Node]]:
    """The `k` largest values of `x` along an axis ("max"), or the smallest, each with its position:
    the first of equal ones, and NaN before all numbers. Past the last one are the extremum of
    nothing, and `NONE`.

    Args:
        seen: tests of the positions that count.
        more: parameters of the extrema, behind their start.
        last: the same of the last one, if that has others.
        at: the positions along the axis, where a step has them as an operand.
    """
    at, found = at or position(axis), list[tuple[Node, Node]]()
    start, end = REDUCTIONS[how].identity, REDUCTIONS["min"].identity
    own = [more] * (k - 1) + [more if last is None else last]
    for params in own:
        left = (*seen, *(pointwise("not_equal", (at, place)) for _, place in found))
        most = along(how, where_all(left, x, start), (axis,), (start, *params))
        chosen = where_all((*left, at_extremum(x, most)), at, NONE)
        found.append((most, along("min", chosen, (axis,), (end,))))
    return found


def ranked_among(n: Node) -> Node:
    """The values that an extremum is of; of one that `ranked` found behind others, with these."""
    body, (axis, *_) = n.args[0], over(n)
    chosen = body.op == "where" and axis in body.args[1].axes
    tests = factors(body.args[0], by="and") if chosen else ()
    for i, test in enumerate(tests):
        at = test.args[0] if test.op == "not_equal" else test
        if at.axes == (axis,) and all(t.op == "not_equal" and t.args[0] is at for t in tests[i:]):
            pairs = ranked(n.op, body.args[1], axis, len(tests) - i + 1, tests[:i], at=at)
            if pairs[-1][0] is n:
                return where_all(tests[:i], body.args[1], REDUCTIONS[n.op].identity)
    return body
