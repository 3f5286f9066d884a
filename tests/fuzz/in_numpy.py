"""The loop program run in numpy, group by group and chunk by chunk, counting what it moves.

This is what the kernel does, without Triton: the counts are the H and M that `napkin.count`
predicts, and the value is the diagram's.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from visited_chunks import chunks as visited_chunks

from napkin.algebra.fold import Emit, Pass
from napkin.algebra.law import advance, chunk_of, start
from napkin.count.memory import alive
from napkin.count.traffic import Direction
from napkin.derive.kernel import Kernel, tensor_of, tile_axes
from napkin.ir.evaluate import Array, aligned, aligned_to, evaluate, needs
from napkin.ir.node import CONSTANTS, REDUCTIONS, Node, over, postorder
from napkin.ir.operators import POINTWISE
from napkin.ir.slots import slots_of
from napkin.ir.slotted import guard, read_slots
from napkin.ir.taking import own_axes, reading_of, table_of, taken_of
from napkin.ir.walk import ordered

Box = Mapping[str, range]
"""Positions along each axis that is cut."""


@dataclass
class Execution:
    """Outputs of a run, the values that crossed per tensor and direction, and the most values of
    inputs and results (M) that one group held at once.

    Attributes:
        stuck: whether sums followed what is no finite number.
    """

    outputs: dict[str, Array]
    moved: Counter[tuple[str, Direction]] = field(default_factory=Counter)
    peak: int = 0
    stuck: bool = False

    @property
    def total(self) -> int:
        """H: values moved in total."""
        return sum(self.moved.values())


def execute(
    kernel: Kernel,
    arrays: Mapping[str, Array],
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    scalars: Mapping[str, float] | None = None,
    known: dict[Node, Array] | None = None,
) -> Execution:
    """Run a kernel with given tile sizes on float64 arrays, by tensor name.

    Args:
        known: values of terms on these arrays that other kernels had, too; more are added.
    """
    out = Execution({o.name: np.full([sizes[a] for a in o.axes], np.nan) for o in kernel.origin})
    steps = {s.residue: s.step for s in kernel.splits}
    known = {} if known is None else known
    for place in itertools.product(*map(range, steps.values())):
        residues = dict(zip(steps, place, strict=True))
        views = {o.name: _slice(kernel, out.outputs[o.name], o.axes, residues)
                 for o in kernel.outputs}  # fmt: skip
        tables = {
            table_of(a.leaf): _slice(kernel, arrays[tensor_of(a.leaf)], own_axes(a.leaf), residues)
            for a in kernel.reads
        }
        run = _Run(kernel, kernel.sized(sizes), tiles, scalars or {}, residues, tables,
                   Execution(views, out.moved, out.peak, out.stuck), known)  # fmt: skip
        for box in run.groups():
            run.group(box)
        out.peak, out.stuck = run.out.peak, run.out.stuck
    return out


def _slice(kernel: Kernel, array: Array, axes: Sequence[str], residues: Mapping[str, int]) -> Array:
    """The part of a tensor at one residue of its axes that are split, with an axis for it."""
    splits = {s.place: s for s in kernel.splits}
    cuts = [splits.get(a) for a in axes if a not in residues]
    where = tuple(slice(residues[s.residue], None, s.step) if s else slice(None) for s in cuts)
    view = array[(*where, ...)]  # also of an array without axes
    return np.expand_dims(view, tuple(i for i, a in enumerate(axes) if a in residues))


def ahead(
    kernel: Kernel,
    cut: Collection[str],
    reads: Mapping[Node, Array],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
    known: dict[Node, Array],
) -> dict[Node, Array]:
    """The values on whole axes of terms that groups and chunks would each find a part of: once for
    all of them.

    Args:
        cut: the axes that are cut.
        reads: what each reading sees of its tensor.
        known: values that were found before; more are added.
    """
    if kernel.splits or kernel.stream.twin:  # the lengths of axes differ
        return {}
    found = _alike_in_parts(kernel.terms, reads, frozenset(cut))
    todo = [n for n in found if n not in known]
    values = evaluate(todo, {**known, **reads}, sizes, scalars)
    for n, value in zip(todo, values, strict=True):
        known[n] = np.broadcast_to(value, [sizes[a] for a in n.axes])
    return {n: known[n] for n in found}


def _alike_in_parts(
    terms: Sequence[Node], reads: Iterable[Node], cut: frozenset[str]
) -> list[Node]:
    """The largest terms whose value on parts of axes is a part of their value."""
    order, alike = ordered(terms, reads), set(reads)
    for n in order:
        if _goes_by_positions(n, cut) and alike.issuperset(needs(n)):
            alike.add(n)
    read = {m for n in order if n not in alike for m in needs(n)} | set(terms)
    return [n for n in order if n in alike and n in read and not n.constant]


def _goes_by_positions(n: Node, cut: frozenset[str]) -> bool:
    """Whether an operator has a value at one position from its arguments at that one."""
    if n.op in REDUCTIONS or n.op in {"cumsum", "sort", "recurrence"}:
        return cut.isdisjoint(over(n))
    return n.op in POINTWISE or n.op in CONSTANTS | {"index", "ones", "listed", "keys"}


def _states(leaf: Node) -> set[Node]:
    return {n for n in postorder(leaf.args) if n.op == "state"}


def stuck(step: Pass, states: Mapping[str, Array]) -> bool:
    """Whether sums of a pass follow results of which one is infinite or NaN: where these stand, the
    sums may be NaN (docs/semantics.md)."""
    plain = [x for x in step.states if x.held != "running"]
    odd = (~np.isfinite(v) & (v != x.init) for x in plain for v in [states[x.name]])
    return len(plain) < len(step.states) and any(np.any(x) for x in odd)


def awaits(leaf: Node) -> bool:
    """Whether a reading is at positions that a pass finds."""
    return bool(_states(leaf))


def _found(leaf: Node, known: Mapping[Node, Array]) -> bool:
    return _states(leaf) <= known.keys()


class _Run:
    """The groups of one residue; without split axes, all groups.

    Attributes:
        most: the size of every axis, of the longest residue; `sizes` is this one's.
        reads: what each reading sees of its tensor.
        ready: values of terms, of which groups and chunks have parts.
        late: readings at positions that a pass finds.
        columns: arrays that are alive together, where nothing is streamed.
        stays: the axes of each result that is held while a group streams.
    """

    def __init__(
        self,
        kernel: Kernel,
        most: Mapping[str, int],
        tiles: Mapping[str, int],
        scalars: Mapping[str, float],
        residues: Mapping[str, int],
        tables: Mapping[Node, Array],
        out: Execution,
        known: dict[Node, Array],
    ) -> None:
        self.kernel, self.most, self.tiles, self.scalars = kernel, most, tiles, scalars
        own = {s.place: int(s.lengths(most[s.axis])[residues[s.residue]]) for s in kernel.splits}
        self.residues, self.sizes, self.out = residues, {**most, **own}, out
        self.tables, s = tables, kernel.stream
        self.columns = [] if s.axes else alive(kernel)
        self.stays = [a for a in map(tile_axes, kernel.outputs) if not s.carried(a)]
        self.late = [a.leaf for a in kernel.reads if awaits(a.leaf)]
        at_once = [a.leaf for a in kernel.reads if a.leaf not in self.late]
        self.reads = {leaf: self._as_read(leaf, tables) for leaf in at_once}
        cut = (*kernel.group, *s.axes)
        self.ready = ahead(kernel, cut, self.reads, self.sizes, scalars, known)

    @property
    def _odd(self) -> bool:
        """Whether what is read is infinite or no number anywhere: pairs of positions that do not
        count are multiplied by 0."""
        return not all(np.isfinite(x).all() for x in self.reads.values() if x.dtype.kind == "f")

    def _as_read(self, leaf: Node, tables: Mapping[Node, Array]) -> Array:
        """A tensor as a reading sees it: at computed positions, or at slots, spread over keys."""
        array = tables[table_of(leaf)]
        if not leaf.args:
            return array
        if taken_of(leaf) is not None:
            here = {a: range(r, r + 1) for a, r in self.residues.items()}
            slotted = [m for m in postorder(leaf.args) if guard(m) is not None]
            known = {**tables, **{m: self._as_read(m, tables) for m in slotted}}
            (value,) = evaluate([leaf], known, self.sizes, self.scalars, here)
            return self._over(here, value, leaf.axes, leaf.axes)
        values = zip(evaluate(leaf.args, {}, self.sizes), leaf.args, strict=True)
        seen, *places = (self._over({}, v, n.axes, leaf.axes) for v, n in values)
        at = dict(zip(read_slots(leaf).slots, places, strict=True))
        here = {a: np.arange(self.sizes[a]) for a in own_axes(leaf) if a not in at}
        where = [
            np.where(seen, at[a], 0) if a in at else self._over({}, here[a], (a,), leaf.axes)
            for a in own_axes(leaf)
        ]
        nothing = np.zeros((), array.dtype)
        return np.where(seen, array[tuple(where)] if array.size else nothing, nothing)

    def groups(self) -> Iterator[dict[str, range]]:
        """The groups, each as what it has of every grouped axis."""
        plain = [a for a in self.kernel.group if a not in self.residues]
        cuts = [self._cut(a, self.most[a]) for a in plain]
        alone = [[range(r, r + 1)] for r in self.residues.values()]
        for parts in itertools.product(*cuts, *alone):
            yield dict(zip((*plain, *self.residues), parts, strict=True))

    def _cut(self, axis: str, end: int) -> list[range]:
        """The tiles of an axis up to `end`; the last group of a short residue has no query."""
        tile, size = self.tiles[axis], self.sizes[axis]
        return [range(i, max(i, min(i + tile, size))) for i in range(0, end, tile)]

    def group(self, box: Box) -> None:
        """What one group does."""
        kernel, s = self.kernel, self.kernel.stream
        whole = {**self.ready, **self.reads}
        known = {n: self._part(n, value, box) for n, value in whole.items()}
        held = sum([self._size(axes, box) for axes in self.stays])
        for access in kernel.reads:
            if not access.loops:
                self._count_read(access.leaf, box)
                held += self._size(access.leaf.axes, box)
        for column in self.columns:
            self._hold(sum([self._size(n.axes, box) for n in column]))
        for i, step in enumerate(s.passes):
            states = start(step, self._extents(box))
            for now, part in self._chunks(step, box):
                inside, here = chunk_of(known, part), {**box, **part}
                loaded = [a.leaf for a in kernel.reads if i in a.loops]
                for leaf in loaded:
                    self._count_read(leaf, here)
                    if leaf not in inside:  # at positions that the chunk itself finds
                        inside |= self._table(leaf, here)
                moving = [*(leaf.axes for leaf in loaded), *(e.node.axes for e in step.emits)]
                self._hold(held + sum(self._size(axes, here) for axes in moving))
                if s.twin:  # of whose positions pairs are formed
                    part |= dict.fromkeys(s.twin.names, part[s.twin.axis])
                states, emitted = advance(now, states, inside, part, self.sizes, self.scalars, box)
                for e, value in zip(step.emits, emitted, strict=True):
                    self._write(e, value, here)
            self.out.stuck |= stuck(step, states) or (s.twin is not None and self._odd)
            known |= {x.leaf("new"): states[x.name] for x in step.states}
            for n in postorder(self.late):  # one may be where another says
                if n in self.late and _found(n, known):
                    known[n] = self._read_late(n, known, box)
        tails = evaluate([e.node for e in s.tails], known, self.sizes, self.scalars, box)
        for e, value in zip(s.tails, tails, strict=True):
            self._write(e, value, box)
        for e in kernel.fills:
            self._fill(e, box)

    def _part(self, leaf: Node, value: Array, box: Box) -> Array:
        """What a group has of a reading, or of a term that is computed from readings."""
        cuts = [box[a] if a in box and a not in self.residues else None for a in leaf.axes]
        return value[tuple(slice(None) if p is None else slice(p.start, p.stop) for p in cuts)]

    def _read_late(self, leaf: Node, known: Mapping[Node, Array], box: Box) -> Array:
        """A reading at positions that are known by now."""
        bind = {**known, **self._table(leaf, box)}
        (value,) = evaluate([leaf], bind, self.sizes, self.scalars, box)
        return self._over(box, value, leaf.axes, leaf.axes)

    def _table(self, leaf: Node, box: Box) -> dict[Node, Array]:
        """What a reading may read of its tensor."""
        table, _, taken = reading_of(leaf)
        cuts = [box.get(u) if isinstance(u, str) else None for u in taken.under]
        cuts = tuple(slice(None) if p is None else slice(p.start, p.stop) for p in cuts)
        return {table: self.tables[table][(*cuts, ...)]}

    def _chunks(self, step: Pass, box: Box) -> Iterator[tuple[Pass, dict[str, range]]]:
        """The chunks that a group reads in one pass, each with the steps that it takes there."""
        axes, seen = self.kernel.stream.axes, self.kernel.visits
        if seen is None:
            cuts = [self._cut(a, self.sizes[a]) for a in axes]
            for parts in itertools.product(*cuts):
                yield step, dict(zip(axes, parts, strict=True))
            return
        place = {a: part.start // self.tiles[a] for a, part in box.items()}
        steps: dict[int, Pass] = {}
        for i, part in visited_chunks(self.kernel, self.most, self.tiles, place, self.reads):
            if i not in steps:
                terms = [x.step for x in step.states]
                inside = seen.inside(terms, seen.test(i), [a.leaf for a in self.kernel.reads])
                states = [replace(x, step=inside[x.step]) for x in step.states]
                steps[i] = replace(step, states=tuple(states))
            yield steps[i], part

    # --- what is counted ----------------------------------------------------------------------

    def _hold(self, values: int) -> None:
        self.out.peak = max(self.out.peak, values)

    def _extents(self, box: Box) -> dict[str, int]:
        return {**self.sizes, **{a: len(part) for a, part in box.items()}}

    def _size(self, axes: Sequence[str], box: Box) -> int:
        return math.prod([len(box[a]) if a in box else self.sizes[a] for a in axes])

    def _count_read(self, leaf: Node, box: Box) -> None:
        """A reading crosses: at computed addresses, the values that its key set sees."""
        keys, count = guard(leaf), self._size(leaf.axes, box)
        if keys is not None:
            (seen,) = evaluate([keys], {}, self.sizes, box=box)
            count = int(self._over(box, seen, keys.axes, leaf.axes).sum())
        self.out.moved[tensor_of(leaf), "read"] += count

    # --- what is stored -----------------------------------------------------------------------

    def _over(self, box: Box, value: Array, axes: Sequence[str], want: Sequence[str]) -> Array:
        """A value over all of these axes."""
        held = {a: range(n) for a, n in self.sizes.items()} | dict(box)
        return aligned_to(value, axes, want, held)

    def _view(self, e: Emit, box: Box) -> Array:
        """Where a group stores its part of an output."""
        axes = self._axes(e)
        one = range(1)  # of a residue, there is its own slice alone
        parts = [one if a in self.residues else box.get(a, range(self.sizes[a])) for a in axes]
        return self.out.outputs[e.output][(*(slice(p.start, p.stop) for p in parts), ...)]

    def _axes(self, e: Emit) -> Sequence[str]:
        return next(o.axes for o in self.kernel.outputs if o.name == e.output)

    def _write(self, e: Emit, value: Array, box: Box) -> None:
        if e.node.op == "scatter":
            self._scatter(e, value, box)
            return
        view = self._view(e, box)
        view[...] = aligned(value, e.node.axes, self._axes(e))
        self.out.moved[e.output, "write"] += view.size

    def _scatter(self, e: Emit, value: Array, box: Box) -> None:
        """Store what the queries see of a part of an array, each value in its slot."""
        s = slots_of(e.node)
        (o,) = (o for o in self.kernel.outputs if o.name == e.output)
        axes, terms = tile_axes(o), e.node.args[1:]
        seen, *places = (
            self._over(box, v, m.axes, axes)
            for v, m in zip(evaluate(terms, {}, self.sizes, box=box), terms, strict=True)
        )
        at = dict(zip(s.slots, places, strict=True))
        again = [i for i, a in enumerate(o.axes) if a not in at and a not in axes]
        out = np.moveaxis(self.out.outputs[e.output], again, range(-len(again), 0))
        own = [a for i, a in enumerate(o.axes) if i not in again]
        here = {
            a: np.asarray(box.get(a, range(self.sizes[a])), dtype=int) for a in own if a not in at
        }
        where = [at[a] if a in at else self._over(box, here[a], (a,), axes) for a in own]
        stored = self._over(box, value, e.node.axes, axes)[seen]
        out[tuple(w[seen] for w in where)] = stored.reshape(-1, *(1 for _ in again))
        self.out.moved[e.output, "write"] += int(seen.sum()) * math.prod(out.shape[len(own) :])

    def _fill(self, e: Emit, box: Box) -> None:
        """Store what slots without a key hold."""
        s, axes, view = slots_of(e.node), self._axes(e), self._view(e, box)
        past = np.zeros(view.shape, dtype=bool)
        counts = evaluate(e.node.args, {}, self.sizes, box=box)
        for axis, value, n in zip(s.slots, counts, e.node.args, strict=True):
            place = aligned(np.arange(self.sizes[axis]), (axis,), axes)
            past |= place >= aligned(value, n.axes, axes)
        view[past] = s.fill
        self.out.moved[e.output, "write"] += int(past.sum())
