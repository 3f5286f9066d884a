"""How a kernel is called: grid, arguments in order, and the constants fixed at compile time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from napkin.errors import InputError
from napkin.ir.evaluate import evaluate
from napkin.ir.node import Node
from napkin.keys.residues import Split, sized
from napkin.schedule import Schedule

LANES = 32
"""Threads of a warp."""

ROW_BYTES = 16
"""Bytes that the strides of a tensor with a descriptor are multiples of, and its first byte too."""

SEEN = 16
"""What Triton's launcher asks of arguments: whether they are multiples of it."""

_INT32 = 2**31 - 1
MAX_GRID = 2**31 - 1
"""Programs along the first axis of a CUDA grid."""


SECTION_BYTES = 24 * 2**20
"""Bytes of what groups stream that L2 is asked to hold, where the longest groups start first.
Causal attention, 16 heads of 4096 x 128: 151 us, with each head for itself 201; 64 heads: 569 for
616; 256 heads of 1024: 213 for 222, but 229 with 64 MB (H100)."""

Sizes = Mapping[str, int]
"""Positions along each axis."""

Steps = Mapping[tuple[str, str], int]
"""Values from one position to the next, by tensor and axis."""

ArgKind = Literal[
    "tensor", "constant", "size", "stride", "section",
    "block", "even", "step", "descriptors", "wide",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Argument:
    """One argument of a kernel.

    Attributes:
        name: its name in the source.
        kind: what it is; "block", "even", "step", "descriptors" and "wide" are constexprs.
        of: the tensor, the axis, both, or the expression that it belongs to; of a step, the axis
            and the tensors whose rows lie along it.
    """

    name: str
    kind: ArgKind
    of: tuple[str, ...] | Node

    @property
    def constexpr(self) -> bool:
        """Whether the value is fixed when the kernel is compiled."""
        return self.kind in {"block", "even", "step", "descriptors", "wide"}


@dataclass(frozen=True, eq=False)
class Entry:
    """All that a launch needs to know of a kernel, beside its text.

    Attributes:
        name: the function's name.
        arguments: in the order of the signature; the kernel reads each.
        axes_of: the axes of every tensor, in memory order.
        schedule: how it runs; of that, a launch sets tiles, warps, stages and program instances.
        group: the grouped axes, in grid order.
        whole: the axes that every group holds whole.
        splits: the axes that are split by residue.
        ragged: of those, the ones whose length depends on the residue, by the axis of places.
        boxes: the tensors that descriptors may serve, with their axes in memory order.
        items: the bytes of a value of each of these.
        streamed: the axes of each tensor that is streamed.
        contracts: whether the compiler may contract a product and a sum into one operation (FMA),
            in one place and not in another: not where equal terms are to be rounded alike.
        added: the tensors to which it adds: they are set to 0 before it is launched.
    """

    name: str
    arguments: tuple[Argument, ...]
    axes_of: Mapping[str, tuple[str, ...]]
    schedule: Schedule
    group: tuple[str, ...]
    whole: tuple[str, ...]
    splits: tuple[Split, ...]
    ragged: Mapping[str, Split]
    boxes: Mapping[str, tuple[str, ...]]
    items: Mapping[str, int]
    streamed: tuple[tuple[str, ...], ...] = ()
    contracts: bool = True
    added: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, object]:
        """What is asked of the compiler, beside warps and stages."""
        return {} if self.contracts else {"enable_fp_fusion": False}

    @property
    def settings(self) -> dict[str, object]:
        """What a launch is given beside its arguments."""
        own: dict[str, object] = {"num_warps": self.schedule.launched_warps}
        if not self.schedule.warpgroups:  # those wait for their chunks themselves
            own["num_stages"] = self.schedule.stages
        return own | self.options

    @property
    def tiles(self) -> Mapping[str, int]:
        """Values of each axis that one group holds."""
        return self.schedule.group

    def steps(self, tensor: str) -> dict[str, list[tuple[int, int]]]:
        """The stride of each axis of a tensor, as a sum of multiples of the strides that it has in
        memory: pairs of a place among these and a factor. Of an axis that is split by residue, from
        one place to the next and from one residue to the next."""
        out: dict[str, list[tuple[int, int]]] = {a: [] for a in self.axes_of[tensor]}
        splits = {s.place: s for s in self.splits if s.place in out}
        residues = {s.residue for s in splits.values()}
        for i, axis in enumerate(a for a in out if a not in residues):
            s = splits.get(axis)
            out[axis].append((i, s.step if s else 1))
            if s:
                out[s.residue].append((i, 1))
        return out

    def even(self, axis: str) -> list[tuple[str, int, bool]]:
        """When tiles cover an axis without a rest: where the size of each of these axes is a
        multiple of a number, or that number itself."""
        split, whole = self.ragged.get(axis), axis in self.whole
        number = self.tiles[axis] if whole else self.schedule.tiles[axis]
        rest = [(split.axis, split.step, False)] if split else []
        return [*rest, (axis, number, whole)]


