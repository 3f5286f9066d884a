"""The fastest cut of a term, of its rewrites and of theirs.

Contractions in orders that cost far more than their least are looked at in that one first, and stay
in it where that is faster. A rewrite that makes the term faster is tried at all nodes of its kind
at once where these are more than are looked at in turn: a stack of layers has one in each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from napkin.algebra.tracer import active, times
from napkin.cut.cut import cut
from napkin.cut.segments import Memo
from napkin.cut.spent import Spent
from napkin.cut.ways import Cut
from napkin.derive.prepare import Prepared
from napkin.errors import Refusal
from napkin.ir.names import with_named
from napkin.ir.node import Node
from napkin.moves.refactor import (
    Refactored,
    everywhere,
    in_near_orders,
    refactorings,
)
from napkin.settings.effort import Move

AT_ONCE, CLEARLY = 0.9, 0.98
"""Shares of the time of a term below which a rewrite is taken by quick cuts: before others are
tried, and after all are."""

LARGE = 2_000
"""Work of the first cut of a term from which on quick cuts tell which rewrites pay."""

SURELY = 0.7
"""Share of the time of a term below which it is not cut in full beside its rewrites."""

UNCHANGED = "the term as it is"
"""A term before any rewrite, for the tracer."""

Rewrites = list[Refactored]
"""Rewrites of one term, each of the term that the one before gives."""


def fastest(
    name: str,
    ready: Prepared,
    known: Mapping[str, int],
    memo: Memo,
    rewritten: list[Refactored],
    under: float,
) -> Cut | None:
    """The fastest cut of a term after rewrites that make it faster, which go to `rewritten`; None
    where none takes less than `under` seconds.

    Of a large term quick cuts tell which rewrites pay before any cut is looked for in full: a
    rewrite can save nearly all of the time.

    Raises:
        Refusal: neither the term nor a rewritten one has kernels that fit.
    """
    search = _Search(name, ready, known, memo, under)
    found = search.run()
    rewritten += search.rewrites
    return found


class _Search:
    """A search for the fastest cut of a term.

    Attributes:
        rewrites: those of the fastest cut so far.
        near: those that give contractions orders near their least, where these are tried first.
    """

    def __init__(
        self, name: str, ready: Prepared, known: Mapping[str, int], memo: Memo, under: float
    ) -> None:
        self.name, self.ready, self.known, self.memo, self.under = name, ready, known, memo, under
        self.near: Rewrites = []
        self.rewrites: Rewrites = []

    def run(self) -> Cut | None:
        """The fastest cut."""
        first, found, refused = self._first(), None, None
        ways = [self.near]
        if first and self.memo.effort.work >= LARGE:
            found = self._with_rewrites(first, "quick") or first
            if self.rewrites != self.near:
                ways = [self.rewrites]
                ways += [self.near] if found.seconds > SURELY * first.seconds else []
        for rewrites in ways:
            best = found if rewrites is self.rewrites else None
            most = found.seconds if found else self.under
            if rewrites:
                self._tell_began(rewrites)
            try:
                full = self._cut(rewrites, most, "as it is", best)
                if full and (found is None or full.seconds < found.seconds):
                    found, self.rewrites = full, rewrites
            except Refusal as why:
                refused = why
        found = self._with_rewrites(found, "other")
        if self.rewrites != self.near:
            best, self.rewrites = self.rewrites, self.near
            other = self._with_rewrites(found, "other")
            self.rewrites = best if other is found else self.rewrites
            found = other
        if found is None and refused is not None:
            raise refused
        return found

    def _first(self) -> Cut | None:
        """A quick cut of the term: as it is, or in orders near the least where that is faster."""
        near: Rewrites = []
        for made in in_near_orders(self.ready.outputs, self.ready.names, self.known):
            near.append(made)
            self._tell_began(near)
        found, under = None, self.under
        for rewrites in [near, []] if near else [[]]:
            if near:
                self._tell_began(rewrites)
            with suppress(Refusal):
                if cut := self._cut(rewrites, under, "quick"):
                    self.near, self.rewrites = rewrites, rewrites
                    found, under = cut, cut.seconds
        return found

    def _cut(
        self, rewrites: Rewrites, under: float, move: Move, best: Cut | None = None
    ) -> Cut | None:
        """How the term is cut after rewrites; None where that takes `under` seconds or more.

        Raises:
            Refusal: it has no kernels that fit.
        """
        now, sizes = rewrites[-1] if rewrites else self.ready, sized(self.known, rewrites)
        own = self.name, now.outputs, now.names, sizes, self.memo
        return cut(*own, under=under, move=move, best=best)

    def _tell_began(self, rewrites: Rewrites) -> None:
        """Report that the term is looked at after rewrites."""
        if (tracer := active()) is not None:
            term = rewrites[-1] if rewrites else self.ready
            tracer.began(f"the term with {rewrites[-1].law}" if rewrites else UNCHANGED, term)

    def _with_rewrites(self, found: Cut | None, move: Move) -> Cut | None:
        """The fastest cut after further rewrites that make it faster than the one that is found."""
        while True:
            self.memo.effort.begins()
            most = found.seconds if found else self.under
            best = self._best_refactored(found, most, move)
            if best is None or best[1].seconds >= most * (CLEARLY if move == "quick" else 1):
                return found
            self.rewrites = [*self.rewrites, *best[0]]
            found = best[1]

    def _best_refactored(
        self, last: Cut | None, under: float, move: Move
    ) -> tuple[Rewrites, Cut] | None:
        """The best of the rewrites of one node of the term, or of all of a kind where one pays, and
        how the term is cut then; None where that takes `under` seconds or more whichever is taken,
        or where there is none beside those that are done. Those that may save next to nothing of
        the time of the `last` cut are passed over."""
        found: list[tuple[Rewrites, Cut | None]] = []
        paying: list[Refactored] = []
        term = self.rewrites[-1] if self.rewrites else self.ready
        sizes, done = sized(self.known, self.rewrites), {t.made for t in self.rewrites}
        done -= {t.made for t in self.near}
        pays = partial(_may_pay, Spent(last, term.outputs), last.seconds) if last else None
        for other in refactorings(term.outputs, term.names, sizes, done, pays):
            if any(p.kind == other.kind and p.at is not other.at for p in paying):
                _tell_left(other, "it is tried with another of its kind, which pays")
                continue
            if under < math.inf and (why := self.memo.effort.over(move)):
                _tell_left(other, why)
                continue
            way = self._cut_further([other], under, move, last)
            found.append(([other], way))
            if way is None or way.seconds >= under:
                continue
            every = everywhere(other, term.outputs, sizes, done)
            if len(every) > 1:
                self.memo.effort.begins()
                together = self._cut_further(every, way.seconds, move, last)
                found.append((every, together))
                paying += [other] if together else []
                way = together or way
            if move == "quick" and way.seconds < AT_ONCE * under < math.inf:
                break
        _tell_refactored(found, under)
        fits = [(rewrites, way) for rewrites, way in found if way]
        return min(fits, key=lambda f: f[1].seconds, default=None)

    def _cut_further(
        self, rewrites: Rewrites, under: float, move: Move, last: Cut | None
    ) -> Cut | None:
        """How the term is cut after further rewrites; None where that takes `under` seconds or
        more, or no kernels fit."""
        if (tracer := active()) is not None:
            tracer.began(f"the term with {_text(rewrites)}", rewrites[-1])
        like = last if move == "quick" else None
        with suppress(Refusal):
            return self._cut([*self.rewrites, *rewrites], under, move, like)
        return None


def sized(known: Mapping[str, int], rewritten: Sequence[Refactored]) -> dict[str, int]:
    """The sizes of all axes, those that rewrites named anew among them."""
    return with_named(known, same_size(rewritten))


def _may_pay(spent: Spent, seconds: float, before: Node, after: Node) -> bool:
    """Whether to have one node in place of another may save what counts of a cut's time."""
    return spent.taken_away(before, after) >= (1 - CLEARLY) * seconds


