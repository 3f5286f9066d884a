"""What the groups of a kernel ask for at given tiles, and how that lies in memory: in sectors, in
boxes, and in tiles of which each group takes some.

This holds however many groups run at once, in whatever order; `napkin.count.crossing` has the bytes
that pass between the levels of a machine then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from napkin.count.traffic import Transfer
from napkin.count.visited import Bind
from napkin.ir.types import STORAGE, stored_bytes

SECTOR = 32
"""Bytes that cross at once, at least."""


@dataclass(frozen=True, eq=False)
class Requests:
    """What the groups of a kernel ask for at given tiles, however many of them run at once.

    Attributes:
        moved: its readings and writings, and the values of each that groups ask for.
        group: the grouped axes.
        boxed: the tensors that are read in boxes, by descriptors.
        ahead: those that are copied to shared memory ahead of their use; neither passes L1.
        bind: the inputs that key sets read.
        known: what holds of such requests at other tiles, too: bytes of whole tensors, and of
            sectors by the tiles that these depend on.
    """

    moved: Sequence[tuple[Transfer, int]]
    sizes: Mapping[str, int]
    tiles: Mapping[str, int]
    dtypes: Mapping[str, str]
    group: tuple[str, ...]
    boxed: frozenset[str] = frozenset()
    ahead: frozenset[str] = frozenset()
    bind: Bind | None = None
    known: dict[object, Any] = field(default_factory=dict[object, Any])

    @cached_property
    def groups(self) -> int:
        """How many groups there are."""
        return math.prod(self._along)

    @cached_property
    def _along(self) -> list[int]:
        """Groups along each of the grouped axes."""
        return [-(-self.sizes[a] // self.tiles[a]) for a in self.group]

    # --- between L2 and the multiprocessors -----------------------------------------------------

    @cached_property
    def crossing(self) -> list[tuple[Transfer, float]]:
        """Bytes that pass between L2 and the multiprocessors, where L1 has none of them."""
        return [(t, self._passing(t, values) * self.sector(t)) for t, values in self.moved]

    def _passing(self, t: Transfer, values: int) -> int:
        if not self._boxed(t):
            return values
        rests = [self.sizes[a] % self.tiles[a] for a in t.axes]
        if t.kernel is not None or any(rests):  # boxes reach past the end
            return t.values(self.sizes, self.tiles, self.bind, boxed=True, past=True)
        return values

    def _boxed(self, t: Transfer) -> bool:
        return t.direction == "read" and t.tensor in self.boxed

    def cached(self, t: Transfer) -> bool:
        """Whether a reading passes L1."""
        return t.direction == "read" and not (t.tensor in self.boxed or t.tensor in self.ahead)

    @cached_property
    def through_l1(self) -> list[tuple[Transfer, float]]:
        """Bytes that groups ask for of what passes L1."""
        return [(t, crossing) for t, crossing in self.crossing if self.cached(t)]

    @cached_property
    def own_bytes(self) -> float:
        """Bytes that a group brings into L1."""
        found = sum(requests / self.times(t) for t, requests in self.through_l1)
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
        """Bytes that cross for each value of a tensor, as sectors cross whole. Values at computed
        positions count as though these followed each other."""
        axes = (*t.axes, *t.own, *[s.out for s in t.slides])
        at = t, self.cached(t), *[self.tiles.get(a) for a in axes]
        if at not in self.known:
            item, runs = STORAGE[self.dtypes[t.tensor]].bits / 8, self._runs(t)
            self.known[at] = item if runs is None else runs.bytes_each(item, self._boxed(t))
        return self.known[at]

    def _runs(self, t: Transfer) -> Runs | None:
        """How a tile lies in memory: its axes are gone through from the contiguous one outwards.
        None where one of them has no tile."""
        windows = {s.axis: (s.out, s.stride) for s in t.slides}
        length, distance, number, start = 1, 0, 1, 0
        stride = 1  # from one position of an axis to the next, in values
        for own in reversed(t.own or t.axes):
            axis, step = windows.get(own, (own, 1))
            if axis not in self.tiles:
                return None
            size, tile = self.sizes[axis], min(self.tiles[axis], self.sizes[axis])
            if size > 1 and (tile < size or distance):
                everywhere = distance or step > 1 or self._anywhere(t, axis)
                start = math.gcd(start, stride * (1 if everywhere else tile))
            if distance:  # the axes within have cut the tensor in runs
                number = number if number > 1 else tile
            elif step > 1:
                distance, number = step * stride, tile
            else:
                length = stride * (size if self._follows(t, axis) else tile)
                distance = length // tile * size if tile < size else 0
            stride *= size
        return Runs(length, distance, number, start)

    def _anywhere(self, t: Transfer, axis: str) -> bool:
        """Whether chunks along an axis may begin at any position."""
        return t.kernel is not None and axis in t.kernel.stream.axes

    def _follows(self, t: Transfer, axis: str) -> bool:
        """Whether a group reads chunk after chunk along an axis through L1, which still has the
        sector in which the chunk before ended: all chunks are one run."""
        return self.cached(t) and axis not in self.group

    # --- between memory and L2 ------------------------------------------------------------------

    @cached_property
    def once(self) -> dict[str, int]:
        """Bytes of all that is read and of all that is written ("read", "write"), once each."""
        if "once" not in self.known:
            parts = (t for t, _ in self.moved)
            self.known["once"] = whole_bytes(parts, self.sizes, self.dtypes)
        return self.known["once"]

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """One reading of each tensor."""
        out: dict[str, Read] = {}
        for t, values in self.moved:
            if t.direction != "read":
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
class Runs:
    """How a tile lies in memory: runs of contiguous values, evenly spaced. All in values.

    Attributes:
        length: of a run.
        distance: from the start of a run to that of the next; 0 where the tile is contiguous.
        number: how many runs are so far from each other.
        start: runs may begin at its multiples from the tensor's first value; 0 for that alone.
    """

    length: int = 1
    distance: int = 0
    number: int = 1
    start: int = 0

    def bytes_each(self, item: float, boxed: bool) -> float:
        """Bytes of the sectors of a tile for each of its values, of `item` bytes."""
        distance, length, start = (n * item for n in (self.distance, self.length, self.start))
        if self.number > 1 and distance < SECTOR:  # runs share sectors
            return max(item, max(SECTOR, self.number * distance) / (self.number * self.length))
        # Where rows may begin inside a sector, a box asks for one more in each of its rows.
        more = boxed and int(start) % SECTOR
        sectors = math.ceil(length / SECTOR) + 1 if more else _sectors(length, start)
        return max(item, sectors * SECTOR / self.length)


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
    """Bytes of the tensors that are read and of those that are written ("read", "write"); of one
    that groups add to, both."""
    found: dict[str, dict[str, int]] = {"read": {}, "write": {}}
    for t in parts:
        for way in ("read", "write") if t.direction == "add" else (t.direction,):
            found[way][t.tensor] = _whole(t, sizes, dtypes)
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
