"""Labels and tiles for one kernel on one machine: which axis to stream, and the integer optimum.

Every legal labelling is tried (`settings/labels.py`); for each, tiles that are powers of two
(`settings/tiles.py`) and that fit shared memory and registers. The least predicted time
(`settings/pricing.py`) wins, then the least traffic. A kernel with too few groups for the machine
may have its stream cut into parts, with a second kernel that merges them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from napkin.algebra.contraction import MIN_DOT
from napkin.algebra.tracer import active, times
from napkin.count.residency import chained, held
from napkin.derive.kernel import Kernel
from napkin.derive.rules.block import blocked
from napkin.derive.rules.part import part_axis, parted, why_not_parted
from napkin.diagram.interface import Output
from napkin.ir.node import Node, postorder
from napkin.lower.build import build
from napkin.lower.dots import dot_of
from napkin.lower.program import Program
from napkin.machine.machines import Machine
from napkin.settings.labelled import least_seconds
from napkin.settings.labels import labellings
from napkin.settings.phrases import kernel_text, labels_text, priced_text, way_text
from napkin.settings.pricing import Choice, Pricing
from napkin.settings.tiles import MOST, Tiles
from napkin.timing.kernel_time import at_least

PAYS = {"few": 0.8, "products": 0.85, "other": 0.5}
"""Share of a kernel's predicted time below which two that pass states are worth their workspace:
where its groups cannot be made more than multiprocessors by smaller tiles; of products alone, of
which smaller tiles read more (two in 2 to 8 parts took 0.97 to 1.27 of what was predicted, 1.1 on
average, H100); and where smaller tiles do."""

BLOCKS = (64, 128, 256)
"""Positions of a block of a folded axis that are tried: rows or columns of a matrix product."""

FEW = 8
"""Values of a product for each of the states that its blocks are folded to, at least."""

FULL = 8
"""Groups of parts for each multiprocessor, at most."""

TRIED = 40
"""Settings in turn that are passed over before no more of them are tried."""

BOUNDED = (
    "the search is bounded: of each number of values of a group and of a chunk, those for which "
    "groups ask for the fewest values are priced"
)
"""Why settings are left out where a kernel has more than `MOST`."""

ROUNDED = 0.99
"""A setting's rank over its seconds, at least (see `Choice.rank`)."""


