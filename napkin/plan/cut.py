"""A diagram cut into kernels: which arrays are materialised, by the time that it costs.

Reductions are taken in dataflow order; a kernel computes a run of them with the pointwise terms
between, and the cut with the least predicted time is found by dynamic programming.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from napkin.derive.tracer import active, times
from napkin.diagram.interface import Output
from napkin.errors import Refusal
from napkin.ir.node import Node
from napkin.ir.storage import unstored
from napkin.plan.frontier import Frontier, orders
from napkin.plan.pieces import Piece, Pieces, Segment, named_apart
from napkin.plan.segments import Alike

LONGEST = 12
"""Most reductions that one kernel fuses; a normalisation and a product take about five."""

SHORT = 3
"""Reductions of a segment that is searched for however many were
(`napkin.plan.segments.IN_FULL`)."""

ALIKE = 1.15
"""Times that are the same for all that the prediction can tell: cuts into more kernels, which take
memory between them, have to be faster by more."""


_UNFIT = "no setting of its kernel fits the registers and the shared memory of a group"


@dataclass(frozen=True)
class Cut:
    """Kernels in the order they run, and the arrays that they pass on through memory."""

    pieces: tuple[Piece, ...]
    materialised: Mapping[str, Node]

    @property
    def seconds(self) -> float:
        """Predicted time of all kernels."""
        return sum(p.choice.time.seconds for p in self.pieces)

    @property
    def stored(self) -> dict[str, tuple[str, ...]]:
        """The arrays that are passed on, with their axes as they lie in memory."""
        made = {p.binding[o.name]: o.axes for p in self.pieces for o in p.choice.kernel.outputs}
        return {name: made[name] for name in self.materialised}


def cut(
    name: str,
    outputs: Sequence[Output],
    names: Mapping[Node, str],
    sizes: Mapping[str, int],
    alike: Alike,
    *,
    at: Sequence[Node] | None = None,
    apart: bool = False,
    under: float = math.inf,
) -> Cut | None:
    """Cut the terms of `outputs` into kernels for a machine.

    Args:
        alike: what is known of the machine's kernels, which grows.
        at: arrays to materialise; by default those that make the whole fastest.
        apart: cut after every reduction instead, but where what a reduction computes exists in no
            memory, so that its readers are in its kernel.
        under: seconds; None is the answer where no cut can take less.

    Raises:
        Refusal: some term has no kernel that fits the machine.
    """
    found: list[Cut] = []
    tried: list[Frontier] = []
    refused: list[Refusal] = []
    fastest = math.inf
    for order in orders(outputs):
        frontier = Frontier(outputs, sizes, order, apart)
        cutting = _Cutting(
            frontier, Pieces(name, outputs, names, frontier, alike), at, apart, under
        )
        try:
            cutting.check()
            if cutting.least < under and cutting.least <= fastest * ALIKE:
                found.append(cutting.run())
                fastest = min(fastest, found[-1].seconds)
                tried.append(frontier)
            else:
                _tell_slow_order(frontier, names, cutting.least, min(under, fastest * ALIKE))
        except Refusal as refusal:
            refused.append(refusal)
            _tell_refused(frontier, names, refusal, under)
    if not found and refused and under == math.inf:
        raise refused[0]
    ways = [_Way(c.seconds, len(c.pieces), -1, c.pieces) for c in found]
    if not ways:
        return None
    best = ways.index(_simplest(ways))
    _tell_orders(tried, names, ways, best)
    return found[best]


def _order(frontier: Frontier, names: Mapping[Node, str]) -> str:
    return f"reductions in the order {', '.join(_named(frontier.heavy, names))}"


def _named(heavy: Sequence[Node], names: Mapping[Node, str]) -> list[str]:
    """The names of heavy terms, of those that a cast stores otherwise the cast's."""
    known = {unstored(n): name for n, name in names.items()}
    return [known.get(n, n.op) for n in heavy]


def _tell_slow_order(
    frontier: Frontier, names: Mapping[Node, str], least: float, most: float
) -> None:
    """Report an order whose cuts take too long at their least."""
    if (tracer := active()) is not None:
        tracer.dropped("order", _order(frontier, names), _too_long(least, most))


