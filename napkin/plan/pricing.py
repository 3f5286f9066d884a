"""What a setting of tiles is predicted to cost: warps, stages, bytes and time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from napkin.cost.levels import (
    Held,
    chained,
    computes,
    extent,
    operand_bytes,
    register_bytes,
    tile_bytes,
)
from napkin.cost.machines import Machine
from napkin.cost.moving import SECTOR, Moving
from napkin.cost.time import Execution, Time, predict
from napkin.cost.traffic import ITEM_BYTES, Transfer, transfers
from napkin.cost.visited import longest, share
from napkin.cost.work import Count, counts
from napkin.derive.kernel import Kernel
from napkin.diagram.diagram import Output
from napkin.diagram.storage import own_type, storage_type
from napkin.diagram.types import STORAGE, stored_bytes
from napkin.lower.descriptors import boxable
from napkin.lower.lanes import laned
from napkin.lower.launch import MIN_CAPABILITY, ROW_BYTES, SEEN
from napkin.lower.order import Launching
from napkin.lower.program import memory_order
from napkin.lower.resources_layout import LANES
from napkin.plan.tiles import waste

FLATTENED = 9
"""The generation of GPUs (compute capability over 10) for which a flattened loop over groups was
seen to be pipelined: the next group's boxes are asked for before the results of this one."""

COPIED = 4
"""Bytes that a thread copies to shared memory at once, at least (PTX ISA, cp.async)."""

FEW = 0.1
"""Chunks with a test, over all that are visited, below which registers may spill in testing: at
0.06 (causal) it did not matter, at 0.12 (a window of 2,048) it cost 7 % (docs/measurements)."""


AT_ONCE = 6
"""Of the values of a product that is finished in registers, one in so many is computed on at once:
a bias and gelu take 8 to 36 registers of a thread beside 128 values and 6 beside 64, for seven
tiles as Triton 3.6 compiles them for sm_90."""

DOUBT = 0.01
"""What a chunk twice as large is preferred by (0.7 %): what a turn takes beside its work is what
the model knows least, 6 % too little with chunks of 32 keys against 64 (H100, 56 settings)."""

BESIDE, BESIDE_TESTS = (4, 28), (12, 40)
"""Registers of a thread beside tiles where operands come in boxes, without loads that run ahead and
with them; and of loops that test some chunks. For ten tiles of attention -4 to 9 and 24 to 28, of
causal attention 2 to 16 and 27 to 61, as Triton 3.6 and 3.9 compile them for sm_90."""


ROWS = (4, 8, 16, 32)
"""Groups along one axis in a block: the number is taken for which least comes from memory."""

DEEPEST = 4
"""Stages of a loop at most: products 1536 x 14080 x 256 in tiles of 128 took 194, 108 and 79 us
with 2, 3 and 4 (H100)."""

SHAPED = 2**16
"""Groups up to which blocks of rows are tried that do not divide an axis."""


