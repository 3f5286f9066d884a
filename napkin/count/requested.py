"""What the groups of a kernel ask for at given tiles, and how that lies in memory: in sectors, in
boxes, and in tiles of which each group takes some.

This holds however many groups run at once, in whatever order; `napkin.count.crossing` has the bytes
that pass between the levels of a machine then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from napkin.count.traffic import Transfer
from napkin.count.visited import Bind
from napkin.ir.types import STORAGE, stored_bytes

SECTOR = 32
"""Bytes that cross at once, at least."""


@dataclass(frozen=True, eq=False)
class Asked:
    """What the groups of a kernel ask for at given tiles, however many of them run at once.

    Attributes:
        moved: its readings and writings, and the values of each that groups ask for.
        group: the grouped axes.
        boxed: the tensors that are read in boxes, by descriptors.
        ahead: those that are copied to shared memory ahead of their use; neither passes L1.
        bind: the inputs that key sets read.
    """

    moved: Sequence[tuple[Transfer, int]]
    sizes: Mapping[str, int]
    tiles: Mapping[str, int]
    dtypes: Mapping[str, str]
    group: tuple[str, ...]
    boxed: frozenset[str] = frozenset()
    ahead: frozenset[str] = frozenset()
    bind: Bind | None = None

    @cached_property
    def groups(self) -> int:
        """How many groups there are."""
        return math.prod(self._along)

    @cached_property
    def _along(self) -> list[int]:
        """Groups along each of the grouped axes."""
        return [self._cuts([a]) for a in self.group]

    # --- between L2 and the multiprocessors -----------------------------------------------------

    @cached_property
    def crossing(self) -> list[tuple[Transfer, float]]:
        """Bytes that pass between L2 and the multiprocessors, where L1 has none of them."""
        return [(t, self._passing(t, values) * self.sector(t)) for t, values in self.moved]

    def _passing(self, t: Transfer, values: int) -> int:
        if t.direction == "read" and t.tensor in self.boxed and self._reaches_past(t):
            return t.values(self.sizes, self.tiles, self.bind, boxed=True, past=True)
        return values

    def _reaches_past(self, t: Transfer) -> bool:
        """Whether boxes of a tensor may reach past its end."""
        return t.kernel is not None or any(self.sizes[a] % self.tiles[a] for a in t.axes)

    def cached(self, t: Transfer) -> bool:
        """Whether a reading passes L1."""
        return t.direction == "read" and not (t.tensor in self.boxed or t.tensor in self.ahead)

    @cached_property
    def through_l1(self) -> list[tuple[Transfer, float]]:
        """Bytes that groups ask for of what passes L1."""
        return [(t, n * self.sector(t)) for t, n in self.moved if self.cached(t)]

    @cached_property
    def own_bytes(self) -> float:
        """Bytes that a group brings into L1."""
        found = sum(asked / self.times(t) for t, asked in self.through_l1)
        return max(1.0, found / max(self.groups, 1))

    def times(self, t: Transfer) -> int:
        """How often a group reads the same values of a tensor."""
        return t.times * self._cuts(a for a, _ in t.chunked)

    def rounds(self, t: Transfer) -> int:
        """How often a group comes back to a tensor after it has read other values of it."""
        return t.times * self._cuts(t.left)

    def _cuts(self, axes: Iterable[str]) -> int:
        return math.prod([-(-self.sizes[a] // self.tiles[a]) for a in axes])

    def sector(self, t: Transfer) -> float:
        """Bytes that cross for each value of a tensor: whole sectors, of which a tile takes the
        runs of values that lie side by side in memory. What is read at computed positions counts
        as though these followed each other."""
        return self._each_sector[id(t)]

    @cached_property
    def _each_sector(self) -> dict[int, float]:
        return {id(t): self._of_sectors(t) for t, _ in self.moved}

    def _of_sectors(self, t: Transfer) -> float:
        item = STORAGE[self.dtypes[t.tensor]].bits / 8
        places = {s.axis: (s.out, s.stride) for s in t.slides}
        # Values of a run, from one to the next, runs of a tile; and what all runs begin at.
        run, apart, runs, stride, start = 1, 0, 1, 1, 0
        for own in reversed(t.own or t.axes):
            axis, step = places.get(own, (own, 1))
            if axis not in self.tiles:
                return item
            size, tile = self.sizes[axis], min(self.tiles[axis], self.sizes[axis])
            moves = self._anywhere(t, axis) or step > 1 or apart
            if size > 1 and (tile < size or apart):
                start = math.gcd(start, stride * (1 if moves else tile))
            if apart:
                runs = tile if runs == 1 else runs
            elif step > 1:
                apart, runs = step * run, tile
            else:
                # L1 has the sector in which the chunk before ended.
                chunk = self.cached(t) and tile < size and axis not in self.group
                run *= size if chunk else tile
                apart = run // tile * size if tile < size else 0
            stride *= size
        if runs > 1 and apart * item < SECTOR:  # these share sectors
            return max(item, max(SECTOR, runs * apart * item) / (runs * run))
        if t.direction == "read" and t.tensor in self.boxed and int(start * item) % SECTOR:
            # Where rows may begin between sectors, a box asks for one more in each of its rows.
            return (math.ceil(run * item / SECTOR) + 1) * SECTOR / run
        return max(item, _sectors(run * item, start * item) * SECTOR / run)

    def _anywhere(self, t: Transfer, axis: str) -> bool:
        """Whether chunks along an axis may begin at any position."""
        return t.kernel is not None and axis in t.kernel.stream.axes

    # --- between memory and L2 ------------------------------------------------------------------

    @cached_property
    def once(self) -> dict[str, int]:
        """Bytes of all that is read and of all that is written ("read", "write"), once each."""
        return whole_bytes((t for t, _ in self.moved), self.sizes, self.dtypes)

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """One reading of each tensor."""
        out: dict[str, Read] = {}
        for t, values in self.moved:
            if t.direction == "write":
                continue
            carried, size = self.carried(t), _whole(t, self.sizes, self.dtypes)
            tiles = math.prod([self._along[i] for i in carried])
            item = STORAGE[self.dtypes[t.tensor]].bits / 8
            each = values * item / (self.times(t) * max(self.groups, 1))
            tile = size / max(tiles, 1)
            out[t.tensor] = Read(t, carried, tiles, size, tile, min(tile, each))
        return tuple(out.values())

    def carried(self, t: Transfer) -> frozenset[int]:
        """The grouped axes that a tensor carries, by their places."""
        return frozenset([i for i, a in enumerate(self.group) if a not in t.repeated])


@dataclass(frozen=True)
class Read:
    """One reading of a tensor by groups.

    Attributes:
        of: the reading.
        carried: the grouped axes that it carries, by their places.
        tiles: how many tiles these cut it into.
        size, tile: bytes of the tensor, and of a tile on average.
        each: bytes that a group reads of it in one pass; of windows, at most a tile.
    """

    of: Transfer
    carried: frozenset[int]
    tiles: int
    size: int
    tile: float
    each: float


def whole_bytes(
    parts: Iterable[Transfer], sizes: Mapping[str, int], dtypes: Mapping[str, str]
) -> dict[str, int]:
    """Bytes of the tensors that are read and of those that are written ("read", "write")."""
    found: dict[str, dict[str, int]] = {"read": {}, "write": {}}
    for t in parts:
        found[t.direction][t.tensor] = _whole(t, sizes, dtypes)
    return {way: sum(each.values()) for way, each in found.items()}


def _whole(t: Transfer, sizes: Mapping[str, int], dtypes: Mapping[str, str]) -> int:
    """Bytes of a tensor."""
    return stored_bytes(math.prod([sizes[a] for a in t.own or t.axes]), dtypes[t.tensor])


@lru_cache(maxsize=4096)
def _sectors(length: float, start: float) -> float:
    """Sectors that a run of so many bytes touches, on average over the multiples of `start` bytes
    that it may begin at; 0 for the first byte alone."""
    step = math.gcd(int(start), SECTOR)
    places = range(0, SECTOR, max(step, 1))
    return sum(math.ceil((p + length) / SECTOR) for p in places) / len(places)
