"""What the rules of a transposition share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self, TypeAlias

from napkin.diagram.interface import Interface
from napkin.gradient.products import Sums
from napkin.ir.infer import pointwise
from napkin.ir.node import Node, number, postorder
from napkin.ir.whole_numbers import length, plus, times
from napkin.ir.windows import Slide

Handed: TypeAlias = "Iterator[tuple[Node, Node | None]]"
"""What a node hands on: arguments with a cotangent for each, None where it is 0."""


class Reached:
    """The nodes of terms that a cotangent reaches.

    Attributes:
        needed: real nodes that depend on the leaves that are asked for.
        order: all nodes, each after its arguments.
        sums: sums over the axes that go.
        one_position: whether the terms are a step's, which is at one position.
    """

    def __init__(
        self,
        roots: Sequence[Node],
        sums: Sums,
        axes: set[str],
        wanted: Iterable[Node],
        one_position: bool = False,
    ) -> None:
        self.needed, self.sums, self._axes = set(wanted), sums, axes
        self.one_position = one_position
        self.order = list(postorder(roots))
        for n in self.order:
            if n.kind == "real" and any(a in self.needed for a in n.args):
                self.needed.add(n)

    @classmethod
    def of(cls, f: Interface, wanted: Iterable[Node]) -> Self:
        """The nodes of a diagram, from which its inputs `wanted` are reached."""
        return cls(f.roots, Sums(f.roots, lengths(f)), set(f.axes), wanted)

    def within(self, roots: Sequence[Node], wanted: Iterable[Node]) -> Self:
        """The nodes of the steps that a node has in itself."""
        return type(self)(roots, Sums(roots, self.sums.length), self._axes, wanted, True)

    def fresh(self, axis: str) -> str:
        """A name that no axis has."""
        number = 1
        while f"{axis}{number}" in self._axes:
            number += 1
        self._axes.add(f"{axis}{number}")
        return f"{axis}{number}"


def lengths(f: Interface) -> Callable[[str], Node]:
    """A function from axes to their sizes, as terms whose value the inputs of a gradient say.

    A gradient may read no array in windows, or under another name, where the diagram does; the
    sizes of such axes are then written with those of the inputs' axes.
    """
    root, found = f.sized_as, dict[str, Node]()

    def of(axis: str) -> Node:
        return found.get(root(axis), length(axis))

    for axis in (a for n in f.inputs for a in n.axes):
        found.setdefault(root(axis), length(axis))
    for axis, (count, _) in f.counted.items():
        found.setdefault(root(axis), number(count))
    for s in f.slides:
        found.setdefault(root(s.out), windows(s, of(s.axis), of(s.tap)))
    return of


def windows(s: Slide, size: Node, taps: Node) -> Node:
    """How many windows there are along an axis of this size."""
    reach = times(plus(taps, -1), s.dilation)
    last = pointwise("sub", (plus(size, s.span.past - s.offset - 1), reach))
    return plus(pointwise("floordiv", (last, number(s.stride))) if s.stride > 1 else last, 1)
