"""A labelled kernel on a machine, whatever its tiles: its tensors, and how they are moved."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from napkin.algebra.contraction import Contraction
from napkin.algebra.terms import is_read
from napkin.count.matrix_products import (
    continued,
    crossed,
    fed,
    forms,
    links,
    readings,
    recurrent,
    serial,
)
from napkin.count.requested import whole_bytes
from napkin.count.residency import Axes, chained, computes, live_set
from napkin.count.traffic import ITEM_BYTES, Transfer, transfers, zeroed
from napkin.count.work import Count, counts
from napkin.derive.kernel import Kernel, leaves, tensor_of
from napkin.diagram.interface import Output
from napkin.ir.node import REDUCTIONS, Node, over, postorder
from napkin.ir.slotted import guard
from napkin.ir.storage import own_type, storage_type
from napkin.ir.taking import own_axes, taken_of
from napkin.ir.types import STORAGE, stored_bytes
from napkin.lower.descriptors import boxable
from napkin.lower.group_order import Launching
from napkin.lower.largest import MAX_TENSOR, Tensors, tensors_of
from napkin.lower.launch import ROW_BYTES, SEEN
from napkin.lower.program import looped
from napkin.machine.machines import Machine
from napkin.schedule import Schedule
from napkin.settings.tiles import MAX_GROUP, MAX_TILE
from napkin.timing.least_time import at_least

WIDE = 32
"""Bits of a value that a product takes in fewer."""

COPIED = 4
"""Bytes that a thread copies to shared memory at once, at least (PTX ISA, cp.async)."""


_Side = tuple[Contraction[str], int]
"""One operand of a product."""


def described_bytes(dtype: str, machine: Machine) -> int:
    """Bytes of a value of operands that tensor descriptors may serve; 0 where none does.

    Products of float32 are computed by multiply-add on registers, to which a box is no shortcut.
    """
    item = ITEM_BYTES[dtype]
    return item if machine.target.has_descriptors and item == 2 else 0


def storage(kernel: Kernel, dtype: str) -> dict[str, str]:
    """The storage type of every tensor of a kernel."""
    terms = {a.tensor: a.leaf for a in kernel.reads} | {o.name: o.node for o in kernel.outputs}
    return {t: storage_type(n, dtype) for t, n in terms.items()}


def least_moving(
    outputs: Sequence[Output], sizes: Mapping[str, int], dtype: str, machine: Machine
) -> float:
    """Seconds that no labelling undercuts of a term that needs all the tensors that it reads: to
    move each of them once."""
    moved = {o.name: (o.axes, storage_type(o.node, dtype)) for o in outputs}
    for leaf in leaves(o.node for o in outputs):
        axes = own_axes(leaf) if guard(leaf) is not None or taken_of(leaf) else leaf.axes
        moved[tensor_of(leaf)] = axes, storage_type(leaf, dtype)
    every = (stored_bytes(math.prod(sizes[a] for a in axes), of) for axes, of in moved.values())
    return at_least(machine, sum(every))


def least_seconds(kernel: Kernel, sizes: Mapping[str, int], dtype: str, machine: Machine) -> float:
    """Seconds that no tiles of a labelled kernel undercut, nor its parts: in these it takes to move
    every tensor once, and to multiply what groups of the most rows multiply."""
    known = kernel.sized(sizes)
    moved = whole_bytes(transfers(kernel), known, storage(kernel, dtype))
    every = counts(kernel) if kernel.products else ()
    products = [c for c in every if c.pipe == "product" and c.kernel is None]
    multiplied = sum(_least_work(c, known) * slower(c.dtype, dtype, machine) for c in products)
    if not kernel.added:
        return at_least(machine, sum(moved.values()), multiplied, dtype)
    adds = [t for t in transfers(kernel) if t.direction == "add" and t.kernel is None]
    alone = {a: known[a] for a in kernel.alone}
    fewest = {a: -(-n // MAX_GROUP) for a, n in known.items()} | alone
    added = 4 * sum(t.once(known) * math.prod(fewest[a] for a in t.repeated) for t in adds)
    zeros = at_least(machine, zeroed_bytes(kernel, known))
    return zeros + at_least(machine, sum(moved.values()), multiplied, dtype, added)


def zeroed_bytes(kernel: Kernel, sizes: Mapping[str, int]) -> int:
    """Bytes of zeros in float32 that are written before a kernel, as its groups add to them."""
    return 4 * sum(t.once(sizes) for t in zeroed(kernel))


def _least_work(c: Count, sizes: Mapping[str, int]) -> int:
    """Operations of a product at any tiles: every group along an axis that it lacks does it
    again."""
    again = math.prod(-(-sizes[a] // MAX_GROUP) for a in c.repeated)
    return c.once(sizes) * again


def _added_up(kernel: Kernel, sizes: Mapping[str, int]) -> list[tuple[Count, int]]:
    """Operations of a kernel to compute every array once, with one that they are alike; those that
    tiles, warps and machines tell from each other are not."""
    alike: dict[Hashable, tuple[Count, int]] = {}
    for c in counts(kernel):
        of = c.sum.node if c.sum else None, c.small, c.dtype
        scanned = (c.scanned, c.per_value) if c.scanned else ()
        key = c.pipe, c.axes, c.again, c.kernel is None, c.tail, *of, *scanned
        first, number = alike.get(key, (c, 0))
        alike[key] = first, number + c.once(sizes)
    return list(alike.values())


def slower(own: str, dtype: str, machine: Machine) -> float:
    """How long a product of operands of 8 bits takes, in products of the plan's type; they take as
    long where a machine file gives no peak."""
    return machine.peak(dtype) / machine.peak(own) if own in machine.dtypes else 1.0


@dataclass(frozen=True, eq=False)
class Moved:
    """A reading or writing of a kernel, at any tiles.

    Attributes:
        of: the transfer.
        once: values of it that cross for one group of each axis that it does not carry; 0 where a
            key set says which do.
        bits: of a value.
        width: bytes that a thread loads or stores at once: one value at computed positions.
        served: whether descriptors serve it at these sizes.
        single: whether its values are loaded one by one, into registers.
        along: those of its axes that have tiles.
        within: the axes of its tile that do.
        anywhere: whether it is at positions that are read.
    """

    of: Transfer
    once: int
    bits: int
    width: int
    served: bool
    single: bool
    along: Sequence[str]
    within: Sequence[str]
    anywhere: bool


class Labelled:
    """A labelled kernel on a machine, at any tiles.

    Args:
        sizes: of every axis of the kernel.
    """

    def __init__(
        self, kernel: Kernel, sizes: Mapping[str, int], dtype: str, machine: Machine
    ) -> None:
        self.kernel, self.sizes, self.live = kernel, sizes, live_set(kernel)
        self.dtype, self.machine = dtype, machine
        self.item, self.dtypes = ITEM_BYTES[dtype], storage(kernel, dtype)
        self.boxed = bool(described_bytes(dtype, machine))
        self.boxed = self.boxed and not any(own_type(a.leaf) for a in kernel.reads)
        self.launching = Launching(kernel, self.item)
        self.zeroed_bytes = zeroed_bytes(kernel, sizes)
        self.chained, self.computes = chained(kernel), computes(kernel)
        self.crossed = crossed(kernel)
        # Products of float32 are no matrix instructions.
        self.continued = continued(kernel) if dtype != "fp32" else ()
        may_wait = dtype != "fp32" and machine.target.has_warpgroups
        self.serial = serial(kernel) if may_wait else ()
        self.links, self.recurrent = links(kernel), recurrent(kernel)
        self.moved = tuple(self._moved(transfers(kernel)))
        self.counts = _added_up(kernel, sizes)
        kinds = [c for c, _ in self.counts]
        self.again, self.spans = {c.again for c in kinds}, {c.axes for c in kinds}
        self.slower = {c.dtype: slower(c.dtype, dtype, machine) for c in kinds}
        last = any(c.tail and c.pipe != "product" and not c.small for c in kinds)
        self.finishes = last and not self.chained
        self.lasting = self._lasting()
        self.stepped = any(s.held == "stepped" for s in kernel.stream.states)
        self.products = [c.sum for c in kinds if c.pipe == "product" and c.sum]
        self._tensors: dict[Hashable, Tensors] = {}  # of each program, whatever its tiles
        self.known: dict[object, Any] = {}  # of what groups ask for, at more than one tile
        self._multiplies: dict[Hashable, bool] = {}  # of each sum at tiles of its own axes
        self._fed: dict[Hashable, float] = {}  # of each product, too, and by warps

    def formed(self, tiles: Mapping[str, int]) -> bool:
        """Whether the compiler takes every tensor that the kernel's statements form at given tiles,
        and registers hold what is multiplied out to be summed."""
        if math.prod(tiles[a] for a in self.kernel.axes) <= MAX_TILE:
            return True
        program = looped(self.kernel, Schedule(tiles))
        form = program.dims, program.loops
        if form not in self._tensors:
            self._tensors[form] = tensors_of(program)
        target = self.machine.target
        return self._tensors[form].formed(program, MAX_TILE, MAX_TENSOR, target, self.item)

    def multiplies(self, c: Contraction[str], tiles: Mapping[str, int]) -> bool:
        """Whether a sum is a matrix product at given tiles."""
        at = c.node, *[tiles[a] for a in c.axes]
        if at not in self._multiplies:
            self._multiplies[at] = c.at(tiles).is_product
        return self._multiplies[at]

    def fed(self, c: Contraction[str], dtype: str, tiles: Mapping[str, int], warps: int) -> float:
        """How long a product of `dtype` takes as its operands are read (see `fed`)."""
        at = c.node, dtype, warps, *[tiles[a] for a in c.axes]
        if at not in self._fed:
            known = dtype if dtype in self.machine.dtypes else self.dtype
            beside = c.node in self.crossed, warps, self.links > 1
            self._fed[at] = fed(c, self.machine, known, tiles, *beside)
        return self._fed[at]

    @cached_property
    def formed_sides(self) -> tuple[list[_Side], list[_Side], list[Node]]:
        """The operands that a chunk carries; those of them that are computed from readings; and
        the readings of 4 bytes that these are computed from."""
        carried = self.kernel.stream.carried
        sides = [(p, s) for p in self.kernel.products for s in (0, 1) if carried(p.spans[s])]
        found = [(p, s) for p, s in sides if forms(p, s)]
        read = {n for p, s in found for n in readings(p.sides[s])}
        return sides, found, [n for n in read if STORAGE[self.dtypes[tensor_of(n)]].bits == WIDE]

    @cached_property
    def formed_operands(self) -> list[_Side]:
        """The operands of matrix instructions that are computed from readings."""
        products = self.kernel.products if self.dtype != "fp32" else ()
        every = [(p, s) for p in products for s in (0, 1) if forms(p, s)]
        return [(p, s) for p, s in every if not any(n.op == "state" for n in postorder(p.sides[s]))]

    @cached_property
    def order(self) -> list[str]:
        """The axes in the order of tile dimensions."""
        return self.kernel.memory_order(self.kernel.axes)

    @cached_property
    def reductions(self) -> tuple[Node, ...]:
        """The reductions in its loops, all passes together; of a kernel without loops, all."""
        looped = [n for p in self.kernel.stream.passes for n in p.computed]
        return tuple(n for n in postorder(looped or self.kernel.terms) if n.op in REDUCTIONS)

    @cached_property
    def joined(self) -> tuple[Node, ...]:
        """Reductions of an iteration along axes that are not streamed, over threads."""
        sums = (n for n in postorder(self.kernel.terms) if n.op in REDUCTIONS)
        return tuple(n for n in sums if not set(over(n)) <= {*self.kernel.stream.axes})

    @cached_property
    def finishing(self) -> frozenset[str]:
        """The tensors that are read after the loops alone."""
        s = self.kernel.stream
        looped = [n for p in s.passes for n in p.computed]
        if not looped:
            return frozenset()
        last, before = (
            {*filter(is_read, postorder(r))} for r in ([e.node for e in s.tails], looped)
        )
        return frozenset(map(tensor_of, last - before)) - {*map(tensor_of, before)}

    @cached_property
    def divisions(self) -> int:
        """Whole-number divisions of a group by lengths that are known at run time: for its place
        along all grouped axes but one, and in positions that it reads at."""
        at = postorder(p for a in self.kernel.reads for p in a.leaf.args)
        return max(0, len(self.kernel.group) - 1) + sum(n.op in {"floordiv", "mod"} for n in at)

    # --- what it reads and writes ---------------------------------------------------------------

    @cached_property
    def in_boxes(self) -> frozenset[str]:
        """The operands that come in boxes where descriptors serve them; factors of one do not."""
        operands = {t for t, _ in (*self.live.streamed_operands, *self.live.fixed_operands)}
        sides = [s for p in self.kernel.products for s in p.sides if len(s) > 1]
        factors = {tensor_of(n) for s in sides for n in s if is_read(n)}
        return boxable(self.kernel) & operands - factors if self.boxed else frozenset()

    @cached_property
    def ahead(self) -> frozenset[str]:
        """The arrays that loads ahead bring to shared memory, but in no boxes."""
        return self.copied - self.in_boxes

    @cached_property
    def copied(self) -> frozenset[str]:
        """The arrays that are copied to shared memory ahead of their use."""
        return frozenset(t for t, _ in (*self.live.streamed_operands, *self.copied_others))

    @cached_property
    def copied_others(self) -> tuple[tuple[str, Axes], ...]:
        """Those of `LiveSet.streamed_others` that are copied ahead: threads load no fewer bytes of
        them at once than can be copied."""
        narrow = {m.of.tensor for m in self.moved if m.width < COPIED}
        return tuple((t, axes) for t, axes in self.live.streamed_others if t not in narrow)

    @cached_property
    def copies_ahead(self) -> bool:
        """Whether loops that multiply nothing load ahead, where all that they read may be copied
        so."""
        read = [m for m in self.moved if m.of.direction == "read" and m.of.streamed]
        return self.live.waited and all(m.width >= COPIED for m in read)

    def _moved(self, parts: Sequence[Transfer]) -> Iterator[Moved]:
        streamed = {name for name, _ in self.live.streamed_operands}
        width = {t: self._width(t) for t in parts}
        served, tiled = self._served(width), {*self.kernel.axes}
        for t in parts:
            # Nothing of fewer bytes than COPIED is copied ahead.
            single = t.tensor in streamed and has_rows(t) and width[t] < COPIED
            yield Moved(
                t,
                t.once(self.sizes) if t.kernel is None else 0,
                bits := STORAGE[self.dtypes[t.tensor]].bits,
                width[t] if t.at is None else max(1, bits // 8),
                t.tensor in served,
                single and t.direction == "read",
                [a for a in t.axes if a in tiled],
                [a for a in t.tile or t.axes if a in tiled],
                t.at is not None and any(map(is_read, postorder([t.at]))),
            )

    def _width(self, t: Transfer) -> int:
        """Bytes that a thread loads or stores of a tensor at once: as the rows of its last axis
        begin and end."""
        axes, bits = t.own or t.axes, STORAGE[self.dtypes[t.tensor]].bits
        slots = not t.own and bool(axes) and axes[-1] not in t.tile  # each at a place of its own
        known = math.gcd(self.sizes[axes[-1]], SEEN) if axes and not slots else 1
        return max(1, min(known * bits // 8, ROW_BYTES))

    def _served(self, width: Mapping[Transfer, int]) -> frozenset[str]:
        """The tensors that descriptors serve at these sizes: operands of products, and what is
        stored after the loops; none where the rows of one begin at no multiple of 16 bytes."""
        operands = self.in_boxes
        last = {t for t in width if t.direction == "write" and not t.streamed}
        may = [t for t in width if t.tensor in operands or t in last]
        served = operands and all(width[t] == ROW_BYTES for t in may)
        return frozenset(t.tensor for t in may) if served else frozenset()

    # --- persistent program instances -----------------------------------------------------------

    def _lasting(self) -> bool:
        """Whether persistent program instances load the next group's chunks ahead: where the
        compiler flattens their loop, with boxes, around one loop of products."""
        kernel = self.kernel
        one = len(kernel.stream.passes) == 1 and kernel.visits is None
        one = one and not kernel.partial and not kernel.added
        if not self.machine.target.flattens or not (one and self.boxed):
            return False
        if self.chained or self.computes or self.live.windowed or not self.live.products:
            return False
        rows = [(a.tensor, a.leaf.axes) for a in kernel.reads if kernel.stream.carried(a.leaf.axes)]
        rows += [(o.name, o.axes) for o in kernel.outputs]
        return bool(self.live.streamed_operands) and all(self._even(t, axes) for t, axes in rows)

    def _even(self, tensor: str, axes: Sequence[str]) -> bool:
        """Whether the rows of a tensor are multiples of what descriptors need."""
        bits = self.sizes[axes[-1]] * STORAGE[self.dtypes[tensor]].bits if axes else 0
        return bits % (8 * ROW_BYTES) == 0


def has_rows(t: Transfer) -> bool:
    """Whether a tensor has rows, one after another."""
    return len(t.own or t.axes) > 1
