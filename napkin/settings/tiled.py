"""A labelled kernel at given tiles: what holds whatever its warps and stages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

from napkin.algebra.contraction import Contraction
from napkin.count.matrix_products import (
    WARPGROUP_ROWS,
    as_written,
    copies,
    held,
    in_pieces,
    issued,
    operand_copies,
    readings,
    turns,
)
from napkin.count.residency import Copies, extent, operand_bytes, register_bytes, tile_bytes
from napkin.count.shares import longest, share
from napkin.count.spread import Spread
from napkin.count.starting_order import Order
from napkin.count.work import Count
from napkin.derive.kernel import tensor_of, tile_axes
from napkin.ir.node import Node
from napkin.ir.types import stored_bytes
from napkin.lower.descriptors import may_persist
from napkin.lower.per_thread import along_memory, per_thread, with_partials
from napkin.lower.program import looped
from napkin.schedule import Schedule
from napkin.settings.accesses import Accesses
from napkin.settings.asked import Asked
from napkin.settings.labelled import Labelled, described_bytes
from napkin.target import MAX_BOX

FEW = 0.1
"""Chunks with a test, over all that are visited, below which registers may spill in testing: at
0.06 (causal) it did not matter, at 0.12 (a window of 2,048) it cost 7 % (docs/measurements)."""

AT_ONCE = 6
"""Of the values of a product that is finished in registers, one in so many is computed on at once:
a bias and gelu take 8 to 36 registers of a thread beside 128 values and 6 beside 64, for seven
tiles as Triton 3.6 compiles them for sm_90."""

OVERHEAD, OVERHEAD_TESTS = (4, 28), (12, 40)
"""Registers of a thread beside tiles where operands come in boxes, without loads that run ahead and
with them; and of loops that test some chunks. For ten tiles of attention -4 to 9 and 24 to 28, of
causal attention 2 to 16 and 27 to 61, as Triton 3.6 and 3.9 compile them for sm_90."""

ROW_LANES, WARP_ROWS, THREADS = 8, 16, 128
"""Lanes of a warp that have the same columns of a product, in rows of their own, and rows of a warp
at once (PTX ISA, mma and wgmma); threads of a warpgroup."""

READ = 4
"""Operations of a thread for each number of a column that it reads, as it comes through shared
memory: dK and dV of attention, 128 heads of 4,096 x 64, took 2,364 us, and causal 1,265 (H100)."""

ROW_SHARE, PER_THREAD_SHARE, OVERHEAD_ROWS = 115, 75, 14
"""Registers of a thread where nothing is multiplied: of its tiles, in percent, those of folds that
lanes keep apart, and beside them. For 62 tiles of rows held whole within 16 of what Triton 3.6
takes for sm_90, two excepted; for lanes within 30 of 60 tiles."""

_Work = tuple[dict[str, float], dict[str, float]]
"""Operations per pipe: of all that is done, and of what is done after the loops."""


class Tiled(Asked):
    """A labelled kernel at given tiles, whatever its warps and stages."""

    def __init__(
        self, of: Labelled, tiles: Mapping[str, int], accesses: Accesses | None = None
    ) -> None:
        super().__init__(of, tiles, accesses)
        self._per_thread: dict[int, bool] = {}  # by warps
        self._registers: dict[int, int] = {}  # by warps
        self._joins: dict[int, tuple[float, float]] = {}  # by warps
        self._work: dict[int, _Work] = {}  # by warps, where these matter
        self._multiplied: dict[Node, bool] = {}
        self._bare: dict[int, int] = {}  # by warps

    @cached_property
    def groups(self) -> int:
        """How many groups there are."""
        return math.prod([self.cuts[a] for a in self.of.kernel.group])

    @property
    def busiest(self) -> int:
        """Groups of the busiest multiprocessor."""
        return -(-self.groups // self.of.machine.sms)

    @property
    def imbalance(self) -> float:
        """Groups of the busiest multiprocessor over those of one on average."""
        return self.busiest * self.of.machine.sms / self.groups

    @cached_property
    def order(self) -> Order:
        """The order in which they start, in no blocks."""
        return self.of.launching.order(self.of.sizes, self.tiles)

    # --- what a group holds ---------------------------------------------------------------------

    def copies(self, warps: int) -> Copies:
        """How many of its warps hold and compute each value of arrays with these axes."""
        return copies(self.of.continued, self.of.machine, warps, self.tiles)

    def _held(self, warps: int) -> Copies:
        """`copies`, and how many warps hold each value of operands that each computes itself."""
        of, found = self.of, self.copies(warps)
        if not of.formed_operands:
            return found
        several = len(of.kernel.products) > 1
        every = operand_copies(of.formed_operands, of.machine, warps, self.tiles, several)
        return {**every, **found}

    def registers(self, warps: int) -> int:
        """Bytes of tiles that a group holds in registers."""
        if warps not in self._registers:
            live, again = self.of.live, self._held(warps)
            held = register_bytes(live, self.tiles, again)
            if not self.of.kernel.stream.axes:  # nothing is computed in place: all is held at once
                held = max(held, tile_bytes(live, self.tiles, self.of.item, again))
            self._registers[warps] = held
        return self._registers[warps]

    @cached_property
    def finishing_registers(self) -> int:
        """Bytes of registers after the loops: their results, beside all that is read then."""
        states = sum(extent(axes, self.tiles) for axes in self.of.live.states)
        return 4 * states + self.finishing_bytes // self.groups

    @cached_property
    def bare(self) -> bool:
        """Whether loops have neither addresses nor masks, but in few chunks."""
        return self.in_boxes and not self.of.kernel.added

    @cached_property
    def in_boxes(self) -> bool:
        """Whether loops read by boxes, and test few chunks."""
        live = self.of.live
        axes = {a for _, axes in live.streamed_operands for a in axes}
        boxed = self.of.boxed and bool(axes) and not live.windowed and not self.of.computes
        fit = all(self.tiles[a] <= MAX_BOX for a in axes)
        return boxed and fit and self.tests < FEW

    @cached_property
    def uneven(self) -> bool:
        """Whether every chunk is tested for the end of what is streamed, which none divides."""
        kernel, sizes = self.of.kernel, self.of.sizes
        return kernel.visits is None and any(sizes[a] % self.tiles[a] for a in kernel.stream.axes)

    @cached_property
    def tests(self) -> float:
        """Chunks that need a test over those that are visited."""
        visited, tested = self._visited
        return tested / visited if visited else 0.0

    @cached_property
    def _visited(self) -> tuple[float, float]:
        """Chunks that are visited, and those that need a test, over all chunks there are."""
        if self.of.kernel.visits is None:
            return 1.0, 0.0
        return share(self.of.kernel, self.of.sizes, self.tiles)

    def waits(self, stages: int) -> bool:
        """Whether a group waits for boxes of its loop where they are asked for."""
        return stages == 1 and self.bare and not self._past_rows

    @cached_property
    def _past_rows(self) -> bool:
        """Whether boxes reach past the end of a tensor's rows. They arrive late, which a loop that
        waits for them shows: attention with 96 and 192 values a head at stage 1 takes 1.1 and 1.6
        times as long as with 128 and 256 (H100)."""
        rows = [axes[-1] for _, axes in self.of.live.streamed_operands if axes]
        return any(self.tiles[a] > self.of.sizes[a] for a in rows if a in self.of.kernel.whole)

    def taken(self, warps: int, stages: int) -> tuple[int, int]:
        """Bytes of shared memory, by operands, and of registers that a group takes."""
        of, alone = self.of, self.waits(stages)
        held, each, largest = self._operands
        shared = held + (largest if alone else each * of.machine.target.slots(stages))
        shared += (stages - 1) * self._other_bytes if of.live.products or self.ahead(warps) else 0
        if not of.live.products:
            share = PER_THREAD_SHARE if self.per_thread(warps) else ROW_SHARE
            return shared, self.registers(warps) * share // 100 + warps * 128 * OVERHEAD_ROWS
        if not self.bare:
            return shared, self.registers(warps) * 4 // 3
        overhead = (OVERHEAD if of.kernel.visits is None else OVERHEAD_TESTS)[not alone]
        return shared, self._bare_bytes(warps) + warps * 128 * overhead

    def ahead(self, warps: int) -> bool:
        """Whether a loop that multiplies nothing loads chunks ahead (`napkin.lower.write`)."""
        return self.of.copies_ahead and not self.per_thread(warps)

    @cached_property
    def _other_bytes(self) -> int:
        """Bytes of a chunk of the arrays that are no operands."""
        kernel, others = self.of.kernel, self.of.copied_others
        if not self.of.live.products:
            read = [(a.tensor, a.leaf.axes) for a in kernel.reads]
            others = [(t, axes) for t, axes in read if kernel.stream.carried(axes)]
        return sum(stored_bytes(extent(axes, self.tiles), self.of.dtypes[t]) for t, axes in others)

    @cached_property
    def _operands(self) -> tuple[int, int, int]:
        """Bytes of shared memory of what is held, of a copy of what is streamed, and of the largest
        part of that."""
        of = self.of
        fixed, streamed, largest = operand_bytes(of.live, self.tiles, of.dtypes)
        converted = sum(extent(axes, self.tiles) for axes in of.live.converted)
        turned = [p for p in of.kernel.products if turns(p, self.tiles)]
        converted += sum(extent(p.spans[0], self.tiles) for p in turned)
        more = {n for p in turned for n in readings(p.sides[0]) if tensor_of(n) not in of.copied}
        ahead = [stored_bytes(extent(n.axes, self.tiles), of.dtypes[tensor_of(n)]) for n in more]
        return fixed + of.item * converted, streamed + sum(ahead), max([largest, *ahead])

    def _bare_bytes(self, warps: int) -> int:
        """Bytes of registers of its tiles alone."""
        if warps not in self._bare:
            held = tile_bytes(self.of.live, self.tiles, self.of.item, self._held(warps))
            self._bare[warps] = held + held // AT_ONCE if self.of.finishes else held
        return self._bare[warps]

    @cached_property
    def leaving(self) -> int:
        """Bytes of shared memory from which a group's results leave; those stored in slots lie
        along keys there."""
        outputs, dtypes = self.of.kernel.outputs, self.of.dtypes
        return sum(stored_bytes(extent(tile_axes(o), self.tiles), dtypes[o.name]) for o in outputs)

    def per_thread(self, warps: int) -> bool:
        """Whether lanes keep the folds."""
        if self.of.live.products or not along_memory(self.of.kernel, self.tiles):
            return False
        if warps not in self._per_thread:
            program = looped(self.of.kernel, Schedule(self.tiles, warps))
            self._per_thread[warps] = per_thread(with_partials(program))
        return self._per_thread[warps]

    @cached_property
    def persists(self) -> bool:
        """Whether persistent program instances may run it."""
        of = self.of
        item = described_bytes(of.dtype, of.machine)
        return may_persist(looped(of.kernel, Schedule(self.tiles, described=item)))

    # --- what its groups do ---------------------------------------------------------------------

    def work(self, warps: int) -> _Work:
        """Operations per pipe, and those of them that are done after the loops; of padded tiles,
        and by several warps, too."""
        of = self.of
        # Else warps share what is multiplied, and none computes what another does.
        own = of.chained or of.continued or not of.live.products or of.dtype == "fp32"
        known = warps if own else min(warps, 1)
        if known not in self._work:
            self._work[known] = self._worked(warps)
        return self._work[known]

    def _worked(self, warps: int) -> _Work:
        copies, spread, of = self.copies(warps), self._spread(warps), self.of
        work = {"product": 0.0, "arithmetic": 0.0, "special": 0.0}
        tail = dict(work)
        visited = self._visited[0]
        again = {axes: math.prod([self.cuts[a] for a in axes]) for axes in of.again}
        lanes = {axes: self.lanes(axes) for axes in of.spans}
        for c, once in of.counts:
            if c.sum is not None and self._multiplies(c.sum) == c.small:
                continue
            done = float(once * again[c.again])
            done = done if c.kernel is None else done * visited
            done = done * lanes[c.axes] * of.slower[c.dtype] * self._fed(c, warps)
            if copies:
                results = c.sum.node.axes if c.pipe == "product" and c.sum else c.axes
                done *= copies.get(frozenset(results), 1)
            if spread and not c.tail:
                joining = spread.joining(c.scanned) if c.scanned else 0.0
                done *= (1 + joining / c.per_value) * spread.copies(c.axes)
            if c.tail:
                tail[c.pipe] += done
            else:
                done *= self._sharing(c.axes, warps)
            work[c.pipe] += done
        for t, n in self.values if warps else ():
            if t.direction == "read" and t.streamed:
                work["arithmetic"] += READ * n * (self._sharing(t.axes, warps) - 1)
        return work, tail

    @property
    def multiplies(self) -> bool:
        """Whether some sum is a matrix product at these tiles."""
        return any(map(self._multiplies, self.of.products))

    def _multiplies(self, c: Contraction[str]) -> bool:
        """Whether a sum is a matrix product at these tiles."""
        if c.node not in self._multiplied:
            self._multiplied[c.node] = self.of.multiplies(c, self.tiles)
        return self._multiplied[c.node]

    def _sharing(self, axes: Sequence[str], warps: int) -> float:
        """How many threads compute each value of what a chunk has for each column of a product: all
        whose rows meet it, or of a warp-specialised CTA, in which `warps` is 0, as many as share
        the columns of a group."""
        if not self.of.chained:
            return 1
        long = [a for a in axes if self.tiles.get(a, 1) > 1]
        stream = self.of.kernel.stream.axes
        if not long or not all([a in stream for a in long]):
            return 1
        met = [rows for rows, columns, _ in self.of.live.products if set(long) <= set(columns)]
        if met and not warps:
            return max(1.0, THREADS / extent(long, self.tiles))
        rows = max([extent(rows, self.tiles) for rows in met], default=0)
        return ROW_LANES * max(1, min(warps, rows // WARP_ROWS)) if met else 1

    def _spread(self, warps: int) -> Spread | None:
        """How threads share the largest tile of its loops, where nothing is multiplied: along its
        dimensions in steps, and along the axes of its term in others, as these were timed."""
        every = [c.axes for c, _ in self.of.counts if not c.tail]
        if not warps or not every or self.of.live.products or self.of.kernel.slots:
            return None
        axes = max(every, key=lambda axes: extent(axes, self.tiles))
        axes = [a for a in self.of.order if a in axes] if self.of.stepped else axes
        return Spread.of(axes, self.tiles, warps, *self.at_once(axes))

    def joins(self, warps: int) -> tuple[float, float]:
        """Values that a lane takes from others in an iteration, to reduce what is no matrix
        product, and clocks of shared memory in which values pass between warps for that."""
        if warps not in self._joins:
            of, found, passes = self.of, self.of.joined, 1
            if not of.stepped:
                multiplied = of.live.products or self.per_thread(warps)
                found, passes = () if multiplied else of.reductions, len(of.kernel.stream.passes)
            every = [self.exchanges(n, warps) for n in found]
            lanes, clocks = (sum(n) / max(1, passes) for n in zip((0.0, 0.0), *every, strict=True))
            self._joins[warps] = lanes, clocks
        return self._joins[warps]

    def _fed(self, c: Count, warps: int) -> float:
        """How long a product takes as its operands are read, in products that they do not hold up;
        1 of other operations."""
        if c.pipe != "product" or c.sum is None:
            return 1.0
        return self.of.fed(c.sum, c.dtype, self.tiles, warps)

    @cached_property
    def rows(self) -> int:
        """Of the smallest product; 0 where there is none."""
        return min((as_written(p, self.tiles)[0] for p in self.of.kernel.products), default=0)

    @cached_property
    def formed(self) -> tuple[int, int, int, int]:
        """Values of a chunk that are computed from readings into an operand; values of 4 bytes that
        these are computed from; values of operands that come to registers in pieces; and those that
        are computed where products take them."""
        tiles, (sides, found, wide) = self.tiles, self.of.formed_sides
        pieces = [(p, s) for p, s in sides if in_pieces(p, s, tiles)]
        own = [(p, s) for p, s in found if held(p, s, tiles)]
        whole, parts, kept = (
            sum([extent(p.spans[s], tiles) for p, s in x]) for x in (found, pieces, own)
        )
        return whole, sum([extent(n.axes, tiles) for n in wide]), parts, kept

    @cached_property
    def exchanged(self) -> int:
        """Values of pairs of positions that lanes exchange to add them up: what is multiplied out,
        and no matrix product."""
        kernel = self.of.kernel
        products = {p.node for p in kernel.products if self._multiplies(p)}
        shapes = (n.args[0].axes for n in self.of.joined if n not in products)
        pairs = (axes for axes in shapes if not {*kernel.twins}.isdisjoint(axes))
        long = ([a for a in axes if self.tiles[a] > 1] for axes in pairs)
        return sum(extent(axes, self.tiles) for axes in long if len(axes) > 2)

    def waited(self, stages: int, warps: int) -> int:
        """Matrix instructions of a chunk that a warpgroup waits for one by one."""
        if stages == 1 or self.rows < WARPGROUP_ROWS:
            return 0
        depth = int(self.of.machine.granules["mma_depth"].value) // self.of.item
        return sum(issued(p, warps, self.tiles, depth) for p in self.of.serial)

    @cached_property
    def iterations(self) -> tuple[int, float]:
        """Chunks of one group in all passes, and the work of the busiest group over that of a group
        on average."""
        kernel, sizes = self.of.kernel, self.of.sizes
        streamed = kernel.stream.axes
        chunks = math.prod([self.cuts[a] for a in streamed]) if streamed else 0
        most = 1.0
        if kernel.part:
            parts, every = sizes[kernel.part], max(chunks, 1)
            unit = max(1, kernel.unit // self.tiles[streamed[0]])  # chunks of one
            chunks = -(-every // (parts * unit)) * unit
            most = chunks * parts / every
        if kernel.visits is not None:
            most = longest(kernel, sizes, self.tiles)
            chunks = math.ceil(chunks * self._visited[0])
        return chunks * len(kernel.stream.passes), most
