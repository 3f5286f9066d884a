"""The node of a key set: its bounds as arguments, its shape as parameters.

The node is a bool array over query and key axes. It never exists as an array: evaluation and
kernels open it into comparisons, and the visits of a streamed loop are read off its bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

from napkin.ir.infer import joined, pointwise
from napkin.ir.node import Node, node, number, union_axes
from napkin.ir.selecting import position
from napkin.ir.whole_numbers import length

MAX_BOXES = 8
"""Boxes of the largest union: each has loops of its own in a kernel."""


@dataclass(frozen=True)
class Interval:
    """Keys `first`, `first + step`, ... below `end` along one key axis.

    Attributes:
        first, end: whole numbers, terms over query coordinates and sizes, within the axis.
    """

    first: Node
    end: Node
    step: int = 1


@dataclass(frozen=True)
class Box:
    """A product of intervals, one for each key axis in order."""

    intervals: tuple[Interval, ...]


@dataclass(frozen=True)
class Need:
    """The least size that an axis must have, and why."""

    axis: str
    least: int
    why: str


@dataclass(frozen=True)
class Spec:
    """What of a key set's node is not an array.

    Attributes:
        keys: the key axes, in order.
        steps: for each box, the step along each key axis.
        tied: pairs of a query axis and the key axis that must have its size.
        needs: least sizes.
        text: the set in words, for listings.
    """

    keys: tuple[str, ...]
    steps: tuple[tuple[int, ...], ...]
    tied: tuple[tuple[str, str], ...]
    needs: tuple[Need, ...]
    text: str

    def renamed(self, table: Mapping[str, str]) -> Spec:
        """The same under other axis names."""

        def of(a: str) -> str:
            return table.get(a, a)

        tied = tuple((of(q), of(x)) for q, x in self.tied)
        needs = tuple(replace(n, axis=of(n.axis)) for n in self.needs)
        return replace(self, keys=tuple(map(of, self.keys)), tied=tied, needs=needs)


def keys_node(boxes: Sequence[Box], spec: Spec) -> Node:
    """The node of a union of boxes."""
    return from_arguments(bounds_of(boxes), spec)


def bounds_of(boxes: Iterable[Box]) -> list[Node]:
    """The first key and the end along each key axis of each box."""
    return [bound for b in boxes for i in b.intervals for bound in (i.first, i.end)]


def from_arguments(args: Iterable[Node], spec: Spec) -> Node:
    """The node with these bounds: for each box and each key axis, the first key and the end."""
    args = tuple(args)
    axes = (*union_axes(args), *spec.keys)
    return node("keys", args, (spec,), axes, "bool")


def with_whole(n: Node, axes: Sequence[str]) -> Node:
    """A key set with every position of more key axes, which come first."""
    if not axes:
        return n
    spec, whole = spec_of(n), tuple(Interval(number(0), length(a)) for a in axes)
    steps = tuple((*[1] * len(axes), *own) for own in spec.steps)
    boxes = [Box((*whole, *b.intervals)) for b in boxes_of(n)]
    return keys_node(boxes, replace(spec, keys=(*axes, *spec.keys), steps=steps))


def spec_of(n: Node) -> Spec:
    """What of the key set `n` is not an array."""
    return cast(Spec, n.params[0])


def boxes_of(n: Node) -> tuple[Box, ...]:
    """The boxes of a key set's node."""
    spec, bounds = spec_of(n), iter(n.args)
    return tuple(
        Box(tuple(Interval(next(bounds), next(bounds), step) for step in steps))
        for steps in spec.steps
    )


def query_axes(n: Node) -> tuple[str, ...]:
    """The axes that the bounds of a key set depend on."""
    return union_axes(n.args)


def inside(interval: Interval, axis: str) -> Node:
    """Whether a position of the key axis lies in an interval."""
    x = position(axis)
    found = pointwise("less", (x, interval.end))
    if interval.first is not number(0):
        found = pointwise("and", (pointwise("less_equal", (interval.first, x)), found))
    if interval.step == 1:
        return found
    # Behind `first`, so that the difference is never negative.
    behind = pointwise("sub", (pointwise("maximum", (x, interval.first)), interval.first))
    hit = pointwise("equal", (pointwise("mod", (behind, number(interval.step))), number(0)))
    return pointwise("and", (found, hit))


def box_member(box: Box, keys: Sequence[str]) -> Node:
    """Whether a position lies in a box."""
    tests = [inside(i, a) for i, a in zip(box.intervals, keys, strict=True)]
    return joined("and", tests)


@lru_cache(maxsize=256)
def member(n: Node) -> Node:
    """The key set as comparisons: what its node stands for."""
    keys = spec_of(n).keys
    return joined("or", [box_member(b, keys) for b in boxes_of(n)])
