"""A diagram cut into kernels: which arrays are materialised, by the time that it costs.

Reductions are taken in dataflow order; a kernel computes a run of them with the pointwise terms
between, and the cut with the least predicted time is found by dynamic programming.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from napkin.diagram.diagram import Output
from napkin.diagram.node import Node
from napkin.errors import Refusal
from napkin.plan.alike import Alike
from napkin.plan.frontier import Frontier, orders
from napkin.plan.pieces import Piece, Pieces

LONGEST = 12
"""Most reductions that one kernel fuses; a normalisation and a product take about five."""

ALIKE = 1.15
"""Times that are the same for all that the prediction can tell: cuts into more kernels, which take
memory between them, have to be faster by more."""


@dataclass(frozen=True)
class Cut:
    """Kernels in the order they run, and the arrays that they pass on through memory."""

    pieces: tuple[Piece, ...]
    materialised: Mapping[str, Node]

    @property
    def seconds(self) -> float:
        """Predicted time of all kernels."""
        return sum(p.choice.time.seconds for p in self.pieces)


def cut(
    name: str,
    outputs: Sequence[Output],
    names: Mapping[Node, str],
    sizes: Mapping[str, int],
    alike: Alike,
    *,
    at: Sequence[Node] | None = None,
    apart: bool = False,
) -> Cut:
    """Cut the terms of `outputs` into kernels for a machine.

    Args:
        alike: what is known of the machine's kernels, which grows.
        at: arrays to materialise; by default those that make the whole fastest.
        apart: cut after every reduction instead, but where what a reduction computes exists in no
            memory, so that its readers are in its kernel.

    Raises:
        Refusal: some term has no kernel that fits the machine.
    """
    found: list[Cut] = []
    refused: list[Refusal] = []
    for order in orders(outputs):
        frontier = Frontier(outputs, sizes, order, apart)
        pieces = Pieces(name, outputs, names, frontier, alike)
        try:
            found.append(_Cutting(frontier, pieces).run(at, apart))
        except Refusal as refusal:
            refused.append(refusal)
    if not found:
        raise refused[0]
    ways = [_Way(c.seconds, len(c.pieces), -1, c.pieces) for c in found]
    return found[ways.index(_simplest(ways))]


@dataclass(frozen=True, eq=False)
class _Way:
    """A way to compute what there is up to some heavy term.

    Attributes:
        seconds: of all its kernels, and `kernels` their number.
        begin: the heavy term with which its last pieces begin.
        pieces: those last ones.
    """

    seconds: float
    kernels: int
    begin: int
    pieces: Sequence[Piece]


def _simplest(ways: Sequence[_Way]) -> _Way:
    """The way with the fewest kernels, of those about as fast as the fastest."""
    fastest = min(w.seconds for w in ways)
    near = [w for w in ways if w.seconds <= fastest * ALIKE]
    return min(near, key=lambda w: (w.kernels, w.seconds))


class _Cutting:
    def __init__(self, frontier: Frontier, pieces: Pieces) -> None:
        self.frontier, self.pieces = frontier, pieces
        self.heavy, self.level, self.results = frontier.heavy, frontier.level, frontier.results

    def run(self, at: Sequence[Node] | None, apart: bool) -> Cut:
        """The fastest cut: the best way to end after each heavy term, from those before it."""
        forced = None if at is None else {self.level[n] for n in at}
        ways: list[_Way | None] = [_Way(0.0, 0, -1, ())]
        for i in range(len(self.heavy)):
            options: list[_Way] = []
            for j in self._begins(i, forced):
                before = ways[j]
                if before is not None and (pieces := self._segment(j, i)) is not None:
                    seconds = before.seconds + sum(p.choice.time.seconds for p in pieces)
                    options.append(_Way(seconds, before.kernels + len(pieces), j, pieces))
                    if apart:
                        break
            ways.append(_simplest(options) if options else None)
        made: list[Piece] = []
        way, i = ways[-1], len(self.heavy)
        if way is None:
            raise self._refusal(ways)
        while way is not None and i > 0:
            made = [*way.pieces, *made]
            i = way.begin
            way = ways[i]
        made = self._light() + made
        return Cut(tuple(made), self._materialised(made))

    def _begins(self, i: int, forced: set[int] | None) -> Iterator[int]:
        """The heavy terms that a kernel ending with term `i` may begin with, the last first."""
        for j in range(i, max(-1, i - LONGEST), -1):
            if forced is not None and any(j <= f < i for f in forced):
                return
            if forced is None or j == 0 or j - 1 in forced:
                yield j

    def _materialised(self, pieces: Sequence[Piece]) -> dict[str, Node]:
        """What the kernels store beside the results, by name; the states of parts, too."""
        node_of = {t: n for n, t in self.pieces.tensors.items()}
        inner = [p for p in pieces if p.choice.kernel.part]
        node_of |= {p.binding[o.name]: o.node for p in inner for o in p.choice.origin}
        stored = [p.binding[o.name] for p in pieces for o in p.choice.kernel.outputs]
        return {t: node_of[t] for t in stored if t in node_of and node_of[t] not in self.results}

    def _refusal(self, ways: Sequence[_Way | None]) -> Refusal:
        stuck = self.heavy[ways.index(None) - 1]
        return Refusal(
            f"derive {self.pieces.name} for {self.pieces.alike.machine.name}",
            self.pieces.names.get(stuck, stuck.op),
            f"no labelling of {stuck.op} over axes '{' '.join(stuck.args[0].axes)}' at these sizes "
            "fits the registers and shared memory of one group",
            "make the axes that are held whole smaller, or cut them in two by hand",
        )

    def _light(self) -> list[Piece]:
        """Outputs that need no reduction."""
        alone = [n for n in dict.fromkeys(o.node for o in self.pieces.outputs) if self.level[n] < 0]
        pieces: list[Piece] = []
        for n in alone:
            found = self.pieces.pieces([n], -1)
            if not found:
                raise Refusal(
                    f"derive {self.pieces.name}",
                    self.pieces.names.get(n, n.op),
                    "no tile of it fits registers",
                    "make its axes smaller",
                )
            pieces += found
        return pieces

    def _segment(self, j: int, i: int) -> list[Piece] | None:
        """Kernels for heavy terms j to i: one, or where their results differ in shape, one for
        each shape when there is a single heavy term."""
        wanted = self.frontier.wanted(j, i)
        if not wanted:
            return []
        alone = self.pieces.pieces(wanted, j - 1)
        if alone:
            return alone
        heavy = self.heavy[i]
        if wanted == [heavy] or (j < i and i not in self.frontier.moved):
            return None
        # One reduction whose readers want something wider, or want it under other axis names or at
        # computed positions, or a compressed array, which exists only in memory: that is computed
        # by kernels after it.
        later = [n for n in wanted if n is not heavy and self.level[n] == i]
        needed = {m for n in later for m in self.frontier.stored([n], i) or ()}
        before = {n for n in (*wanted, *needed) if j <= self.level[n] <= i} - set(later)
        first = self.pieces.pieces([n for n in self.frontier.order if n in before], j - 1)
        rest = [self.pieces.pieces([n], i) for n in later]
        if not first or not all(rest):
            return None
        return [*first, *(p for found in rest for p in found)]
