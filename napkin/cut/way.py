"""A way to compute some of the points of a term, and which of several is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from napkin.algebra.tracer import times
from napkin.cut.pieces import Piece

SAME = 1.15
"""Times that are the same for all that the prediction can tell: cuts into more kernels, which take
memory between them, have to be faster by more."""

CLOSE, MOSTLY = 1.03, 0.8
"""The same for kernels that spend this share of their time as warpgroups, whose time is told
better: in attention's gradient within 5 % on average (H100)."""


@dataclass(frozen=True, eq=False)
class Way:
    """A way to compute what there is up to some point.

    Attributes:
        seconds: of all its kernels, and `kernels` the number of their launches.
        begin: the point with which its last pieces begin.
        pieces: those last ones.
        after: whether what comes with the last point is computed by kernels after it.
        specialised: of the seconds, those of warp-specialised kernels.
    """

    seconds: float
    kernels: int
    begin: int
    pieces: Sequence[Piece]
    after: bool = False
    specialised: float = 0.0

    def same(self, since: Way | None) -> float:
        """How many times as long as this others may take, after a way that all begin with, to be
        the same for all that is told."""
        seconds, specialised = self.seconds, self.specialised
        if since is not None:
            seconds, specialised = seconds - since.seconds, specialised - since.specialised
        return CLOSE if specialised > MOSTLY * seconds else SAME


NOTHING = Way(0.0, 0, -1, ())
"""The way that computes no point."""


def way_text(way: Way) -> str:
    return f"{times(way.seconds)} in {way.kernels} kernel{'s' if way.kernels > 1 else ''}"


def too_long(least: float, most: float) -> str:
    if most <= 0:
        return f"{times(least)} at least, and what follows takes longer by itself than pays"
    return f"{times(least)} at least, where {times(most)} is the most that pays"


def preferred(best: Way, than: Way, since: Way | None = None) -> str:
    """The time of the best way, and why it is before one that takes less."""
    preference = f", which is alike (within {100 * (than.same(since) - 1):.0f} %)"
    return way_text(best) + (preference if than.seconds < best.seconds else "")


def simplest(ways: Sequence[Way], since: Way | None = None) -> Way:
    """The way with the fewest kernels, of those about as fast as the fastest.

    Args:
        since: what all have before they differ, which does not count.
    """
    fastest = min(ways, key=lambda w: w.seconds)
    most = about_as_fast(fastest.seconds, since, fastest.same(since))
    return min((w for w in ways if w.seconds <= most), key=lambda w: (w.kernels, w.seconds))


def about_as_fast(fastest: float, since: Way | None, same: float) -> float:
    """The most seconds that are about as fast as the fastest, which may be done before `since`."""
    before = min(since.seconds, fastest) if since else 0.0
    return before + (fastest - before) * same
