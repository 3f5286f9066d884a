"""The work of the search for a diagram, in counts, and the bounds above which some is left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from napkin.settings.tiles import MOST

LABELLED = 4
"""Terms that take as long to label as a setting takes to price, and all that goes with it. So 1,000
settings of work took 0.7 to 1.7 seconds in 73 gradients of the field (CPython 3.11, two cores)."""

NARROW = 5_000
"""Work of one diagram after which further segments are tried in few labellings, and in the most
parts, which are mostly the fastest (see `Effort.work`)."""

LABELLINGS = 2
"""Labellings of a segment that fit and are priced then: those that move the fewest bytes."""

ADDING = 3_500
"""Work after which no groups that add in memory are tried: what else there is comes first."""

AS_IT_IS = 9_000
"""Work after which a search that has found a cut of a term as it is tries no other order of points
for it and stores no more of them."""

SPENT = 9_500
"""Work after which a search that has found a cut tries no other."""

AGAIN = 4_000
"""Work that is left for the points of the term as it is that may be computed again, however much
the cut before took."""

PAIRS = 10_000
"""Work of a forward and a backward that are planned together, after which no more arrays that may
be kept are looked at."""

OTHERS = 1_200
"""Work that is left for other terms, however much the best one took: one can take a ten-thousandth
of the time (of chains of products)."""

QUICK = 9_000
"""Work after which a search looks at no more terms in quick cuts, but for `OTHERS` that are left
after each rewrite that pays."""

Move = Literal["as it is", "again", "other", "quick"]
"""How a search goes on that has found a cut: by other orders and more points of the term as it is,
by points of it that are computed again, by other terms, or, before all that, by quick cuts of
these."""

LEFT_OUT: Mapping[Move, str] = {
    "as it is": "no other orders of points, and no more points, of the term as is were tried",
    "again": "no points of the term as is were computed again",
    "other": "no other orders, points or terms were tried",
    "quick": "no other terms were tried in quick cuts",
}
"""What a search leaves out that does not go on so."""

COUNTED = 2**26
"""Positions of arrays that count visited chunks, over the settings of one kernel, about: these take
some 3 seconds."""


@dataclass
class Effort:
    """What a search has done.

    Attributes:
        priced: settings.
        labelled: terms, once for each labelling that is tried of them.
        since: the work after which the move began by which cuts are tried.
        thinned: whether some segment was tried in fewer labellings or numbers of parts than may
            pay.
        stopped: the amounts of work after which some cut was not tried, and what cut.
    """

    priced: int = 0
    labelled: int = 0
    since: int = 0
    thinned: bool = False
    stopped: set[tuple[int, str]] = field(default_factory=set[tuple[int, str]])

    def further(self) -> Effort:
        """That of a search after this one, of a diagram like its own: it is bounded by both."""
        return Effort(self.priced, self.labelled)

    @property
    def work(self) -> int:
        """All of it, in settings that take as long to price: counts, so that one diagram has one
        plan on every computer."""
        return self.priced + self.labelled // LABELLED

    def narrows(self, many: bool) -> bool:
        """Whether a few are tried of what there are `many` of: once more work is done than
        `NARROW`."""
        narrow = many and self.work >= NARROW
        self.thinned = self.thinned or narrow
        return narrow

    @property
    def adds(self) -> bool:
        """Whether groups that add in memory are tried still."""
        if self.work >= ADDING:
            self.stopped.add((ADDING, "no groups that add in memory were tried"))
        return self.work < ADDING

    def begins(self) -> None:
        """What is tried by another move comes next."""
        self.since = self.work

    def over(self, move: Move) -> str:
        """Why a search that has found a cut tries no other by a move; empty where it does."""
        left = AGAIN if move == "again" else OTHERS
        whole = QUICK if move == "quick" else SPENT
        most = AS_IT_IS if move == "as it is" else max(whole, self.since + left)
        if self.work < most:
            return ""
        self.stopped.add((most, LEFT_OUT[move]))
        return f"the search is bounded: the work of {most:,} settings is done"

    def counted(self, settings: Iterable[dict[str, int]]) -> Iterator[dict[str, int]]:
        """The settings, each counted as it is taken."""
        for tiles in settings:
            self.priced += 1
            yield tiles


def most_settings(positions: int) -> int:
    """Settings of a kernel to price at most, about.

    Args:
        positions: of the arrays that count the chunks which a setting visits.
    """
    return min(MOST, max(1, COUNTED // max(positions, 1)))
