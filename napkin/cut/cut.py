"""A diagram cut into kernels: which arrays are materialised, by the time that it costs.

Points are taken in dataflow order; a kernel computes a run of them with the terms that come with
them (`napkin.cut.ways`). The fastest cut is taken among orders of the points, and then among
changes of what the points are (`napkin.cut.changes`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice

from napkin.algebra.tracer import active, times
from napkin.cut.changes import Change, again, stored
from napkin.cut.frontier import Frontier, orders
from napkin.cut.pieces import Pieces
from napkin.cut.points import is_pointwise, points_of, with_read_again
from napkin.cut.segments import Memo
from napkin.cut.way import SAME, Way, preferred, simplest, too_long, way_text
from napkin.cut.ways import LONGEST, QUICK, Cut, Cutting, named
from napkin.diagram.interface import Output
from napkin.errors import Refusal
from napkin.ir.node import Node
from napkin.settings.effort import Move


def cut(
    name: str,
    outputs: Sequence[Output],
    names: Mapping[Node, str],
    sizes: Mapping[str, int],
    memo: Memo,
    *,
    at: Sequence[Node] | None = None,
    unfused: bool = False,
    under: float = math.inf,
    move: Move = "other",
    best: Cut | None = None,
) -> Cut | None:
    """Cut the terms of `outputs` into kernels for a machine.

    Args:
        memo: what is known of the machine's kernels, which grows.
        at: arrays to materialise; by default those that make the whole fastest.
        unfused: cut after every point instead, but where what one computes exists in no memory, so
            that its readers are in its kernel.
        under: seconds; None is the answer where no cut can take less.
        move: "as it is" where other terms are tried after this one, to which some work is left;
            "quick" for the first order of points alone, and no others.
        best: a cut that is known, to be made better; of the term before a rewrite where this looks
            quickly, and kernels of points that are in both are as they are there.

    Raises:
        Refusal: some term has no kernel that fits the machine.
    """
    term = _Term(name, outputs, names, sizes, memo, at, unfused, move)
    points = term.with_room(points_of(outputs, sizes))
    if at is not None:
        return term.among({*points, *at, *(o.node for o in outputs if is_pointwise(o.node))}, under)
    if unfused or move == "quick":
        return term.among(points, under, like=best)
    found, under = best, min(under, best.seconds) if best else under
    refused: Refusal | None = None
    try:
        found = term.among(points, under) or best
    except Refusal as refusal:
        refused = refusal
    for changes in (stored, again):
        if changes is again and move == "as it is":
            move = "again"
            memo.effort.begins()
        change = changes(outputs, sizes, points, found)
        if change is None or term.with_room(change.points) != change.points:
            continue
        if found and (why := memo.effort.over(move)):
            _tell_left(change, names, why)
            continue
        better = term.changed(change, found, under, move)
        if better:
            found, points = better, change.points
    if found is None and refused is not None:
        raise refused
    return found


def _tell_left(change: Change, names: Mapping[Node, str], why: str) -> None:
    """Report a change of the points that is not tried."""
    if (tracer := active()) is not None:
        tracer.dropped("points", change.text(names), why)


@dataclass(frozen=True, eq=False)
class _Term:
    """What is cut, and for what; see `cut`."""

    name: str
    outputs: Sequence[Output]
    names: Mapping[Node, str]
    sizes: Mapping[str, int]
    memo: Memo
    at: Sequence[Node] | None
    unfused: bool
    move: Move

    def with_room(self, points: Set[Node]) -> Set[Node]:
        """The points without those that may not lie in memory: each kernel that needs one computes
        it. An array that is read again is stored in any case."""
        results = {o.node for o in self.outputs}
        kept = {n for n in points if n in results or self.memo.has_room(n, self.sizes)}
        return with_read_again(self.outputs, kept)

    def among(
        self, points: Set[Node], under: float, move: Move | None = None, like: Cut | None = None
    ) -> Cut | None:
        """The fastest cut among orders of the points; None where none takes less than `under`.

        Args:
            move: by which the first of them is tried; by default as the term is.
            like: a cut whose kernels are taken for points that are in both.

        Raises:
            Refusal: some term has no kernel that fits, and any cut would do.
        """
        found: list[Cut] = []
        tried: list[Frontier] = []
        refused: list[Refusal] = []
        fastest = math.inf
        quick = self.move == "quick"
        for order in islice(orders(self.outputs, points), 1 if quick else None):
            frontier = Frontier(self.outputs, self.sizes, order, points, self.unfused)
            known = found or (refused and under < math.inf)
            if known and (why := self.memo.effort.over(self.move)):
                self._tell_left(frontier, why)
                continue
            pieces = Pieces(self.name, self.outputs, self.names, frontier, self.memo)
            longest = QUICK if quick else LONGEST
            most = min(under, fastest)
            cutting = Cutting(pieces, self.at, most, move or self.move, longest, like)
            try:
                cutting.check()
                if cutting.least < under and cutting.least <= fastest * SAME:
                    found.append(cutting.run())
                    fastest = min(fastest, found[-1].seconds)
                    tried.append(frontier)
                else:
                    most = min(under, fastest * SAME)
                    self._tell_slow_order(frontier, cutting.least, most)
            except Refusal as refusal:
                refused.append(refusal)
                self._tell_refused(frontier, refusal, under)
        if not found and refused and under == math.inf:
            raise refused[0]
        ways = [_way(c) for c in found]
        if not ways:
            return None
        best = ways.index(simplest(ways))
        self._tell_orders(tried, ways, best)
        return found[best]

    def changed(self, change: Change, best: Cut | None, under: float, move: Move) -> Cut | None:
        """The fastest cut among other points; None where the best so far is better."""
        under = min(under, best.seconds) if best else under
        try:
            found = self.among(change.points, under, move)
        except Refusal:
            found = None
        ways = [_way(c) for c in (best, found) if c]
        taken = found is not None and simplest(ways) is ways[-1]
        self._tell_changed(change, ways, found, under)
        return found if taken else None

    # --- for the tracer ---------------------------------------------------------------------

    def _order(self, frontier: Frontier) -> str:
        return f"points in the order {', '.join(named(frontier.points, self.names))}"

    def _tell_left(self, frontier: Frontier, why: str) -> None:
        """Report an order that is not tried."""
        if (tracer := active()) is not None:
            tracer.dropped("order", self._order(frontier), why)

    def _tell_slow_order(self, frontier: Frontier, least: float, most: float) -> None:
        """Report an order whose cuts take too long at their least."""
        if (tracer := active()) is not None:
            tracer.dropped("order", self._order(frontier), too_long(least, most))

    def _tell_refused(self, frontier: Frontier, refusal: Refusal, under: float) -> None:
        """Report an order that has no cut."""
        if (tracer := active()) is not None:
            slow = f"no cut of it fits and takes less than {times(under)}"
            why = str(refusal) if under == math.inf else slow
            tracer.dropped("order", self._order(frontier), why)

    def _tell_orders(self, tried: Sequence[Frontier], ways: Sequence[Way], best: int) -> None:
        """Report the orders that have cuts, and why the others were not taken."""
        if (tracer := active()) is None:
            return
        for i, (frontier, way) in enumerate(zip(tried, ways, strict=True)):
            tracer.considered("order", self._order(frontier), way.seconds)
            if i != best:
                kept = f"{self._order(tried[best])}: {preferred(ways[best], way)}"
                tracer.dropped("order", self._order(frontier), f"{way_text(way)}, and {kept}")

    def _tell_changed(
        self, change: Change, ways: Sequence[Way], found: Cut | None, under: float
    ) -> None:
        """Report a change of the points, and why it was not taken."""
        if (tracer := active()) is None:
            return
        what = change.text(self.names)
        if found is None:
            why = f"no cut of it fits and takes less than {times(under)}"
            tracer.dropped("points", what, why)
            return
        tracer.considered("points", what, found.seconds)
        if (best := simplest(ways)) is not ways[-1]:
            kept = f"without it {preferred(best, ways[-1])}"
            tracer.dropped("points", what, f"{way_text(ways[-1])}, and {kept}")


def _way(cut: Cut) -> Way:
    own = sum(p.specialised for p in cut.pieces)
    launches = sum(p.launches for p in cut.pieces)
    return Way(cut.seconds, launches, -1, cut.pieces, specialised=own)
