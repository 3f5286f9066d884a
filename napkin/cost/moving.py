"""Bytes that cross the levels of a machine, where H is what groups ask for.

H (`napkin.cost.traffic`) is of the program: every value that a group reads or writes, as often as
it does. What passes between L2 and the multiprocessors is more where sectors or boxes cross whole
that are used in part, and less where L1 still has what is read again. Memory gives each array once,
and again what L2 no longer has when later groups come to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from napkin.cost.machines import Machine
from napkin.cost.order import Order, fetched, seen
from napkin.cost.traffic import Direction, Transfer
from napkin.cost.visited import Bind
from napkin.diagram.types import STORAGE, stored_bytes

SECTOR = 32
"""Bytes that cross at once, at least."""

L2_HALVES = 2
"""Parts of L2 that each keep what their multiprocessors read: what all of them read is held once in
each. Products 4096^3 in four waves of 43 MB read all of it again in each (H100, 50 MB; counters in
docs/measurements)."""


@dataclass(frozen=True, eq=False)
class Moving:
    """What a kernel moves at given tiles.

    Attributes:
        moved: its readings and writings, and the values of each that groups ask for.
        order: in which its groups start.
        resident: groups that one multiprocessor holds at once.
        shared: bytes of shared memory of each.
        boxed: the tensors that are read in boxes, by descriptors.
        ahead: those that are copied to shared memory ahead of their use; neither passes L1.
        bind: the inputs that key sets read.
    """

    moved: Sequence[tuple[Transfer, int]]
    sizes: Mapping[str, int]
    tiles: Mapping[str, int]
    dtypes: Mapping[str, str]
    machine: Machine
    group: tuple[str, ...]
    order: Order
    resident: int
    shared: int
    boxed: frozenset[str] = frozenset()
    ahead: frozenset[str] = frozenset()
    bind: Bind | None = None

    # --- between L2 and the multiprocessors -----------------------------------------------------

    def crossing(self) -> dict[tuple[str, Direction], int]:
        """Bytes that pass between L2 and the multiprocessors, for each tensor and direction."""
        out: dict[tuple[str, Direction], int] = {}
        for t, values in self.moved:
            if t.direction == "read" and t.tensor in self.boxed and self._reaches_past(t):
                values = t.values(self.sizes, self.tiles, self.bind, boxed=True, past=True)
            count = values * self.sector(t) * self._missed(t)
            key = (t.tensor, t.direction)
            out[key] = out.get(key, 0) + math.ceil(count)
        return out

    def _reaches_past(self, t: Transfer) -> bool:
        """Whether boxes of a tensor may reach past its end."""
        return t.kernel is not None or any(self.sizes[a] % self.tiles[a] for a in t.axes)

    def from_l1(self) -> float:
        """Bytes that groups read of what L1 has already."""
        passed = ((t, n * self.sector(t)) for t, n in self.moved if self._cached(t))
        return sum(n * (1 - self._missed(t)) for t, n in passed)

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
                chunk = self._cached(t) and tile < size and axis not in self.group
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

    def _missed(self, t: Transfer) -> float:
        """Share of what is read of a tensor that L1 does not have: from an earlier pass of the
        group, or from a group that the multiprocessor ran before."""
        if not self._cached(t) or self.own_bytes * self.running > self.l1:
            return 1.0
        share = 1 / t.times
        if t.kernel is None and int(self.l1 // self.own_bytes) > self.running:
            # Groups in a row are dealt out to all multiprocessors, each of which fetches once.
            row = self.order.together(self._carried(t))
            share *= min(row, self.machine.sms) / max(row, 1)
        return share

    def _cached(self, t: Transfer) -> bool:
        """Whether a reading passes L1."""
        return t.direction == "read" and t.tensor not in self.boxed | self.ahead

    @cached_property
    def running(self) -> int:
        """Groups that a multiprocessor runs at once."""
        return max(1, min(self.resident, -(-self.order.groups // self.machine.sms)))

    @cached_property
    def l1(self) -> float:
        """Bytes of a multiprocessor's L1: what its groups leave of the memory that it shares."""
        unified = self.machine.level("shared").unified
        return unified.value - self.running * self.shared if unified else 0.0

    @cached_property
    def own_bytes(self) -> float:
        """Bytes that a group brings into L1."""
        found = (values * self.sector(t) / t.times for t, values in self.moved if self._cached(t))
        return max(1.0, sum(found) / max(self.order.groups, 1))

    # --- between memory and L2 ------------------------------------------------------------------

    def outer(self) -> dict[str, int]:
        """Bytes from and to the outermost memory ("read", "write").

        A wave of groups reads its tiles at once, and each of them once. The next finds in L2 what
        it read if all that is read in between fits there; so does a later pass of the same groups.
        """
        written = {t.tensor: self._size(t) for t, _ in self.moved if t.direction == "write"}
        total = {"read": sum(r.size for r in self.reads), "write": sum(written.values())}
        if total["read"] > self.l2:
            total["read"] = sum(map(self._fetched, self.reads))
        return total

    def _fetched(self, r: _Read) -> int:
        if r.of.times == 1 and len(r.carried) == len(self.group):
            return r.size
        times = 1
        if r.of.times > 1 and self.kept < 1 and self._missed(r.of) > 1 / r.of.times:
            times = r.of.times
        again = fetched(self.order, r.carried, self.wave, self.kept) - r.tiles
        return times * (r.size + round(max(again, 0) * r.each))

    @cached_property
    def wave(self) -> int:
        """Groups that run at once."""
        return self.machine.sms * self.resident

    @cached_property
    def l2(self) -> float:
        """Bytes of what all multiprocessors read that L2 holds."""
        return self.machine.level("l2").capacity.value / L2_HALVES

    @cached_property
    def kept(self) -> int:
        """Waves after which L2 still has what a wave read."""
        low, high = 0, 1  # after so many all is there, after so many it is not
        while self._live(high * self.wave) <= self.l2:
            low, high = high, 2 * high
        while high - low > 1:
            half = (low + high) // 2
            fits = self._live(half * self.wave) <= self.l2
            low, high = (half, high) if fits else (low, half)
        return low

    def _live(self, groups: int) -> float:
        """Bytes that so many groups, one after another, read of all tensors."""
        if groups >= self.order.groups:
            return math.inf  # which is asked where all together do not fit
        return sum(
            min(seen(self.order, r.carried, groups) * r.tile, groups * r.each) for r in self.reads
        )

    @cached_property
    def reads(self) -> tuple[_Read, ...]:
        """One reading of each tensor."""
        out: dict[str, _Read] = {}
        for t, values in self.moved:
            if t.direction == "write":
                continue
            carried, size = self._carried(t), self._size(t)
            tiles = self.order.tiles(carried)
            item = STORAGE[self.dtypes[t.tensor]].bits / 8
            each = values * item / (t.times * max(self.order.groups, 1))
            tile = size / max(tiles, 1)
            out[t.tensor] = _Read(t, carried, tiles, size, tile, min(tile, each))
        return tuple(out.values())

    def _carried(self, t: Transfer) -> frozenset[int]:
        return frozenset([i for i, a in enumerate(self.group) if a not in t.repeated])

    def _size(self, t: Transfer) -> int:
        """Bytes of a tensor."""
        values = math.prod([self.sizes[a] for a in t.own or t.axes])
        return stored_bytes(values, self.dtypes[t.tensor])


@dataclass(frozen=True)
class _Read:
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


@lru_cache(maxsize=4096)
def _sectors(length: float, start: float) -> float:
    """Sectors that a run of so many bytes touches, on average over the multiples of `start` bytes
    that it may begin at; 0 for the first byte alone."""
    step = math.gcd(int(start), SECTOR)
    places = range(0, SECTOR, max(step, 1))
    return sum(math.ceil((p + length) / SECTOR) for p in places) / len(places)
