"""The fastest cut of a term, of its rewrites and of theirs.

Contractions in orders that cost far more than their least are put in that one before. A rewrite
that makes the term faster is tried at all nodes of its kind at once where these are more than are
looked at in turn: a stack of layers has one in each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress

from napkin.algebra.tracer import active, times
from napkin.cut.cut import cut
from napkin.cut.segments import Memo
from napkin.cut.ways import Cut
from napkin.derive.prepare import Prepared
from napkin.errors import Refusal
from napkin.ir.node import Node
from napkin.moves.refactor import (
    MOST,
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
    own, found = (name, ready, known, memo), None
    rewritten += in_near_orders(ready.outputs, ready.names, known)
    plain = [*rewritten]
    first, ways, refused = None, [plain], None
    with suppress(Refusal):
        first = _cut_after(*own, plain, under, "quick")
    if first and memo.effort.work >= LARGE:
        found = _with_rewrites(*own, rewritten, first, under, "quick") or first
        if rewritten != plain:
            sure = found.seconds <= SURELY * first.seconds
            ways = [[*rewritten]] if sure else [[*rewritten], plain]
    for rewrites in ways:
        try:
            full = _cut_after(*own, rewrites, found.seconds if found else under, "as it is")
            if full and (found is None or full.seconds < found.seconds):
                found, rewritten[:] = full, rewrites
        except Refusal as why:
            refused = why
    for rewrites in [[*rewritten], plain] if rewritten != plain else [plain]:
        made = [*rewrites]
        other = _with_rewrites(*own, made, found, under, "other")
        if other is not found:
            found, rewritten[:] = other, made
    if found is None and refused is not None:
        raise refused
    return found


def _with_rewrites(
    name: str,
    ready: Prepared,
    known: Mapping[str, int],
    memo: Memo,
    rewritten: list[Refactored],
    found: Cut | None,
    under: float,
    move: Move,
) -> Cut | None:
    """The fastest cut after rewrites that make it faster than the one that is found."""
    while True:
        memo.effort.begins()
        now, most = rewritten[-1] if rewritten else ready, found.seconds if found else under
        sizes, done = sized(known, rewritten), {t.made for t in rewritten}
        best = _best_refactored(name, now, sizes, memo, most, done, move)
        if best is None or best[1].seconds >= most * (CLEARLY if move == "quick" else 1):
            return found
        rewritten += best[0]
        found = best[1]


def sized(known: Mapping[str, int], rewritten: Sequence[Refactored]) -> dict[str, int]:
    """The sizes of all axes, those that rewrites named anew among them."""
    return {**known, **{new: known[old] for new, old in same_size(rewritten).items()}}


def _best_refactored(
    name: str,
    term: Prepared | Refactored,
    sizes: Mapping[str, int],
    memo: Memo,
    under: float,
    done: Set[Node],
    move: Move,
) -> tuple[Rewrites, Cut] | None:
    """The best of the rewrites of one node of a term, or of all of a kind where one pays, and how
    the term is cut then; None where that takes `under` seconds or more whichever is taken, or where
    there is none beside those that are done."""
    found: list[tuple[Rewrites, Cut | None]] = []
    paying: list[Refactored] = []
    for other in refactorings(term.outputs, term.names, sizes, done):
        if any(p.kind == other.kind and p.at is not other.at for p in paying):
            _tell_left(other, "it is tried with another of its kind, which pays")
            continue
        if under < math.inf and (why := memo.effort.over(move)):
            _tell_left(other, why)
            continue
        way = _cut(name, [other], sizes, memo, under, move)
        found.append(([other], way))
        if way is None or way.seconds >= under:
            continue
        every = everywhere(other, sizes, done)
        if len(every) > MOST:
            memo.effort.begins()
            found.append((every, _cut(name, every, sizes, memo, way.seconds, move)))
            paying += [other] if found[-1][1] else []
        if move == "quick" and way.seconds < AT_ONCE * under < math.inf:
            break
    _tell_refactored(found, under)
    fits = [(rewrites, way) for rewrites, way in found if way]
    return min(fits, key=lambda f: f[1].seconds, default=None)


def _cut_after(
    name: str,
    ready: Prepared,
    known: Mapping[str, int],
    memo: Memo,
    rewrites: Rewrites,
    under: float,
    move: Move,
) -> Cut | None:
    """How a term is cut after rewrites; None where that takes `under` seconds or more.

    Raises:
        Refusal: it has no kernels that fit.
    """
    now, sizes = rewrites[-1] if rewrites else ready, sized(known, rewrites)
    own = name, now.outputs, now.names, sizes, memo
    return cut(*own, under=under, move=move)


def _cut(
    name: str, rewrites: Rewrites, sizes: Mapping[str, int], memo: Memo, under: float, move: Move
) -> Cut | None:
    """How a term with rewrites is cut; None where that takes `under` seconds or more."""
    last = rewrites[-1]
    if (tracer := active()) is not None:
        tracer.began(f"the term with {_text(rewrites)}", last)
    with suppress(Refusal):
        own = name, last.outputs, last.names, sized(sizes, rewrites), memo
        return cut(*own, under=under, move=move)
    return None


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
    """Axes that rewrites named anew, to the axis of the diagram whose size each has."""
    out: dict[str, str] = {}
    for r in rewritten:
        out |= {new: out.get(old, old) for new, old in r.same_size.items()}
    return out
