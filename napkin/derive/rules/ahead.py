"""Chunks ahead: what pairs of positions of a chunk give is computed for all chunks side by side.

Where a scan runs by pairs of positions (`napkin.rewrite.pair`, `napkin.rewrite.solve`),
most of the work on a chunk does not depend on the state before it. What a chunk emits, and what it
adds to the state, is linear in that state: y = U + W h. So a first kernel computes U and W of every
chunk, which are arrays along the axis, and a second one carries the state from chunk to chunk with
products by W alone (arXiv 2406.06484, section 3.3). Nothing here knows which scan it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from random import Random

from napkin.algebra.fold import Emit, Pass, Twin
from napkin.algebra.law import folded, ranges
from napkin.algebra.law_points import Point, scalars_of
from napkin.algebra.rule import Instance, Rule, Ways, between
from napkin.algebra.terms import carrying
from napkin.derive.kernel import Kernel, tensor_of
from napkin.derive.label import weaved
from napkin.derive.rules.part import handed, handing, part_axis
from napkin.derive.rules.stream import as_results, cut, inputs, results, sizes_at
from napkin.diagram.interface import Output
from napkin.ir.evaluate import Array, aligned
from napkin.ir.infer import along, joined, pointwise, renamed
from napkin.ir.names import numbered
from napkin.ir.node import Node, built_on, factors, inside_sums, names_of, number, over, postorder
from napkin.ir.rewrite import rewrite
from napkin.ir.storage import leaf


def why_not_ahead(kernel: Kernel) -> str:
    """The condition that fails for computing chunks of a kernel's stream ahead; "" where none
    does."""
    s = kernel.stream
    if s.twin is None:
        return f"no positions of {s.axis or 'an axis'} are paired"
    if kernel.paired:
        return "it is one of several kernels already"
    if len(s.passes) > 1 or kernel.visits is not None or kernel.splits or kernel.fills:
        return f"{s.axis} is not read in one pass from end to end"
    return "" if _ahead(kernel, s.twin).stored else "no pairs of positions are free of the state"


def ahead(kernel: Kernel, number: int) -> tuple[Kernel, Kernel]:
    """The kernel that computes what chunks give by themselves, in `number` parts of the streamed
    axis side by side, and the one that carries the states, where that is legal
    (`why_not_ahead`)."""
    return AHEAD.first(kernel, number)


@dataclass(frozen=True, eq=False)
class Linear:
    """A term as a sum of one that is free of states and of products with states.

    Attributes:
        free: the term without a state; None where there is none.
        by: what each state is multiplied by, with the axes of the sum over the product.
    """

    free: Node | None
    by: Mapping[tuple[Node, tuple[str, ...]], Node]

    def times(self, parts: Sequence[Node]) -> Linear | None:
        """The product with arrays that are free of states; None where these carry an axis that is
        summed over."""
        if not parts:
            return self
        if any(not {*axes}.isdisjoint(p.axes) for _, axes in self.by for p in parts):
            return None
        one, free = number(1.0), self.free
        free = None if free is None else joined("mul", [*parts, free])
        by = {k: joined("mul", parts if c is one else [*parts, c]) for k, c in self.by.items()}
        return Linear(free, by)

    def plus(self, other: Linear) -> Linear:
        """The sum with another."""
        found = dict(self.by)
        for k, c in other.by.items():
            found[k] = pointwise("add", (found[k], c)) if k in found else c
        both = [x for x in (self.free, other.free) if x is not None]
        return Linear(joined("add", both) if both else None, found)

    def under(self, names: Sequence[tuple[str, str]]) -> Linear | None:
        """The same under other names of axes, which no state has."""
        moved = {a for pair in names for a in pair}
        if any(not moved.isdisjoint((*state.axes, *axes)) for state, axes in self.by):
            return None
        free = None if self.free is None else renamed(self.free, names)
        return Linear(free, {k: renamed(c, names) for k, c in self.by.items()})

    def summed(self, axes: tuple[str, ...]) -> Linear | None:
        """The sum over axes, of which some are a state's; None where one is summed over already."""
        if any(not {*axes}.isdisjoint(own) for _, own in self.by):
            return None
        free = None if self.free is None else _sum(self.free, axes)
        found: dict[tuple[Node, tuple[str, ...]], Node] = {}
        for (state, own), c in self.by.items():
            more = tuple(a for a in axes if a in state.axes and a not in own)
            rest = tuple(a for a in axes if a not in more)
            found[state, (*own, *more)] = _sum(c, rest) if rest else c
        return Linear(free, found)

    @property
    def terms(self) -> tuple[Node, ...]:
        """The terms that are free of states."""
        return (*([] if self.free is None else [self.free]), *self.by.values())

    def written(self, by: Mapping[Node, Node]) -> Node:
        """The term, with others in the place of those that are free of states."""
        parts = [] if self.free is None else [by[self.free]]
        for (state, axes), c in self.by.items():
            product = pointwise("mul", (by[c], state))
            parts.append(along("sum", product, axes) if axes else product)
        return joined("add", parts)


