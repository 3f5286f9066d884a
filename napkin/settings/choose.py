"""Labels and tiles for one kernel on one machine: which axis to stream, and the integer optimum.

Every legal labelling is tried (`settings/labels.py`); for each, tiles that are powers of two
(`settings/tiles.py`) and that fit shared memory and registers. The least predicted time
(`settings/choice.py`) wins, then the least traffic. A kernel with too few groups for the machine
may have its stream cut into parts, with a second kernel that merges them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial

from napkin.algebra.contraction import MIN_DOT
from napkin.algebra.tracer import active, times
from napkin.count.residency import chained, live_set
from napkin.derive.kernel import Kernel
from napkin.diagram.interface import Output
from napkin.ir.node import Node
from napkin.machine.machines import Machine
from napkin.settings.best import unpriced
from napkin.settings.choice import ROUNDED, Choice
from napkin.settings.climb import best_tiles
from napkin.settings.effort import LABELLINGS, Effort
from napkin.settings.labelled import least_moving, least_seconds
from napkin.settings.labels import labellings
from napkin.settings.phrases import kernel_text, labels_text, priced_text, way_text
from napkin.settings.series import (
    Series,
    adding_in_groups,
    adding_in_parts,
    best_of_all,
    in_blocks,
    in_chunks_ahead,
    in_parts,
    in_runs,
    least_adding,
    part_numbers,
    runs_of,
    why_not_in_parts,
)
from napkin.settings.specialised import launched
from napkin.timing.least_time import at_least

PAYS = {"few": 0.8, "products": 0.85, "other": 0.6, "pairs": 0.75, "ahead": 0.95}
"""Share of a kernel's predicted time below which two that pass states are worth their workspace:
where its groups cannot be made more than multiprocessors by smaller tiles; of products alone, of
which smaller tiles read more (two in 2 to 8 parts took 0.97 to 1.27 of what was predicted, 1.1 on
average, H100); where smaller tiles do; of positions in pairs (three scans in 4 parts took 0.96 to
1.35 of what was predicted, H200); and where one of them computes chunks ahead (of seven scans
these took 0.75 to 1.16 of what was predicted, one kernel in their place 0.76 to 1.21, H200)."""

ADDS = 0.9
"""Share of the predicted time of other ways below which groups add in memory: then two runs may
differ in their last bits."""

LEFT = f"the search is bounded: {LABELLINGS} labellings that fit are priced by now"
UNFIT = "no setting fits the registers and the shared memory of a group"

HAIR = 1 + 1e-9
"""Times a bound that rounding does not reach."""


class Search:
    """The ways to run a term as one kernel, or as one that folds parts of its streamed axis and one
    that merges them; each is tried when the answer needs it.

    Args:
        parts: the number of parts of an axis wherever it can be streamed in them, 1 for none; by
            default what is fastest.
        deterministic: whether no groups may add in memory.
        effort: what the search for a diagram has done; by default nothing.
    """

    def __init__(
        self,
        name: str,
        outputs: Sequence[Output],
        names: Mapping[Node, str],
        sizes: Mapping[str, int],
        dtype: str,
        machine: Machine,
        parts: Mapping[str, int] | None = None,
        effort: Effort | None = None,
        deterministic: bool = True,
    ) -> None:
        self.effort = effort or Effort()
        self.outputs, self.sizes, self.dtype, self.machine = outputs, sizes, dtype, machine
        self.parts = parts or {}
        self.deterministic = deterministic
        self.terms = name, outputs, names, sizes
        self._refused = set[object]()
        self._left = set[Kernel]()

    @cached_property
    def kernels(self) -> Sequence[Kernel]:
        """The labelled kernels."""
        return list(labellings(*self.terms, self.dtype, self.effort))

    @property
    def priced(self) -> bool:
        """Whether the best way is known."""
        return "best" in self.__dict__

    def leave_out(self, kernel: Kernel) -> None:
        """Leave out the ways with the labels of a kernel, which the compiler refuses."""
        self._refused.add(_labels(kernel))
        self.kernels = [k for k in self.kernels if _labels(k) not in self._refused]
        for known in ("least", "_least", "fits", "best"):
            self.__dict__.pop(known, None)

    @cached_property
    def moving(self) -> float:
        """Seconds that no way undercuts, known before any is labelled: where a term does not depend
        on a tensor that it reads, ways without that are left aside."""
        return least_moving(self.outputs, self.sizes, self.dtype, self.machine)

    @cached_property
    def least(self) -> float:
        """Seconds that no way undercuts."""
        least = [] if self.deterministic else least_adding(*self.terms[1:], self.machine).values()
        return min((*self._least.values(), *least), default=math.inf)

    @cached_property
    def _least(self) -> dict[Kernel, float]:
        """Seconds that no way to run each labelled kernel undercuts."""
        on = self.sizes, self.dtype, self.machine
        return {k: least_seconds(k, *on) for k in self.kernels}

    @cached_property
    def fits(self) -> bool:
        """Whether some setting fits, whatever it costs."""
        plain = [k for k in self.kernels if self.parts.get(k.stream.axis, 1) == 1]
        if any(self._some_fit(k) for k in plain):
            return True
        series = adding_in_groups(*self.terms, self.machine, math.inf) if self._may_add else ()
        return any(self._some_fit(s.kernels[0]) for s in series) or bool(self.best)

    @property
    def _may_add(self) -> bool:
        """Whether groups that add in memory are tried."""
        return not self.deterministic and self.effort.adds

    def _some_fit(self, kernel: Kernel) -> bool:
        """Whether a setting of a labelled kernel fits by its operands, and has tensors that Triton
        takes."""
        every = unpriced(kernel, self.sizes, self.dtype, self.machine)
        return any(True for u in every for _ in u.choices)

    def _best_tiles(self, kernel: Kernel) -> Choice | None:
        """The best tiles for a labelled kernel, or None if none fits."""
        return best_tiles(kernel, self.sizes, self.dtype, self.machine, self.effort)

    @cached_property
    def best(self) -> tuple[Choice, ...]:
        """The best way; nothing if there is none that fits. One whose products take tiles as they
        are comes first, if there is one (see `in_order`). Several kernels take less than one does,
        or add in memory, which pays more as warpgroups (see `_rank`)."""
        ways: list[tuple[Choice, ...]] = []
        for kernel in filter(self._in_parts, self.kernels):
            number = [self.parts[kernel.stream.axis]]
            found = self._of_series(in_parts(kernel, self.sizes, number), math.inf)
            ways += found
            ways += self._adding(found, partial(adding_in_parts, kernel, self.sizes, number))
        if not (asked := bool(ways)):
            ways = self._plain()
            ways += self._adding(ways, partial(adding_in_groups, *self.terms, self.machine))
        ways = [w for w in ways if self._refused.isdisjoint(_labels(c.kernel) for c in w)]
        among = [w for w in ways if _flat(w)] or ways
        one = min((_seconds(w) for w in among if len(w) == 1), default=math.inf)
        among = [w for w in among if len(w) == 1 or _seconds(w) < one or _adds(w)]
        best = min(among, key=self._rank, default=())
        self._tell(ways, best, asked)
        return best

    def _rank(self, way: Sequence[Choice]) -> tuple[float, ...]:
        """The rank of a way; groups that add in memory as they run: as warpgroups, which add in
        bulk, they take half as long."""
        added = (c.kernel.added for c in way)
        pairs = zip(way, added, strict=True)
        return _rank([launched(c, self.dtype, self.machine) if a else c for c, a in pairs])

    def _tell(
        self, ways: Sequence[tuple[Choice, ...]], best: tuple[Choice, ...], asked: bool
    ) -> None:
        """Report the ways that were priced to the tracer, and why the others were not taken; where
        parts are `asked` for, others were not tried."""
        if active() is None:
            return
        for way in ways:
            _tell_way(way, best)
        if asked:
            return
        priced = {_labels(c.kernel) for way in ways for c in way}
        for kernel in self.kernels:
            if _labels(kernel) not in priced:
                left = kernel in self._left
                _tell_unpriced(kernel, self._least[kernel], best, LEFT if left else UNFIT)

    def _in_parts(self, kernel: Kernel) -> bool:
        """Whether a number of parts is asked of a kernel, which can be cut in them."""
        return self.parts.get(kernel.stream.axis, 1) > 1 and not why_not_in_parts(kernel)

    def _plain(self) -> list[tuple[Choice, ...]]:
        """The ways for which no number of parts is asked; none of a kernel that takes longer, at
        its least, than another's products do that take tiles as they are, and few of a search that
        narrows."""
        found: dict[Kernel, list[tuple[Choice, ...]]] = {}
        fastest = bar = math.inf
        for kernel in sorted(self.kernels, key=self._least.__getitem__):
            fit = sum(any(map(_flat, ways)) for ways in found.values())
            if self.effort.narrows(fit >= LABELLINGS):
                self._left = {*self.kernels} - found.keys()
                break
            if self._least[kernel] * ROUNDED <= fastest and not self._in_parts(kernel):
                found[kernel] = self._of(kernel, bar)
                ranks = (_rank(w)[0] for w in found[kernel] if _flat(w))
                fastest = min(fastest, *ranks, math.inf)
                bar = self._bar(found[kernel], bar)
        return [w for k in self.kernels for w in found.get(k, [])]

    def _bar(self, ways: Iterable[Sequence[Choice]], bar: float = math.inf) -> float:
        """Seconds from which on a way is behind one of these in `best`, or behind another that is
        known to set `bar`."""
        flat = (w for w in ways if _flat(w))
        return min([bar, *(HAIR * max(self._rank(w)[0] / ROUNDED, _seconds(w)) for w in flat)])

    def _of(self, kernel: Kernel, bar: float) -> list[tuple[Choice, ...]]:
        """The best tiles of a labelled kernel, and those of its parts where that may pay.

        Args:
            bar: seconds from which on a way is behind those of other kernels.
        """
        sizes, machine = self.sizes, self.machine
        whole = self._best_tiles(kernel)
        if kernel.stream.axis in self.parts:
            return [(whole,)] if whole else []
        if whole is None:
            return self._of_series(in_blocks(kernel, sizes), math.inf)
        most = PAYS[_kind(whole, sizes, machine)] * whole.time.seconds
        may_pay = most > 2 * at_least(machine, 0)
        parts = part_numbers(whole, sizes, machine) if may_pay else []
        # The most, which are mostly the fastest, and a quarter of them.
        parts = parts[-1::-2][:2] if self.effort.narrows(len(parts) > 2) else parts
        runs = runs_of(whole, sizes, machine) if may_pay else []
        series = itertools.chain(
            in_parts(kernel, sizes, parts),
            in_blocks(kernel, sizes),
            in_runs(kernel, sizes, runs),
        )
        own = self._bar([(whole,)])
        # Where groups may add, the fastest of these says below what that pays.
        behind = min(own, bar) if self.deterministic else own
        found = [(whole,), *self._of_series(series, most, behind)]
        if may_pay:
            most = PAYS["ahead"] * whole.time.seconds
            found += self._of_series(in_chunks_ahead(kernel, sizes), most, behind)
        return found + self._adding(found, partial(adding_in_parts, kernel, sizes, parts), bar)

    def _adding(
        self,
        ways: Sequence[tuple[Choice, ...]],
        series: Callable[[float], Iterable[Series]],
        bar: float = math.inf,
    ) -> list[tuple[Choice, ...]]:
        """The ways whose groups add in memory and that take clearly less than others.

        Args:
            series: gives kernels that may take less than so many seconds.
            bar: seconds from which on a way is behind others, beside these.
        """
        if not self._may_add:
            return []
        most = ADDS * min(map(_seconds, ways), default=math.inf)
        return self._of_series(series(most), most, self._bar(ways, bar))

    def _of_series(
        self, series: Iterable[Series], most: float, bar: float = math.inf
    ) -> list[tuple[Choice, ...]]:
        """The best tiles of series of kernels that take less than `most` seconds together, and that
        are behind neither each other nor what sets `bar`. Of parts the most are tried first: they
        are mostly the fastest, and the others then behind."""
        every, found = [*series], dict[Series, tuple[Choice, ...]]()
        for one in sorted(every, key=lambda p: -p.sizes.get(p.kernels[0].part, 0)):
            under = min(most, bar)
            made = best_of_all(one, self.dtype, self.machine, under, self.effort)
            if made is not None:
                found[one] = made
                bar = self._bar([made], bar)
        return [found[p] for p in every if p in found]


def _labels(kernel: Kernel) -> object:
    """What of a kernel stays as it is where its stream is cut in parts."""
    return kernel.stream.axes, len(kernel.stream.passes), kernel.splits


def _tell_way(way: Sequence[Choice], best: Sequence[Choice]) -> None:
    if (tracer := active()) is None:
        return
    tracer.considered("kernel", priced_text(way), _seconds(way))
    if way is not best:
        winner = labels_text(best[0].kernel)
        why = f"{times(_seconds(way))}, and {winner} takes {_best_time(way, best)}"
        tracer.dropped("kernel", way_text(way), why)


def _best_time(way: Sequence[Choice], best: Sequence[Choice]) -> str:
    """The time of the best way, and why it is before one that takes less."""
    time = times(_seconds(best))
    if _flat(best) and not _flat(way):
        return f"{time} with products that take tiles as they are"
    if _seconds(way) <= _seconds(best):
        return f"{time}, alike for all that the prediction tells, and is preferred for its tiles"
    return time


def _tell_unpriced(kernel: Kernel, least: float, best: Sequence[Choice], why: str) -> None:
    if (tracer := active()) is None:
        return
    if best and _flat(best) and least * ROUNDED > _rank(best)[0]:
        winner = labels_text(best[0].kernel)
        why = f"{times(least)} at least, and {winner} takes {times(_seconds(best))}"
    tracer.dropped("kernel", kernel_text(kernel), why)


def _seconds(way: Sequence[Choice]) -> float:
    return sum(c.time.seconds for c in way)


def _rank(choices: Sequence[Choice]) -> tuple[float, ...]:
    return (sum(c.rank[0] for c in choices), *choices[0].rank[1:])


def _adds(way: Sequence[Choice]) -> bool:
    return any(c.kernel.added for c in way)


def _flat(choices: Sequence[Choice]) -> bool:
    """Whether every product of some kernels takes tiles of two dimensions as they are."""
    return all(c.flat for c in choices)


def _kind(whole: Choice, sizes: Mapping[str, int], machine: Machine) -> str:
    """Which of `PAYS` a kernel is: "few" where even groups of the fewest rows of a matrix product
    leave multiprocessors idle."""
    known, kernel = whole.kernel.sized(sizes), whole.kernel
    groups = math.prod(-(-known[a] // min(whole.schedule.tiles[a], MIN_DOT)) for a in kernel.group)
    if groups < machine.sms:
        return "few"
    if kernel.twins:
        return "pairs"
    added_up = live_set(kernel).products and not chained(kernel, stored=False)
    return "products" if added_up else "other"