class Search:
    """The ways to run a term as one kernel, or as one that folds parts of its streamed axis and one
    that merges them; each is tried when the answer needs it.

    Args:
        parts: the number of parts of an axis wherever it can be streamed in them, 1 for none; by
            default what is fastest.
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
    ) -> None:
        self.outputs, self.sizes, self.dtype, self.machine = outputs, sizes, dtype, machine
        self.parts = parts or {}
        self.kernels = list(labellings(name, outputs, names, sizes))
        self._priced: dict[Kernel, Iterator[Choice]] = {}

    @cached_property
    def least(self) -> float:
        """Seconds that no way undercuts."""
        return min(self._least.values(), default=math.inf)

    @cached_property
    def _least(self) -> dict[Kernel, float]:
        """Seconds that no way to run each labelled kernel undercuts."""
        place = self.sizes, self.dtype, self.machine
        return {k: least_seconds(k, *place) for k in self.kernels}

    @cached_property
    def fits(self) -> bool:
        """Whether some setting fits, whatever it costs."""
        plain = [k for k in self.kernels if self.parts.get(k.stream.axis, 1) == 1]
        return any(self._some_fit(k) for k in plain) or bool(self.best)

    def _some_fit(self, kernel: Kernel) -> bool:
        """Whether one of the first settings of a labelled kernel fits by its operands."""
        every = choices(kernel, self.sizes, self.dtype, self.machine)
        first, self._priced[kernel] = itertools.tee(every)
        tried = itertools.islice(first, TRIED)
        return any(resolved(c, program_of(c)) for c in tried)

    def _best_tiles(self, kernel: Kernel) -> Choice | None:
        """The best tiles for a labelled kernel, or None if none fits; what `fits` has priced is not
        priced again."""
        found = self._priced.pop(kernel, None)
        if found is None:
            return best_tiles(kernel, self.sizes, self.dtype, self.machine)
        return next(_ranked(found), None)

    @cached_property
    def best(self) -> tuple[Choice, ...]:
        """The best way; nothing if there is none that fits. One whose products take tiles as they
        are comes first, if there is one (see `ranked`)."""
        place = self.sizes, self.dtype, self.machine
        ways: list[tuple[Choice, ...]] = []
        for kernel in filter(self._in_parts, self.kernels):
            ways += in_parts(kernel, *place, [self.parts[kernel.stream.axis]], math.inf)
        asked = bool(ways)
        ways = ways or self._plain()
        best = min([w for w in ways if _flat(w)] or ways, key=_rank, default=())
        self._tell(ways, best, asked)
        return best

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
                _tell_unpriced(kernel, self._least[kernel], best)

    def _in_parts(self, kernel: Kernel) -> bool:
        """Whether a number of parts is asked of a kernel, which can be cut in them."""
        return self.parts.get(kernel.stream.axis, 1) > 1 and not why_not_parted(kernel)

    def _plain(self) -> list[tuple[Choice, ...]]:
        """The ways for which no number of parts is asked; none of a kernel that takes longer, at
        its least, than another's products do that take tiles as they are."""
        found: dict[Kernel, list[tuple[Choice, ...]]] = {}
        fastest = math.inf
        for kernel in sorted(self.kernels, key=self._least.__getitem__):
            if self._least[kernel] * ROUNDED <= fastest and not self._in_parts(kernel):
                found[kernel] = self._of(kernel)
                ranks = (_rank(w)[0] for w in found[kernel] if _flat(w))
                fastest = min(fastest, *ranks, math.inf)
        return [w for k in self.kernels for w in found.get(k, [])]

    def _of(self, kernel: Kernel) -> list[tuple[Choice, ...]]:
        """The best tiles of a labelled kernel, and those of its parts where that may pay."""
        sizes, dtype, machine = self.sizes, self.dtype, self.machine
        whole = self._best_tiles(kernel)
        if kernel.stream.axis in self.parts:
            return [(whole,)] if whole else []
        if whole is None:
            return in_blocks(kernel, sizes, dtype, machine, math.inf)
        numbers = part_numbers(whole, sizes, machine)
        most = PAYS[_kind(whole, sizes, machine)] * whole.time.seconds
        parts = in_parts(kernel, sizes, dtype, machine, numbers, most)
        return [(whole,), *parts, *in_blocks(kernel, sizes, dtype, machine, most)]


def _labels(kernel: Kernel) -> object:
    """What of a kernel stays as it is where its stream is cut in parts."""
    return kernel.stream.axes, len(kernel.stream.passes), kernel.splits


def _tell_way(way: Sequence[Choice], best: Sequence[Choice]) -> None:
    if (tracer := active()) is None:
        return
    tracer.considered("kernel", priced_text(way), _seconds(way))
    if way is not best:
        winner = labels_text(best[0].kernel)
        why = f"{times(_seconds(way))}, and {winner} takes {_beside(way, best)}"
        tracer.dropped("kernel", way_text(way), why)


def _beside(way: Sequence[Choice], best: Sequence[Choice]) -> str:
    """The time of the best way, and why it is before one that takes less."""
    time = times(_seconds(best))
    if _flat(best) and not _flat(way):
        return f"{time} with products that take tiles as they are"
    if _seconds(way) <= _seconds(best):
        return f"{time}, alike for all that the prediction tells, and is preferred for its tiles"
    return time


def _tell_unpriced(kernel: Kernel, least: float, best: Sequence[Choice]) -> None:
    if (tracer := active()) is None:
        return
    why = "no setting fits the registers and the shared memory of a group"
    if best and _flat(best) and least * ROUNDED > _rank(best)[0]:
        winner = labels_text(best[0].kernel)
        why = f"{times(least)} at least, and {winner} takes {times(_seconds(best))}"
    tracer.dropped("kernel", kernel_text(kernel), why)


