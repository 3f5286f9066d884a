"""Sizes to check a plan at: few enough tiles for an interpreter, and every kind of edge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from sympy import nextprime, prevprime

from napkin.diagram.diagram import Diagram
from napkin.errors import InputError
from napkin.ir.key_sets import boxes_of, spec_of
from napkin.ir.names import underscored
from napkin.ir.node import Node, postorder
from napkin.ir.storage import packed_axis
from napkin.plan.derive import derive
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel

BATCH = "batch"

NOTHING: Mapping[str, int] = MappingProxyType({})

LOOKED_UP = 1024
"""Positions of an axis that is read at computed positions only, at most."""

TOKENS = 1024
"""Positions along the axes of a key set, about: an interpreter goes over their pairs in seconds."""

MANY = 128
"""Tiles along an axis that one kernel holds whole, and another goes over in turn."""


@dataclass(frozen=True)
class Case:
    """One run: its sizes, whether an input is transposed in memory, and axes weaved in."""

    name: str
    sizes: Mapping[str, int]
    transposed: bool = False
    weave: str = ""


def plan_of(plan: Plan, case: Case) -> Plan:
    """The plan that a case runs: that which it is a case of, or one with axes weaved in."""
    if not case.weave:
        return plan
    sizes = {**plan.sizes, **case.sizes}
    woven = plan.diagram.weave(case.weave)
    return derive(woven, plan.machine, sizes, plan.dtype, **plan.asked.at(sizes))


def cases(plan: Plan, sizes: Mapping[str, int] | None = None) -> list[Case]:
    """The runs of a check: the given sizes, or tiles that divide, primes, a transposed input and
    a batch axis, which is one of inputs; where tensor descriptors serve operands, boxes that reach
    past the end too.

    Raises:
        InputError: an axis that a kernel holds whole is larger than its tile.
    """
    if sizes is not None:
        asked = plan.diagram.with_sizes(**plan.sizes).check_sizes(sizes)
        for axis, size in asked.items():
            whole = _roles(plan, axis).whole
            if 0 < whole < size:
                raise InputError(
                    f"{plan.name}: {axis}={size}, but a kernel of this plan holds {axis} whole in "
                    f"{whole} lanes; derive the plan for the sizes it is checked at"
                )
        return [Case("as asked", asked)]
    even = {a: _even(plan, a) for a in plan.sizes}
    ragged = {a: _ragged(plan, a) for a in plan.sizes}
    rows = _rows(plan)
    cut = {a: even[a] if a in rows else ragged[a] for a in even}
    f, most = plan.diagram, _most(plan)
    even = _past_windows(f, plan.sizes, _one_size(f, even, most))
    ragged = _past_windows(f, plan.sizes, _one_size(f, ragged, most), prime=True)
    cut = _past_windows(f, plan.sizes, _one_size(f, cut, most), prime=True)
    few = _one_size(f, {a: min(n, _prime_below(67)) for a, n in ragged.items()}, most)
    even, cut, ragged, few = (even_pairs(f, x, most) for x in (even, cut, ragged, few))
    batch = underscored(BATCH, f.axes)
    return [
        Case("divides", even),
        *([Case("boxes past the end", cut)] if rows and cut != even else []),
        Case("primes", ragged),
        Case("transposed", ragged, transposed=True),
        *([Case("batched", {**few, batch: 2}, weave=batch)] if f.inputs else []),
    ]


def even_pairs(
    diagram: Diagram, sizes: Mapping[str, int], most: Mapping[str, int] = NOTHING
) -> dict[str, int]:
    """`sizes` made even along axes along which two values share a byte, and along all of one size
    with such an axis; where windows lie along one, their number fits the axis that they read."""
    of = diagram.sized_as
    paired = {of(a) for a in map(packed_axis, diagram.inputs) if a}
    slid = {of(s.axis) for s in diagram.slides}

    def even(axis: str, size: int) -> int:
        up = axis in slid or size < 2  # a window still fits
        return size + size % 2 * (1 if up else -1) if axis in paired else size

    groups = {of(a): even(of(a), n) for a, n in sizes.items()}
    if any(groups[of(a)] != n for a, n in sizes.items()):
        for s in diagram.slides:
            axis, out, tap = map(of, (s.axis, s.out, s.tap))
            if out in paired:
                groups[axis] = even(axis, s.least(groups[out], groups[tap]))
    _count_windows(diagram, groups, most)
    return {a: groups[of(a)] for a in sizes}


def _count_windows(diagram: Diagram, groups: dict[str, int], most: Mapping[str, int]) -> None:
    """Give the axes of windows their numbers, of axes as long as they are, longer where there would
    be no window, or shorter where there would be more than `most`."""
    slides = [(s, *map(diagram.sized_as, (s.axis, s.out, s.tap))) for s in diagram.slides]
    least: dict[str, int] = {}
    for s, axis, out, tap in reversed(slides):
        least[axis] = max(least.get(axis, 1), s.least(least.get(out, 1), groups[tap]))
        groups[axis] = max(groups[axis], least[axis])
        if most.get(out) and s.count(groups[axis], groups[tap]) > most[out]:
            groups[axis] = s.least(most[out] + 1, groups[tap]) - 1
    for s, axis, out, tap in slides:
        groups[out] = s.count(groups[axis], groups[tap])


def _rows(plan: Plan) -> set[str]:
    """The axes along which the tensors that descriptors serve are contiguous."""
    rows = {axes[-1] for k in plan.kernels for axes in k.program.boxed.values()}
    return rows.union(*(plan.same_size[a].split() for a in rows if a in plan.same_size))


def small(f: Diagram, rng: np.random.Generator, least: int = 2, most: int = 8) -> dict[str, int]:
    """Random sizes from `least` to `most`, at most the diagram's own, but large enough for every
    key set and its windows."""
    drawn = {a: int(rng.integers(least, most + 1)) for a in f.axes}
    fit = _one_size(f, {a: min(n, f.sizes.get(a, n)) for a, n in drawn.items()}, {})
    return even_pairs(f, _past_windows(f, f.sizes, fit))


def _most(plan: Plan) -> dict[str, int]:
    """The sizes at most of axes that some kernel holds whole, by the axis that stands for them."""
    found = dict[str, int]()
    for a in plan.sizes:
        if whole := _roles(plan, a).whole:
            axis = plan.diagram.sized_as(a)
            found[axis] = min(whole, found.get(axis, whole))
    return found


def _one_size(diagram: Diagram, sizes: dict[str, int], most: Mapping[str, int]) -> dict[str, int]:
    """`sizes` with one size for axes that share one, at most `most` of some, but large enough for
    every key set."""
    of, groups = diagram.sized_as, dict[str, int]()
    for a, n in sizes.items():
        groups[of(a)] = max(groups.get(of(a), n), n)
    for axis, whole in most.items():
        groups[axis] = min(groups[axis], whole)
    for keys in diagram.key_sets:
        for need in spec_of(keys).needs:
            groups[of(need.axis)] = max(groups[of(need.axis)], need.least)
    for axis, (count, _) in diagram.counted.items():
        groups[of(axis)] = count
    needed = dict[str, int]()
    for s in reversed(diagram.slides):  # the axis is as long as its windows need
        axis, out, tap = map(of, (s.axis, s.out, s.tap))
        needed[axis] = max(needed.get(axis, 0), s.least(groups[out], groups[tap]))
        groups[axis] = min(needed[axis], most.get(axis) or needed[axis])
    _count_windows(diagram, groups, most)
    return {a: groups[of(a)] for a in sizes}


def _past_windows(
    f: Diagram, own: Mapping[str, int], sizes: dict[str, int], prime: bool = False
) -> dict[str, int]:
    """`sizes` grown until windows leave keys out, at most to `own` sizes, as far as a run of that
    many stays short."""
    out = dict(sizes)
    for keys in f.key_sets:
        wanted = {a: min(4 * n, own.get(a, 4 * n)) for a, n in _reach(keys).items()}
        while math.prod(wanted.values()) > TOKENS and any(n > sizes[a] for a, n in wanted.items()):
            wanted = {a: max(sizes[a], n * 7 // 8) for a, n in wanted.items()}
        for a, n in wanted.items():
            if n > sizes[a]:
                out[a] = max(out[a], _prime_below(n + 1) if prime else n - n % sizes[a])
    return {a: max(n for b, n in out.items() if f.sized_as(b) == f.sized_as(a)) for a in out}


def _reach(keys: Node) -> dict[str, int]:
    """How far a key set reaches along each key axis: the largest number in its bounds."""
    out: dict[str, int] = {}
    for box in boxes_of(keys):
        for a, i in zip(spec_of(keys).keys, box.intervals, strict=True):
            found = [n.params[0] for n in postorder([i.first, i.end]) if n.op == "number"]
            numbers = [n for n in found if isinstance(n, int)]
            out[a] = max(out.get(a, 0), i.step, *numbers)
    return out


class Tiles(NamedTuple):
    """The tiles of an axis over all kernels, in positions; 0 where there is none.

    Attributes:
        cut, least: the largest that cuts it, and the smallest.
        whole: the smallest that must hold it whole.
    """

    cut: int
    least: int
    whole: int


def _roles(plan: Plan, axis: str) -> Tiles:
    cut: list[int] = []
    whole: list[int] = []
    beside = {axis: 1}  # positions that lie between those of the axis
    for new, old in plan.same_size.items():
        if axis in (of := old.split()):
            beside[new] = max(math.prod([plan.sizes[a] for a in of if a != axis]), 1)
    for k in plan.kernels:
        for a, others in beside.items():
            cut_as, step = _as_cut(k, a)
            if cut_as in k.choice.kernel.whole:
                whole.append(k.tiles[cut_as] * step // others)
            elif cut_as in k.tiles:
                cut.append(max(k.tiles[cut_as] * step // others, 1))
    return Tiles(max(cut, default=0), min(cut, default=0), min(whole, default=0))


def _as_cut(k: PlannedKernel, axis: str) -> tuple[str, int]:
    """The axis that a kernel cuts for this one, and how far apart its positions lie."""
    for s in k.choice.kernel.ragged.values():
        if s.axis == axis:
            return s.place, s.step
    return axis, 1


def _even(plan: Plan, axis: str) -> int:
    tiles = _roles(plan, axis)
    if tiles.whole:
        return min(_held(tiles, tiles.whole), plan.sizes[axis])
    if not tiles.cut:  # read at computed positions only
        return min(LOOKED_UP, plan.sizes[axis])
    return min(2 * tiles.cut, max(tiles.cut, plan.sizes[axis]))


def _ragged(plan: Plan, axis: str) -> int:
    """A prime: more than half of what one kernel holds where others cut the axis, or `_held`;
    else little more than the largest tile, for an axis may have as many groups in some kernel."""
    cut, _, whole = tiles = _roles(plan, axis)
    if whole:
        least = min(nextprime(whole // 2), whole)
        return _prime_below(_held(tiles, least) + 1) if cut else _prime_below(whole)
    if not cut:
        return _prime_below(min(LOOKED_UP, plan.sizes[axis]))
    return nextprime(max(2, cut) + cut // 16)


def _held(tiles: Tiles, size: int) -> int:
    """A size of an axis that one kernel holds whole, of which others have few tiles: two of the
    largest, and no more than `MANY` of the smallest."""
    return min(size, max(2 * tiles.cut, MANY * tiles.least)) if tiles.cut else size


def _prime_below(n: int) -> int:
    """The largest prime below `n` (1 where there is none)."""
    return int(prevprime(n)) if n > 2 else 1