def _tell_refused(
    frontier: Frontier, names: Mapping[Node, str], refusal: Refusal, under: float
) -> None:
    """Report an order that has no cut."""
    if (tracer := active()) is not None:
        slow = f"no cut of it fits and takes less than {times(under)}"
        why = str(refusal) if under == math.inf else slow
        tracer.dropped("order", _order(frontier, names), why)


def _tell_orders(
    tried: Sequence[Frontier], names: Mapping[Node, str], ways: Sequence[_Way], best: int
) -> None:
    """Report the orders that have cuts, and why the others were not taken."""
    if (tracer := active()) is None:
        return
    for i, (frontier, way) in enumerate(zip(tried, ways, strict=True)):
        tracer.considered("order", _order(frontier, names), way.seconds)
        if i != best:
            kept = f"{_order(tried[best], names)}: {_beside(ways[best], way)}"
            tracer.dropped("order", _order(frontier, names), f"{_way_text(way)}, and {kept}")


def _too_long(least: float, most: float) -> str:
    if most <= 0:
        return f"{times(least)} at least, and what follows takes longer by itself than pays"
    return f"{times(least)} at least, where {times(most)} is the most that pays"


def _beside(best: _Way, than: _Way) -> str:
    """The time of the best way, and why it is before one that takes less."""
    alike = f", which is alike (within {100 * (ALIKE - 1):.0f} %)"
    return _way_text(best) + (alike if than.seconds < best.seconds else "")


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


def _way_text(way: _Way) -> str:
    return f"{times(way.seconds)} in {way.kernels} kernel{'s' if way.kernels > 1 else ''}"


def _simplest(ways: Sequence[_Way]) -> _Way:
    """The way with the fewest kernels, of those about as fast as the fastest."""
    fastest = min(w.seconds for w in ways)
    near = [w for w in ways if w.seconds <= fastest * ALIKE]
    return min(near, key=lambda w: (w.kernels, w.seconds))


@dataclass(frozen=True, eq=False)
class _Option:
    """The kernels of the heavy terms from `begin` on, after the best way to compute those before.

    Attributes:
        least: seconds that both take at least.
    """

    begin: int
    segment: Segment
    least: float


