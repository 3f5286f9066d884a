"""What the groups of a labelled kernel ask for at given tiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

from napkin.count.requested import SECTOR, Requests
from napkin.count.residency import extent
from napkin.count.spread import Spread
from napkin.count.traffic import Transfer
from napkin.ir.node import Node, over
from napkin.ir.types import STORAGE, stored_bytes
from napkin.lower.launch import LANES, ROW_BYTES
from napkin.lower.program import dims_of
from napkin.settings.accesses import Accesses, with_accesses
from napkin.settings.labelled import COPIED, Labelled, Moved, has_rows
from napkin.settings.tiles import waste


class Asked:
    """The loads and stores of a labelled kernel at given tiles.

    Args:
        accesses: where these are known.
    """

    def __init__(
        self, of: Labelled, tiles: Mapping[str, int], accesses: Accesses | None = None
    ) -> None:
        self.of, self.tiles, self._accesses = of, tiles, accesses
        self.cuts = {a: -(-of.sizes[a] // n) for a, n in tiles.items()}

    @cached_property
    def accesses(self) -> Accesses:
        """What groups load and store."""
        return self._accesses or next(with_accesses(self.of, [self.tiles]))[1]

    def at_once(self, axes: Sequence[str]) -> tuple[str, int]:
        """The axis along which threads read a tile with these axes first, and the values of it that
        one reads at once; "" where nothing reads all of the tile."""
        long = [a for a in axes if self.tiles[a] > 1]
        found = [x for x in self.of.kernel.reads if long and {*long} <= {*x.leaf.axes}]
        if not found:
            return "", 1
        bits = min(STORAGE[self.of.dtypes[x.tensor]].bits for x in found)
        last = found[0].leaf.axes[-1]
        return (last, 8 * ROW_BYTES // bits) if last in long else (long[0], 1)

    def exchanges(self, n: Node, warps: int) -> tuple[float, int]:
        """Values that a lane takes from others to reduce a tile, along one of its dimensions after
        another, and clocks of shared memory in which values pass between warps for that."""
        axes = [a for a in self.of.order if a in n.args[0].axes]
        every = [d for d in dims_of(self.of.kernel, self.tiles) if not {*axes}.isdisjoint(d)]
        read, values = ("", 1) if self.of.stepped else self.at_once(axes)
        dims = {d[-1]: extent({*d} & {*axes}, self.tiles) for d in every}
        first = next((d[-1] for d in every if read in d), "")
        spread = Spread.of([*dims], dims, warps, first, values)
        gone = [d[-1] for d in every if not {*over(n)}.isdisjoint(d)]
        return spread.reducing(gone), spread.crossing(gone)

    def lanes(self, axes: Sequence[str]) -> float:
        """Lanes computed over lanes wanted along axes."""
        return math.prod([self._padding[a] for a in axes], start=1.0)

    @cached_property
    def _padding(self) -> dict[str, float]:
        """`lanes` of each axis."""
        return {a: waste(self.of.kernel, self.of.sizes, a, n) for a, n in self.tiles.items()}

    @cached_property
    def lines(self) -> dict[str, float]:
        """Lines of L2 that the rows of a tensor's boxes touch, over those that they would fill."""
        reads = [m for m in self.of.moved if m.served and m.of.direction == "read"]
        boxed = [m for m in reads if m.of.tensor in self.of.in_boxes and has_rows(m.of)]
        return {m.of.tensor: self._lines(m) for m in boxed}

    def _lines(self, m: Moved) -> float:
        """A box crosses by pieces of rows, of a line at most, that begin anywhere in one; where it
        takes rows whole, one piece begins in the line in which another ends."""
        axis = (m.of.own or m.of.axes)[-1]
        row, piece = (n * m.bits // 8 for n in (self.of.sizes[axis], self.tiles[axis]))
        if piece >= row:
            return 1.0
        line = self.of.machine.l2_line
        piece = min(piece, line)
        begins = math.gcd(row, piece, line)
        return (piece + line - begins) / piece

    @cached_property
    def values(self) -> list[tuple[Transfer, int]]:
        """The values that groups ask for."""
        return [(m.of, self._values(m)) for m in self.of.moved]

    def _values(self, m: Moved) -> int:
        if m.of.kernel is not None or m.of.ragged:
            return m.of.values(self.of.sizes, self.tiles)
        return m.once * math.prod([self.cuts[a] for a in m.of.again])

    def requests(self, stages: int) -> Requests:
        """What groups ask for, and which of it is loaded ahead."""
        return self._ahead if stages > 1 else self._none_ahead

    @cached_property
    def _none_ahead(self) -> Requests:
        return self._requests(frozenset())

    @cached_property
    def _ahead(self) -> Requests:
        return self._requests(self.of.ahead) if self.of.ahead else self._none_ahead

    def _requests(self, ahead: frozenset[str]) -> Requests:
        of = self.of
        return Requests(
            self.values, of.sizes, self.tiles, of.dtypes, of.kernel.group, of.in_boxes, ahead,
            known=of.known,
        )  # fmt: skip

    @cached_property
    def requested_bytes(self) -> int:
        """Bytes that groups ask for."""
        return sum(stored_bytes(n, self.of.dtypes[t.tensor]) for t, n in self.values)

    @cached_property
    def stored_bytes(self) -> int:
        """Bytes that are written after the loops."""
        return sum(
            stored_bytes(n, self.of.dtypes[t.tensor])
            for t, n in self.values
            if t.direction != "read" and not t.streamed
        )

    @cached_property
    def finishing_bytes(self) -> int:
        """Bytes that are read after the loops."""
        last = [(t, n) for t, n in self.values if t.direction == "read"]
        last = [(t, n) for t, n in last if t.tensor in self.of.finishing]
        return sum(stored_bytes(n, self.of.dtypes[t.tensor]) for t, n in last)

    @cached_property
    def emitted(self) -> int:
        """Values that loops of products store, chunk by chunk."""
        stored = [n for t, n in self.values if t.direction == "write" and t.streamed]
        return sum(stored) if self.of.live.products else 0

    @cached_property
    def added_bytes(self) -> int:
        """Bytes of what groups add to what memory holds."""
        adds = [(t, n) for t, n in self.values if t.direction == "add"]
        return sum(stored_bytes(n, self.of.dtypes[t.tensor]) for t, n in adds)

    def late(self, warps: int) -> float:
        """Loads that every step of a loop waits for, whose steps wait for each other: those of
        which a thread takes fewer bytes than are copied ahead. With several warps a reduction has
        barriers, which later loads do not pass; what lies in a sector that an earlier step has read
        is there."""
        waited = [self._fresh(m) for m in self.of.moved if self._comes_late(m, warps)]
        most = len(self.of.joined) + 1 if warps > 1 else 1
        return sum(sorted(waited)[-most:])

    def _comes_late(self, m: Moved, warps: int) -> bool:
        if m.of.direction != "read" or not m.of.streamed:
            return False
        each = math.prod(self.tiles[a] for a in m.of.axes if a in self.tiles) / (warps * LANES)
        return each * m.bits / 8 < COPIED

    def _fresh(self, m: Moved) -> float:
        """Share of the steps in which a load finds a sector that no earlier one has read."""
        last = (m.of.own or m.of.axes)[-1:]
        return min(1.0, m.bits / 8 / SECTOR) if set(last) <= {*self.of.kernel.stream.axes} else 1.0