@dataclass(frozen=True)
class TmaBox:
    """How a descriptor sees a tensor.

    Attributes:
        order: its axes, by their place in the tensor.
        sizes: values of one box along each of them.
    """

    order: tuple[int, ...]
    sizes: tuple[int, ...]

    def seen(self, each: Sequence[int]) -> list[int]:
        """What there is of each axis of the tensor, in the order of the descriptor."""
        return [each[i] for i in self.order]


def in_box(axes: Sequence[str], tiles: Sizes) -> tuple[str, ...]:
    """The axes of a tensor as its descriptor has them: first those of which a tile has one value,
    so that a box is the tile as it lies in shared memory. With one of these inside, an operand that
    is held goes through registers and stays there: 111 us for 79 in attention over a window of
    2,048 tokens whose heads lie inside the tokens (H100)."""
    return tuple(sorted(axes, key=lambda a: tiles[a] > 1))


@dataclass(frozen=True)
class Launch:
    """One launch.

    Attributes:
        grid: program instances.
        scalars: the arguments that are not tensors, by name.
        tensors: the pointer arguments: argument name to tensor name.
        boxes: the pointer arguments that are given as tensor descriptors, and how these see them.
        order: the names of the run-time arguments, in the kernel's order.
        constexprs: compile-time arguments by name.
    """

    grid: int
    scalars: Mapping[str, int | float]
    tensors: Mapping[str, str]
    order: tuple[str, ...]
    boxes: Mapping[str, TmaBox]
    constexprs: Mapping[str, int | bool]