@dataclass(frozen=True, eq=False)
class Choice:
    """Labels, tiles and launch settings of one kernel, with what they are predicted to cost.

    Attributes:
        described: bytes of a value where operands are read through tensor descriptors; else 0.
        outer: bytes from and to the outermost memory ("read", "write"), as its time has them.
        resident: groups that one multiprocessor holds at once.
        laned: whether lanes keep the folds (`napkin.lower.lanes`).
        persistent: program instances that take all groups in turn; 0 where each group has its own.
        rows: groups in a block, along one axis, whose numbers follow each other; 0 where none do.
    """

    kernel: Kernel
    tiles: Mapping[str, int]
    sizes: Mapping[str, int]
    warps: int
    stages: int
    shared: int
    time: Time
    bytes: int
    described: int = 0
    outer: Mapping[str, int] = field(default_factory=dict[str, int])
    resident: int = 1
    laned: bool = False
    persistent: int = 0
    rows: int = 0

    @property
    def origin(self) -> Sequence[Output]:
        """The terms that it computes, unstreamed."""
        return self.kernel.origin

    @property
    def launched(self) -> str:
        """Launch settings in words."""
        lasting = f", {self.persistent} persistent instances" if self.persistent else ""
        blocks = f", groups in blocks of {self.rows}" if self.rows else ""
        return f"{self.warps} warps, {self.stages} stages{lasting}{blocks}"

    @property
    def rank(self) -> tuple[float, ...]:
        """Smaller is better: time, of about equal ones the larger chunk (`DOUBT`), then fewer
        passes and the fewer warps. Where lanes keep the folds, of settings that move as many bytes
        in about one time (1 %) the one with the fewest rows, then with no more lanes than threads:
        cross entropy of 8,192 rows of 32,000 classes took 196 us with 1 row of 1,024, 207 with 8
        of 256, 252 with 8 of 512 (H100)."""
        passes = len(self.kernel.stream.passes)
        chunk = math.prod(self.tiles[a] for a in self.kernel.stream.axes)
        if self.laned:
            rows = math.prod(self.tiles[a] for a in self.kernel.group)
            return (math.exp(round(math.log(self.time.seconds), 2)), passes, rows, chunk)
        whole = math.prod(self.sizes[a] for a in self.kernel.stream.axes)
        turns = max(1.0, whole / chunk)
        return (self.time.seconds * turns**DOUBT, passes, -chunk, self.warps)


def described_bytes(dtype: str, machine: Machine) -> int:
    """Bytes of a value of operands that tensor descriptors may serve; 0 where none does.

    Products of float32 are computed by multiply-add on registers, to which a box is no shortcut.
    """
    item = ITEM_BYTES[dtype]
    return item if machine.capability >= MIN_CAPABILITY and item == 2 else 0


def storage(kernel: Kernel, dtype: str) -> dict[str, str]:
    """The storage type of every tensor of a kernel."""
    terms = {a.tensor: a.leaf for a in kernel.reads} | {o.name: o.node for o in kernel.outputs}
    return {t: storage_type(n, dtype) for t, n in terms.items()}


