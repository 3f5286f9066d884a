"""The ways to cut one order of points into kernels, by dynamic programming.

A kernel computes a run of points with the terms that come with them. The best way to compute all
points up to one is the best, over where its last kernels begin, of the best way up to there and
these.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from napkin.algebra.tracer import active
from napkin.cut.pieces import Piece, Pieces, Segment, uniquely_named
from napkin.cut.segments import SHORT
from napkin.cut.way import (
    NOTHING,
    SAME,
    Way,
    about_as_fast,
    preferred,
    simplest,
    too_long,
    way_text,
)
from napkin.derive.rules.part import handed
from napkin.diagram.interface import Output
from napkin.errors import Refusal
from napkin.ir.node import Node
from napkin.ir.storage import unstored
from napkin.settings.effort import Move

LONGEST = 12
"""Most points that one kernel fuses, if nobody says what is stored; a norm and a product take 5."""

QUICK = 5
"""The same where a term is looked at quickly."""

_UNFIT = "no setting of its kernel fits the registers and the shared memory of a group"


@dataclass(frozen=True)
class Cut:
    """Kernels in the order they run, and the arrays that they pass on through memory.

    Attributes:
        runs: the points that each kernel computes, or that several together do.
    """

    pieces: tuple[Piece, ...]
    materialised: Mapping[str, Output]
    runs: tuple[tuple[Node, ...], ...]

    @property
    def seconds(self) -> float:
        """Predicted time of all kernels."""
        return sum(p.seconds for p in self.pieces)


def named(points: Sequence[Node], names: Mapping[Node, str]) -> list[str]:
    """The names of points, of those that a cast stores otherwise the cast's."""
    known = {unstored(n): name for n, name in names.items()}
    return [known.get(n, n.op) for n in points]


@dataclass(frozen=True, eq=False)
class _Option:
    """The kernels of the points from `begin` on, after the best way to compute those before.

    Attributes:
        least: seconds that both take at least.
        after: whether what comes with the last point is computed by kernels after it.
    """

    begin: int
    segment: Segment
    least: float
    after: bool = False


