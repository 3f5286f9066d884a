"""What the rules of a transposition share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

from napkin.diagram.interface import Interface
from napkin.gradient.lengths import lengths
from napkin.gradient.products import Sums
from napkin.ir.node import Node, postorder


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