def _text(rewrites: Rewrites) -> str:
    more = f", and {len(rewrites) - 1} more of its kind" if len(rewrites) > 1 else ""
    return f"{rewrites[0].law}{more}"


def _tell_left(other: Refactored, why: str) -> None:
    """Report a term that is not tried."""
    if (tracer := active()) is not None:
        tracer.began(f"the term with {other.law}", other)
        tracer.dropped("term", other.law, why)


def _tell_refactored(found: Sequence[tuple[Rewrites, Cut | None]], under: float) -> None:
    """Report the rewritten terms to the tracer, and why they are not taken."""
    if (tracer := active()) is None:
        return
    fastest = min([under, *(way.seconds for _, way in found if way)])
    if fastest < under:
        why = f"{times(under)}, and the best term takes {times(fastest)}"
        tracer.dropped("term", "the term before", why)
    for rewrites, way in found:
        if way is not None:
            tracer.considered("term", _text(rewrites), way.seconds)
        if way is None or way.seconds > fastest or fastest == under:
            took = f"{times(way.seconds)}, and" if way else "no cut of it fits and takes less:"
            tracer.dropped("term", _text(rewrites), f"{took} the best term takes {times(fastest)}")


def same_size(rewritten: Sequence[Refactored]) -> dict[str, str]:
    """Axes that rewrites named anew, to the axes of the diagram whose size each has."""
    out: dict[str, str] = {}
    for r in rewritten:
        for new, old in r.same_size.items():
            out[new] = " ".join(out.get(a, a) for a in old.split())
    return out
