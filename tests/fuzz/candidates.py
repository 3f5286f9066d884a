"""Every plan that the planner could take of a diagram, whatever it would cost.

Each rewriting, and rewritings of rewritings; of each every run of its points that one kernel
may compute, and every labelling of that; whole, and in parts that are merged.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from judged import COUNTS

from napkin.algebra.terms import compared, is_read
from napkin.cut.frontier import Frontier, orders
from napkin.cut.pieces import Pieces, Segment
from napkin.cut.points import is_pointwise, points_of, with_read_again
from napkin.cut.segments import Memo
from napkin.derive.kernel import Kernel, leaves, tensor_of
from napkin.derive.prepare import Prepared, exact, multiplied_out, prepare, split_windows
from napkin.diagram.diagram import Diagram
from napkin.diagram.interface import Output
from napkin.ir.evaluate import aligned, evaluate
from napkin.ir.names import with_named
from napkin.ir.node import Node, postorder
from napkin.ir.storage import own_type, unstored, widens
from napkin.ir.taking import table_of
from napkin.machine.machines import machine
from napkin.moves.refactor import Refactored, everywhere, refactorings
from napkin.rewrite.exact import SMALL
from napkin.rewrite.square import difference

H100 = machine("h100")
LONGEST = 12
"""Most points that one kernel fuses, as the planner has it."""

DEEPEST = 2
"""Rewritings one after another."""


@dataclass(frozen=True, eq=False)
class Term:
    """The outputs of a diagram in some form, and how it came about.

    Attributes:
        law: the rewritings, in words.
        same_size: axes that they named, to the axes whose sizes they have.
    """

    outputs: Sequence[Output]
    names: Mapping[Node, str]
    law: str
    same_size: Mapping[str, str]

    def sizes(self, known: Mapping[str, int]) -> dict[str, int]:
        """Sizes of all its axes."""
        return with_named(known, self.same_size)


def squares(diagram: Diagram) -> bool:
    """Whether a diagram has squared differences that can be multiplied out."""
    roots = [o.node for o in prepare(diagram).outputs]
    return any(difference(n) for n in postorder(roots))


def terms(
    diagram: Diagram, most: int = 12, squared: bool = True, rounded: bool = False
) -> Iterator[Term]:
    """The forms of a diagram: as it is prepared, made exact, and after rewritings.

    Args:
        squared: whether squared differences may be multiplied out, which loses digits.
        rounded: whether arrays have 16 bits, for which all of them have to be exact.
    """
    ready, sizes = prepare(diagram), dict.fromkeys(diagram.axes, 4)
    found = [] if rounded else [Term(ready.outputs, ready.names, "as it is", {})]
    other = _exact(diagram)
    found.append(Term(other.outputs, other.names, "exact", {}))
    if squared and squares(diagram):
        other = multiplied_out(ready)
        found.append(Term(other.outputs, other.names, "multiplied out", {}))
    return itertools.islice(_with_rewrites(found, sizes), most)


def _with_rewrites(first: Sequence[Term], sizes: Mapping[str, int]) -> Iterator[Term]:
    """Some terms, those after a rewrite of one, and so on; then those after several at once: each
    that is new."""
    seen = set[tuple[Node, ...]]()

    def new(t: Term) -> bool:
        known, key = len(seen), tuple(o.node for o in t.outputs)
        seen.add(key)
        return len(seen) > known

    levels = [[t for t in first if new(t)]]
    yield from levels[0]
    for _ in range(DEEPEST):
        levels.append([])
        for t in filter(new, (t for before in levels[-2] for t in _rewritten(before, sizes))):
            levels[-1].append(t)
            yield t
    for before in itertools.chain(*levels[:-1]):
        yield from filter(new, _together(before, sizes))


def _exact(diagram: Diagram) -> Prepared:
    return exact(prepare(diagram), "fp16", dict.fromkeys(diagram.axes, SMALL))


def split(diagram: Diagram, sizes: Mapping[str, int], rounded: bool = False) -> Iterator[Term]:
    """The form in which axes are split into windows that share no position, if there are some."""
    ready = _exact(diagram) if rounded else prepare(diagram)
    other = split_windows(ready, {a: max(1, n) for a, n in sizes.items()})
    if any(a.node is not b.node for a, b in zip(ready.outputs, other.outputs, strict=True)):
        yield Term(other.outputs, other.names, "windows split", {})


def _rewritten(before: Term, sizes: Mapping[str, int]) -> Iterator[Term]:
    for r in refactorings(before.outputs, before.names, before.sizes(sizes)):
        yield _after(before, r)


def _together(before: Term, sizes: Mapping[str, int]) -> Iterator[Term]:
    """The terms in which all nodes of a kind are rewritten, where these are several."""
    known = before.sizes(sizes)
    for first in refactorings(before.outputs, before.names, known):
        every = everywhere(first, before.outputs, known)
        if len(every) > 1:
            COUNTS["terms with several rewrites at once"] += 1
            yield reduce(_after, every, before)


def _after(before: Term, r: Refactored) -> Term:
    law = r.law if before.law == "as it is" else f"{before.law}; {r.law}"
    return Term(r.outputs, r.names, law, {**before.same_size, **r.same_size})


# --- what one kernel may compute ----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Run:
    """A run of points as one kernel or several.

    Attributes:
        first, last: the points, by their place.
        pieces: names the arrays between kernels.
    """

    first: int
    last: int
    segment: Segment
    pieces: Pieces


def drawn_points(term: Term, sizes: Mapping[str, int], rng: random.Random) -> set[Node]:
    """The points of a term; of some terms more that are pointwise, or inputs that are stored in
    another layout, of some fewer that are sums.
    Nothing is drawn from `rng`, so that what a seed draws after it stays."""
    points, rng = points_of(term.outputs, sizes), random.Random(hash(rng.getstate()[1][-9:]))
    if rng.random() < 0.7:
        return points
    order = list(postorder(o.node for o in term.outputs))
    more = {n for n in order if is_pointwise(n) and n.kind == "real" and rng.random() < 0.2}
    frontier = Frontier(term.outputs, sizes, points=points)
    more = {n for n in more if n not in frontier.sources(n)}  # others are stored as it is
    more -= {unstored(n) for n in order if widens(n)}  # which is stored as the cast says, if at all
    once = compared(o.node for o in term.outputs)
    sums = [n for n in order if n in points and n.op == "sum"]
    fewer = {n for n in sums if rng.random() < 0.2 and n not in once}
    read = [
        n for n in order if n in frontier.layouts and is_read(n) and not (n.args or own_type(n))
    ]
    drawn = (points | more) - fewer | {n for n in read if rng.random() < 0.5}
    return with_read_again(term.outputs, drawn)


def runs(
    term: Term, sizes: Mapping[str, int], alike: Memo, rng: random.Random, most: int
) -> Iterator[Run]:
    """The runs of points of a term that can be kernels, in each order of these; of more than
    `most` some that are drawn."""
    places: list[tuple[Pieces, int, int]] = []
    points = drawn_points(term, sizes, rng)
    for order in orders(term.outputs, points):
        frontier = Frontier(term.outputs, sizes, order, points)
        pieces = Pieces("drawn", term.outputs, term.names, frontier, alike)
        for i in range(len(frontier.points)):
            places += [(pieces, j, i) for j in range(i, max(-1, i - LONGEST), -1)]
        for n in dict.fromkeys(o.node for o in term.outputs if frontier.level[o.node] < 0):
            segment = pieces.segment([n], -1)
            if segment is not None:
                yield Run(-1, -1, segment, pieces)
    for pieces, j, i in places if len(places) <= most else rng.sample(places, most):
        segment = segment_of(pieces, j, i)
        if segment is not None:
            yield Run(j, i, segment, pieces)


def segment_of(pieces: Pieces, j: int, i: int) -> Segment | None:
    """Kernels for points j to i, as the planner cuts them."""
    frontier = pieces.frontier
    wanted, heavy = frontier.wanted(j, i), frontier.points[i]
    if not wanted:
        return None
    alone = pieces.segment(wanted, j - 1)
    if wanted == [heavy] or (j < i and i not in frontier.moved):
        return alone
    if alone is not None and any(known.search.kernels for known, _ in alone.runs):
        return alone
    later = [n for n in wanted if n is not heavy and frontier.level[n] == i]
    needed = {m for n in later for m in frontier.stored([n], i) or ()}
    before = {n for n in (*wanted, *needed) if j <= frontier.level[n] <= i} - set(later)
    first = [n for n in frontier.order if n in before]
    found = [pieces.segment(first, j - 1)] if first else []
    found += [pieces.segment([n], i if first else j - 1) for n in later]
    known = [x for x in found if x is not None]
    if len(known) < len(found):
        return None
    return Segment(tuple(run for x in known for run in x.runs), pieces)


def node_of(pieces: Pieces) -> dict[str, Node]:
    """The term that each tensor of a cut holds."""
    return {o.name: o.node for o in pieces.outputs} | {t: n for n, t in pieces.tensors.items()}


# --- their values -------------------------------------------------------------------------------


class Values:
    """The values of the terms of a term, each worked out once.

    Args:
        arrays: the inputs by name.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int], scalars) -> None:
        self.arrays, self.sizes, self.scalars = arrays, sizes, scalars
        self.known: dict[Node, np.ndarray] = {}

    def of(self, n: Node) -> np.ndarray:
        """The value of a term with all of its axes."""
        if n not in self.known:
            for t in (m for m in postorder([n]) if m.op == "input"):
                table = table_of(t)
                if not table.args:
                    self.known[table] = self.arrays[str(table.params[0])]
            (found,) = evaluate([n], self.known, self.sizes, self.scalars)
            self.known[n] = np.broadcast_to(found, [self.sizes[a] for a in n.axes])
        return self.known[n]

    def output(self, o: Output) -> np.ndarray:
        """The value of an output, its axes in order."""
        found = aligned(self.of(o.node), o.node.axes, o.axes)
        return np.broadcast_to(found, [self.sizes[a] for a in o.axes])


def tiling(kernel: Kernel, sizes: Mapping[str, int], rng: random.Random) -> dict[str, int]:
    """Tiles of a kernel: streamed axes in two or three uneven chunks, and a grouped axis or two in
    groups, so that a run is short."""
    known = kernel.sized(sizes)
    tiles = {a: max(1, known[a]) for a in kernel.axes}
    cut = [*kernel.stream.axes, *rng.sample(kernel.group, min(len(kernel.group), 2))]
    for a in cut[:3]:
        tiles[a] = max(1, -(-known[a] // rng.choice((1, 2, 2, 3))))
    if twin := kernel.stream.twin:  # a chunk has as many positions, at most, as are paired
        tiles[twin.axis] = min(tiles[twin.axis], twin.length)
    return {**tiles, **dict.fromkeys(kernel.residues, 1)}


def read_by(kernel: Kernel, arrays: Mapping[str, np.ndarray]) -> dict[Node, np.ndarray]:
    """The tensors of a kernel by their leaves."""
    return {table_of(n): arrays[tensor_of(n)] for n in leaves(kernel.terms)}