def launch(
    entry: Entry,
    sizes: Sizes,
    scalars: Mapping[str, float],
    strides: Mapping[str, Sequence[int]],
    aligned: bool = True,
) -> Launch:
    """The launch of a kernel on tensors with these strides (in values, by tensor name).

    `aligned` says whether every tensor begins at a multiple of 16 bytes, on a machine that has
    tensor descriptors.

    Raises:
        InputError: the grid is larger than a GPU takes, or an axis than the tile that holds it.
    """
    tiles, sizes = entry.tiles, sized(sizes, entry.splits)
    for axis in entry.whole:
        if sizes[axis] > tiles[axis]:
            raise InputError(
                f"{entry.name} holds {axis} whole in {tiles[axis]} lanes, but "
                f"{axis}={sizes[axis]}; derive a plan for these sizes"
            )
    grid = math.prod(-(-sizes[a] // entry.schedule.tiles[a]) for a in entry.group)
    if grid > MAX_GRID:
        raise InputError(
            f"{entry.name} would launch {grid} programs, more than a GPU takes (2**31 - 1); "
            "cut the largest axis into several calls"
        )
    step = _steps(entry, strides)
    wide = _is_wide(entry, step, sizes)
    described = not wide and aligned and _described(entry, step, sizes)
    run: dict[str, int | float] = {}
    fixed: dict[str, int | bool] = {}
    tensors: dict[str, str] = {}
    order: list[str] = []
    for a in entry.arguments:
        if a.kind == "tensor":
            assert isinstance(a.of, tuple)
            tensors[a.name] = a.of[0]
        elif a.constexpr:
            fixed[a.name] = _fixed(a, entry, sizes, step, wide, described)
        else:
            run[a.name] = _run_time(a, entry, sizes, scalars, step)
        if not a.constexpr:
            order.append(a.name)
    boxes = {
        name: _box(entry.boxes[tensor], tiles)
        for name, tensor in tensors.items()
        if described and tensor in entry.boxes
    }
    programs = min(grid, entry.schedule.persistent or grid)
    return Launch(programs, run, tensors, tuple(order), boxes, fixed)


def served(entry: Entry, sizes: Sizes) -> bool:
    """Whether descriptors serve the tensors of a kernel where they are row-major with padded rows:
    not those to which 32 bits of offsets do not reach."""
    step, sizes = _steps(entry, padded(entry, sizes)), sized(sizes, entry.splits)
    return not _is_wide(entry, step, sizes) and _described(entry, step, sizes)


def padded(entry: Entry, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """The strides of row-major tensors, of which those that descriptors may serve have rows that
    begin at multiples of 16 bytes."""
    found: dict[str, tuple[int, ...]] = {}
    for t in entry.axes_of:
        *rows, row = shape_of(entry, t, sizes) or [1]
        values = ROW_BYTES // entry.items[t] if t in entry.boxes else 1
        found[t] = contiguous([*rows, -(-row // values) * values])[: len(entry.axes_of[t])]
    return found


def shape_of(entry: Entry, tensor: str, sizes: Sizes) -> list[int]:
    """What a tensor has of each of the axes that it has in memory."""
    split = {s.place: s.axis for s in entry.splits}
    inner = {s.residue for s in entry.splits}
    return [sizes[split.get(a, a)] for a in entry.axes_of[tensor] if a not in inner]


def _steps(entry: Entry, strides: Mapping[str, Sequence[int]]) -> Steps:
    return {
        (tensor, axis): sum(factor * int(strides[tensor][place]) for place, factor in terms)
        for tensor in entry.axes_of
        for axis, terms in entry.steps(tensor).items()
    }


def _is_wide(entry: Entry, step: Steps, sizes: Sizes) -> bool:
    """Whether offsets take 64 bits."""
    own = entry.axes_of.items()
    return any(_reach(tensor, axes, step, sizes, entry) > _INT32 for tensor, axes in own)


def _box(axes: Sequence[str], tiles: Sizes) -> TmaBox:
    own = in_box(axes, tiles)
    return TmaBox(tuple(axes.index(a) for a in own), tuple(tiles[a] for a in own))


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in values; an axis without positions counts as one with one."""
    return tuple(math.prod(max(n, 1) for n in shape[i + 1 :]) for i in range(len(shape)))


def fits(strides: Sequence[int], item_bytes: int) -> bool:
    """Whether a tensor with these strides, in values, can be described."""
    *outer, last = strides
    return last == 1 and all(s > 0 and s * item_bytes % ROW_BYTES == 0 for s in outer)


def _described(entry: Entry, step: Steps, sizes: Sizes) -> bool:
    """Whether every tensor that a descriptor may serve lies in memory as one needs, and is not
    empty."""
    return bool(entry.boxes) and all(
        fits([step[t, a] for a in own], entry.items[t]) and all(sizes[a] for a in own)
        for t, own in ((t, entry.axes_of[t]) for t in entry.boxes)
    )


def known_step(length: int, strides: Iterable[int]) -> int:
    """The largest power of two, up to 8, that divides the length of rows and every stride to the
    next; 1 where 16 does, since the compiler sees that by itself."""
    step = math.gcd(length, *strides, SEEN)
    return 1 if step == SEEN else step


def _fixed(
    a: Argument, entry: Entry, sizes: Sizes, step: Steps, wide: bool, described: bool
) -> int | bool:
    if a.kind == "wide":
        return wide
    if a.kind == "descriptors":
        return described
    assert isinstance(a.of, tuple)
    axis, *along = a.of
    if a.kind == "step":
        own = entry.axes_of
        return known_step(sizes[axis], [step[t, x] for t in along for x in own[t][:-1]])
    if a.kind == "block":
        return entry.tiles[axis]
    return all(sizes[x] == n if whole else sizes[x] % n == 0 for x, n, whole in entry.even(axis))


def _run_time(
    a: Argument, entry: Entry, sizes: Sizes, scalars: Mapping[str, float], step: Steps
) -> int | float:
    if isinstance(a.of, Node):
        value = evaluate([a.of], {}, sizes, scalars)[0].item()
        return int(value) if a.of.kind != "real" else float(value)
    if a.kind == "section":
        item = entry.schedule.described or 2
        return section(entry.group, a.of, entry.streamed, sizes, entry.tiles, item)
    return sizes[a.of[0]] if a.kind == "size" else step[a.of[0], a.of[1]]


def section(
    group: Sequence[str],
    rising: Sequence[str],
    streamed: Sequence[Sequence[str]],
    sizes: Sizes,
    tiles: Sizes,
    item: int,
) -> int:
    """How many groups along the axes that do not rise share L2 with what they stream: tensors with
    these axes, of `item` bytes a value."""
    others = [a for a in group if a not in rising]
    many = math.prod(-(-sizes[a] // tiles[a]) for a in others)
    values = sum(math.prod(sizes[a] for a in axes) for axes in streamed)
    sections = max(1, min(many, -(-values * item // SECTION_BYTES)))
    return max(1, -(-many // sections))


def _reach(tensor: str, axes: Sequence[str], step: Steps, sizes: Sizes, entry: Entry) -> int:
    """The farthest offset that address arithmetic forms, padded lanes included."""
    total = 0
    for a in axes:
        tile = entry.tiles.get(a, 1)
        total += (-(-max(sizes[a], 1) // tile) * tile) * abs(step[tensor, a])
    return total