class Cutting:
    """The cuts of one order of points.

    A kernel takes at least as long as memory takes to move what it reads and stores, which is known
    before any labels are: a way that ends in kernels for which even that is too long is left alone,
    and so is what only it needs.
    """

    def __init__(
        self,
        pieces: Pieces,
        at: Sequence[Node] | None = None,
        under: float = math.inf,
        move: Move = "other",
        longest: int = LONGEST,
        like: Cut | None = None,
    ) -> None:
        # Why no more kernels are priced, where another cut is known.
        self._over = partial(pieces.memo.effort.over, move) if under < math.inf else str
        self.longest = longest
        self.frontier, self.pieces = (frontier := pieces.frontier), pieces
        self.points, self.level, self.results = frontier.points, frontier.level, frontier.results
        self._forced = None if at is None else {self.level[n] for n in at}
        self._named = set(at or ())
        self._unfused = frontier.unfused
        self._runs = frozenset(self._of_order(like.runs)) if like else frozenset()
        self._kept = {n for run in self._runs for n in run}
        self._least = [0.0]  # of all ways that end there
        self._options: list[list[_Option]] = [[]]
        for i in range(len(self.points)):
            options = list(self._ending(i))
            self._options.append(options)
            self._least.append(min((o.least for o in options), default=math.inf))
        self._ways: dict[int, Way | None] = {0: NOTHING}
        self._most = self._left(under)

    def _left(self, under: float) -> list[float]:
        """Seconds that may be gone after each point, for all to take less than `under`."""
        least = [math.inf] * len(self.points) + [0.0]  # of what is left
        for end in range(len(self.points), 0, -1):
            for o in self._options[end]:
                least[o.begin] = min(least[o.begin], least[end] + o.segment.moving)
        # The simplest of ways about as fast as the fastest is taken (`simplest`).
        return [math.inf if under == math.inf else under * SAME - x for x in least]

    def _ending(self, i: int) -> Iterator[_Option]:
        """Ways to end with point `i`, of which some may not fit; none where none does."""
        found: list[_Option] = []
        for j in self._begins(i):
            segment = self._segment(j, i) if j == 0 or self._options[j] else None
            if segment is not None and (not self._unfused or segment.fits):
                found.append(_Option(j, segment, self._least[j] + segment.moving))
                if self._unfused:
                    break
        if self._forced is None and not self._unfused and found and found[0].begin == i:
            found += self._spread(i, found[0].segment)
        yield from found if any(o.segment.fits for o in found) else ()

    @property
    def least(self) -> float:
        """Seconds that every cut takes at least."""
        return self._least[-1]

    def check(self) -> None:
        """Raises a refusal where some term has no kernel that fits."""
        empty = next((i for i in range(len(self.points)) if not self._options[i + 1]), None)
        if empty is not None and not self._options[-1]:
            raise self._refusal(empty)

    def run(self) -> Cut:
        """The fastest cut: the best way to end after each point, from those before it."""
        made, runs, i = list[Piece](), list[tuple[Node, ...]](), len(self.points)
        while i > 0:
            way = self._way(i)
            if way is None:
                raise self._refusal(min(e for e, w in self._ways.items() if w is None) - 1)
            made, runs = [*way.pieces, *made], [tuple(self.points[way.begin : i]), *runs]
            i = way.begin
        made = uniquely_named(self._light() + made)
        return Cut(tuple(made), self._materialised(made), tuple(runs))

    def _way(self, end: int) -> Way | None:
        """The best way to compute the points before `end`."""
        asked = [self._best(end)]
        while asked:
            before = next(asked[-1], None)
            if before is None:
                asked.pop()
            elif before not in self._ways:
                asked.append(self._best(before))
        return self._ways[end]

    def _best(self, end: int) -> Iterator[int]:
        """Finds the best way to compute the points before `end`; gives first the ends of those
        that this takes."""
        found: dict[_Option, Way] = {}
        fastest, first = math.inf, min((o.begin for o in self._options[end]), default=0)
        yield first
        since = self._ways[first]
        # By what they take at least: as it is known before labels, then as it is known with them.
        heap = [(o.least, i, False) for i, o in enumerate(self._options[end])]
        heapq.heapify(heap)
        while heap:
            least, i, labelled = heapq.heappop(heap)
            o = self._options[end][i]
            most = min(about_as_fast(fastest, since, SAME), self._most[end])
            if least > most:
                self._tell_left(end, [(least, i), *((other, j) for other, j, _ in heap)], most)
                break
            if labelled:
                yield o.begin
            alone = o.segment.least if labelled else o.segment.moving
            before = self._ways.get(o.begin, NOTHING)  # no seconds where it is not known yet
            if before is None or before.seconds + alone > most:
                self._tell_slow(o, end, before, alone, most)
                continue
            if why := self._over():
                self._tell(o, end, why)
                continue
            if not labelled:
                heapq.heappush(heap, (self._least[o.begin] + o.segment.least, i, True))
                continue
            pieces = o.segment.pieces
            if pieces or not o.segment.runs:
                seconds = before.seconds + sum(p.seconds for p in pieces)
                kernels = before.kernels + sum(p.launches for p in pieces)
                own = before.specialised + sum(p.specialised for p in pieces)
                found[o] = Way(seconds, kernels, o.begin, pieces, o.after, own)
                fastest = min(fastest, seconds)
            else:
                self._tell(o, end, _UNFIT)
        options = [found[o] for o in self._options[end] if o in found]
        self._ways[end] = simplest(options, since) if options else None
        self._tell_ways(end, options, since)

    # --- for the tracer ---------------------------------------------------------------------

    def _text(self, of: _Option | Way, end: int) -> str:
        """The kernels of the points from `begin` up to `end`, in words."""
        names, begin = named(self.points[:end], self.pieces.names), of.begin
        own = f"{', '.join(names[begin:])} {'alone' if end == begin + 1 else 'fused'}"
        own += ", and what comes with it after it" if of.after else ""
        return f"{own}, after the fastest way up to {names[begin - 1]}" if begin else own

    def _tell(self, of: _Option | Way, end: int, why: str) -> None:
        if (tracer := active()) is not None:
            tracer.dropped("cut", self._text(of, end), why)

    def _tell_left(self, end: int, left: Iterable[tuple[float, int]], most: float) -> None:
        """Report the ways that are left alone, as they take too long at their least."""
        for least, i in left if active() is not None else ():
            self._tell(self._options[end][i], end, too_long(least, most))

    def _tell_slow(
        self, o: _Option, end: int, before: Way | None, alone: float, most: float
    ) -> None:
        why = "what comes before has no kernels that fit or pay"
        if before is not None:
            why = too_long(before.seconds + alone, most)
        self._tell(o, end, why)

    def _tell_ways(self, end: int, ways: Sequence[Way], since: Way | None) -> None:
        """Report the ways that were priced, and why the others were not taken."""
        if (tracer := active()) is None or not ways:
            return
        best = self._ways[end]
        assert best is not None
        for w in ways:
            tracer.considered("cut", self._text(w, end), w.seconds)
            if w is not best:
                kept = f"{self._text(best, end)}: {preferred(best, w, since)}"
                self._tell(w, end, f"{way_text(w)}, and {kept}")

    def _begins(self, i: int) -> Iterator[int]:
        """The points that a kernel ending with term `i` may begin with, the last first."""
        forced = self._forced
        for j in range(i, -1 if forced is not None else max(-1, i - self.longest), -1):
            if forced is not None and any(j <= f < i for f in forced):
                return
            if (forced is None or j == 0 or self._apart(j - 1)) and self._looked_at(j, i):
                yield j

    def _apart(self, i: int) -> bool:
        """Whether kernels may end with a point where arrays are named: with one of these, or with
        a result after which nothing else is handed on."""
        handed = self.results | self._named
        return i in (self._forced or ()) or (
            self.points[i] in self.results and handed.issuperset(self.frontier.wanted(0, i))
        )

    def _of_order(self, runs: Iterable[Sequence[Node]]) -> Iterator[tuple[Node, ...]]:
        """Runs of points that follow each other here, too, without points that are gone, of which
        there still are kernels that fit."""
        at = {n: i for i, n in enumerate(self.points)}
        for run in runs:
            own = tuple(n for n in run if n in at)
            begin = at[own[0]] if own else 0
            if own and own == tuple(self.points[begin : begin + len(own)]):
                segment = self._segment(begin, begin + len(own) - 1)
                if segment is not None and segment.fits:
                    yield own

    def _looked_at(self, j: int, i: int) -> bool:
        """Whether kernels of points j to i are looked at: of those of a like cut, its own."""
        run = tuple(self.points[j : i + 1])
        if self._kept.issuperset(run):
            return run in self._runs
        return run[0] not in self._kept or run[0] in (first for first, *_ in self._runs)

    def _materialised(self, pieces: Sequence[Piece]) -> dict[str, Output]:
        """What the kernels store beside the results, by name; the states of parts, too."""
        node_of = {t: n for n, t in self.pieces.tensors.items()}
        node_of |= {p.binding[o.name]: o.node for p in pieces for o in handed(p.choice.kernel)}
        stored = {p.binding[o.name]: o.axes for p in pieces for o in p.choice.kernel.outputs}
        found = {t: Output(t, node_of[t], axes) for t, axes in stored.items() if t in node_of}
        return {t: o for t, o in found.items() if o.node not in self.results}

    def _refusal(self, at: int) -> Refusal:
        stuck = self.points[at]
        own, name = stuck.args[0] if stuck.args else stuck, self.pieces.names.get(stuck, stuck.op)
        unfit = f"no labelling of {stuck.op} over axes '{' '.join(own.axes)}' at these sizes fits"
        unfit += " the registers and shared memory of one group"
        if self._forced is not None:
            read = self.frontier.moved_within(min(self._begins(at), default=at), at)
            if moved := self._not_stored(read):
                why = f"it reads {moved} under other axis names or at computed positions, so from"
                why += " memory, and no kernel stores that"
                return Refusal("materialise", name, why, f"materialise {moved}, too")
            if more := self._not_stored(self.points[:at]):
                why = f"{unfit}, beside the arrays before it that are not stored"
                cure = f"materialise more ({more}), or leave materialise out"
                return Refusal("materialise", name, why, cure)
        what = f"derive {self.pieces.name} for {self.pieces.memo.machine.name}"
        whole = self._whole(at) or "the axes that are held whole"
        return Refusal(what, name, unfit, f"make {whole} smaller, or cut them in two by hand")

    def _not_stored(self, arrays: Sequence[Node]) -> str:
        """The names of those arrays that nobody has asked to be stored."""
        names = self.pieces.names
        return ", ".join(names[n] for n in arrays if n in names and n not in self._named)

    def _whole(self, at: int) -> str:
        """The axes that each labelling of a point by itself holds whole, the longest first."""
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
        """Kernels for points j to i: one, or where their results differ in shape, one for
        each shape when there is a single point."""
        wanted = self.frontier.wanted(j, i)
        return self._kernels(wanted, j, i) if wanted else Segment((), self.pieces)

    def _kernels(self, wanted: Sequence[Node], j: int, i: int) -> Segment | None:
        """Kernels of points j to i that store `wanted`."""
        heavy, alone = self.points[i], self.pieces.segment(wanted, j - 1, i - j < SHORT)
        if wanted == [heavy] or (j < i and i not in self.frontier.moved):
            return alone
        if alone is not None and alone.fits:
            return alone
        # One reduction whose readers want something wider, or want it under other axis names or at
        # computed positions, or a compressed array, which exists only in memory: that is computed
        # by kernels after it.
        later = self._after(wanted, j, i)
        return alone if later is None else later

    def _spread(self, i: int, alone: Segment) -> Iterator[_Option]:
        """One reduction and what comes with it by kernels of their own, where one kernel would do:
        it has no group along an axis that is reduced, be the results as wide as they may."""
        wanted = self.frontier.wanted(i, i)
        if wanted == [self.points[i]] or len(alone.runs) != 1:
            return
        later = self._after(wanted, i, i)
        if later is not None and later.fits:
            yield _Option(i, later, self._least[i] + later.moving, True)

    def _after(self, wanted: Sequence[Node], j: int, i: int) -> Segment | None:
        """Kernels of points j to i that store `wanted`, what comes with the last point after it;
        None where that changes nothing, or one of them cannot be."""
        later = [n for n in wanted if n is not self.points[i] and self.level[n] == i]
        needed = {m for n in later for m in self.frontier.stored([n], i) or ()}
        later = [n for n in later if n not in needed]  # as a cast that is read under other names
        before = {n for n in (*wanted, *needed) if j <= self.level[n] <= i} - set(later)
        first = [n for n in self.frontier.order if n in before]
        if first == wanted:
            return None
        found = [self._kernels(first, j, i)] if first else []
        found += [self.pieces.segment([n], i if first else j - 1) for n in later]
        known = [x for x in found if x is not None]
        if len(known) < len(found):
            return None
        return Segment(tuple(run for x in known for run in x.runs), self.pieces)
