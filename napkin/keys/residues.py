"""Axes as places within residues (position = step * place + residue), and as blocks.

The places of a residue are a slice of the axis; where the step does not divide the axis, the last
residues have one place fewer than the first. A block is a run of consecutive positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from napkin.ir.infer import pointwise
from napkin.ir.node import Node
from napkin.ir.selecting import position
from napkin.ir.whole_numbers import length, over, plus

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Split:
    """One axis that is split.

    Attributes:
        axis: the axis.
        place, residue: the axes that stand for it; residues are grouped one by one.
        step: how far apart places lie.
    """

    axis: str
    place: str
    residue: str
    step: int

    @property
    def length(self) -> Node:
        """How many places a residue has; the last residues may have one fewer."""
        rest = pointwise("sub", (length(self.axis), position(self.residue)))
        return over(plus(rest, self.step - 1), self.step)

    def lengths(self, size: int) -> Array:
        """How many places each residue of an axis of this size has."""
        return np.maximum(-(-(size - np.arange(self.step)) // self.step), 0)

    def inside(self, size: int) -> Array:
        """Which places of each residue there are, places by residues."""
        return np.arange(-(-size // self.step))[:, None] < self.lengths(size)

    @property
    def terms(self) -> tuple[int, Node, Node]:
        """The step, and the terms of place and residue."""
        return self.step, position(self.place), position(self.residue)


@dataclass(frozen=True)
class Blocks:
    """The blocks of an axis, of which each group holds one.

    Attributes:
        axis: the axis.
        place: the axis of its blocks.
        step: positions of a block; the last may have fewer.
    """

    axis: str
    place: str
    step: int


def sized(sizes: Mapping[str, int], splits: Sequence[Split | Blocks]) -> dict[str, int]:
    """Sizes with those of split axes: of places, the most that a residue has."""
    out = dict(sizes)
    for s in splits:
        out[s.place] = -(-sizes[s.axis] // s.step)
        if isinstance(s, Split):
            out[s.residue] = s.step
    return out