def _sum(x: Node, axes: tuple[str, ...]) -> Node:
    return along("sum", carrying(x, axes), axes)


@dataclass(eq=False)
class _Ahead:
    """What of a kernel's chunks is stored, and what is left.

    Attributes:
        stored: what is computed ahead, with the reading of each.
        left: every step and emit with what is stored in its place.
    """

    kernel: Kernel
    twin: Twin
    stored: dict[Node, Node] = field(default_factory=dict[Node, Node])
    left: Mapping[Node, Node] = field(init=False)

    def __post_init__(self) -> None:
        self.left = rewrite(self.roots, lambda old, args: None, self._replaced())

    @cached_property
    def roots(self) -> tuple[Node, ...]:
        """The steps and emits."""
        (only,) = self.kernel.stream.passes
        return only.computed

    def _replaced(self) -> dict[Node, Node]:
        """The largest terms along the axis of which pairs are free of states, rewritten."""
        inside, found, seen = inside_sums(self.roots), dict[Node, Node](), set[Node]()
        todo = list(self.roots)
        while todo:
            n = todo.pop()
            if n in seen or n not in self.pairing:
                continue
            seen.add(n)
            made = None if n in inside else self._made(n)
            if made is None:
                todo += n.args
            else:
                found[n] = made
        return found

    def _made(self, n: Node) -> Node | None:
        """A term by what is stored of it; None where nothing can be."""
        if len(self._positions(n)) != 1 or n.kind != "real":
            return None
        linear = self.linear.get(n)
        if linear is None or any(len(self._positions(x)) > 1 for x in linear.terms):
            return None
        pairs = self.pairing_of(linear.terms)
        if pairs.isdisjoint(linear.terms):
            return None
        if {*n.axes} != {*linear.written({x: x for x in linear.terms}).axes}:
            return None
        own = ((x, x is linear.free) for x in linear.terms)
        return linear.written(
            {x: self._reading(x, added) if x in pairs else self._plain(x) for x, added in own}
        )

    def _positions(self, n: Node) -> set[str]:
        return {self.twin.axis, *self.twin.names} & {*n.axes}

    @cached_property
    def pairing(self) -> set[Node]:
        """The steps and emits, and what they hold, that are computed of pairs of positions."""
        return self.pairing_of(self.roots)

    def pairing_of(self, roots: Iterable[Node]) -> set[Node]:
        """The terms that are computed of pairs of positions."""
        return built_on(postorder(roots), lambda n: len(self._positions(n)) > 1)

    @cached_property
    def states(self) -> set[Node]:
        """The terms that are computed of states."""
        return built_on(postorder(self.roots), lambda n: n.op == "state")

    @cached_property
    def linear(self) -> Mapping[Node, Linear]:
        """The steps and emits, and what they hold, that are linear in states or free of them."""
        found: dict[Node, Linear] = {}
        for n in postorder(self.roots):
            made = self._linear(n, found) if n in self.states else Linear(n, {})
            if made is not None:
                found[n] = made
        return found

    def _linear(self, n: Node, known: Mapping[Node, Linear]) -> Linear | None:
        """A term that reads states as one that is linear in them; None where it is not."""
        if n.op == "state":
            return Linear(None, {(n, ()): number(1.0)})
        own = [known.get(a) for a in n.args]
        if n.op == "rename" and own[0]:
            return own[0].under(names_of(n))
        if n.op == "add" and own[0] and own[1]:
            return own[0].plus(own[1])
        if n.op not in {"mul", "sum"}:
            return None
        parts = factors(n.args[0]) if n.op == "sum" else n.args
        moved = [p for p in parts if p in self.states]
        x = known.get(moved[0]) if len(moved) == 1 else None
        x = x and x.times([p for p in parts if p is not moved[0]])
        return x.summed(over(n)) if x and n.op == "sum" else x

    def _plain(self, x: Node) -> Node:
        """A term without pairs, in which the streamed axis has its own name throughout. One that
        reduces or scans along another name stays as it is."""
        twin = self.twin
        if any(not {*over(n)}.isdisjoint(twin.names) for n in postorder([x])):
            return x

        def change(old: Node, args: tuple[Node, ...]) -> Node | None:
            if old.op != "rename":
                return None
            names = ((a, twin.axis if b in twin.names else b) for a, b in names_of(old))
            return renamed(args[0], [(a, b) for a, b in names if a != b])

        return self._here(rewrite([x], change)[x], x)

    def _here(self, plain: Node, x: Node) -> Node:
        """An array along the streamed axis under the name that a term has for it."""
        own = self.twin.axis
        return renamed(plain, [(own, a) for a in self._positions(x) if a != own])

    def _reading(self, x: Node, added: bool) -> Node:
        """What is read in the place of a term: in float32 where it is added, and in the kernel's
        own type where a product reads it, as it reads what it rounds."""
        here = renamed(x, [(name, self.twin.axis) for name in self.twin.names])
        if here not in self.stored:
            taken = {*self.kernel.tensors, *map(tensor_of, self.stored.values())}
            name = numbered("alone" if added else "factor", taken, "_")
            axes = [a for a in self.kernel.memory_order(self.kernel.axes) if a in here.axes]
            self.stored[here] = leaf(name, axes, "real", "fp32" if added else "")
        return self._here(self.stored[here], x)


