"""Windows in compressed form: the keys that a query sees, as slots.

Where a key set has one box, query q sees the keys first(q) + step * t, t = 0, 1, ..., along each
key axis: t is a slot. `compress` goes from positions of keys to slots, `spread` back. In a kernel
neither is an array: a compressed array is written, and read, at addresses computed from the bounds
of the key set (R-SDDMM and R-SpMM in SPLAT, arXiv 2407.16847).
"""

from __future__ import annotations

import math
from typing import cast

from napkin.ir.infer import pointwise
from napkin.ir.key_sets import Interval, boxes_of, spec_of
from napkin.ir.linear import linear
from napkin.ir.node import Kind, Node, in_kind, node, number
from napkin.ir.selecting import position
from napkin.ir.slots import Slots, slots_of, spread
from napkin.ir.taking import own_axes, position_of, taken_of
from napkin.ir.whole_numbers import greater, over, plus


def least(kind: Kind) -> float:
    """What a slot without a key holds where a softmax or a maximum follows."""
    return 0.0 if kind == "bool" else in_kind(-math.inf, kind)


def bounds(n: Node) -> tuple[Node, ...]:
    """What the value of a compress or a spread is computed from."""
    return (n.args[0], *n.args[1].args)


# --- in kernels ---------------------------------------------------------------------------------


def places(keys: Node) -> tuple[Node, ...]:
    """The slot of each key along each key axis; of keys inside the set only."""
    (box,) = boxes_of(keys)
    return tuple(_place(i, a) for i, a in zip(box.intervals, spec_of(keys).keys, strict=True))


def _place(i: Interval, axis: str) -> Node:
    x = position(axis)
    if i.first is number(0):
        return over(x, i.step)
    if i.step > 1:  # the form that the test for the key set has
        x = greater(x, i.first)
    return over(pointwise("sub", (x, i.first)), i.step)


def lengths(keys: Node) -> tuple[Node, ...]:
    """How many keys a query sees along each key axis."""
    (box,) = boxes_of(keys)
    return tuple(_length(i) for i in box.intervals)


def _length(i: Interval) -> Node:
    span = pointwise("sub", (i.end, i.first))
    return greater(over(plus(span, i.step - 1), i.step), number(0))


def reading(n: Node, tensor: Node) -> Node:
    """The spread `n` of a tensor as a reading of it: a leaf whose arguments say where it is read,
    and at which slots."""
    keys, s = n.args[1], slots_of(n)
    params = (tensor.params[0], own_axes(tensor), s)
    return node("input", (keys, *places(keys)), params, n.axes, n.kind)


def read_inputs(old: Node, args: tuple[Node, ...]) -> Node | None:
    """For `rewrite`: every spread of an input as a reading of it."""
    if old.op != "spread" or args[0].op != "input" or args[0].args:
        return None
    return reading(spread(args[0], args[1], slots_of(old)), args[0])


def scattered(n: Node) -> Node:
    """The compress `n` as it is stored: its array, where values of it are stored, and at which
    slots."""
    x, keys = n.args
    return node("scatter", (x, keys, *places(keys)), (slots_of(n),), x.axes, n.kind)


def place_of(n: Node, axis: str) -> Node | None:
    """What stands for an axis in the addresses of a reading or a scatter: the slot of a key, or a
    position that is computed."""
    if taken_of(n) is not None:
        return position_of(n, axis)
    if n.op == "scatter":
        keys, at = slots_of(n).keys, n.args[2:]
    elif n.op == "input" and n.args:
        keys, at = read_slots(n).keys, n.args[1:]
    else:
        return None
    return at[keys.index(axis)] if axis in keys else None


def read_slots(leaf: Node) -> Slots:
    """How a reading at computed addresses pairs keys and slots."""
    return cast(Slots, leaf.params[2])


def guard(n: Node) -> Node | None:
    """Where a reading or a scatter at computed addresses touches memory; None for any other."""
    if n.op == "scatter":
        return n.args[1]
    return n.args[0] if n.op == "input" and n.args and taken_of(n) is None else None


def filling(n: Node) -> Node | None:
    """What is stored in slots that have no key: how many keys there are along each axis, a number
    where every query fills its window. None where that is so along every axis."""
    keys, s = n.args[1], slots_of(n)
    if full(keys, s):
        return None
    (box,) = boxes_of(keys)
    counts = [
        number(count) if _filled(i, count) else length
        for i, count, length in zip(box.intervals, s.counts, lengths(keys), strict=True)
    ]
    return node("fill", counts, (s,), n.axes, n.kind)


def full(keys: Node, s: Slots) -> bool:
    """Whether every query has a key for every slot, by the bounds alone."""
    (box,) = boxes_of(keys)
    return all(_filled(i, count) for i, count in zip(box.intervals, s.counts, strict=True))


def _filled(i: Interval, count: int) -> bool:
    span = linear(pointwise("sub", (i.end, i.first)))
    return set(span) <= {None} and -(-span.get(None, 0) // i.step) == count
