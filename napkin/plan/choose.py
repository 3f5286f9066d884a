"""Labels and tiles for one kernel on one machine: which axis to stream, and the integer optimum.

Every legal labelling is tried; for each, tiles that are powers of two (as Triton needs), large
enough for matrix instructions, and that fit shared memory and registers. The least predicted time
wins, then the least traffic.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from napkin.cost.levels import Held, batched, chained, extent, held, operand_bytes, register_bytes
from napkin.cost.machines import Machine
from napkin.cost.time import Time, predict
from napkin.cost.traffic import ITEM_BYTES, Transfer, item_dtype, transfers
from napkin.cost.visited import longest, share
from napkin.cost.work import Count, counts
from napkin.derive.apart import apart
from napkin.derive.kernel import Kernel, label, weaved
from napkin.derive.residues import sized
from napkin.diagram.diagram import Output
from napkin.diagram.keys.slots import slots_of
from napkin.diagram.keys.terms import query_axes, spec_of
from napkin.diagram.node import Kind, Node, inside_sums, over, postorder
from napkin.errors import Refusal
from napkin.lower.descriptors import described
from napkin.lower.launch import MIN_CAPABILITY
from napkin.lower.program import build
from napkin.lower.resources import shared_bytes

MIN_DOT = 16
"""Smallest rows, columns and depth of a matrix product on tiles."""

MAX_TILE = 2**16
"""Values of the largest tile that registers are asked to hold."""

MAX_GROUP = 256
"""Values of the largest group along one axis: beyond it, no tile fits registers."""


FILL = 64
"""Slots without a key that are stored at once, at most."""

SECTOR = 32
"""Bytes that cross at once, at least."""

SHAPES = 3
"""Shapes of a box of queries and keys that are priced, for each number of both."""

FEW = 0.1
"""Chunks with a test, over all that are visited, below which registers may spill in testing: at
0.06 (causal) it did not matter, at 0.12 (a window of 2,048) it cost 7 % (docs/measurements)."""

TRIED = 40
"""Settings, best first, that are held to the full model of shared memory before giving up."""


@dataclass(frozen=True, eq=False)
class Choice:
    """Labels, tiles and launch settings of one kernel, with what they are predicted to cost.

    Attributes:
        described: bytes of a value where operands are read through tensor descriptors; else 0.
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

    @property
    def origin(self) -> Sequence[Output]:
        """The terms that it computes, unstreamed."""
        return self.kernel.origin

    @property
    def rank(self) -> tuple[float, ...]:
        """Smaller is better: time, then fewer passes, the larger chunk and the fewer warps."""
        chunk = math.prod(self.tiles[a] for a in self.kernel.stream.axes)
        return (self.time.seconds, len(self.kernel.stream.passes), -chunk, self.warps)


def power_of_two(size: int) -> int:
    """The least power of two that is at least `size`."""
    return 1 << max(0, size - 1).bit_length()


def labellings(
    name: str, outputs: Sequence[Output], names: Mapping[Node, str], sizes: Mapping[str, int]
) -> Iterator[Kernel]:
    """Every labelling of a term as one kernel: each axis streamed in one pass or two, or none; as
    it is, and with the axes of dilated key sets split by residue."""
    for split in (None, *apart(outputs, names)):
        terms = split.outputs if split else outputs
        known = sized(sizes, split.splits) if split else sizes
        legal = set(weaved(terms))
        every = tuple(dict.fromkeys(a for n in postorder(o.node for o in terms) for a in n.axes))
        alone = [a for a in every if a not in legal]
        together = [" ".join(keys) for keys in _key_axes(terms) if len(keys) > 1]
        for axis in ("", *alone, *together):
            whole = [a for a in every if a not in legal and a not in axis.split()]
            if not _may_fit(terms, whole, known):
                continue
            for passes in (1, 2, 3) if axis else (1,):
                try:
                    yield label(name, outputs, names, streamed=axis, passes=passes, split=split)
                except Refusal:
                    continue
                break


def _key_axes(outputs: Sequence[Output]) -> list[tuple[str, ...]]:
    """The axes of every key set: a chunk of them is a box."""
    found = [spec_of(n).keys for n in postorder(o.node for o in outputs) if n.op == "keys"]
    return list(dict.fromkeys(found))


def _may_fit(outputs: Sequence[Output], whole: Sequence[str], sizes: Mapping[str, int]) -> bool:
    inside = inside_sums(o.node for o in outputs)
    return all(
        math.prod(power_of_two(sizes[a]) for a in n.axes if a in whole) <= MAX_TILE
        for n in postorder(o.node for o in outputs)
        if n not in inside and n.op != "compress"
    )


