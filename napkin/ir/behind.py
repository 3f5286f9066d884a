"""Takes of terms that no kernel stores: arithmetic on inputs, positions, and other readings.

A take of a term that is computed without a reduction is that term, computed from what is taken of
its own inputs. A take of a take is one take, whose positions are the inner ones at the outer ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from napkin.ir.infer import pointwise
from napkin.ir.node import Node, built_on, number, over, postorder
from napkin.ir.operators import POINTWISE
from napkin.ir.sliding import slide_of, within
from napkin.ir.taking import own_axes, spans_of, take, taken_axes
from napkin.ir.whole_numbers import greater, length, lesser, plus
from napkin.ir.windows import Span

Places: TypeAlias = dict[str, tuple[Node, Span | None]]
"""For each axis along which an array is read, at which positions, and how far these reach if they
are a window."""

_ZERO = {"real": 0.0, "int": 0, "bool": False}
"""What lies in padding, by the kind of an array."""


def places_of(n: Node, positions: Sequence[Node] = ()) -> Places:
    """Where a take reads its table (or one at other positions)."""
    read = zip(positions or n.args[1:], spans_of(n), strict=True)
    return dict(zip(taken_axes(n), read, strict=True))


def behind(table: Node, places: Places) -> Node:
    """`table` read at `places`, as takes of what lies in memory."""
    computed = built_on(postorder([table]), lambda n: bool(over(n)))
    whole = {n for n in postorder([table]) if n.op not in POINTWISE or n in computed}
    done: dict[Node, Node] = {}
    for n in postorder([table], whole):
        here = {a: at for a, at in places.items() if a in n.axes}
        if not here:
            done[n] = n
        elif n in whole:
            done[n] = _read(n, here)
        else:
            done[n] = pointwise(n.op, [done[a] for a in n.args], n.params)
    if table in whole or _keeps_zero(table):
        return done[table]
    # Once, for all of it: exp(x) - 1 is 0 where x is, and would not be with exp(x) 0 there.
    return _padded(done[table], _tests({a: at for a, at in places.items() if a in table.axes}))


def _read(table: Node, places: Places) -> Node:
    """What is no arithmetic read at `places`."""
    if table.op == "index":
        ((axis, (at, span)),) = places.items()
        return _inside(at, axis, span)
    if table.op == "take":
        return _composed(table, places)
    at = [p for p, _ in places.values()]
    return take(table, at, tuple(places), tuple(span for _, span in places.values()))


def _composed(inner: Node, places: Places) -> Node:
    """The take `inner` read at `places`: a window that is read elsewhere is no window any more, so
    a test says what lies in its padding."""
    table, found, tests = inner.args[0], dict[str, tuple[Node, Span | None]](), list[Node]()
    own = own_axes(table) if table.op == "input" else table.axes
    for axis, (at, span) in places_of(inner).items():
        moved = behind(at, places)
        found[axis] = (moved, span if moved is at else None)
        if span is not None and moved is not at:
            tests += within(slide_of(own[table.axes.index(axis)], at, span), moved)
    found |= {a: p for a, p in places.items() if a in table.axes and a not in found}
    tests += _tests({a: p for a, p in places.items() if found.get(a) is not p})
    return _padded(behind(table, found), tests)


def _tests(places: Mapping[str, tuple[Node, Span | None]]) -> list[Node]:
    """The tests that no window of `places` reads its padding."""
    windows = [(a, at, span) for a, (at, span) in places.items() if span is not None]
    return [test for a, at, span in windows for test in within(slide_of(a, at, span), at)]


def _padded(made: Node, tests: Iterable[Node]) -> Node:
    """`made` where all tests hold, and 0 elsewhere."""
    for test in tests:
        made = pointwise("where", (test, made, number(_ZERO[made.kind])))
    return made


def _inside(at: Node, axis: str, span: Span | None) -> Node:
    """Positions along an axis as what is taken of `nk.index`."""
    if span is None:
        return lesser(greater(at, number(0)), plus(length(axis), -1))
    return _padded(at, _tests({axis: (at, span)}))


def _keeps_zero(x: Node) -> bool:
    """Whether arithmetic on inputs is 0 where they are, so that padding may stand before it."""
    import numpy as np

    from napkin.ir.evaluate import evaluate

    leaves = [n for n in postorder([x]) if not n.args and n.op != "number"]
    if any(n.op != "input" or set(n.axes) != set(x.axes) for n in leaves):
        return False
    zeros = {n: np.full([1] * len(n.axes), _ZERO[n.kind]) for n in leaves}
    return not evaluate([x], zeros, dict.fromkeys(x.axes, 1))[0].any()
