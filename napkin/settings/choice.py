"""Settings of a kernel with what they are predicted to cost, the best first."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from napkin.derive.kernel import Kernel
from napkin.diagram.interface import Output
from napkin.ir.node import postorder
from napkin.lower.dots import dot_of
from napkin.lower.program import looped
from napkin.schedule import Schedule
from napkin.timing.execution import Execution, Time

DOUBT = 0.02
"""What a chunk twice as large is preferred by (1.4 %): what an iteration takes beside its work is
what the model knows least."""

ROW_DOUBT = 0.03
"""The same where nothing is multiplied: rows held whole against those that a loop reads. Softmax of
166,032 x 1,152 takes 264 to 297 us whole, 301 to 468 in chunks; variance of 49,760 x 2,304 88 to
100, and 93 to 127 (H100)."""


ROUNDED = 0.99
"""The first number of a rank over its seconds, at least (see `Choice.rank`)."""


@dataclass(frozen=True, eq=False)
class Choice:
    """Labels and schedule of one kernel, with what they are predicted to cost.

    Attributes:
        run: what its groups do, of which `time` is predicted.
        schedule: how it runs. The search asks for lanes and descriptors wherever they may serve;
            `napkin.settings.best.resolved` finds what of that serves it.
        outer: bytes from and to the outermost memory ("read", "write"), as its time has them.
        resident: groups that one multiprocessor holds at once.
    """

    kernel: Kernel
    schedule: Schedule
    sizes: Mapping[str, int]
    shared: int
    time: Time
    bytes: int
    run: Execution
    outer: Mapping[str, int] = field(default_factory=dict[str, int])
    resident: int = 1

    @property
    def origin(self) -> Sequence[Output]:
        """The terms that it computes, unstreamed."""
        return self.kernel.origin

    @cached_property
    def flat(self) -> bool:
        """Whether every product takes tiles of two dimensions as they are."""
        program = looped(self.kernel, self.schedule)
        dots = (dot_of(program, n) for n in postorder(program.roots))
        return all(dot.flat for dot in dots if dot)

    def under(self, **settings: Any) -> Choice:
        """The same labels under other settings of the schedule, with the predictions for its
        own."""
        return replace(self, schedule=replace(self.schedule, **settings))

    @cached_property
    def rank(self) -> tuple[float, ...]:
        """Smaller is better: time, of about equal ones the larger chunk (`DOUBT`, `ROW_DOUBT`),
        then fewer passes, fewer warps and more rows. Where lanes keep the folds, of settings that
        move as many bytes in about one time (1 %) the one with the fewest rows, then with no more
        lanes than threads: cross entropy of 8,192 rows of 32,000 classes took 196 us with 1 row of
        1,024, 207 with 8 of 256, 252 with 8 of 512 (H100)."""
        passes, tiles = len(self.kernel.stream.passes), self.schedule.tiles
        chunk = math.prod(tiles[a] for a in self.kernel.stream.axes)
        doubt = DOUBT if self.run.work["product"] else ROW_DOUBT
        seconds = self.time.seconds * iterations_of(self.kernel, self.sizes, tiles) ** doubt
        rows = math.prod(tiles[a] for a in self.kernel.group)
        if self.run.per_thread:
            return (math.exp(round(math.log(seconds), 2)), passes, rows, chunk)
        return (seconds, passes, -chunk, self.schedule.warps, -rows)


def iterations_of(kernel: Kernel, sizes: Mapping[str, int], tiles: Mapping[str, int]) -> float:
    """How often a chunk goes into what is streamed; 1 at least."""
    whole, chunk = (math.prod([of[a] for a in kernel.stream.axes]) for of in (sizes, tiles))
    return max(1.0, whole / chunk)


def most_over(kernel: Kernel, sizes: Mapping[str, int]) -> float:
    """The first number of a rank over its seconds, at most (see `Choice.rank`)."""
    longest = math.prod([sizes[a] for a in kernel.stream.axes])
    return max(1, longest) ** max(DOUBT, ROW_DOUBT) / ROUNDED


@dataclass(frozen=True, eq=False)
class Unpriced:
    """Tiles at which a kernel may fit.

    Attributes:
        least: a rank that no choice at these tiles comes before.
        settled: looks closer, and gives parts with ranks of their own; or prices them: it gives the
            best choice, and the best one of persistent program instances, where there may be some.
            It gives nothing where they do not fit, or a tensor is too large for Triton.
    """

    least: tuple[float, ...]
    settled: Callable[[], Iterator[Unpriced | Choice]]

    @cached_property
    def parts(self) -> list[Unpriced | Choice]:
        """Its choices, or parts that have some."""
        return list(self.settled())

    @property
    def choices(self) -> Iterator[Choice]:
        """The choices, each with its price."""
        for part in self.parts:
            yield from [part] if isinstance(part, Choice) else part.choices


def in_rank(
    found: Iterable[Unpriced], most: Callable[[], float] = lambda: math.inf
) -> Iterator[Choice]:
    """The choices in the order of their ranks, of equal ones the first; what cannot be next is not
    looked at.

    Args:
        most: gives the first number of a rank, above which no more choices are wanted.
    """
    heap: list[tuple[tuple[float, ...], tuple[int, ...], Unpriced | Choice]]
    heap = [(u.least, (i,), u) for i, u in enumerate(found)]
    heapq.heapify(heap)
    while heap:
        rank, place, next_ = heapq.heappop(heap)
        if rank[0] > most():
            return
        if isinstance(next_, Choice):
            yield next_
            continue
        for i, part in enumerate(next_.parts):
            rank = part.rank if isinstance(part, Choice) else part.least
            heapq.heappush(heap, (rank, (*place, i), part))