class _Cutting:
    """The cuts of one order of heavy terms.

    A kernel takes at least as long as memory takes to move what it reads and stores, which is known
    before any tiles are: a way that ends in kernels for which even that is too long is left alone,
    and so is what only it needs.
    """

    def __init__(
        self,
        frontier: Frontier,
        pieces: Pieces,
        at: Sequence[Node] | None,
        apart: bool,
        under: float = math.inf,
    ) -> None:
        self.frontier, self.pieces = frontier, pieces
        self.heavy, self.level, self.results = frontier.heavy, frontier.level, frontier.results
        self._forced = None if at is None else {self.level[n] for n in at}
        self._apart = apart
        self._least = [0.0]  # of all ways that end there
        self._options: list[list[_Option]] = [[]]
        for i in range(len(self.heavy)):
            options = list(self._ending(i))
            self._options.append(options)
            self._least.append(min((o.least for o in options), default=math.inf))
        self._ways: dict[int, _Way | None] = {0: _Way(0.0, 0, -1, ())}
        self._most = self._left(under)

    def _left(self, under: float) -> list[float]:
        """Seconds that may be gone after each heavy term, for all to take less than `under`."""
        least = [math.inf] * len(self.heavy) + [0.0]  # of what is left
        for end in range(len(self.heavy), 0, -1):
            for o in self._options[end]:
                least[o.begin] = min(least[o.begin], least[end] + o.segment.least)
        # The simplest of ways about as fast as the fastest is taken (`_simplest`).
        return [math.inf if under == math.inf else under * ALIKE - x for x in least]

    def _ending(self, i: int) -> Iterator[_Option]:
        """Ways to end with heavy term `i`, of which some may not fit; none where none does."""
        found: list[_Option] = []
        for j in self._begins(i):
            segment = self._segment(j, i) if j == 0 or self._options[j] else None
            if segment is not None and (segment.fits or not self._apart):
                found.append(_Option(j, segment, self._least[j] + segment.least))
                if self._apart:
                    break
        yield from found if any(o.segment.fits for o in found) else ()

    @property
    def least(self) -> float:
        """Seconds that every cut takes at least."""
        return self._least[-1]

    def check(self) -> None:
        """Raises a refusal where some term has no kernel that fits."""
        empty = next((i for i in range(len(self.heavy)) if not self._options[i + 1]), None)
        if empty is not None and not self._options[-1]:
            raise self._refusal(empty)

    def run(self) -> Cut:
        """The fastest cut: the best way to end after each heavy term, from those before it."""
        made: list[Piece] = []
        i = len(self.heavy)
        while i > 0:
            way = self._way(i)
            if way is None:
                raise self._refusal(min(e for e, w in self._ways.items() if w is None) - 1)
            made = [*way.pieces, *made]
            i = way.begin
        made = named_apart(self._light() + made)
        return Cut(tuple(made), self._materialised(made))

    def _way(self, end: int) -> _Way | None:
        """The best way to compute the heavy terms before `end`."""
        asked = [self._best(end)]
        while asked:
            before = next(asked[-1], None)
            if before is None:
                asked.pop()
            elif before not in self._ways:
                asked.append(self._best(before))
        return self._ways[end]

    def _best(self, end: int) -> Iterator[int]:
        """Finds the best way to compute the heavy terms before `end`; gives first the ends of those
        that this takes."""
        found: dict[int, _Way] = {}
        fastest = math.inf
        for o in sorted(self._options[end], key=lambda o: o.least):
            most = min(fastest * ALIKE, self._most[end])
            if o.least > most:
                self._tell_left(end, found, most)
                break
            yield o.begin
            before = self._ways[o.begin]
            if before is None or before.seconds + o.segment.least > most:
                self._tell_slow(o, end, before, most)
                continue
            pieces = o.segment.pieces
            if pieces or not o.segment.runs:
                seconds = before.seconds + sum(p.choice.time.seconds for p in pieces)
                found[o.begin] = _Way(seconds, before.kernels + len(pieces), o.begin, pieces)
                fastest = min(fastest, seconds)
            else:
                self._tell(o.begin, end, _UNFIT)
        options = [found[o.begin] for o in self._options[end] if o.begin in found]
        self._ways[end] = _simplest(options) if options else None
        self._tell_ways(end, options)

    # --- for the tracer ---------------------------------------------------------------------

    def _text(self, begin: int, end: int) -> str:
        """The kernels of the heavy terms from `begin` up to `end`, in words."""
        names = _named(self.heavy[:end], self.pieces.names)
        own = f"{', '.join(names[begin:])} {'alone' if end == begin + 1 else 'fused'}"
        return f"{own}, after the fastest way up to {names[begin - 1]}" if begin else own

    def _tell(self, begin: int, end: int, why: str) -> None:
        if (tracer := active()) is not None:
            tracer.dropped("cut", self._text(begin, end), why)

    def _tell_left(self, end: int, found: Mapping[int, _Way], most: float) -> None:
        """Report the ways that are left alone, as they take too long at their least."""
        if active() is None:
            return
        for o in self._options[end]:
            if o.begin not in found and o.least > most:
                self._tell(o.begin, end, _too_long(o.least, most))

    def _tell_slow(self, o: _Option, end: int, before: _Way | None, most: float) -> None:
        if active() is None:
            return
        why = "what comes before has no kernels that fit or pay"
        if before is not None:
            why = _too_long(before.seconds + o.segment.least, most)
        self._tell(o.begin, end, why)

    def _tell_ways(self, end: int, ways: Sequence[_Way]) -> None:
        """Report the ways that were priced, and why the others were not taken."""
        if (tracer := active()) is None or not ways:
            return
        best = self._ways[end]
        assert best is not None
        for w in ways:
            tracer.considered("cut", self._text(w.begin, end), w.seconds)
            if w is not best:
                kept = f"{self._text(best.begin, end)}: {_beside(best, w)}"
                self._tell(w.begin, end, f"{_way_text(w)}, and {kept}")

    def _begins(self, i: int) -> Iterator[int]:
        """The heavy terms that a kernel ending with term `i` may begin with, the last first."""
        forced = self._forced
        for j in range(i, max(-1, i - LONGEST), -1):
            if forced is not None and any(j <= f < i for f in forced):
                return
            if forced is None or j == 0 or j - 1 in forced:
                yield j

    def _materialised(self, pieces: Sequence[Piece]) -> dict[str, Node]:
        """What the kernels store beside the results, by name; the states of parts, too."""
        node_of = {t: n for n, t in self.pieces.tensors.items()}
        inner = [p for p in pieces if p.choice.kernel.partial]
        node_of |= {p.binding[o.name]: o.node for p in inner for o in p.choice.origin}
        stored = [p.binding[o.name] for p in pieces for o in p.choice.kernel.outputs]
        return {t: node_of[t] for t in stored if t in node_of and node_of[t] not in self.results}

    def _refusal(self, at: int) -> Refusal:
        stuck = self.heavy[at]
        return Refusal(
            f"derive {self.pieces.name} for {self.pieces.alike.machine.name}",
            self.pieces.names.get(stuck, stuck.op),
            f"no labelling of {stuck.op} over axes '{' '.join(stuck.args[0].axes)}' at these sizes "
            "fits the registers and shared memory of one group",
            f"make {self._whole(at) or 'the axes that are held whole'} smaller, or cut them in two "
            "by hand",
        )

    def _whole(self, at: int) -> str:
        """The axes that each labelling of a heavy term by itself holds whole, the longest first."""
        segment = self._segment(at, at)
        runs = segment.runs if segment is not None else ()
        found = [set(k.whole) for known, _ in runs for k in known.search.kernels]
        every, sizes = set[str].intersection(*found) if found else (), self.frontier.sizes
        named = ", ".join(f"{a}={sizes[a]}" for a in sorted(every, key=lambda a: (-sizes[a], a)))
        return f"{named} (held whole by every group)" if named else ""

    def _light(self) -> list[Piece]:
        """Outputs that need no reduction."""
        alone = [n for n in dict.fromkeys(o.node for o in self.pieces.outputs) if self.level[n] < 0]
        pieces: list[Piece] = []
        for n in alone:
            found = self.pieces.segment([n], -1)
            if found is None or not found.pieces:
                raise Refusal(
                    f"derive {self.pieces.name}",
                    self.pieces.names.get(n, n.op),
                    "no tile of it fits registers",
                    "make its axes smaller",
                )
            pieces += found.pieces
        return pieces

    def _segment(self, j: int, i: int) -> Segment | None:
        """Kernels for heavy terms j to i: one, or where their results differ in shape, one for
        each shape when there is a single heavy term."""
        wanted = self.frontier.wanted(j, i)
        return self._kernels(wanted, j, i) if wanted else Segment((), self.pieces)

    def _kernels(self, wanted: Sequence[Node], j: int, i: int) -> Segment | None:
        """Kernels of heavy terms j to i that store `wanted`."""
        heavy, alone = self.heavy[i], self.pieces.segment(wanted, j - 1, i - j < SHORT)
        if wanted == [heavy] or (j < i and i not in self.frontier.moved):
            return alone
        if alone is not None and alone.fits:
            return alone
        # One reduction whose readers want something wider, or want it under other axis names or at
        # computed positions, or a compressed array, which exists only in memory: that is computed
        # by kernels after it.
        later = [n for n in wanted if n is not heavy and self.level[n] == i]
        needed = {m for n in later for m in self.frontier.stored([n], i) or ()}
        before = {n for n in (*wanted, *needed) if j <= self.level[n] <= i} - set(later)
        first = [n for n in self.frontier.order if n in before]
        if first == wanted:
            return alone
        found = [self._kernels(first, j, i), *(self.pieces.segment([n], i) for n in later)]
        known = [x for x in found if x is not None]
        if len(known) < len(found):
            return None
        return Segment(tuple(run for x in known for run in x.runs), self.pieces)
