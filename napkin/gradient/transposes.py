"""Transposes of what moves values: renamings, slots, scans. A scan runs the other way."""

from __future__ import annotations

from napkin.gradient.products import ZERO, filled, masked, times
from napkin.gradient.reached import Handed, Reached
from napkin.gradient.takes import take_rule as take_rule
from napkin.ir.infer import along, pointwise, recurrence, renamed
from napkin.ir.node import Node, names_of, number, over
from napkin.ir.selecting import position
from napkin.ir.slots import Slots, compress, slots_of, spread
from napkin.ir.taking import take
from napkin.ir.whole_numbers import plus


def rename_rule(at: Reached, n: Node, g: Node) -> Handed:
    """The same under the names of the argument."""
    yield n.args[0], renamed(g, [(new, old) for old, new in names_of(n)])


def compress_rule(at: Reached, n: Node, g: Node) -> Handed:
    """Slots go back to keys."""
    yield n.args[0], spread(filled(g, n.axes), n.args[1], _empty(slots_of(n)))


def spread_rule(at: Reached, n: Node, g: Node) -> Handed:
    """Keys go back to slots."""
    yield n.args[0], compress(filled(g, n.axes), n.args[1], _empty(slots_of(n)))


def _empty(s: Slots) -> Slots:
    return Slots(s.keys, s.slots, s.counts)


def cumsum_rule(at: Reached, n: Node, g: Node) -> Handed:
    """Running sums from the end."""
    (axis,) = over(n)
    if at.one_position:  # of a step, which reads its state at no other place
        other = at.fresh(axis)
        after = pointwise("greater_equal", (position(other), position(axis)))
        there = renamed(filled(g, (axis,)), ((axis, other),))
        yield n.args[0], along("sum", masked(after, there), (other,))
        return
    back = read_at(filled(g, (axis,)), axis, from_end(at, axis, 1))
    yield n.args[0], read_at(along("cumsum", back, (axis,)), axis, from_end(at, axis, 1))


def recurrence_rule(at: Reached, n: Node, g: Node) -> Handed:
    """Of h_t = a_t h_(t-1) + b_t, the cotangents l_t = g_t + a_(t+1) l_(t+1), from the end."""
    (axis,), (a, b) = over(n), n.args
    back = read_at(filled(g, (axis,)), axis, from_end(at, axis, 1))
    # Clamped at the first position, where the state before is 0.
    states = recurrence(read_at(a, axis, from_end(at, axis, 0)), back, axis)
    found = read_at(states, axis, from_end(at, axis, 1))
    if b in at.needed:
        yield b, at.sums.onto(found, b.axes, n.axes)
    if a in at.needed:
        here = position(axis)
        first = pointwise("equal", (here, number(0)))
        before = pointwise("where", (first, ZERO, read_at(n, axis, plus(here, -1))))
        yield a, at.sums.onto(times(found, before), a.axes, n.axes)


def from_end(at: Reached, axis: str, by: int) -> Node:
    """The position counted from the end, of which the last is `1 - by`."""
    return pointwise("sub", (plus(at.sums.length(axis), -by), position(axis)))


def read_at(x: Node, axis: str, at: Node) -> Node:
    """`x` at other positions along an axis, if it has it."""
    return take(x, (at,), (axis,)) if axis in x.axes else x
