"""The loads and stores of a labelled kernel's groups, at many tiles at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from napkin.lower.launch import LANES, ROW_BYTES
from napkin.lower.program import dims_of
from napkin.settings.labelled import Labelled, Moved
from napkin.settings.tiles import waste

Array = np.ndarray[Any, Any]

TOGETHER = 64
"""Settings that are looked at together."""


class Accesses(NamedTuple):
    """Loads and stores of all groups; lanes past the end of a tensor are asked, too.

    Attributes:
        number: loads and stores of whole warps, of what no tensor descriptor serves.
        lines: lines of L1 that these touch.
        moved: values that these move.
        scattered: of the lines, those beyond what the values would fill.
        singles: values of streamed operands that are loaded one by one.
    """

    number: float
    lines: float
    moved: float
    scattered: float
    singles: float


def with_accesses(
    of: Labelled, settings: Iterable[Mapping[str, int]]
) -> Iterator[tuple[Mapping[str, int], Accesses]]:
    """Tiles, each with what groups load and store then."""
    left = iter(settings)
    while some := list(islice(left, TOGETHER)):
        yield from zip(some, map(Accesses._make, _Settings(of, some).accesses()), strict=True)


class _Settings:
    """Some settings of tiles: arrays have a row for each, and a column for each axis."""

    def __init__(self, of: Labelled, settings: Sequence[Mapping[str, int]]) -> None:
        self.of, self.settings, axes = of, settings, of.kernel.axes
        self.at = {a: i for i, a in enumerate(axes)}
        self.tiles = np.array([[s[a] for a in axes] for s in settings], int)
        self.cuts = -(-np.array([of.sizes[a] for a in axes], int) // self.tiles)

    def _values(self, m: Moved) -> Array:
        """The values that groups ask for."""
        if m.of.kernel is not None or m.of.ragged:
            return np.array([m.of.values(self.of.sizes, s) for s in self.settings], float)
        return m.once * self._along(self.cuts, m.of.again)

    def _along(self, each: Array, axes: Iterable[str]) -> Array:
        """The products along some axes."""
        return each[:, [self.at[a] for a in axes]].prod(axis=1, dtype=float)

    def accesses(self) -> list[list[float]]:
        """The numbers of `Accesses`, of each setting."""
        of, line = self.of, self.of.machine.l2_line
        padding = np.ones(self.tiles.shape)
        for a, i in self.at.items():
            padding[:, i] = waste(of.kernel, of.sizes, a, self.tiles[:, i])
        total = np.zeros((len(self.settings), len(Accesses._fields)))
        for m in of.moved:
            if m.served and not m.single:
                continue
            values = self._values(m)
            total[:, 4] += values * m.single
            if m.served:
                continue
            lanes = values * self._along(padding, m.along)
            each = lanes * m.bits / 8 / m.width / LANES
            touched, filled = self._touched(m), LANES * m.width / line
            total[:, 0] += each
            total[:, 1] += each * touched
            total[:, 2] += lanes
            total[:, 3] += each * np.maximum(0.0, touched - filled)
        return total.tolist()

    def _touched(self, m: Moved) -> Array | float:
        """Lines that a load or store of a warp touches. Its lanes lie side by side in rows of a
        tile. At computed positions they lie along its first axes, as no axis is contiguous (Triton
        3.6, coalescing), and in a tile of one dimension as those of other loads do, a vector apart.
        Positions that are read may be anywhere."""
        if m.anywhere:
            return LANES
        if not m.within:
            return 1.0
        last = self.tiles[:, self.at[m.within[-1]]] * m.bits / 8
        row = np.minimum(self.of.machine.l2_line, last)
        if m.of.at is None:
            return np.maximum(1.0, LANES * m.width / row)
        every = [self._at_once(m, s) for s in self.settings]
        rows, side_by_side = np.array(every, float).T
        return rows * np.maximum(1.0, side_by_side / row)

    def _at_once(self, m: Moved, tiles: Mapping[str, int]) -> tuple[int, int]:
        """Rows of a tile in which lanes of a warp lie at computed positions, and the bytes between
        the first and the last in one."""
        every = [d for d in dims_of(self.of.kernel, tiles) if not {*m.within}.isdisjoint(d)]
        dims = [n for d in every if (n := math.prod([tiles[a] for a in d])) > 1]
        rows = min(LANES, math.prod(dims[:-1]))
        return rows, LANES // rows * (m.width if len(dims) > 1 else ROW_BYTES)