def best(
    name: str,
    outputs: Sequence[Output],
    names: Mapping[Node, str],
    sizes: Mapping[str, int],
    dtype: str,
    machine: Machine,
) -> Choice | None:
    """The best way to run a term as one kernel, or None if there is none that fits."""
    found = [
        choice
        for kernel in labellings(name, outputs, names, sizes)
        if (choice := best_tiles(kernel, sizes, dtype, machine)) is not None
    ]
    return min(found, key=lambda c: c.rank, default=None)


def best_tiles(
    kernel: Kernel, sizes: Mapping[str, int], dtype: str, machine: Machine
) -> Choice | None:
    """The best tiles for a labelled kernel, or None if none fits.

    The search estimates shared memory from operands alone; the choice is held to the full model,
    with the operands as they lie and, where descriptors serve them, by addresses too.
    """
    search = _Search(kernel, sizes, dtype, machine)
    item = described_bytes(dtype, machine)
    for choice in sorted(search.choices(), key=lambda c: c.rank)[:TRIED]:
        plain = build(kernel, choice.tiles)
        boxed = described(plain, item) if item else plain
        programs = [boxed, plain] if boxed.boxes else [plain]
        for stages in range(choice.stages, 0, -1):
            shared, *other = (
                shared_bytes(p, search.dtypes, machine.arch, choice.warps, stages, search.sizes)
                for p in programs
            )
            if max(shared, *other, 0) <= machine.shared_per_block:
                return replace(choice, stages=stages, shared=shared, described=boxed.described)
    return None


def described_bytes(dtype: str, machine: Machine) -> int:
    """Bytes of a value of operands that tensor descriptors may serve; 0 where none does.

    Products of float32 are computed by multiply-add on registers, to which a box is no shortcut.
    """
    item = ITEM_BYTES[dtype]
    return item if machine.capability >= MIN_CAPABILITY and item == 2 else 0


def storage(kernel: Kernel, dtype: str) -> dict[str, str]:
    """The storage type of every tensor of a kernel."""
    kinds: dict[str, Kind] = {a.tensor: a.leaf.kind for a in kernel.reads}
    kinds |= {o.name: o.node.kind for o in kernel.outputs}
    return {t: item_dtype(kind, dtype) for t, kind in kinds.items()}


