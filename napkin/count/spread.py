"""How threads share a tile where nothing is multiplied: Triton's own layouts of blocks.

Threads go along the last axis first, each with `EACH` values of a tile that is read or with one of
others, then along the axis before it (`BlockedEncodingAttr`, Triton 3.6).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WARP = 32
"""Lanes of a warp."""

EACH = 8
"""Values that a thread loads at once: 16 bytes, of types of 16 bits."""

JOINING = 7
"""Operations that join what comes before a value of a recurrence to it, from another lane or warp:
2 that read a map, 3 that compose two of them, 2 that select."""


@dataclass(frozen=True)
class Spread:
    """A tile, shared by the threads of a group.

    Attributes:
        read: whether it is read, and not computed of smaller ones.
        tiles: its length along each axis.
        each: values of a thread that lie side by side, along each axis.
        lanes, warps: how many lie along each axis.
    """

    read: bool
    tiles: Mapping[str, int]
    each: Mapping[str, int]
    lanes: Mapping[str, int]
    warps: Mapping[str, int]

    @staticmethod
    def of(axes: Sequence[str], tiles: Mapping[str, int], warps: int, read: bool) -> Spread:
        """How threads share a tile with these axes."""
        each, lanes, across = dict.fromkeys(axes, 1), dict[str, int](), dict[str, int]()
        if read and axes:
            each[axes[-1]] = min(EACH, tiles[axes[-1]])
        of_warp, left = WARP, warps
        for a in reversed(axes):
            threads = max(1, tiles[a] // each[a])
            lanes[a] = min(threads, of_warp)
            across[a] = min(threads // lanes[a], left)
            of_warp, left = of_warp // lanes[a], left // across[a]
        return Spread(read, tiles, each, lanes, across)

    def copies(self, axes: Sequence[str]) -> int:
        """How many threads compute each value of an array with these axes that the tile is computed
        of: Triton converts what it loads to the layout of the tile, and computes on it there. What
        rows share counts in `row_lanes`, which was measured on tiles that are read."""
        across = [self.lanes[a] * self.warps[a] for a in self.lanes if a not in axes]
        return 1 if self.read else math.prod(across)

    def reducing(self, axes: Sequence[str]) -> float:
        """How often a lane exchanges values with another to reduce the tile along some axes: in
        steps over lanes, for each result that a thread has."""
        along = {*axes} & self.lanes.keys()
        steps = math.log2(math.prod([self.lanes[a] for a in along]))
        threads = {a: self.lanes[a] * self.warps[a] for a in self.lanes.keys() - along}
        return steps * math.prod([max(1, self.tiles[a] // n) for a, n in threads.items()])

    def joining(self, axis: str) -> float:
        """Operations for each value that join a recurrence's parts along an axis: in steps over
        lanes, and warp by warp; none where a tile has one place of it."""
        if axis not in self.lanes:
            return 0.0
        warps = self.warps[axis] if self.warps[axis] > 1 else 0
        return JOINING * (math.log2(self.lanes[axis]) + warps) / self.each[axis]