@lru_cache(maxsize=16)
def _ahead(kernel: Kernel, twin: Twin) -> _Ahead:
    return _Ahead(kernel, twin)


def _matches(kernel: Kernel, number: int) -> Iterator[Instance]:
    s = kernel.stream
    if why_not_ahead(kernel) or s.twin is None:
        return
    found, axis = _ahead(kernel, s.twin), part_axis(s.axis, number)
    stored = [Output(tensor_of(r), n, r.axes) for n, r in found.stored.items()]
    alone = weaved(stored)
    used = {a for n in postorder(found.stored) for a in n.axes} - {*s.axes, *s.twin.names}
    emits = tuple(Emit(o.name, o.node) for o in stored)
    first = replace(
        handing(kernel, (), found.stored.values()),
        name=f"{kernel.name}_ahead",
        group=(axis, *(a for a in (*kernel.group, *kernel.whole) if a in alone)),
        whole=tuple(a for a in (*kernel.group, *kernel.whole) if a in used and a not in alone),
        stream=replace(s, passes=(Pass((), emits),), tails=(), beside=()),
        part=axis,
        unit=s.twin.length,
        ahead=True,
    )
    (only,), left = s.passes, found.left
    states = tuple(replace(x, step=left[x.step], merge=None) for x in only.states)
    emits = tuple(replace(e, node=left[e.node]) for e in only.emits)
    made = replace(s, passes=(Pass(states, emits),), beside=())
    used = {a for n in postorder(made.terms) for a in n.axes}
    second = replace(
        kernel,
        name=f"{kernel.name}_chain",
        whole=tuple(a for a in kernel.whole if a in used),
        stream=made,
        ahead=True,
    )
    roots = results(kernel)
    yield Instance(s.axis, (first, second), between(roots, roots), of=(kernel, number))


# --- the law --------------------------------------------------------------------------------


def _ways(found: Instance, point: Point) -> Ways:
    """The outputs of the two kernels, on chunks of any lengths up to that of pairs."""
    (kernel, _), kernels = found.of, found.made
    roots, s, bind = results(kernel), kernel.stream, inputs(kernel, point)
    sizes = sizes_at(kernel, point)
    size, most = sizes[s.axes[0]], s.twin.length if s.twin else 1
    lengths = cut(size, Random(point.seed))
    if max(lengths) > most:
        lengths = [most] * (size // most) + [size % most]
    values = in_chunks_ahead(kernels, bind, ranges(lengths), sizes, scalars_of(roots))
    how = f"{kernel.name} {s.axis} in chunks of {lengths} that are computed ahead"
    yield how, as_results(kernel, (*kernels[1].stream.emits, *s.tails), values)


def in_chunks_ahead(
    kernels: Sequence[Kernel],
    bind: Mapping[Node, Array],
    parts: Sequence[range],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
) -> dict[str, Array]:
    """What two kernels give of which the first one computes chunks ahead, of these chunks, which
    have at most as many positions as are paired."""
    first, second = kernels
    found = folded(first.stream, bind, sizes, parts, scalars)[1]
    pairs = zip(first.stream.emits, handed(first), strict=True)
    read = {o.node: aligned(found[e.output], e.node.axes, o.node.axes) for e, o in pairs}
    return folded(second.stream, {**bind, **read}, sizes, parts, scalars)[1]


AHEAD = Rule(
    "ahead",
    "y(chunk, h) = U(chunk) + W(chunk) h, of a state h before the chunk",
    _matches,
    (
        "positions of a chunk are paired",
        "what is read of the state is linear in it",
        "the axis is not empty as a whole",
    ),
    empty=False,
    ways=_ways,
)