class _Search:
    def __init__(
        self, kernel: Kernel, sizes: Mapping[str, int], dtype: str, machine: Machine
    ) -> None:
        self.kernel, self.dtype, self.machine = kernel, dtype, machine
        self.sizes = kernel.sized(sizes)
        self.held: Held = held(kernel)
        self.parts: tuple[Transfer, ...] = transfers(kernel)
        self.counts: tuple[Count, ...] = counts(kernel)
        self.dtypes = storage(kernel, dtype)
        self.boxed = bool(described_bytes(dtype, machine))
        self.in_product = {a for p in self.held.products for role in p for a in role}
        self.batched, self.chained = batched(kernel), chained(kernel)

    def choices(self) -> Iterator[Choice]:
        """Every setting that fits."""
        for tiles in self._settings():
            if self._shaped(tiles):
                choice = self._settle(tiles)
                if choice is not None:
                    yield choice

    def _settings(self) -> Iterator[dict[str, int]]:
        """Tiles to try: every combination, but of axes that only their product matters for, the
        few shapes that waste least, and of boxes of keys and queries, those that visit least."""
        seen, stream = self.kernel.visits, self.kernel.stream.axes
        boxed = seen is not None and len(stream) > 1
        apart = (*query_axes(seen.keys), *stream) if boxed and seen else ()
        apart = tuple(a for a in apart if a not in self.kernel.residues)
        rest = [self._fewest(axes) for axes in self._alike(apart)]
        for box in self._boxes(apart) if boxed else [{}]:
            for shapes in itertools.product(*rest):
                yield {a: n for shape in (box, *shapes) for a, n in shape.items()}

    def _alike(self, apart: Collection[str]) -> list[list[str]]:
        """The axes but those in `apart`; together, those that the same arrays carry."""
        carried = [set(n.axes) | set(over(n)) for n in postorder(self.kernel.terms)]
        carried += [set(x.leaf.axes) for x in self.kernel.reads]
        alike: dict[tuple[object, ...], list[str]] = {}
        for a in self.kernel.axes:
            if a not in apart:
                role = (a in self.kernel.group, a in self.kernel.stream.axes, a in self.batched)
                key = (*role, *(a in c for c in carried if c))
                alike.setdefault(key, []).append(a)
        return list(alike.values())

    def _fewest(self, axes: Sequence[str]) -> list[dict[str, int]]:
        """Tiles of axes that the same arrays carry: for each number of values, the few shapes
        with the fewest padded lanes, and of equal ones those that are long along the last axis."""
        best: dict[int, list[tuple[float, tuple[int, ...]]]] = {}
        for values in itertools.product(*(self._candidates(a) for a in axes)):
            shape = dict(zip(axes, values, strict=True))
            order = tuple(-n for n in values[::-1])
            found = best.setdefault(math.prod(values), [])
            found.append((self._waste(shape, axes), order))
        kept = [sorted(found)[:SHAPES] for found in best.values()]
        return [
            dict(zip(axes, (-n for n in order[::-1]), strict=True)) for f in kept for _, order in f
        ]

    def _boxes(self, axes: tuple[str, ...]) -> list[dict[str, int]]:
        """Tiles of the query and key axes: for each number of queries and of keys, the few
        shapes that visit the fewest keys."""
        stream = self.kernel.stream.axes
        queries = [a for a in axes if a not in stream]
        best: dict[tuple[int, int], list[tuple[float, dict[str, int]]]] = {}
        groups = list(self._shapes(queries, MAX_GROUP))
        chunks = list(self._shapes(stream, 256))
        for g in groups:
            for c in chunks:
                tiles = {a: 1 for a in self.kernel.axes} | g | c
                lanes = share(self.kernel, self.sizes, tiles)[0] * self._waste(tiles, [*g, *c])
                key = math.prod(g.values()), math.prod(c.values())
                best.setdefault(key, []).append((lanes, g | c))
        kept = [sorted(found, key=lambda f: f[0])[:SHAPES] for found in best.values()]
        return [tiles for found in kept for _, tiles in found]

    def _shapes(self, axes: Sequence[str], most: int) -> Iterator[dict[str, int]]:
        tops = [power_of_two(self.sizes[a]) for a in axes]
        for values in itertools.product(*(_powers(1, min(top, most)) for top in tops)):
            if min(MIN_DOT, math.prod(tops)) <= math.prod(values) <= most:
                yield dict(zip(axes, values, strict=True))

    def _candidates(self, axis: str) -> list[int]:
        if axis in self.kernel.residues:
            return [1]
        top = power_of_two(self.sizes[axis])
        if axis in self.in_product:
            top = max(top, MIN_DOT)
        if axis in self.kernel.slots:
            last = {slots_of(e.node).slots[-1] for e in self.kernel.fills}
            return [min(top, FILL) if axis in last else 1]
        if axis in self.kernel.whole:
            return [max(top, 2)]  # with a lane to mask, an empty axis is read as nothing
        if axis in self.kernel.stream.axes:
            low = MIN_DOT if axis in self.in_product else min(top, 32)
            high = min(top, 256 if axis in self.in_product else 4096)
            return _powers(low, max(low, high))
        reused = [
            a for a in self.kernel.group if any(a not in x.leaf.axes for x in self.kernel.reads)
        ]
        # A matrix product has no axis that both of its sides carry into the result.
        if axis in reused and axis not in self.batched:
            return _powers(1, min(top, MAX_GROUP))
        innermost = [a for a in self.kernel.group if a not in reused][-1:]
        if not self.held.products and axis in innermost:
            return _powers(1, min(top, 1024))
        return [1]

    def _shaped(self, tiles: Mapping[str, int]) -> bool:
        """Whether products are large enough for matrix instructions, and tiles not too large."""
        for roles in self.held.products:
            if any(extent(role, tiles) < MIN_DOT for role in roles):
                return False
        return all(extent(axes, tiles) <= MAX_TILE for axes in self.held.chunk)

    def _settle(self, tiles: dict[str, int]) -> Choice | None:
        registers = register_bytes(self.held, tiles)
        # A quarter is left for addresses, masks and what the compiler keeps beside these; boxes
        # have neither addresses nor masks, and a tenth was enough where few chunks are tested.
        most = self.machine.registers_per_thread * 32
        bare = self.boxed and self.held.streamed_operands and self._tested(tiles) < FEW
        room = most * 9 // 10 if bare else most * 3 // 4
        warps = next((w for w in (4, 8) if registers <= w * room), 0)
        if not warps:
            return None
        if not self.held.products:
            warps = 4 if max(extent(a, tiles) for a in self.held.chunk) <= 4096 else 8
        # A thread takes some registers whatever it computes: about 32 of 4 bytes.
        taken = max(min(registers * 4 // 3, warps * most), warps * 32 * 128)
        found: dict[int, Choice] = {}
        for stages in (3, 2, 1):
            slots = stages if self.machine.capability >= 90 else max(stages - 1, 1)
            shared = operand_bytes(self.held, tiles, self.dtypes, slots)
            resident = self._resident(shared, taken, warps)
            # Fewer stages only make room for other groups, and loads still run ahead.
            worth = stages > 1 and resident > max(found, default=0)
            if shared <= self.machine.shared_per_block and (worth or not found):
                found[resident] = self._priced(tiles, warps, stages, shared, resident)
        return min(found.values(), key=lambda c: c.rank, default=None)

    def _tested(self, tiles: Mapping[str, int]) -> float:
        """Chunks that need a test over those that are visited."""
        if self.kernel.visits is None:
            return 0.0
        visited, tested = share(self.kernel, self.sizes, tiles)
        return tested / visited if visited else 0.0

    def _resident(self, shared: int, registers: int, warps: int) -> int:
        """Groups that one multiprocessor holds at once."""
        machine = self.machine
        most = (
            machine.shared_per_sm // max(shared, 1),
            machine.registers_per_sm // registers,
            machine.warps_per_sm // warps,
            machine.blocks_per_sm,
        )
        return max(1, min(most))

    def _priced(
        self, tiles: dict[str, int], warps: int, stages: int, shared: int, resident: int
    ) -> Choice:
        values = [(t, t.values(self.sizes, tiles)) for t in self.parts]
        inner = sum(n * ITEM_BYTES[self.dtypes[t.tensor]] for t, n in values)
        crossing = sum(n * self._apart(t) for t, n in values)
        work = {"product": 0.0, "arithmetic": 0.0, "special": 0.0}
        for c in self.counts:
            work[c.pipe] += c.number(self.sizes, tiles) * self._waste(tiles, c.axes)
        groups = math.prod(-(-self.sizes[a] // tiles[a]) for a in self.kernel.group)
        # A slot that wgmma reads is in use for one turn more.
        ahead = 2 if self.boxed and self.held.products else 1
        overlapped = stages > ahead or resident > 1 or not self.kernel.stream.axes
        streamed = self.kernel.stream.axes
        chunks = math.prod(-(-self.sizes[a] // tiles[a]) for a in streamed) if streamed else 0
        most = 1.0
        if self.kernel.visits is not None:
            most = longest(self.kernel, self.sizes, tiles)
            chunks = math.ceil(chunks * share(self.kernel, self.sizes, tiles)[0])
        time = predict(
            self.machine,
            self.dtype,
            work,
            crossing,
            self._outer(tiles, groups, resident),
            groups,
            resident,
            overlapped,
            chunks * len(self.kernel.stream.passes),
            bool(self.held.streamed_operands),
            self.chained,
            most,
        )
        return Choice(self.kernel, tiles, self.sizes, warps, stages, shared, time, inner)

    def _apart(self, t: Transfer) -> int:
        """Bytes that cross for each value: where a tensor's last axis is split by residue, a
        sector holds values of other residues, too."""
        item = ITEM_BYTES[self.dtypes[t.tensor]]
        step = self.sizes[t.axes[-1]] if t.axes and t.axes[-1] in self.kernel.residues else 1
        return max(item, min(step * item, SECTOR))

    def _outer(self, tiles: Mapping[str, int], groups: int, resident: int) -> float:
        """Bytes from and to the outermost memory: each tensor once, and what a later pass reads
        again where the groups that run together read more than L2 holds."""
        together = min(groups, self.machine.sms * resident)
        total = 0.0
        for t in {(t.tensor, t.direction): t for t in self.parts}.values():
            own = math.prod(self.sizes[a] for a in t.own or t.axes)
            size = own * ITEM_BYTES[self.dtypes[t.tensor]]
            live = size * together / groups
            again = t.times if live > self.machine.level("l2").capacity.value / 2 else 1
            total += size * again
        return total

    def _waste(self, tiles: Mapping[str, int], axes: Sequence[str]) -> float:
        """Lanes computed over lanes wanted along `axes`: padded tiles do work that nobody reads."""
        waste = 1.0
        for a in axes:
            size, tile = self.sizes[a], tiles[a]
            if a not in self.kernel.slots and size:
                waste *= -(-size // tile) * tile / size
        return waste


def _powers(low: int, high: int) -> list[int]:
    return [1 << i for i in range(low.bit_length() - 1, high.bit_length())]
