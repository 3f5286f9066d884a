"""H: values that cross between the outer and the inner level, per tensor, per step and in total.

A reading of a tensor costs its whole size once for every group along the grouped axes that it does
not carry (arXiv 2412.03317, section 2; with ceil(a/g) for a/g the count is exact for ragged
sizes). Where several axes are streamed together, a loop goes over boxes of them and loads in each
all that carries one: once more for every chunk of those that it does not carry. A result is written
once, by every group that has it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal

import sympy

from napkin.count.interior import read_sum, seen_sum
from napkin.count.split_axes import in_chunks, plain, positions
from napkin.count.visited import Bind, members, read
from napkin.count.window_images import image, inside
from napkin.derive.kernel import Access, Kernel, tile_axes
from napkin.diagram.interface import Output
from napkin.ir.key_sets import boxes_of, query_axes
from napkin.ir.node import Node
from napkin.ir.sliding import slides
from napkin.ir.slotted import full, guard, read_slots
from napkin.ir.symbols import group_symbol, size_symbol, stream_symbol
from napkin.ir.taking import gathered, own_axes, taken_of
from napkin.ir.types import PACKED, STORAGE, stored_bytes
from napkin.ir.windows import Slide
from napkin.keys.residues import Blocks, Split
from napkin.keys.visits import Visits
from napkin.schedule import Schedule

Direction = Literal["read", "write", "add"]
"""How values cross: groups read them, write them, or add them to what memory holds."""

ITEM_BYTES = {name: s.bits // 8 for name, s in STORAGE.items() if name not in PACKED}
"""Bytes per value, of the types that do not share a byte."""


@dataclass(frozen=True, eq=False)
class Transfer:
    """The transfers of one tensor in one direction.

    Attributes:
        tensor: the tensor's name.
        direction: how it crosses.
        axes: the axes it is read or written under; of a tensor that is read at computed addresses,
            its own.
        repeated: grouped axes that it does not carry: it crosses once per group of each.
        times: readings per group (a second pass reads again).
        kernel: the kernel, where a key set says which chunks of the tensor cross; else None.
        streamed: whether it crosses chunk by chunk.
        tile: the axes of the part that crosses at once, where these are not `axes`.
        leaf: the reading, where it is at computed addresses: only what its key set sees crosses.
        own: the tensor's own axes, where it is read at computed positions.
        at: the positions along the last of these, where they are computed and no window.
        splits: the axes that are split by residue or in blocks.
        part: the grouped axis of parts of the streamed axis, if there is one.
        slides: the axes of the tensor that are read in windows.
        held: for each of these, how many windows and taps a group holds at once; nothing where
            every tap is loaded by itself.
        chunked: the streamed axes that it does not carry, though it is streamed along others, and
            how much of each a chunk holds: it crosses once per chunk of each.
        left: of these, the axes within whose chunks other values of it cross.
    """

    tensor: str
    direction: Direction
    axes: tuple[str, ...]
    repeated: tuple[str, ...]
    times: int
    streamed: bool
    kernel: Kernel | None = None
    tile: tuple[str, ...] = ()
    leaf: Node | None = None
    own: tuple[str, ...] = ()
    at: Node | None = None
    splits: tuple[Split | Blocks, ...] = ()
    part: str = ""
    slides: tuple[Slide, ...] = ()
    held: tuple[tuple[Any, Any], ...] = ()
    chunked: tuple[tuple[str, Any], ...] = ()
    left: tuple[str, ...] = ()

    @cached_property
    def again(self) -> tuple[str, ...]:
        """The axes of which every group and chunk has it again."""
        return (*self.repeated, *(a for a, _ in self.chunked))

    @property
    def size(self) -> Any:
        """Values of the tensor."""
        size = sympy.Mul(*(size_symbol(a) for a in self.own or self.axes))
        return plain(size, self.splits)

    @property
    def total(self) -> Any:
        """Values in total, over all groups, as a function of the group sizes; of windows, those
        that a group holds at once count what they share once."""
        held = zip(self.slides, self.held, strict=False)
        shared = [image(s, g, k) / (g * k) for s, (g, k) in held]
        return plain(sympy.Mul(self._total, *shared), self.splits, self.part)

    @property
    def _total(self) -> Any:
        if self.kernel is not None:
            return self.times * self._visited(self.kernel)
        groups = [size_symbol(a) / group_symbol(a) for a in self.repeated]
        groups += [size_symbol(a) / tile for a, tile in self.chunked]
        size = self._members(self.leaf) if self.leaf else sympy.prod(map(size_symbol, self.axes))
        return self.times * size * sympy.prod(groups)

    def _members(self, leaf: Node) -> Any:
        """Values of a tensor that a key set sees: all, where every query fills its window."""
        keys, slots = leaf.args[0], read_slots(leaf)
        if full(keys, slots):
            return self.size
        queries = query_axes(keys)
        rest = [size_symbol(a) for a in self.axes if a not in (*queries, *slots.slots)]
        return seen_sum(Visits(keys, boxes_of(keys)), queries) * sympy.prod(rest)

    def _visited(self, kernel: Kernel) -> Any:
        """Values in total where a key set says what crosses: exact but for the borders."""
        seen = kernel.visits
        assert seen is not None
        queries = query_axes(seen.keys)
        groups = [size_symbol(a) / group_symbol(a) for a in self.repeated if a not in queries]
        unstreamed = [size_symbol(a) for a in self.axes if a not in kernel.stream.axes]
        shared = [tile_symbol(kernel, a) / size_symbol(a) for a in self.axes if a in queries]
        lacking = [stream_symbol(a) for a in kernel.stream.axes if a not in self.axes]
        parts = [*groups, *unstreamed, *shared, *(1 / s for s in lacking)]
        return read_sum(kernel, seen) * sympy.prod(parts)

    def per_step(self, kernel: Kernel) -> Any:
        """Values per chunk of one group if it is streamed, else per group."""
        if self.held:
            return held_values(kernel, self.axes, self.slides)
        size = sympy.Mul(*(tile_symbol(kernel, a) for a in self.tile or self.axes))
        return plain(size, self.splits, self.part)

    def values(
        self,
        sizes: Mapping[str, int],
        tiles: Mapping[str, int],
        bind: Bind | None = None,
        boxed: bool = False,
        past: bool = False,
    ) -> int:
        """Values that a kernel asks for in total, exact for any sizes.

        Args:
            bind: the inputs that key sets read.
            boxed: whether chunks cross in whole boxes, up to the end of the tensor.
            past: whether these count past its end, too, where they arrive as 0.
        """
        if not all(sizes[a] for a in self.own):
            return 0
        if past:  # a box is the tile, whatever part of it the tensor has
            moving = self.kernel.stream.axes if self.kernel is not None else ()
            fixed = {*self.axes} - {*moving}
            sizes = {**sizes, **{a: -(-sizes[a] // tiles[a]) * tiles[a] for a in fixed}}
        if self.kernel is not None:
            of = self.kernel, self.axes, sizes, tiles, bind, boxed, past
            return self.times * read(*of, self.slides)
        by_residue = {x for s in self.ragged for x in (s.place, s.residue)}
        again = math.prod([-(-sizes[a] // tiles[a]) for a in self.again if a not in by_residue])
        each = in_chunks(self.ragged, self.axes, sizes, tiles, self.splits)
        return int(self.once(sizes) * again * each)

    @cached_property
    def ragged(self) -> tuple[Split, ...]:
        """The chunked axes whose chunks depend on a residue."""
        chunked = {a for a, _ in self.chunked}
        return tuple(s for s in self.splits if isinstance(s, Split) and s.place in chunked)

    def once(self, sizes: Mapping[str, int]) -> int:
        """Values that cross where no key set says which do, for one group and chunk of each axis
        that the tensor does not carry."""
        windows = {a for s in self.slides for a in (s.out, s.tap)}
        size = positions([a for a in self.axes if a not in windows], sizes, self.splits)
        size *= inside(self.slides, sizes)
        if self.leaf is not None:
            slots = read_slots(self.leaf).slots
            size = members(self.leaf.args[0], [a for a in self.axes if a not in slots], sizes)
        return self.times * size


def tile_symbol(kernel: Kernel, axis: str) -> Any:
    """What one group (or chunk) holds of an axis: g_a, s_a, or the whole size; of the taps of
    windows that are streamed, one."""
    if axis in kernel.taps:
        return sympy.Integer(1)
    if axis in kernel.group:
        return group_symbol(axis)
    if axis == kernel.partial:
        return sympy.Integer(1)
    return stream_symbol(axis) if axis in kernel.stream.axes else size_symbol(axis)


def windows_held(kernel: Kernel, slides: Sequence[Slide]) -> tuple[tuple[Any, Any], ...]:
    """How many windows and taps of each slide a group holds at once."""
    return tuple((tile_symbol(kernel, s.out), tile_symbol(kernel, s.tap)) for s in slides)


def held_values(kernel: Kernel, axes: Collection[str], slides: Sequence[Slide]) -> Any:
    """Values that a group holds of a tensor that is read under `axes`: what windows share once."""
    windows = {a for s in slides for a in (s.out, s.tap)}
    parts = [tile_symbol(kernel, a) for a in axes if a not in windows]
    parts += [image(s, *of) for s, of in zip(slides, windows_held(kernel, slides), strict=True)]
    return plain(sympy.Mul(*parts), kernel.splits)


@lru_cache(maxsize=256)
def transfers(kernel: Kernel, tap_by_tap: bool = False) -> tuple[Transfer, ...]:
    """Every reading and writing of a kernel.

    Args:
        tap_by_tap: taps of windows are loaded one by one, as kernels do, whatever a group holds.
    """
    reads = (_reading(kernel, access, tap_by_tap) for access in kernel.reads)
    return (*reads, *(_writing(kernel, o) for o in kernel.outputs))


def _reading(kernel: Kernel, access: Access, tap_by_tap: bool) -> Transfer:
    leaf, axes = access.leaf, access.leaf.axes
    streamed, placed = kernel.stream.carried(axes), guard(leaf) is not None
    chunked = _chunked(kernel, axes)
    return Transfer(
        access.tensor,
        "read",
        read_slots(leaf).compressed(axes) if placed else axes,
        kernel.lacking(axes),
        access.times,
        streamed,
        kernel if streamed and not placed and kernel.visits is not None else None,
        tile=axes,
        leaf=leaf if placed else None,
        own=own_axes(leaf) if taken_of(leaf) else (),
        at=gathered(leaf),
        splits=(*kernel.splits, *kernel.blocks),
        part=kernel.part,
        slides=slides(leaf),
        held=() if tap_by_tap else windows_held(kernel, slides(leaf)),
        chunked=tuple((a, tile_symbol(kernel, a)) for a in chunked),
        left=tuple(a for a in chunked if _within(kernel, a, axes)),
    )


def _writing(kernel: Kernel, o: Output) -> Transfer:
    tile, adds = tile_axes(o), o.name in kernel.added
    streamed = kernel.stream.carried(tile)
    return Transfer(
        o.name,
        "add" if adds else "write",
        o.axes,
        kernel.lacking(tile),
        1,
        streamed,
        kernel if streamed and adds and kernel.visits is not None else None,
        tile=tile,
        splits=(*kernel.splits, *kernel.blocks),
        part=kernel.part,
    )


def zeroed(kernel: Kernel) -> tuple[Transfer, ...]:
    """What is written before a kernel starts: zeros, to which its groups add."""
    splits, added = (*kernel.splits, *kernel.blocks), kernel.added
    outputs = [o for o in kernel.outputs if o.name in added]
    return tuple(Transfer(o.name, "write", o.axes, (), 1, False, splits=splits) for o in outputs)


def _chunked(kernel: Kernel, axes: Collection[str]) -> list[str]:
    """The streamed axes that a streamed reading does not carry; none where a key set says which
    chunks are visited, which counts them itself."""
    streamed = kernel.stream.carried(axes) and kernel.visits is None
    return [a for a in kernel.stream.axes if streamed and a not in axes]


def _within(kernel: Kernel, axis: str, axes: Collection[str]) -> bool:
    """Whether some of `axes` is streamed faster than `axis`."""
    order = kernel.stream.axes
    return any(a in axes for a in order[order.index(axis) + 1 :])


@dataclass(frozen=True)
class Unit:
    """What H and M are counted in: values, or bytes where each array has its own per value.

    With the same number q of bytes everywhere, a term alpha * M**-beta of the optimum is
    alpha * q**(1 + beta) * M**-beta in bytes; with several, they are coefficients of H and M
    (arXiv 2412.03317, section 3.3 and App. A.2).

    Attributes:
        each: of a value of each tensor; exact, half a byte being 1/2.
        rest: of a value of what no tensor holds.
    """

    each: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rest: Any = 1

    def __getitem__(self, tensor: str) -> Any:
        """What a value of a tensor counts; of "", of what no tensor holds."""
        return self.each.get(tensor, self.rest)


VALUES = Unit()
"""Every value counts 1."""


def in_bytes(dtypes: Mapping[str, str], rest: str) -> Unit:
    """Bytes, for tensors of these storage types; what no tensor holds counts as `rest` does."""
    sizes = {t: sympy.Rational(STORAGE[dtype].bits, 8) for t, dtype in dtypes.items()}
    return Unit(sizes, sympy.Rational(STORAGE[rest].bits, 8))


@dataclass(frozen=True, eq=False)
class Traffic:
    """H of one kernel: symbolic in axis and group sizes, in values or in bytes (`unit`).

    Attributes:
        tap_by_tap: whether the taps of windows are loaded one by one, whatever a group holds.
    """

    kernel: Kernel
    tap_by_tap: bool = False
    unit: Unit = VALUES

    @cached_property
    def of_groups(self) -> tuple[Transfer, ...]:
        """The transfers of its groups."""
        return transfers(self.kernel, self.tap_by_tap)

    @property
    def parts(self) -> tuple[Transfer, ...]:
        """The transfers that make it up: those of its groups, and of the zeros that they add to."""
        return (*self.of_groups, *zeroed(self.kernel))

    @property
    def per_tensor(self) -> dict[str, Any]:
        """Values (or bytes) in total for each tensor, read and written."""
        out: dict[str, Any] = {}
        for t in self.parts:
            out[t.tensor] = sympy.expand(out.get(t.tensor, 0) + self.unit[t.tensor] * t.total)
        return out

    @property
    def total(self) -> Any:
        """Values in total."""
        return sympy.expand(sympy.Add(*(self.unit[t.tensor] * t.total for t in self.parts)))

    @property
    def per_group(self) -> Any:
        """Values per group: the total over the number of groups."""
        groups = sympy.prod([size_symbol(a) / group_symbol(a) for a in self.kernel.group])
        return sympy.expand(self.total / plain(groups, self.kernel.splits, self.kernel.part))

    @property
    def per_step(self) -> Any:
        """Values per chunk of one group: what one iteration of the streamed loop reads and
        writes."""
        parts = [self.unit[t.tensor] * t.per_step(self.kernel) for t in self.parts if t.streamed]
        return sympy.expand(sympy.Add(*parts))

    def values(
        self, sizes: Mapping[str, int], tiles: Mapping[str, int], bind: Bind | None = None
    ) -> int:
        """Values in total, exact for any sizes; `bind` gives the inputs that key sets read."""
        sizes = self.kernel.sized(sizes)
        return sum(t.values(sizes, tiles, bind) for t in self.parts)

    def bytes(
        self,
        sizes: Mapping[str, int],
        schedule: Schedule,
        dtypes: Mapping[str, str],
        bind: Bind | None = None,
        boxed: Collection[str] = (),
    ) -> dict[tuple[str, Direction], int]:
        """Bytes in total for each tensor and direction, exact for any sizes.

        Args:
            schedule: warpgroups each read what they share, but boxes and single bounds of visits.
            boxed: tensors whose chunks cross in whole boxes.
        """
        out: dict[tuple[str, Direction], int] = {}
        sizes, tiles = self.kernel.sized(sizes), schedule.tiles
        for t in self.parts:
            count = t.values(sizes, tiles, bind, t.tensor in boxed)
            once = t.tensor in self.kernel.placing and all(tiles[a] == 1 for a in t.tile)
            apart = t.direction == "read" and t.tensor not in boxed and not once
            count *= schedule.warpgroups if apart and schedule.axis in t.repeated else 1
            key = (t.tensor, t.direction)
            out[key] = out.get(key, 0) + stored_bytes(count, dtypes[t.tensor])
        return out
