"""The loop program run in numpy, group by group and chunk by chunk, counting what it moves.

This is what the kernel does, without Triton: the counts are the H and M that the cost room
predicts, and the value is the diagram's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from napkin.cost.memory import alive
from napkin.cost.traffic import Direction
from napkin.cost.visited import chunks as visited_chunks
from napkin.derive.fold import Pass
from napkin.derive.kernel import Kernel, tensor_of
from napkin.derive.law import advance, chunk_of, start
from napkin.derive.terms import is_read
from napkin.diagram.evaluate import Array, aligned, evaluate
from napkin.diagram.node import Node


@dataclass
class Execution:
    """Outputs of a run, the values that crossed per tensor and direction, and the most values of
    inputs and results (M) that one group held at once."""

    outputs: dict[str, Array]
    moved: dict[tuple[str, Direction], int] = field(
        default_factory=dict[tuple[str, Direction], int]
    )
    peak: int = 0

    @property
    def total(self) -> int:
        """H: values moved in total."""
        return sum(self.moved.values())

    def count(self, tensor: str, direction: Direction, values: int) -> None:
        """Note that a part of a tensor crossed."""
        key = (tensor, direction)
        self.moved[key] = self.moved.get(key, 0) + values

    def hold(self, values: int) -> None:
        """Note that one group holds so many values at this point."""
        self.peak = max(self.peak, values)


def execute(
    kernel: Kernel,
    arrays: Mapping[str, Array],
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    scalars: Mapping[str, float] | None = None,
) -> Execution:
    """Run a kernel with given tile sizes on float64 arrays, by tensor name."""
    out = Execution({o.name: np.full([sizes[a] for a in o.axes], np.nan) for o in kernel.outputs})
    reads = {a.leaf: arrays[tensor_of(a.leaf)] for a in kernel.reads}
    cuts = [
        [range(i, min(i + tiles[a], sizes[a])) for i in range(0, sizes[a], tiles[a])]
        for a in kernel.group
    ]
    for parts in itertools.product(*cuts):
        box = dict(zip(kernel.group, parts, strict=True))
        known: dict[Node, Array] = {}
        for leaf, value in reads.items():
            assert is_read(leaf)
            where = tuple(
                slice(box[a].start, box[a].stop) if a in box else slice(None) for a in leaf.axes
            )
            known[leaf] = value[where]
        _group(kernel, known, sizes, tiles, scalars or {}, box, reads, out)
    return out


def _group(
    kernel: Kernel,
    known: dict[Node, Array],
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    scalars: Mapping[str, float],
    box: dict[str, range],
    bind: Mapping[Node, Array],
    out: Execution,
) -> None:
    s = kernel.stream
    extents = {**sizes, **{a: len(part) for a, part in box.items()}}
    held = sum(_size(o.axes, extents) for o in kernel.outputs if not s.carried(o.axes))
    for access in kernel.reads:
        if not access.loops:
            out.count(access.tensor, "read", known[access.leaf].size)
            held += known[access.leaf].size
    if not s.axes:
        for column in alive(kernel):
            out.hold(sum(_size(n.axes, extents) for n in column))
    for i, step in enumerate(s.passes):
        states = start(s, step, extents)
        for turn, part in _chunks(kernel, step, sizes, tiles, bind, box):
            inside = chunk_of(known, part)
            loaded = [a for a in kernel.reads if i in a.loops]
            for access in loaded:
                out.count(access.tensor, "read", inside[access.leaf].size)
            stored = sum(
                _size(e.node.axes, {**extents, **{a: len(p) for a, p in part.items()}})
                for e in step.emits
            )
            out.hold(held + sum(inside[a.leaf].size for a in loaded) + stored)
            states, emitted = advance(s, turn, states, inside, part, sizes, scalars, box)
            for e, value in zip(step.emits, emitted, strict=True):
                _write(kernel, e.output, e.node, value, {**box, **part}, sizes, out)
        for x in step.states:
            known[x.leaf("new")] = states[x.name]
    tails = evaluate([e.node for e in s.tails], known, sizes, scalars, box)
    for e, value in zip(s.tails, tails, strict=True):
        _write(kernel, e.output, e.node, value, box, sizes, out)


def _chunks(
    kernel: Kernel,
    step: Pass,
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    bind: Mapping[Node, Array],
    box: Mapping[str, range],
) -> Iterator[tuple[Pass, dict[str, range]]]:
    """The chunks that a group reads in one pass, each with the steps that it takes there."""
    axes, seen = kernel.stream.axes, kernel.visits
    if seen is None:
        cuts = [
            [range(i, min(i + tiles[a], sizes[a])) for i in range(0, sizes[a], tiles[a])]
            for a in axes
        ]
        for parts in itertools.product(*cuts):
            yield step, dict(zip(axes, parts, strict=True))
        return
    place = {a: part.start // tiles[a] for a, part in box.items()}
    turns: dict[int, Pass] = {}
    for i, part in visited_chunks(kernel, sizes, tiles, place, bind):
        if i not in turns:
            inside = seen.inside([x.step for x in step.states], seen.test(i))
            states = [replace(x, step=inside[x.step]) for x in step.states]
            turns[i] = replace(step, states=tuple(states))
        yield turns[i], part


def _size(axes: Sequence[str], extents: Mapping[str, int]) -> int:
    return math.prod(extents[a] for a in axes)


def _write(
    kernel: Kernel,
    name: str,
    n: Node,
    value: Array,
    box: Mapping[str, range],
    sizes: Mapping[str, int],
    out: Execution,
) -> None:
    o = next(o for o in kernel.outputs if o.name == name)
    parts = [box.get(a, range(sizes[a])) for a in o.axes]
    where = tuple(slice(p.start, p.stop) for p in parts)
    out.outputs[name][where] = aligned(value, n.axes, o.axes)
    out.count(name, "write", int(np.prod([len(p) for p in parts])))
