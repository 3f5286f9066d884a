"""Sizes of axes as terms whose value the inputs of a gradient say.

A gradient may read no array in windows, or under another name, where the diagram does; the sizes of
such axes are then written with those of the inputs' axes.
"""

from __future__ import annotations

from collections.abc import Callable

from napkin.diagram.interface import Interface
from napkin.ir.infer import pointwise
from napkin.ir.node import Node, number
from napkin.ir.whole_numbers import length, plus, times
from napkin.ir.windows import Slide


def lengths(f: Interface) -> Callable[[str], Node]:
    """A function from axes to their sizes."""
    same, found = f.same_size, dict[str, Node]()

    def root(axis: str) -> str:
        return same.get(axis, axis)

    def of(axis: str) -> Node:
        return found.get(root(axis), length(axis))

    for axis in (a for n in f.inputs for a in n.axes):
        found.setdefault(root(axis), length(axis))
    for axis, (count, _) in f.slots.items():
        found.setdefault(root(axis), number(count))
    for s in f.slides:
        if s.span.window:
            found.setdefault(root(s.tap), number(s.span.window))
        found.setdefault(root(s.out), windows(s, of(s.axis), of(s.tap)))
    return of


def windows(s: Slide, size: Node, taps: Node) -> Node:
    """How many windows there are along an axis of this size."""
    reach = times(plus(taps, -1), s.dilation)
    last = pointwise("sub", (plus(size, s.span.past - s.offset - 1), reach))
    return plus(pointwise("floordiv", (last, number(s.stride))) if s.stride > 1 else last, 1)
