"""Scans in parts: groups scan parts of an axis side by side, each from what those before fold to.

A scan whose state is seen at every position runs along its axis one chunk after another
(`napkin.derive.scans`). Where two parts of it merge, three kernels take parts of the axis side by
side: the first folds each part by itself, the second merges these states part after part and stores
with what each part begins, and the third streams every part from there (reduce, then scan:
Blelloch, 1990, section 1.4; arXiv 2312.06635, section 3.2). No block of the axis has to be held, as
in `napkin.derive.rules.resume`. Nothing here knows which scan it is.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from napkin.algebra.fold import Emit, Pass, State, Stream, needed
from napkin.algebra.law import advance, chunks, ranges, start
from napkin.algebra.law_points import Point, scalars_of
from napkin.algebra.rule import Instance, Rule, Ways, between
from napkin.derive.kernel import Kernel, tensor_of
from napkin.derive.label import weaved
from napkin.derive.rules.part import (
    handed,
    handing,
    joined,
    of_one_part,
    of_part,
    part_axis,
    reading,
    readings,
    why_not_cut,
)
from napkin.derive.rules.resume import why_no_scan
from napkin.derive.rules.stream import as_results, cut, inputs, results, sizes_at
from napkin.diagram.interface import Output
from napkin.ir.evaluate import Array, aligned
from napkin.ir.node import Node, postorder

UNIT = 64
"""Positions of which every part but the last has a whole number, at least: chunks of all kernels
divide it, so that parts begin at one place in each."""


def why_not_scanned(kernel: Kernel) -> str:
    """The condition that fails for scanning parts of a kernel's stream side by side; "" where none
    does."""
    if why := why_not_cut(kernel) or why_no_scan(kernel):
        return why
    states = (*kernel.stream.states, *kernel.stream.beside)
    lone = [x.name for x in states if x.merge is None]
    return f"state {lone[0]} of two parts is not merged" if lone else ""


def scanned(kernel: Kernel, number: int, unit: int = UNIT) -> tuple[Kernel, Kernel, Kernel]:
    """The kernels that fold `number` parts of the streamed axis, that merge their states, and that
    scan each part from where it begins, where that is legal (`why_not_scanned`).

    Args:
        unit: positions of which a part has a whole number; a power of two.
    """
    return SCANNED.first(kernel, number, unit)


@dataclass(frozen=True, eq=False)
class _Cut:
    """The states of a scan in parts.

    Attributes:
        folded: what the first kernel folds, and `stored` the reading of each for every part.
        carried: what the third one carries, and `begun` the reading of each for every part.
        merged: what the second one carries from part to part.
    """

    folded: tuple[State, ...]
    stored: Mapping[str, Node]
    carried: tuple[State, ...]
    begun: Mapping[str, Node]
    merged: tuple[State, ...]


def _matches(kernel: Kernel, number: int, unit: int = UNIT) -> Iterator[Instance]:
    if why_not_scanned(kernel):
        return
    c = _cut(kernel, axis := part_axis(kernel.stream.axis, number))
    twin, roots = kernel.stream.twin, results(kernel)
    parts = {"part": axis, "unit": max(unit, twin.length if twin else 0)}
    first, third = (replace(made(kernel, c, axis), **parts) for made in (_first, _third))
    made = first, _second(kernel, c, axis), third
    yield Instance(kernel.stream.axis, made, between(roots, roots), of=(kernel, number))


def _cut(kernel: Kernel, axis: str) -> _Cut:
    (step,) = kernel.stream.passes
    states = (*step.states, *kernel.stream.beside)
    carried = needed(states, (e.node for e in step.emits))
    stored = readings(kernel, states, axis)
    merges = {x.name: joined(x, states, stored) for x in states}
    olds = [x.leaf("old") for x in carried]
    merged = tuple(merges[x.name] for x in needed(states, olds, lambda x: merges[x.name].step))
    read = {*postorder(x.step for x in merged)}
    ends = [x.leaf("new") for x in states if stored[x.name] in read]
    folded = needed(states, ends)
    taken = {*kernel.tensors, *map(tensor_of, stored.values())}
    begun = {x.name: reading(f"{x.name}_begin", (axis, *x.axes), x.kind, taken) for x in carried}
    return _Cut(folded, {n: r for n, r in stored.items() if r in read}, carried, begun, merged)


def _first(kernel: Kernel, c: _Cut, axis: str) -> Kernel:
    """The kernel that folds each part and stores its states. Positions are paired for what is
    emitted: where no state needs that, chunks are of any length."""
    s, read = kernel.stream, {x.name: x for x in c.folded}
    used = {a for n in postorder(x.step for x in c.folded) for a in n.axes}
    twin = s.twin if s.twin and used & {*s.twin.names} else None
    tails = tuple(Emit(tensor_of(n), read[name].leaf("new")) for name, n in c.stored.items())
    return replace(
        handing(kernel, (), c.stored.values()),
        name=f"{kernel.name}_parts",
        group=(axis, *(a for a in kernel.group if a in used)),
        whole=tuple(a for a in kernel.whole if a in used),
        stream=replace(s, passes=(Pass(c.folded, ()),), tails=tails, twin=twin),
    )


def _second(kernel: Kernel, c: _Cut, axis: str) -> Kernel:
    """The kernel that merges states part after part, and stores them before each."""
    carried = {x.name: x for x in c.merged}
    emits = tuple(Emit(tensor_of(n), carried[name].leaf("old")) for name, n in c.begun.items())
    alone = weaved([Output(x.name, x.step, x.axes) for x in c.merged])
    used = {a for x in c.merged for n in postorder([x.step]) for a in n.axes}
    held = [a for a in kernel.whole if a in used]
    return replace(
        handing(kernel, (), c.begun.values()),
        name=f"{kernel.name}_begins",
        group=(*(a for a in kernel.group if a in used), *(a for a in held if a in alone)),
        whole=tuple(a for a in held if a not in alone),
        stream=Stream((axis,), (Pass(c.merged, emits),), (), ()),
        merges=axis,
    )


def _third(kernel: Kernel, c: _Cut, axis: str) -> Kernel:
    """The kernel that scans each part from where it begins."""
    s = kernel.stream
    carried = tuple(replace(x, begin=c.begun[x.name]) for x in c.carried)
    step = Pass(carried, s.passes[0].emits)
    return replace(
        kernel,
        name=f"{kernel.name}_scans",
        group=(axis, *kernel.group),
        stream=replace(s, passes=(step,)),
    )


# --- the law --------------------------------------------------------------------------------


def _ways(found: Instance, point: Point) -> Ways:
    """The outputs of the three kernels on parts of any lengths."""
    (kernel, number), kernels = found.of, found.made
    roots, s, bind = results(kernel), kernel.stream, inputs(kernel, point)
    sizes = sizes_at(kernel, point) | {kernels[0].part: number}
    lengths = cut(sizes[s.axes[0]], random.Random(point.seed), number)
    values = in_scanned_parts(kernels, bind, ranges(lengths), sizes, scalars_of(roots))
    how = f"{kernel.name} {s.axis} scanned in parts of {lengths}"
    yield how, as_results(kernel, s.emits, values)


def in_scanned_parts(
    kernels: Sequence[Kernel],
    bind: Mapping[Node, Array],
    parts: Sequence[range],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
) -> dict[str, Array]:
    """What three kernels give that scan parts of an axis, of some consecutive parts."""
    first, second, third = kernels
    cuts = chunks(third.stream, parts, sizes)
    begun = _begun(first, second, [of_part(first, bind, c, sizes, scalars) for c in cuts], sizes)
    found = [
        of_part(third, {**bind, **now}, c, sizes, scalars)
        for c, now in zip(cuts, begun, strict=True)
    ]
    axes = {e.output: e.node.axes for e in third.stream.emits}
    where = {name: own.index(third.stream.axes[0]) for name, own in axes.items()}
    return {name: np.concatenate([x[name] for x in found], at) for name, at in where.items()}


def _begun(
    first: Kernel, second: Kernel, folded: Sequence[Mapping[str, Array]], sizes: Mapping[str, int]
) -> Iterator[dict[Node, Array]]:
    """What each part begins with, of what the parts are folded to."""
    leaf = {o.name: o.node for o in handed(second)}
    join, one = of_one_part(first, second)
    states = start(join, sizes)
    for stored in folded:
        part = {n: stored[name] for name, n in one.items()}
        states, emitted = advance(join, states, part, {}, sizes)
        now = zip(join.emits, emitted, strict=True)
        yield {
            leaf[e.output]: aligned(x, e.node.axes, leaf[e.output].axes[1:])[None] for e, x in now
        }


SCANNED = Rule(
    "scan_parts",
    "scan(x)[p] = scan(x_p) from fold(x_0 .. x_(p-1)), of parts x_p, with fold by the merge",
    _matches,
    (
        "two parts of each state merge",
        "nothing else is folded along the axis",
        "the axis is not empty as a whole",
        "states are stored in float32",
    ),
    empty=False,
    ways=_ways,
)