class Pricing:
    """Prices the settings of a kernel on a machine.

    Args:
        sizes: of every axis of the kernel.
        held: what a group of it holds.
    """

    def __init__(
        self, kernel: Kernel, sizes: Mapping[str, int], held: Held, dtype: str, machine: Machine
    ) -> None:
        self.kernel, self.sizes, self.held = kernel, sizes, held
        self.dtype, self.machine = dtype, machine
        self.parts: tuple[Transfer, ...] = transfers(kernel)
        self.counts: tuple[Count, ...] = counts(kernel)
        self.slower = {c.dtype: self._slower(c.dtype) for c in self.counts}
        self.dtypes = storage(kernel, dtype)
        self.item = ITEM_BYTES[dtype]
        self.boxed = bool(described_bytes(dtype, machine))
        self.boxed = self.boxed and not any(own_type(a.leaf) for a in kernel.reads)
        self.launching = Launching(kernel, self.item)
        self.boxable = boxable(kernel)
        self.chained = chained(kernel)
        self.computes = computes(kernel)
        self.lasting = self._lasting()
        self._in_lanes: dict[tuple[Any, ...], bool] = {}
        last = any(c.tail and c.pipe != "product" for c in self.counts)
        self.finishes = last and not self.chained
        place = {a: i for i, a in enumerate(memory_order(kernel, kernel.axes))}
        # As in the emitter: the rows are those of the side that comes first in memory.
        self.rows = [
            min(sides, key=lambda role: min(place[a] for a in role))
            for *sides, _ in self.held.products
        ]

    def choices(self, settings: Iterable[dict[str, int]]) -> Iterator[Choice]:
        """The best choice for each setting that fits registers, and by its operands memory; and the
        best one of persistent program instances, where there may be some."""
        for tiles in settings:
            yield from self._settle(tiles)

    def at(self, tiles: dict[str, int], warps: int, stages: int, persistent: int = 0) -> Choice:
        """The price of one setting, whether or not it fits."""
        shared, registers = self._taken(tiles, warps, stages)
        if persistent:
            shared += self._leaving(tiles)
        resident = self._resident(shared, registers, warps)
        return self._priced(tiles, warps, stages, shared, resident, persistent)

    def _settle(self, tiles: dict[str, int]) -> Iterator[Choice]:
        registers, bare = self._registers(tiles), self._bare(tiles)
        # A quarter is left for addresses, masks and what the compiler keeps beside these; boxes
        # have neither addresses nor masks, and a tenth was enough where few chunks are tested.
        most = self.machine.registers_per_thread * 32
        room = most * 9 // 10 if bare else most * 3 // 4
        room = min(room, most // 2) if self.computes else room
        warps = next((w for w in (4, 8) if registers <= w * room), 0)
        if not warps:
            return
        if not self.held.products:
            warps = 4 if max(extent(a, tiles) for a in self.held.chunk) <= 4096 else 8
        found: dict[int, Choice] = {}
        for stages in (3, 2, 1):
            alone = self._waits(tiles, stages)
            shared, used = self._taken(tiles, warps, stages)
            if alone and used > warps * most:  # what spills is read again in every turn
                continue
            resident = self._resident(shared, used, warps)
            # Fewer stages only make room for other groups, and loads still run ahead; with one, a
            # group waits for them while others compute, which pays where it would be alone.
            most_yet = max(found, default=0)
            waits = alone and self.chained and most_yet == 1
            worth = resident > most_yet and (stages > 1 or waits)
            if shared <= self.machine.shared_per_block and (worth or not found):
                found[resident] = self._priced(tiles, warps, stages, shared, resident)
        found |= self._deeper(tiles, warps, found)
        if found:
            yield min(found.values(), key=lambda c: c.rank)
        kept = [c for s in (3, 2) if (c := self._kept(tiles, warps, s)) is not None]
        if kept:
            yield min(kept, key=lambda c: c.rank)

    def _deeper(
        self, tiles: dict[str, int], warps: int, found: Mapping[int, Choice]
    ) -> dict[int, Choice]:
        """One more stage for products whose every group is alone on its multiprocessor, in one
        wave: nothing but its own chunks hides how late these arrive. None where that is no
        faster."""
        alone = self.held.products and not self.chained and self.held.streamed_operands
        if not alone or not found or self._groups(tiles) > self.machine.sms:
            return {}
        shared, registers = self._taken(tiles, warps, DEEPEST)
        if shared > self.machine.shared_per_block:
            return {}
        resident = self._resident(shared, registers, warps)
        deeper = self._priced(tiles, warps, DEEPEST, shared, resident)
        least = min(c.time.seconds for c in found.values())
        return {resident: deeper} if deeper.time.seconds < least else {}

    def _kept(self, tiles: dict[str, int], warps: int, stages: int) -> Choice | None:
        """A setting of persistent program instances, as many as there is room for; None where they
        do not fit or where each would take one group."""
        if not self.lasting:
            return None
        shared, registers = self._taken(tiles, warps, stages)
        shared += self._leaving(tiles)
        resident = self._resident(shared, registers, warps)
        programs = resident * self.machine.sms
        if shared > self.machine.shared_per_block or programs >= self._groups(tiles):
            return None
        return self._priced(tiles, warps, stages, shared, resident, programs)

    def _lasting(self) -> bool:
        """Whether persistent program instances load the next group's chunks ahead: where the
        compiler flattens their loop (Triton 3.6 and 3.9, Hopper), with boxes, around one loop of
        products."""
        kernel = self.kernel
        one = len(kernel.stream.passes) == 1 and kernel.visits is None and not kernel.part
        if self.machine.capability // 10 != FLATTENED or not (one and self.boxed):
            return False
        if self.chained or self.computes or self.held.windowed or not self.held.products:
            return False
        rows = [(a.tensor, a.leaf.axes) for a in kernel.reads if kernel.stream.carried(a.leaf.axes)]
        rows += [(o.name, o.axes) for o in kernel.outputs]
        return bool(self.held.streamed_operands) and all(self._even(t, axes) for t, axes in rows)

    def _even(self, tensor: str, axes: Sequence[str]) -> bool:
        """Whether the rows of a tensor are multiples of what descriptors need."""
        bits = self.sizes[axes[-1]] * STORAGE[self.dtypes[tensor]].bits if axes else 0
        return bits % (8 * ROW_BYTES) == 0

    def _leaving(self, tiles: Mapping[str, int]) -> int:
        """Bytes of shared memory from which a group's results leave."""
        outputs = self.kernel.outputs
        return sum(stored_bytes(extent(o.axes, tiles), self.dtypes[o.name]) for o in outputs)

    def _groups(self, tiles: Mapping[str, int]) -> int:
        return math.prod(-(-self.sizes[a] // tiles[a]) for a in self.kernel.group)

    def _registers(self, tiles: Mapping[str, int]) -> int:
        """Bytes of tiles that a group holds in registers."""
        registers = register_bytes(self.held, tiles)
        if self.kernel.stream.axes:
            return registers
        # Nothing is computed in place: all is held at once.
        return max(registers, tile_bytes(self.held, tiles, self.item))

    def _bare(self, tiles: Mapping[str, int]) -> bool:
        """Whether loops have neither addresses nor masks, but in few chunks."""
        boxed = self.boxed and self.held.streamed_operands and not self.held.windowed
        return bool(boxed) and self._tested(tiles) < FEW

    def _waits(self, tiles: Mapping[str, int], stages: int) -> bool:
        """Whether a group waits for boxes of its loop where they are asked for."""
        return stages == 1 and self._bare(tiles) and not self._past_rows(tiles)

    def _taken(self, tiles: Mapping[str, int], warps: int, stages: int) -> tuple[int, int]:
        """Bytes of shared memory, by operands, and of registers that a group takes."""
        alone = self._waits(tiles, stages)
        slots = stages if self.machine.capability >= 90 else max(stages - 1, 1)
        shared = operand_bytes(self.held, tiles, self.dtypes, 0 if alone else slots)
        shared += self.item * sum(extent(axes, tiles) for axes in self.held.converted)
        if not self._bare(tiles):
            return shared, self._registers(tiles) * 4 // 3
        beside = (BESIDE if self.kernel.visits is None else BESIDE_TESTS)[not alone]
        held = tile_bytes(self.held, tiles, self.item)
        if self.finishes:
            held += held // AT_ONCE
        return shared, held + warps * 128 * beside

    def _width(self, t: Transfer) -> int:
        """Bytes that a thread loads or stores of a tensor at once: as the rows of its last axis
        begin and end."""
        axes, bits = t.own or t.axes, STORAGE[self.dtypes[t.tensor]].bits
        slots = not t.own and bool(axes) and axes[-1] not in t.tile  # each at a place of its own
        known = math.gcd(self.sizes[axes[-1]], SEEN) if axes and not slots else 1
        return max(1, min(known * bits // 8, ROW_BYTES))

    @cached_property
    def described(self) -> frozenset[str]:
        """The tensors that descriptors serve at these sizes: operands of products, and what is
        stored; none where the rows of one begin at no multiple of 16 bytes."""
        operands = {t for t, _ in (*self.held.streamed_operands, *self.held.fixed_operands)}
        may = [t for t in self.parts if t.direction == "write" or t.tensor in operands]
        served = self.boxed and operands and all(self._width(t) == ROW_BYTES for t in may)
        return frozenset(t.tensor for t in may) if served else frozenset()

    def _between(self, t: Transfer) -> bool:
        """Whether boxes of it have rows that begin between sectors."""
        axes = t.own or t.axes
        row = self.sizes[axes[-1]] * STORAGE[self.dtypes[t.tensor]].bits // 8 if axes else 0
        boxed = t.direction == "read" and t.tensor in self.described
        return boxed and len(axes) > 1 and row % SECTOR != 0

    def _single(self, t: Transfer) -> bool:
        """Whether values of a streamed operand are loaded one by one, into registers: nothing of
        fewer bytes than COPIED is copied ahead."""
        streamed = {name for name, _ in self.held.streamed_operands}
        rows = len(t.own or t.axes) > 1
        return t.tensor in streamed and rows and self._width(t) < COPIED

    def _accesses(self, t: Transfer, values: float, tiles: Mapping[str, int]) -> float:
        """Loads or stores of whole warps that a tensor takes; lanes past its end are asked, too,
        but none past a window, whose slots are read and stored as keys are seen."""
        if t.tensor in self.described:
            return 0.0
        bits = STORAGE[self.dtypes[t.tensor]].bits
        axes = [a for a in t.axes if a in tiles]
        lanes = values * waste(self.kernel, self.sizes, tiles, axes)
        return lanes * bits / 8 / self._width(t) / LANES

    def _past_rows(self, tiles: Mapping[str, int]) -> bool:
        """Whether boxes reach past the end of a tensor's rows. They arrive late, which a loop that
        waits for them shows: attention with 96 and 192 values a head at stage 1 takes 1.1 and 1.6
        times as long as with 128 and 256 (H100)."""
        rows = [axes[-1] for _, axes in self.held.streamed_operands if axes]
        return any(tiles[a] > self.sizes[a] for a in rows if a in self.kernel.whole)

    def _tested(self, tiles: Mapping[str, int]) -> float:
        """Chunks that need a test over those that are visited."""
        if self.kernel.visits is None:
            return 0.0
        visited, tested = share(self.kernel, self.sizes, tiles)
        return tested / visited if visited else 0.0

    def _resident(self, shared: int, registers: int, warps: int) -> int:
        """Groups that one multiprocessor holds at once."""
        machine = self.machine
        # A thread takes some registers whatever it computes: about 32 of 4 bytes.
        most = warps * machine.registers_per_thread * 32
        registers = max(min(registers, most), warps * 32 * 128)
        most = (
            machine.shared_per_sm // max(shared, 1),
            machine.registers_per_sm // registers,
            machine.warps_per_sm // warps,
            machine.blocks_per_sm,
        )
        return max(1, min(most))

    def _priced(
        self,
        tiles: dict[str, int],
        warps: int,
        stages: int,
        shared: int,
        resident: int,
        persistent: int = 0,
    ) -> Choice:
        values = [(t, t.values(self.sizes, tiles)) for t in self.parts]
        inner = sum(stored_bytes(n, self.dtypes[t.tensor]) for t, n in values)
        moving, rows = self._ordered(self.moving(values, tiles, stages, shared, resident))
        work = {"product": 0.0, "arithmetic": 0.0, "special": 0.0}
        tail = dict(work)
        for c in self.counts:
            lanes = waste(self.kernel, self.sizes, tiles, c.axes)
            done = c.number(self.sizes, tiles) * lanes * self.slower[c.dtype]
            work[c.pipe] += done
            tail[c.pipe] += done if c.tail else 0.0
        stored = sum(
            stored_bytes(n, self.dtypes[t.tensor])
            for t, n in values
            if t.direction == "write" and not t.streamed
        )
        groups = self._groups(tiles)
        # A slot that wgmma reads is in use for one turn more.
        ahead = 2 if self.boxed and self.held.products else 1
        overlapped = stages > ahead or not self.kernel.stream.axes
        streamed = self.kernel.stream.axes
        chunks = math.prod(-(-self.sizes[a] // tiles[a]) for a in streamed) if streamed else 0
        most = 1.0
        if self.kernel.part:
            parts, every = self.sizes[self.kernel.part], max(chunks, 1)
            chunks = -(-every // parts)
            most = chunks * parts / every
        if self.kernel.visits is not None:
            most = longest(self.kernel, self.sizes, tiles)
            chunks = math.ceil(chunks * share(self.kernel, self.sizes, tiles)[0])
        outer, crossing = moving.outer(), moving.crossing()
        by_lanes = self._laned(tiles, warps)
        between = {(t.tensor, t.direction) for t in self.parts if self._between(t)}
        run = Execution(
            work,
            groups,
            tail,
            inner_bytes=sum(crossing.values()),
            cached_bytes=moving.from_l1(),
            outer_bytes=sum(outer.values()),
            between_bytes=sum(n for t, n in crossing.items() if t in between),
            singles=sum(n for t, n in values if t.direction == "read" and self._single(t)),
            accesses=sum(self._accesses(t, n, tiles) for t, n in values),
            stored_bytes=stored,
            resident=resident,
            warps=warps,
            chunks=chunks * len(self.kernel.stream.passes),
            pipelined=stages > 1 and bool(self.held.streamed_operands or not self.held.products),
            ahead=stages - 1,
            overlapped=overlapped,
            chained=self.chained,
            rows=min((extent(role, tiles) for role in self.rows), default=0),
            longest=most,
            loads=max(1, len(self.held.streamed_operands)),
            laned=by_lanes,
            persistent=bool(persistent),
        )
        time = predict(self.machine, self.dtype, run)
        return Choice(
            self.kernel, tiles, self.sizes, warps, stages, shared, time, inner,
            outer=outer, resident=resident, laned=by_lanes, persistent=persistent, rows=rows,
        )  # fmt: skip

    def _ordered(self, plain: Moving) -> tuple[Moving, int]:
        """What moves where groups are numbered in the blocks of rows for which least comes from
        memory, and how many rows these have; 0 where each array comes once as it is."""
        least = plain.outer()["read"]
        axes = self.launching.in_blocks(plain.tiles)
        if axes is None or least <= sum(r.size for r in plain.reads):
            return plain, 0
        many = -(-self.sizes[axes[0]] // plain.tiles[axes[0]])
        best, found = plain, 0
        for rows in ROWS:
            if rows > many or (many % rows and plain.order.groups > SHAPED):
                continue
            order = self.launching.order(self.sizes, plain.tiles, rows)
            tried = replace(plain, order=order)
            read = tried.outer()["read"]
            if read < least:
                best, found, least = tried, rows, read
        return best, found

    def _laned(self, tiles: dict[str, int], warps: int) -> bool:
        if self.held.products:
            return False
        key = (warps, *sorted(tiles.items()))  # the same at any number of stages
        if key not in self._in_lanes:
            self._in_lanes[key] = laned(self.kernel, tiles, warps)
        return self._in_lanes[key]

    def moving(
        self,
        values: Sequence[tuple[Transfer, int]],
        tiles: Mapping[str, int],
        stages: int,
        shared: int,
        resident: int,
    ) -> Moving:
        """What moves: operands come in boxes where descriptors may serve them, or are loaded ahead
        in several stages."""
        operands = frozenset(t for t, _ in self.held.streamed_operands)
        held = frozenset(t for t, _ in self.held.fixed_operands)
        boxed = (operands | held) & self.boxable if self.boxed else frozenset[str]()
        return Moving(
            values, self.sizes, tiles, self.dtypes, self.machine, self.kernel.group,
            self.launching.order(self.sizes, tiles), resident, shared,
            boxed=boxed, ahead=operands if stages > 1 else frozenset[str](),
        )  # fmt: skip

    def _slower(self, dtype: str) -> float:
        """How long a product of operands of 8 bits takes, in products of the plan's type; they take
        as long where a machine file gives no peak."""
        if dtype not in self.machine.dtypes:
            return 1.0
        return self.machine.peak(self.dtype) / self.machine.peak(dtype)
