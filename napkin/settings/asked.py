"""What the groups of a labelled kernel ask for at given tiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

from napkin.algebra.terms import is_read
from napkin.count.requested import SECTOR, Requests
from napkin.count.traffic import Transfer
from napkin.ir.node import postorder
from napkin.ir.types import stored_bytes
from napkin.lower.launch import LANES, ROW_BYTES
from napkin.lower.program import Program, looped
from napkin.schedule import Schedule
from napkin.settings.labelled import COPIED, Labelled, Moved, has_rows
from napkin.settings.tiles import waste


class Asked:
    """The loads and stores of a labelled kernel at given tiles."""

    def __init__(self, of: Labelled, tiles: Mapping[str, int]) -> None:
        self.of, self.tiles = of, tiles
        self.cuts = {a: -(-of.sizes[a] // n) for a, n in tiles.items()}

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

    @cached_property
    def singles(self) -> int:
        """Values of streamed operands that are loaded one by one."""
        each = zip(self.of.moved, self.values, strict=True)
        return sum(n for m, (_, n) in each if m.single)

    @cached_property
    def accesses(self) -> tuple[float, float, float, float]:
        """Loads or stores of whole warps, lines that they touch, values that they move, and lines
        beyond those that these would fill; lanes past the end of a tensor are asked, too."""
        accesses = lines = moved = more = 0.0
        for m, (t, n) in zip(self.of.moved, self.values, strict=True):
            if not m.served:
                lanes = n * self.lanes([a for a in t.axes if a in self.tiles])
                each = lanes * m.bits / 8 / m.width / LANES
                touched, filled = self._touched(m), LANES * m.width / self.of.machine.l2_line
                accesses, lines = accesses + each, lines + each * touched
                moved, more = moved + lanes, more + each * max(0.0, touched - filled)
        return accesses, lines, moved, more

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

    def _touched(self, m: Moved) -> float:
        """Lines that a load or store of a warp touches. Its lanes lie side by side in rows of a
        tile. At computed positions they lie along its first axes, as no axis is contiguous (Triton
        3.6, coalescing), and in a tile of one dimension as those of other loads do, a vector apart.
        Positions that are read may be anywhere."""
        t, line = m.of, self.of.machine.l2_line
        if t.at is not None and any(map(is_read, postorder([t.at]))):
            return LANES
        axes = [a for a in t.tile or t.axes if a in self.tiles]
        if not axes:
            return 1.0
        row = min(line, self.tiles[axes[-1]] * m.bits / 8)
        if t.at is None:
            return max(1.0, LANES * m.width / row)
        dims = [n for d in self._program.shape_of(axes) if (n := self._program.extent(d)) > 1]
        rows = min(LANES, math.prod(dims[:-1]))
        side_by_side = LANES // rows * (m.width if len(dims) > 1 else ROW_BYTES)
        return rows * max(1.0, side_by_side / row)

    @cached_property
    def _program(self) -> Program:
        return looped(self.of.kernel, Schedule(self.tiles))
