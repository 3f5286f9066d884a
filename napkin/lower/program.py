"""The loop program: where each term of a kernel is computed, and on which tile.

Tiles have one dimension per class of axes: axes that every value of the kernel carries together
(query heads and queries in grouped-query attention) share one dimension. Axes with tile size 1
are scalars of the program instance and have no dimension.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from napkin.algebra.contraction import Contraction
from napkin.algebra.fold import Stream, begins
from napkin.algebra.known import Known, value_at
from napkin.derive.kernel import Kernel, tensor_of, tile_axes
from napkin.ir.node import FLIGHT, REDUCTIONS, SCANS, Node, built_on, inside_sums, over, postorder
from napkin.ir.operators import POINTWISE
from napkin.ir.storage import packed_axis
from napkin.ir.taking import read_axes
from napkin.keys.visits import Visits
from napkin.lower.bit_words import OUTSIDE, fits_words, in_words
from napkin.lower.masks import masked
from napkin.rewrite.base_two import in_base_two
from napkin.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Join:
    """How the states that lanes have kept of one state become one.

    Attributes:
        of: the term that is reduced, over what lanes hold ("left") and joined states ("new").
        like: the reduction of the loop that does the same with a chunk; None where `of` is computed
            from states that are joined, and not reduced.
    """

    of: Node
    like: Node | None


@dataclass(frozen=True, eq=False)
class Loop:
    """One loop over chunks of the stream, with masked steps.

    A pass is one loop, or several where a key set says which chunks it visits: for each box the
    chunks that every query sees whole, and the others.

    Attributes:
        part: the index of the pass.
        steps: state name to its new value, in order.
        emits: output name to the value stored at each chunk.
        box: the box of the key set whose chunks are visited; None where all chunks are.
        whole: whether the loop visits chunks that every query sees whole.
        begins: state name to what is read where a part of the axis begins.
        joins: where lanes keep the states by themselves (`napkin.lower.per_thread`), how each is
            joined after the loop, in order; else nothing.
    """

    part: int
    steps: Mapping[str, Node]
    emits: Mapping[str, Node]
    box: int | None = None
    whole: bool = False
    begins: Mapping[str, Node] = field(default_factory=dict[str, Node])
    joins: Mapping[str, Join] = field(default_factory=dict[str, Join])

    @property
    def terms(self) -> tuple[Node, ...]:
        """Every term that is computed in the loop, or before it as a state."""
        return (*self.begins.values(), *self.steps.values(), *self.emits.values())


@dataclass(frozen=True, eq=False)
class Program:
    """A kernel with a schedule; of one that is warp-specialised, what one group does.

    Attributes:
        kernel: the labelled kernel.
        schedule: how it runs, with what of its settings serves this kernel: `described` is 0 where
            no descriptor does, and `per_thread` is False where lanes keep no folds.
        dims: the classes of axes, in the order of tile dimensions.
        loops: the loops, pass by pass.
        tails: outputs computed after the loops.
        fills: what is stored last in slots without a key, by output.
        boxes: the readings that tensor descriptors serve, with their axes in memory order.
        beside: the readings of numbers of columns that come beside boxes, with their axes.
        stores: the outputs that tensor descriptors write after the loops, with their axes.
        adds: the outputs to which tensor descriptors add in the loops, with their axes.
        rounded: whether all that it stores is rounded to 16 bits.
    """

    kernel: Kernel
    schedule: Schedule
    dims: tuple[tuple[str, ...], ...]
    loops: tuple[Loop, ...]
    tails: Mapping[str, Node]
    constants: tuple[Node, ...] = field(default=())
    boxes: Mapping[Node, tuple[str, ...]] = field(default_factory=dict[Node, tuple[str, ...]])
    beside: Mapping[Node, tuple[str, ...]] = field(default_factory=dict[Node, tuple[str, ...]])
    stores: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    adds: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    fills: Mapping[str, Node] = field(default_factory=dict[str, Node])
    rounded: bool = False

    @property
    def tiles(self) -> Mapping[str, int]:
        """Values of each axis that one group holds; axes at 1 are scalars."""
        return self.schedule.group

    @property
    def boxed(self) -> dict[Node, tuple[str, ...]]:
        """All readings that tensor descriptors serve, with their axes."""
        return {**self.boxes, **self.beside}

    @property
    def in_boxes(self) -> frozenset[str]:
        """The tensors of which chunks are read, or added to, in whole boxes."""
        return frozenset({*map(tensor_of, self.boxed), *self.adds})

    def shape(self, n: Node) -> tuple[int, ...]:
        """Indices of the tile dimensions that `n` has."""
        return self.shape_of(n.axes)

    def shape_of(self, axes: Sequence[str]) -> tuple[int, ...]:
        """Indices of the tile dimensions that arrays with these axes have."""
        of = self._dim_of
        return tuple(sorted({of[a] for a in axes if a in of}))

    @cached_property
    def _dim_of(self) -> Mapping[str, int]:
        """The tile dimension of each axis that has one."""
        return {a: i for i, group in enumerate(self.dims) for a in group}

    @cached_property
    def contracted(self) -> dict[Node, Contraction[int]]:
        """The sums whose form on the tile is known (`napkin.lower.dots.contracted`)."""
        return {}

    def padded(self, axis: str) -> bool:
        """Whether a tile may reach past the end of an axis."""
        alone = axis in self.kernel.group and axis in self.kernel.ragged
        return alone or (axis not in self.kernel.twins and self.tiles.get(axis, 1) > 1)

    def span(self, dims: Iterable[int]) -> int:
        """Values of a tile with these dimensions."""
        return math.prod(self.extents[d] for d in dims)

    def extent(self, dim: int) -> int:
        """Values along one tile dimension."""
        return math.prod(self.tiles[a] for a in self.dims[dim])

    @cached_property
    def extents(self) -> Mapping[int, int]:
        """Values along each tile dimension, in order."""
        return {d: self.extent(d) for d in range(len(self.dims))}

    @cached_property
    def approximate(self) -> frozenset[Node]:
        """Terms that may be computed to a fraction of the last place of 16 bits: factors of what is
        stored, and rounded to that, and of nothing else."""
        if not self.rounded:
            return frozenset()
        stored = {*self.tails.values(), *(n for x in self.loops for n in x.emits.values())}
        order = list(postorder(self.roots))
        after: dict[Node, list[Node]] = {}
        for n in order:
            for a in n.args:
                after.setdefault(a, []).append(n)
        found: set[Node] = set()
        for n in reversed(order):
            own = after.get(n, [])
            factor = all(p in found and p.op in {"mul", "cast"} for p in own)
            if factor and (own or n in stored):
                found.add(n)
        return frozenset(found)

    def alone(self, n: Node) -> bool:
        """Whether a term may be computed by itself, before what it is part of: arithmetic that a
        tile holds."""
        return n.op in POINTWISE and not n.constant and n not in self.products

    @cached_property
    def products(self) -> set[Node]:
        """The products that sums add up: no tile holds them."""
        return inside_sums(self.roots)

    @cached_property
    def roots(self) -> tuple[Node, ...]:
        """Every term that the program computes."""
        inside = [n for loop in self.loops for n in loop.terms]
        return (*inside, *self.tails.values(), *self.fills.values())


def looped(kernel: Kernel, schedule: Schedule) -> Program:
    """The loops of a kernel at the tiles of a schedule; `napkin.lower.build` applies the rest of
    it."""
    return replace(_at(kernel, schedule.group), schedule=schedule)


def dims_of(kernel: Kernel, tiles: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
    """The classes of axes at given tiles, in the order of tile dimensions."""
    return _at(kernel, tiles).dims


def _at(kernel: Kernel, tiles: Mapping[str, int]) -> Program:
    """The loops of a kernel at given tiles, but for these."""
    tiled = tuple(a for a in kernel.axes if tiles[a] > 1)
    worded = kernel.visits is not None and fits_words(kernel.visits, tiles)
    return _built(kernel, tiled, worded)


@lru_cache(maxsize=256)
def _built(kernel: Kernel, tiled: Sequence[str], worded: bool) -> Program:
    """The loop program of a kernel, which is the same at all tiles of which `tiled` names those
    with more than one value; `worded` where words of bits hold a chunk."""
    s, seen = kernel.stream, kernel.visits
    # Lanes past the keys of a visit lie outside the key set, whose test tells them apart. Those
    # past the end under another name of the streamed axis are stored nowhere.
    tested = seen.key_axes if seen else ()
    padded = [a for a in tiled if a not in kernel.twins and a not in tested]
    stored = [e.node for p in s.passes for e in p.emits]
    tails = [e.node for e in s.tails]
    two = in_base_two(s.passes, [*begins(s.states), *stored, *tails], written(kernel))
    terms = [two[n] for n in (kernel.terms if seen is None else tails)]
    plain = masked(terms, padded)
    made: list[Loop] = []
    for part, p in enumerate(s.passes):
        steps = {x.name: two[x.step] for x in p.states}
        if seen is None:
            emits = {e.output: plain[two[e.node]] for e in p.emits}
            begun = {x.name: plain[x.begin] for x in p.states if x.begin is not None}
            made.append(Loop(part, {k: plain[n] for k, n in steps.items()}, emits, begins=begun))
            continue
        for box, whole in visited(seen):
            emits = {e.output: two[e.node] for e in p.emits}
            both = [*steps.values(), *emits.values()]
            test = None if whole else seen.test(box)
            test = in_words(test, seen) if test is not None and worded else test
            inside = seen.inside(both, test)
            # A prefix ends before keys that other boxes of the set hold, which a descriptor reads.
            ends = seen.prefix and box == 0 and not whole
            bare = [] if whole else _endless(list(inside.values()), tiled, tested)
            past = s.axes if ends else ()
            lanes = [a for a in padded if not whole or a not in s.axes]
            done = masked(list(inside.values()), tiled if ends else [*lanes, *bare], past)
            chosen = {k: done[inside[n]] for k, n in steps.items()}
            stores = {k: done[inside[n]] for k, n in emits.items()}
            made.append(Loop(part, chosen, stores, box, whole))
    loops = tuple(made)
    ends = {e.output: plain[two[e.node]] for e in s.tails}
    roots = [n for loop in loops for n in loop.terms]
    fills = {e.output: e.node for e in kernel.fills}
    roots += [*ends.values(), *fills.values()]
    constants = tuple(_constants(roots))
    dims = _classes(kernel, tiled, list(postorder(roots)))
    return Program(kernel, Schedule({}), dims, loops, ends, constants, fills=fills)


def written(kernel: Kernel) -> list[Node]:
    """What a kernel stores that is to be rounded as it is written."""
    named = {o.name for o in kernel.outputs if o.as_written}
    stored = [*(e for p in kernel.stream.passes for e in p.emits), *kernel.stream.tails]
    return [e.node for e in stored if e.output in named]


def _endless(terms: Sequence[Node], tiled: Sequence[str], axes: Sequence[str]) -> list[str]:
    """The tiled ones of `axes` past whose keys some term may be infinite or no number, as 0 / 0 is:
    a weight of 0, which the test of a key set gives these lanes, does not make that 0."""
    known: Known = {}
    steep = [n for n in postorder(terms) if n.op in POINTWISE and POINTWISE[n.op].pole]

    def endless(n: Node, axis: str) -> bool:
        found = value_at(n, axis, known) if any(axis in a.axes for a in n.args) else 0.0
        return found is None or math.isinf(found)

    return [a for a in axes if a in tiled and any(endless(n, a) for n in steep)]


def packed_axes(kernel: Kernel) -> frozenset[str]:
    """Axes along which values of some tensor of a kernel lie two to a byte."""
    return frozenset(packed_axis(a.leaf) for a in kernel.reads) - {""}


def moving_terms(program: Program, loop: Loop | None = None) -> frozenset[Node]:
    """Terms that change from chunk to chunk: of some loop, or of this one, in which the states of
    others are final."""
    own = None if loop is None else tuple(loop.steps)
    return _moving(program.kernel.stream, program.roots, own)


@lru_cache(maxsize=256)
def _moving(s: Stream, roots: Sequence[Node], states: Sequence[str] | None) -> frozenset[Node]:
    """Terms under `roots` that change from chunk to chunk, as those of `states` do, or all."""

    def here(n: Node) -> bool:
        own = n.op == "state" and (states is None or n.params[0] in states)
        return own or n.op == OUTSIDE or s.carried((*n.axes, *over(n)))

    return frozenset(built_on(postorder(roots), here))


def visited(seen: Visits) -> list[tuple[int, bool]]:
    """The loops that a key set asks for: each box, and whether its chunks are seen whole."""
    out: list[tuple[int, bool]] = []
    for i, box in enumerate(seen.boxes):
        if all(x.step == 1 for x in box.intervals):
            out.append((i, True))
        out.append((i, False))
    return out


def _constants(roots: list[Node]) -> list[Node]:
    """Expressions over sizes and user scalars that the launcher computes."""
    found: dict[Node, None] = {}
    for n in postorder(roots):
        if n.constant:
            continue
        for a in n.args:
            if a.constant and not counted(a):
                found[a] = None
    for n in roots:
        if n.constant and not counted(n):
            found[n] = None
    return list(found)


def counted(n: Node) -> bool:
    """Whether a constant is whole-number arithmetic on sizes, which a kernel does itself, but where
    that is nested too deeply to be one expression."""
    whole = {"add", "sub", "mul", "minimum", "maximum"}
    each = (
        m.op in {"number", "size"} or (m.kind == "int" and m.op in whole) for m in postorder([n])
    )
    return n.depth < FLIGHT and all(each)


def _classes(
    kernel: Kernel, tiled: Sequence[str], order: list[Node]
) -> tuple[tuple[str, ...], ...]:
    """The axes of each tile dimension: those that the same terms carry, in the order of memory.

    A dimension has values side by side along its last axis alone. Where arrays end with different
    axes that could be one dimension, as both sides of a transpose do, each of these is the last of
    its own: in one, 8,192 x 8,192 values took 995 us, and in two 82 (H200).
    """
    places = _places(kernel, order)
    carried = [frozenset(n.axes) for n in order if n.axes and n not in places]
    carried += [frozenset(over(n)) for n in order if n.op in REDUCTIONS or n.op in SCANS]
    carried += [frozenset(o.axes) for o in kernel.outputs]  # a result may be stored along more
    carried += [frozenset({a}) for axes in kernel.renamed for a in axes]
    sequence, alone = kernel.memory_order(tiled), packed_axes(kernel)
    # A streamed axis keeps its own dimension unless it is chunked beside whole axes.
    alike = {a: (*(a in c for c in carried), _role(kernel, a)) for a in sequence}
    stored = [*(read_axes(a.leaf) for a in kernel.reads), *map(tile_axes, kernel.outputs)]
    ends = {axes[-1] for axes in stored if axes and axes[-1] in alike}
    several = Counter(alike[a] for a in ends)
    classes: list[list[str]] = []
    for axis in sequence:
        for group in classes:
            ended = several[alike[axis]] > 1 and group[-1] in ends
            if alike[axis] == alike[group[0]] and not ended and not alone & {axis, *group}:
                group.append(axis)
                break
        else:
            classes.append([axis])
    return tuple(tuple(g) for g in classes)


def _places(kernel: Kernel, order: list[Node]) -> set[Node]:
    """Arithmetic on positions: computed on whichever lanes, it needs no dimension of its own."""
    bounds = set[Node](kernel.visits.keys.args if kernel.visits else ())
    out: set[Node] = set()
    for n in postorder([*bounds, *order]):
        plain = n.op in {"index", "size", "number", "scalar"} or n in bounds
        if plain or (n.op in POINTWISE and n.args and all(a in out for a in n.args)):
            out.add(n)
    return out


def _role(kernel: Kernel, axis: str) -> tuple[bool, ...]:
    """Which of these an axis is: grouped, of slots, streamed; none of them where it is whole."""
    return tuple(axis in axes for axes in (kernel.group, kernel.slots, kernel.stream.axes))
