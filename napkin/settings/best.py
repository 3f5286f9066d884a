"""The settings of one labelled kernel, the best first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from napkin.algebra.tracer import active
from napkin.count.shares import positions
from napkin.derive.kernel import Kernel
from napkin.ir.node import postorder
from napkin.lower.build import build
from napkin.lower.dots import dot_of
from napkin.lower.program import Program
from napkin.machine.machines import Machine
from napkin.settings.choice import Choice, Unpriced, in_rank, most_over
from napkin.settings.phrases import kernel_text
from napkin.settings.pricing import Pricing
from napkin.settings.tiles import MOST, Tiles

TRIED = 40
"""Settings in turn that are passed over before no more of them are tried."""

PRICED = 9_000
"""Settings of one diagram after which only `FEW` of each further kernel are priced. Of `diagrams/`
one has more, and the same kernels without a bound; 1,000 take 0.3 to 0.5 seconds."""

FEW = 40
"""Settings of a kernel that are priced then, about."""

BEGUN = 10
"""Settings that take as long to price as a kernel takes to label, or to count at any tiles."""

NARROW = 14_000
"""Work of one diagram after which further segments are tried in few labellings, and in the most
parts, which are mostly the fastest (see `Effort.work`); 1,000 take 0.2 to 0.5 seconds. With 14,000
settings, 21,000 here, and 23,000 and 28,000 below, two of 200 diagrams of the field have other
kernels: they take 0.99 and 1.15 of the time."""

LABELLINGS = 2
"""Labellings of a segment that fit and are priced then: those that move the fewest bytes."""

ADDING = 9_000
"""Work after which no groups that add in memory are tried: what else there is comes first."""

AS_IT_IS = 18_000
"""Work after which a search that has found a cut of a term as it is tries no other order of points
for it and stores no more of them."""

SPENT = 21_000
"""Work after which a search that has found a cut tries no other by any move."""

AGAIN = 6_000
"""Work that is left for the points of the term as it is that may be computed again, however much
the cut before took. With 9,500, four of 16 gradients of random programs that took more than 23,000
before had 0.66 to 0.92 of the time."""

PAIRS = 36_000
"""Work of a forward and a backward that are planned together, after which no more arrays that may
be kept are looked at."""

OTHERS = 3_000
"""Work that is left for other terms, however much the best one took: one can take a ten-thousandth
of the time (of chains of products)."""

Move = Literal["as it is", "again", "other"]
"""How a search goes on that has found a cut: by other orders and more points of the term as it is,
by points of it that are computed again, or by other terms."""

LEFT_OUT: Mapping[Move, str] = {
    "as it is": "no other orders of points, and no more points, of the term as is were tried",
    "again": "no points of the term as is were computed again",
    "other": "no other orders, points or terms were tried",
}
"""What a search leaves out that does not go on so."""

COUNTED = 2**26
"""Positions of arrays that count visited chunks, over the settings of one kernel, about: these take
some 3 seconds."""

BOUNDED = (
    "the search is bounded: of each number of values of a group and of a chunk, those for which "
    "groups ask for the fewest values are priced"
)
"""Why settings are left out where a kernel has more than are priced."""


@dataclass
class Effort:
    """What a search has done.

    Attributes:
        priced: settings.
        begun: kernels that are labelled, and labelled ones of which settings are priced.
        since: the work after which the move began by which cuts are tried.
        thinned: whether some segment was tried in fewer labellings or numbers of parts than may
            pay.
        stopped: the amounts of work after which some cut was not tried, and what cut.
    """

    priced: int = 0
    begun: int = 0
    since: int = 0
    thinned: bool = False
    stopped: set[tuple[int, str]] = field(default_factory=set[tuple[int, str]])

    def further(self) -> Effort:
        """That of a search after this one, of a diagram like its own: it is bounded by both."""
        return Effort(self.priced, self.begun)

    @property
    def work(self) -> int:
        """All of it, in settings that take as long to price: counts, so that one diagram has one
        plan on every computer."""
        return self.priced + BEGUN * self.begun

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
        most = AS_IT_IS if move == "as it is" else max(SPENT, self.since + left)
        if self.work < most:
            return ""
        self.stopped.add((most, LEFT_OUT[move]))
        return f"the search is bounded: the work of {most:,} settings is done"

    @property
    def bounded(self) -> bool:
        """Whether so many are priced that only few are of each further kernel."""
        return self.priced >= PRICED

    def most(self, positions: int) -> int:
        """Settings of the next kernel to price, about.

        Args:
            positions: of the arrays that count the chunks which a setting visits.
        """
        return min(FEW if self.bounded else MOST, max(1, COUNTED // max(positions, 1)))

    def counted(self, settings: Iterable[dict[str, int]]) -> Iterator[dict[str, int]]:
        """The settings, each counted as it is taken."""
        for tiles in settings:
            self.priced += 1
            yield tiles


def best_tiles(
    kernel: Kernel,
    sizes: Mapping[str, int],
    dtype: str,
    machine: Machine,
    effort: Effort | None = None,
    under: float = math.inf,
) -> Choice | None:
    """The best tiles for a labelled kernel, or None if none fits.

    Args:
        under: seconds; None may be the answer, too, where the best tiles take as many or more.
    """
    most = under * most_over(kernel, kernel.sized(sizes))
    return next(in_order(unpriced(kernel, sizes, dtype, machine, effort), most), None)


def in_order(found: Iterable[Unpriced], most: float = math.inf) -> Iterator[Choice]:
    """The settings of a labelled kernel whose operands fit, in the order of their rank, the best
    first (`napkin.plan.fitting` asks the compiler what it allocates beside operands).

    Tiles that must be flattened between loads and products come last, whatever their rank: Triton
    3.6 fails to compile some, and computes some wrongly where it stores them in boxes.

    Args:
        most: the first number of a rank, above which no more choices are wanted; while only such
            tiles are found, others are looked for whatever their rank.
    """
    folded: list[Choice] = []
    last = -1
    for i, choice in enumerate(in_rank(found, lambda: math.inf if folded else most)):
        program = program_of(choice)
        if flat(program):
            last = i
            yield resolved(choice, program)
            continue
        folded.append(resolved(choice, program))
        if i - last == TRIED:
            break
    yield from folded


def unpriced(
    kernel: Kernel,
    sizes: Mapping[str, int],
    dtype: str,
    machine: Machine,
    effort: Effort | None = None,
) -> Iterator[Unpriced]:
    """The settings of a labelled kernel, small tiles first; those have choices that fit by their
    operands.

    Args:
        effort: what the search for a diagram has priced, which is counted; by default nothing.
    """
    effort = effort or Effort()
    known = kernel.sized(sizes)
    effort.begun += 1
    tiles = Tiles(kernel, known, most=effort.most(positions(kernel, known)))
    settings = tiles.settings()
    if tiles.left_out and (tracer := active()) is not None:
        what = f"{kernel_text(kernel)}; of more than {tiles.most:,} settings"
        tracer.dropped("setting", what, BOUNDED)
    return Pricing(kernel, known, dtype, machine).unpriced(effort.counted(settings))


def flat(program: Program) -> bool:
    """Whether every product takes tiles of two dimensions as they are."""
    dots = (dot_of(program, n) for n in postorder(program.roots))
    return all(dot.flat for dot in dots if dot)


def program_of(choice: Choice) -> Program:
    """The loop program of a choice, whatever the type of its values."""
    return build(choice.kernel, choice.schedule)


def resolved(choice: Choice, program: Program) -> Choice:
    """A choice with what of its schedule serves its program."""
    return replace(choice, schedule=program.schedule)
