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

from napkin.count.memory import alive
from napkin.count.traffic import Direction
from napkin.count.visited import chunks as visited_chunks
from napkin.derive.fold import Emit, Pass
from napkin.derive.kernel import Kernel, tensor_of, tile_axes
from napkin.derive.law import advance, chunk_of, start
from napkin.derive.terms import is_read
from napkin.diagram.interface import Output
from napkin.ir.evaluate import Array, aligned, aligned_to, evaluate
from napkin.ir.node import Node, node
from napkin.ir.slots import slots_of, spread
from napkin.ir.slotted import guard, read_slots
from napkin.ir.taking import own_axes, table_of, taken_of


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
    out = Execution({o.name: np.full([sizes[a] for a in o.axes], np.nan) for o in kernel.origin})
    steps = {s.residue: s.step for s in kernel.splits}
    for place in itertools.product(*map(range, steps.values())):
        _residue(kernel, arrays, sizes, tiles, scalars, dict(zip(steps, place, strict=True)), out)
    return out


def _residue(
    kernel: Kernel,
    arrays: Mapping[str, Array],
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    scalars: Mapping[str, float] | None,
    residues: Mapping[str, int],
    into: Execution,
) -> None:
    """Run the groups of one residue; without split axes, all groups."""
    most = kernel.sized(sizes)
    lengths = {s.place: int(s.lengths(sizes[s.axis])[residues[s.residue]]) for s in kernel.splits}
    sizes = {**most, **lengths}
    views = {o.name: _slice(kernel, into.outputs[o.name], o.axes, residues) for o in kernel.outputs}
    out = Execution(views, into.moved, into.peak)
    tables = {
        table_of(a.leaf): _slice(kernel, arrays[tensor_of(a.leaf)], own_axes(a.leaf), residues)
        for a in kernel.reads
    }
    reads = {a.leaf: _as_read(a.leaf, tables, sizes) for a in kernel.reads}
    cuts = [
        # The last group of a short residue may have no query.
        [range(i, max(i, min(i + tiles[a], sizes[a]))) for i in range(0, most[a], tiles[a])]
        for a in kernel.group
        if a not in residues
    ]
    alone = [[range(r, r + 1)] for r in residues.values()]
    grouped = (*(a for a in kernel.group if a not in residues), *residues)
    for parts in itertools.product(*cuts, *alone):
        box = dict(zip(grouped, parts, strict=True))
        known: dict[Node, Array] = {}
        for leaf, value in reads.items():
            assert is_read(leaf)
            cut = [box[a] if a in box and a not in residues else None for a in leaf.axes]
            known[leaf] = value[
                tuple(slice(None) if p is None else slice(p.start, p.stop) for p in cut)
            ]
        _group(kernel, known, sizes, tiles, scalars or {}, box, reads, out)
    into.peak = out.peak


def _slice(kernel: Kernel, array: Array, axes: Sequence[str], residues: Mapping[str, int]) -> Array:
    """The part of a tensor at one residue of its axes that are split, with an axis for it."""
    splits = {s.place: s for s in kernel.splits}
    cuts = [splits.get(a) for a in axes if a not in residues]
    where = tuple(slice(residues[s.residue], None, s.step) if s else slice(None) for s in cuts)
    view = array[(*where, ...)]  # also of an array without axes
    return np.expand_dims(view, tuple(i for i, a in enumerate(axes) if a in residues))


def _as_read(leaf: Node, tables: Mapping[Node, Array], sizes: Mapping[str, int]) -> Array:
    """A tensor as a reading sees it: at computed positions, or at slots, spread over the keys."""
    array = tables[table_of(leaf)]
    if not leaf.args:
        return array
    if taken_of(leaf) is not None:
        held = {a: range(sizes[a]) for a in leaf.axes}
        return aligned_to(evaluate([leaf], tables, sizes)[0], leaf.axes, leaf.axes, held)
    tensor = node("input", params=leaf.params[:2], axes=own_axes(leaf), kind=leaf.kind)
    return evaluate([spread(tensor, leaf.args[0], read_slots(leaf))], {tensor: array}, sizes)[0]


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
    held = sum(_size(tile_axes(o), extents) for o in kernel.outputs if not s.carried(tile_axes(o)))
    for access in kernel.reads:
        if not access.loops:
            out.count(access.tensor, "read", _crossing(access.leaf, sizes, box))
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
                out.count(access.tensor, "read", _crossing(access.leaf, sizes, {**box, **part}))
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
    for e in kernel.fills:
        _fill(kernel, e, box, sizes, out)


def _crossing(leaf: Node, sizes: Mapping[str, int], box: Mapping[str, range]) -> int:
    """Values of a reading that cross: at computed addresses, those that its key set sees."""
    held = {a: range(n) for a, n in sizes.items()} | dict(box)
    keys = guard(leaf)
    if keys is None:
        return math.prod(len(held[a]) for a in leaf.axes)
    (seen,) = evaluate([keys], {}, sizes, box=box)
    return int(aligned_to(seen, keys.axes, leaf.axes, held).sum())


def _fill(
    kernel: Kernel, e: Emit, box: Mapping[str, range], sizes: Mapping[str, int], out: Execution
) -> None:
    """Store what slots without a key hold."""
    (axes,) = (o.axes for o in kernel.outputs if o.name == e.output)
    s = slots_of(e.node)
    parts = [box.get(a, range(sizes[a])) for a in axes]
    past = np.zeros([len(p) for p in parts], dtype=bool)
    for axis, value, n in zip(s.slots, evaluate(e.node.args, {}, sizes, box=box), e.node.args,
                              strict=True):  # fmt: skip
        past |= aligned(np.arange(sizes[axis]), (axis,), axes) >= aligned(value, n.axes, axes)
    where = tuple(slice(p.start, p.stop) for p in parts)
    out.outputs[e.output][where][past] = s.fill
    out.count(e.output, "write", int(past.sum()))


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
    for i, part in visited_chunks(kernel, kernel.sized(sizes), tiles, place, bind):
        if i not in turns:
            steps = [x.step for x in step.states]
            inside = seen.inside(steps, seen.test(i), [a.leaf for a in kernel.reads])
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
    if n.op == "scatter":
        _scatter(o, n, value, box, sizes, out)
        return
    one = range(1)  # of a residue, there is its own slice alone
    parts = [one if a in kernel.residues else box.get(a, range(sizes[a])) for a in o.axes]
    where = tuple(slice(p.start, p.stop) for p in parts)
    out.outputs[name][where] = aligned(value, n.axes, o.axes)
    out.count(name, "write", int(np.prod([len(p) for p in parts])))


def _scatter(
    o: Output,
    n: Node,
    value: Array,
    box: Mapping[str, range],
    sizes: Mapping[str, int],
    out: Execution,
) -> None:
    """Store what the queries see of a part of an array, each value in its slot."""
    s, axes = slots_of(n), tile_axes(o)
    held = {a: range(k) for a, k in sizes.items()} | dict(box)
    seen, *places = (
        aligned_to(v, m.axes, axes, held)
        for v, m in zip(evaluate(n.args[1:], {}, sizes, box=box), n.args[1:], strict=True)
    )
    at = dict(zip(s.slots, places, strict=True))
    where = [
        at[a] if a in at else aligned_to(np.asarray(held[a]), (a,), axes, held) for a in o.axes
    ]
    out.outputs[o.name][tuple(w[seen] for w in where)] = aligned_to(value, axes, axes, held)[seen]
    out.count(o.name, "write", int(seen.sum()))