def _seconds(way: Sequence[Choice]) -> float:
    return sum(c.time.seconds for c in way)


def _rank(choices: Sequence[Choice]) -> tuple[float, ...]:
    return (sum(c.rank[0] for c in choices), *choices[0].rank[1:])


def _flat(choices: Sequence[Choice]) -> bool:
    """Whether every product of some kernels takes tiles of two dimensions as they are."""
    return all(flat(program_of(c)) for c in choices)


def _kind(whole: Choice, sizes: Mapping[str, int], machine: Machine) -> str:
    """Which of `PAYS` a kernel is: "few" where even groups of the fewest rows of a matrix product
    leave multiprocessors idle."""
    known, kernel = whole.kernel.sized(sizes), whole.kernel
    groups = math.prod(-(-known[a] // min(whole.schedule.tiles[a], MIN_DOT)) for a in kernel.group)
    if groups < machine.sms:
        return "few"
    return "products" if held(kernel).products and not chained(kernel) else "other"


def part_numbers(whole: Choice, sizes: Mapping[str, int], machine: Machine) -> list[int]:
    """Into how many parts the stream of a kernel may be worth cutting: where its groups are fewer
    than multiprocessors, powers of two up to a few groups for each of them."""
    kernel, known = whole.kernel, whole.kernel.sized(sizes)
    tiles = whole.schedule.tiles
    groups = math.prod(-(-known[a] // tiles[a]) for a in kernel.group)
    if not kernel.stream.axes or groups > machine.sms or why_not_parted(kernel):
        return []
    chunks = -(-known[kernel.stream.axes[0]] // tiles[kernel.stream.axes[0]])
    most = min(chunks, FULL * machine.sms // max(groups, 1))
    return [1 << i for i in range(1, most.bit_length())]


def in_parts(
    kernel: Kernel,
    sizes: Mapping[str, int],
    dtype: str,
    machine: Machine,
    numbers: Iterable[int],
    most: float,
) -> list[tuple[Choice, Choice]]:
    """The best tiles of both kernels for each number of parts, where both fit and take less than
    `most` seconds together."""
    if most <= 2 * at_least(machine, 0):
        return []
    out: list[tuple[Choice, Choice]] = []
    for number in numbers:
        known = {**sizes, part_axis(kernel.stream.axis, number): number}
        found = _both(*parted(kernel, number), known, dtype, machine, most)
        if found is None:
            _tell_both(f"{kernel_text(kernel)}; {number} parts of {kernel.stream.axis}", most)
        else:
            out.append(found)
    return out


def in_blocks(
    kernel: Kernel, sizes: Mapping[str, int], dtype: str, machine: Machine, most: float
) -> list[tuple[Choice, Choice]]:
    """The best tiles of a kernel that folds blocks of the streamed axis while it streams the depth
    of a product, and of the one that merges their states, for each length of a block; where both
    fit and take less than `most` seconds together."""
    out: list[tuple[Choice, Choice]] = []
    for inner, length in itertools.product(_depths(kernel, sizes), BLOCKS):
        if length >= sizes[kernel.stream.axis] or (made := blocked(kernel, inner, length)) is None:
            break
        found = _both(*made, sizes, dtype, machine, most)
        if found is None:
            _tell_both(f"{kernel_text(kernel)}; blocks of {length} of {kernel.stream.axis}", most)
        else:
            out.append(found)
    return out


def _depths(kernel: Kernel, sizes: Mapping[str, int]) -> list[str]:
    """The axes that a kernel holds whole as depth of a product whose result it folds to few values:
    only then do blocks store less than the product."""
    if why_not_parted(kernel):
        return []
    known, axis = kernel.sized(sizes), kernel.stream.axis
    states = sum(math.prod(known[a] for a in s.axes) for s in kernel.stream.states)
    found: dict[str, None] = {}
    for rows, columns, depth in held(kernel).products:
        own = math.prod(known[a] for a in {*rows, *columns} - {*depth, axis})
        if axis in {*rows, *columns} and states * FEW <= own * BLOCKS[-1]:
            found |= dict.fromkeys(a for a in depth if a in kernel.whole)
    return list(found)


def _both(
    parts: Kernel,
    merge: Kernel,
    known: Mapping[str, int],
    dtype: str,
    machine: Machine,
    most: float,
) -> tuple[Choice, Choice] | None:
    """The best tiles of a kernel of parts and of the one that merges them; None where one does not
    fit, or both take `most` seconds or more."""
    merging = least_seconds(merge, known, dtype, machine)
    if least_seconds(parts, known, dtype, machine) + merging >= most:
        return None
    first = best_tiles(parts, known, dtype, machine)
    if first is None or first.time.seconds + merging >= most:
        return None
    second = best_tiles(merge, known, dtype, machine)
    if second is None or first.time.seconds + second.time.seconds >= most:
        return None
    return first, second


def _tell_both(what: str, most: float) -> None:
    """Report parts or blocks of a kernel's stream that do not pay, or do not fit, to the tracer."""
    if (tracer := active()) is not None:
        why = "one of both kernels does not fit"
        if most < math.inf:
            why += f", or they do not take less than {times(most)}, below which they pay"
        tracer.dropped("kernel", what, why)


def best_tiles(
    kernel: Kernel, sizes: Mapping[str, int], dtype: str, machine: Machine
) -> Choice | None:
    """The best tiles for a labelled kernel, or None if none fits."""
    return next(ranked(kernel, sizes, dtype, machine), None)


def ranked(
    kernel: Kernel, sizes: Mapping[str, int], dtype: str, machine: Machine
) -> Iterator[Choice]:
    """The settings of a labelled kernel whose operands fit, in the order of their rank, the best
    first (`napkin.plan.fitting` asks the compiler what it allocates beside operands).

    Tiles that must be flattened between loads and products come last, whatever their rank: Triton
    3.6 fails to compile some, and computes some wrongly where it stores them in boxes.
    """
    return _ranked(choices(kernel, sizes, dtype, machine))


def _ranked(found: Iterable[Choice]) -> Iterator[Choice]:
    """Settings as `ranked` gives them."""
    refused = 0
    folded: list[Choice] = []
    for choice in sorted(found, key=lambda c: c.rank):
        program = program_of(choice)
        if not flat(program):
            folded.append(choice)
        elif (fitting := resolved(choice, program)) is not None:
            refused = 0
            yield fitting
            continue
        if (refused := refused + 1) == TRIED:
            break
    for choice in folded:
        if (fitting := resolved(choice, program_of(choice))) is not None:
            yield fitting


def choices(
    kernel: Kernel, sizes: Mapping[str, int], dtype: str, machine: Machine
) -> Iterator[Choice]:
    """The settings of a labelled kernel that fit by their operands, small tiles first."""
    known, levels = kernel.sized(sizes), held(kernel)
    tiles = Tiles(kernel, known, levels)
    settings = tiles.settings()
    if tiles.left_out and (tracer := active()) is not None:
        tracer.dropped("setting", f"{kernel_text(kernel)}; of more than {MOST:,} settings", BOUNDED)
    return Pricing(kernel, known, levels, dtype, machine).choices(settings)


def flat(program: Program) -> bool:
    """Whether every product takes tiles of two dimensions as they are."""
    dots = (dot_of(program, n) for n in postorder(program.roots))
    return all(dot.flat for dot in dots if dot)


def program_of(choice: Choice) -> Program:
    """The loop program of a choice, whatever the type of its values."""
    return build(choice.kernel, choice.schedule)


def resolved(choice: Choice, program: Program) -> Choice | None:
    """A choice with what of its schedule serves its program; None where its instances are
    persistent and there is one group alone, or a streamed operand comes in no box."""
    kernel = choice.kernel
    streamed = {a.leaf for a in kernel.reads if kernel.stream.carried(a.leaf.axes)}
    if choice.schedule.persistent and not (kernel.group and streamed <= program.boxes.keys()):
        return None
    return replace(choice, schedule=program.schedule)
