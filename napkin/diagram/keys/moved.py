"""Values of arrays that move between keys and slots (see `napkin.diagram.keys.slots`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from napkin.diagram.evaluate import aligned
from napkin.diagram.keys.slots import Slots, slots_of
from napkin.diagram.keys.terms import Interval, boxes_of
from napkin.diagram.node import Node

Array = np.ndarray[Any, Any]


def compressed(n: Node, values: Mapping[Node, Array], held: Mapping[str, range]) -> Array:
    """The value of a compress."""
    s, x = slots_of(n), n.args[0]
    at, inside = dict[str, Array](), np.ones([1] * len(n.axes), dtype=bool)
    for i, a, slot, count in _rows(n, s):
        first, end = (aligned(values[b], b.axes, n.axes) for b in (i.first, i.end))
        at[a] = first + i.step * aligned(np.arange(count), (slot,), n.axes)
        inside = inside & (at[a] < end)
    found = _picked(values[x], x.axes, n.axes, at, held)
    return np.where(inside, found, np.asarray(s.fill, dtype=found.dtype))


def dispersed(n: Node, values: Mapping[Node, Array], held: Mapping[str, range]) -> Array:
    """The value of a spread."""
    s, x = slots_of(n), n.args[0]
    at, inside = dict[str, Array](), np.ones([1] * len(n.axes), dtype=bool)
    for i, a, slot, _ in _rows(n, s):
        first, end = (aligned(values[b], b.axes, n.axes) for b in (i.first, i.end))
        key = aligned(np.asarray(held[a]), (a,), n.axes)
        at[slot] = (key - first) // i.step
        inside = inside & (first <= key) & (key < end) & ((key - first) % i.step == 0)
    found = _picked(values[x], x.axes, n.axes, at, held)
    return np.where(inside, found, np.zeros((), dtype=found.dtype))


def _rows(n: Node, s: Slots) -> Iterable[tuple[Interval, str, str, int]]:
    (box,) = boxes_of(n.args[1])
    return zip(box.intervals, s.keys, s.slots, s.counts, strict=True)


def _picked(
    value: Array,
    axes: Sequence[str],
    target: Sequence[str],
    at: Mapping[str, Array],
    held: Mapping[str, range],
) -> Array:
    """`value` at the positions `at` along some axes and at its own along the others."""
    if 0 in value.shape:
        shape = [len(held[a]) for a in target]
        return np.zeros(shape, dtype=value.dtype)
    where = [
        np.clip(at[a], 0, n - 1) if a in at else aligned(np.arange(n), (a,), target)
        for a, n in zip(axes, value.shape, strict=True)
    ]
    return value[tuple(where)]
