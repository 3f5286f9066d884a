"""How a kernel is called: grid, arguments in order, and the constants fixed at compile time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from napkin.derive.kernel import tensor_of
from napkin.diagram.evaluate import evaluate
from napkin.diagram.node import Node
from napkin.errors import InputError
from napkin.lower.descriptors import fits
from napkin.lower.program import Program
from napkin.lower.write import Argument, Written

_INT32 = 2**31 - 1
MAX_GRID = 2**31 - 1
"""Programs along the first axis of a CUDA grid."""


@dataclass(frozen=True)
class Launch:
    """One launch.

    Attributes:
        grid: program instances.
        scalars: the arguments that are not tensors, by name.
        tensors: the pointer arguments: argument name to tensor name.
        boxes: the pointer arguments that are given as tensor descriptors, with their boxes.
        order: the names of the run-time arguments, in the kernel's order.
        constexprs: compile-time arguments by name.
    """

    grid: int
    scalars: Mapping[str, int | float]
    tensors: Mapping[str, str]
    order: tuple[str, ...]
    boxes: Mapping[str, tuple[int, ...]]
    constexprs: Mapping[str, int | bool]


def launch(
    program: Program,
    written: Written,
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
    strides: Mapping[str, Sequence[int]],
    aligned: bool = True,
) -> Launch:
    """The launch of a kernel on tensors with these strides (in values, by tensor name).

    `aligned` says whether every tensor begins at a multiple of 16 bytes, on a machine that has
    tensor descriptors.

    Raises:
        InputError: the grid is larger than a GPU takes.
    """
    tiles, sizes = program.tiles, program.kernel.sized(sizes)
    grid = math.prod(-(-sizes[a] // tiles[a]) for a in program.kernel.group)
    if grid > MAX_GRID:
        raise InputError(
            f"{written.name} would launch {grid} programs, more than a GPU takes (2**31 - 1); "
            "cut the largest axis into several calls"
        )
    own = {a.of[0]: list[str]() for a in written.arguments if a.kind == "tensor"}  # type: ignore[index]
    for a in written.arguments:
        if a.kind == "stride":
            assert isinstance(a.of, tuple)
            own[a.of[0]].append(a.of[1])
    step = {
        (tensor, axis): value
        for tensor, axes in own.items()
        for axis, value in _strides(axes, strides[tensor], program).items()
    }
    wide = any(_reach(tensor, axes, step, sizes, program) > _INT32 for tensor, axes in own.items())
    described = not wide and _described(program, own, step, aligned)
    run: dict[str, int | float] = {}
    fixed: dict[str, int | bool] = {}
    tensors: dict[str, str] = {}
    order: list[str] = []
    for a in written.arguments:
        if a.kind == "tensor":
            assert isinstance(a.of, tuple)
            tensors[a.name] = a.of[0]
        elif a.constexpr:
            fixed[a.name] = _fixed(a, program, sizes, wide, described)
        else:
            run[a.name] = _run_time(a, sizes, scalars, step)
        if not a.constexpr:
            order.append(a.name)
    boxes = {
        name: tuple(program.tiles[x] for x in axes)
        for boxed, axes in (_boxes(program).items() if described else ())
        for name, tensor in tensors.items()
        if tensor == boxed
    }
    return Launch(grid, run, tensors, tuple(order), boxes, fixed)


def _boxes(program: Program) -> dict[str, tuple[str, ...]]:
    """The axes of every tensor that descriptors serve."""
    return {tensor_of(leaf): axes for leaf, axes in program.boxes.items()} | dict(program.stores)


def _strides(axes: Sequence[str], strides: Sequence[int], program: Program) -> dict[str, int]:
    """A tensor's strides by axis; of an axis that is split by residue, from one place to the next
    and from one residue to the next."""
    splits = {s.place: s for s in program.kernel.splits}
    out = dict.fromkeys(axes, 0)
    residues = {splits[a].residue for a in axes if a in splits}
    for axis, value in zip((a for a in axes if a not in residues), strides, strict=True):
        s = splits.get(axis)
        out[axis] = int(value) * (s.step if s else 1)
        if s:
            out[s.residue] += int(value)
    return out


def _described(
    program: Program,
    own: Mapping[str, Sequence[str]],
    step: Mapping[tuple[str, str], int],
    aligned: bool,
) -> bool:
    """Whether every tensor that a descriptor may serve lies in memory as one needs."""
    if not program.boxes or not aligned:
        return False
    for tensor in _boxes(program):
        strides = [step[tensor, a] for a in own[tensor]]
        if not fits(strides, program.described):
            return False
    return True


def _fixed(
    a: Argument, program: Program, sizes: Mapping[str, int], wide: bool, described: bool
) -> int | bool:
    if a.kind == "wide":
        return wide
    if a.kind == "descriptors":
        return described
    assert isinstance(a.of, tuple)
    axis = a.of[0]
    tile = program.tiles[axis]
    if a.kind == "block":
        return tile
    s = program.kernel.ragged.get(axis)
    if s and sizes[s.axis] % s.step:
        return False
    if axis in program.kernel.whole:
        return sizes[axis] == tile
    return sizes[axis] % tile == 0


def _run_time(
    a: Argument,
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
    step: Mapping[tuple[str, str], int],
) -> int | float:
    if isinstance(a.of, Node):
        value = evaluate([a.of], {}, sizes, scalars)[0].item()
        return int(value) if a.of.kind != "real" else float(value)
    return sizes[a.of[0]] if a.kind == "size" else step[a.of[0], a.of[1]]


def _reach(
    tensor: str,
    axes: Sequence[str],
    step: Mapping[tuple[str, str], int],
    sizes: Mapping[str, int],
    program: Program,
) -> int:
    """The farthest offset that address arithmetic forms, padded lanes included."""
    total = 0
    for a in axes:
        tile = program.tiles.get(a, 1)
        total += (-(-max(sizes[a], 1) // tile) * tile) * abs(step[tensor, a])
    return total
