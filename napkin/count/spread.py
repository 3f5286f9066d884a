"""How threads share a tile where nothing is multiplied: Triton's own layouts of blocks.

Threads go along the last axis of a computed tile first, each with one value, then along the axis
before it (`BlockedEncodingAttr`, Triton 3.6). Of a tile that is read they go along the axis that is
contiguous first, each with 16 bytes, then along the others from the first on (its coalescing).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

WARP = 32
"""Lanes of a warp."""

BANKS = 32
"""Banks of shared memory, each of which gives 4 bytes in a clock."""

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
    def of(
        axes: Sequence[str], tiles: Mapping[str, int], warps: int, read: str = "", at_once: int = 8
    ) -> Spread:
        """How threads share a tile with these axes, of which they read so many values at once on
        the one that is contiguous."""
        each, lanes, across = dict.fromkeys(axes, 1), dict[str, int](), dict[str, int]()
        if read:
            values = math.prod([tiles[a] for a in axes]) // (WARP * max(1, warps))
            each[read] = min(at_once, tiles[read], max(1, values))
        of_warp, left = WARP, warps
        for a in [read, *(a for a in axes if a != read)] if read else reversed(axes):
            threads = max(1, tiles[a] // each[a])
            lanes[a] = min(threads, of_warp)
            across[a] = min(threads // lanes[a], left)
            of_warp, left = of_warp // lanes[a], left // across[a]
        return Spread(bool(read), tiles, each, lanes, across)

    def copies(self, axes: Sequence[str]) -> int:
        """How many threads compute each value of an array with these axes that the tile is computed
        of: Triton converts what it loads to the layout of the tile, and computes on it there. What
        rows share counts in `row_lanes`, which was measured on tiles that are read."""
        across = [self.lanes[a] * self.warps[a] for a in self.lanes if a not in axes]
        return 1 if self.read else math.prod(across)

    def reducing(self, axes: Sequence[str]) -> float:
        """How often a lane exchanges values with another to reduce the tile along some axes, one
        after another: in steps over lanes, for each result that a thread has."""
        return sum(math.log2(self.lanes[a]) * self._own(rest) for a, rest in self._in_turn(axes))

    def crossing(self, axes: Sequence[str]) -> int:
        """Clocks of shared memory in which warps pass each other their parts of results, to reduce
        the tile along some axes, one after another; none where a warp has all of each. Threads
        write their parts, and read the results (Triton 3.6)."""
        clocks = 0
        for a, rest in self._in_turn(axes):
            if (along := self.warps[a]) > 1:
                every = math.prod(self.warps.values()) * self._own(rest)
                clocks += 2 * every * self._meeting(rest, along)
        return clocks

    def _meeting(self, axes: Sequence[str], places: int) -> int:
        """How many lanes of a warp meet in a bank, where each result along some axes has so many
        places. The results of a thread lie side by side, and then those of the next lane."""
        own = [a for a in self.lanes if a in axes and (self.each[a] > 1 or self._own([a]) > 1)]
        own.sort(key=lambda a: self.each[a] == 1)
        lanes, apart, bits = 1, places, set[int]()
        for a in [*own, *(a for a in self.lanes if a in axes and a not in own)]:
            first = (apart * self.each[a]).bit_length() - 1
            bits |= {first + i for i in range(self.lanes[a].bit_length() - 1)}
            lanes, apart = lanes * self.lanes[a], apart * self.tiles[a]
        return max(1, lanes >> len([b for b in bits if BANKS >> b > 1]))

    def _in_turn(self, axes: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
        """The axes in the order in which kernels reduce them, each with those that are left."""
        left = [*self.each]
        for a in [a for a in reversed(left) if a in axes]:
            left.remove(a)
            yield a, [*left]

    def _own(self, axes: Sequence[str]) -> int:
        """Values of a thread along some axes."""
        return math.prod([max(1, self.tiles[a] // self.lanes[a] // self.warps[a]) for a in axes])

    def joining(self, axis: str) -> float:
        """Operations for each value that join a recurrence's parts along an axis: in steps over
        lanes, and warp by warp; none where a tile has one place of it."""
        if axis not in self.lanes:
            return 0.0
        warps = self.warps[axis] if self.warps[axis] > 1 else 0
        return JOINING * (math.log2(self.lanes[axis]) + warps) / self.each[axis]
