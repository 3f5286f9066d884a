"""What the rules of a transposition share."""

from __future__ import annotations

from collections.abc import Iterable

from napkin.diagram.interface import Interface
from napkin.gradient.lengths import lengths
from napkin.gradient.products import Sums
from napkin.ir.node import Node, postorder


class Reached:
    """The nodes of a diagram that a cotangent reaches.

    Attributes:
        needed: real nodes that depend on the leaves that are asked for.
        order: all nodes, each after its arguments.
        sums: sums over the axes that go.
    """

    def __init__(self, f: Interface, wanted: Iterable[Node]) -> None:
        self.needed = set(wanted)
        self.order = list(postorder(f.roots))
        for n in self.order:
            if n.kind == "real" and any(a in self.needed for a in n.args):
                self.needed.add(n)
        self.sums, self._axes = Sums(f.roots, lengths(f)), set(f.axes)

    def fresh(self, axis: str) -> str:
        """A name that no axis has."""
        number = 1
        while f"{axis}{number}" in self._axes:
            number += 1
        self._axes.add(f"{axis}{number}")
        return f"{axis}{number}"
