"""Series of kernels in place of one: parts and blocks of a streamed axis, and what joins their
states or begins with them; groups that add in memory, and what follows the sums."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from napkin.algebra.tracer import active, times
from napkin.count.residency import live_set
from napkin.derive.kernel import Kernel
from napkin.derive.label import reduced, weaved
from napkin.derive.rules.accumulate import ACCUMULATED, adding_parts, sums_along
from napkin.derive.rules.ahead import ahead, why_not_ahead
from napkin.derive.rules.block import blocked
from napkin.derive.rules.part import part_axis, parted, why_not_parted
from napkin.derive.rules.resume import RESUMED, why_not_resumed
from napkin.derive.rules.scan_parts import UNIT, scanned, why_not_scanned
from napkin.diagram.interface import Output
from napkin.ir.node import Node, postorder
from napkin.machine.machines import Machine
from napkin.settings.choice import Choice
from napkin.settings.climb import best_tiles
from napkin.settings.effort import Effort
from napkin.settings.labelled import least_seconds
from napkin.settings.labels import may_fit, summed_together
from napkin.settings.phrases import kernel_text
from napkin.settings.specialised import launched, may_specialise
from napkin.settings.tiles import MAX_GROUP
from napkin.timing.least_time import at_least

BLOCKS = (64, 128, 256)
"""Positions of a block of a folded axis that are tried: rows or columns of a matrix product."""

RUNS = (256, 512, 1024, 2048, 4096, 8192)
"""Positions of a block of a scan that are tried."""

FEW = 8
"""Values of a product for each of the states that its blocks are folded to, at least."""

FULL = 8
"""Groups of parts for each multiprocessor, at most."""

EVEN = (1, 2, 4)
"""Groups of parts for each multiprocessor that are tried beside powers of two in all, which leave
places idle: of the 264 for two groups, 256 parts leave 8."""


def part_numbers(whole: Choice, sizes: Mapping[str, int], machine: Machine) -> list[int]:
    """Into how many parts the stream of a kernel may be worth cutting: where its groups are fewer
    than multiprocessors, powers of two up to a few groups for each of them, and numbers that give
    each of them 1, 2 or 4 groups."""
    kernel, known = whole.kernel, whole.kernel.sized(sizes)
    tiles, groups = whole.schedule.tiles, _groups(whole, sizes)
    if not kernel.stream.axes or groups > machine.sms or why_not_in_parts(kernel):
        return []
    least = UNIT if why_not_parted(kernel) else tiles[kernel.stream.axes[0]]
    chunks = -(-known[kernel.stream.axes[0]] // least)
    groups = max(groups, 1)
    most = min(chunks, FULL * machine.sms // groups)
    even = [n * machine.sms // groups for n in EVEN if n * machine.sms % groups == 0]
    return sorted({n for n in (*(1 << i for i in range(1, 32)), *even) if 1 < n <= most})


def why_not_in_parts(kernel: Kernel) -> str:
    """The condition that fails for any parts of a kernel's stream; "" where none does. A stream
    whose parts cannot be merged may still be scanned in parts: the condition is then of that."""
    return why_not_parted(kernel) and why_not_scanned(kernel)


def _groups(whole: Choice, sizes: Mapping[str, int]) -> int:
    """How many groups a kernel has."""
    known, tiles = whole.kernel.sized(sizes), whole.schedule.tiles
    return math.prod(-(-known[a] // tiles[a]) for a in whole.kernel.group)


def runs_of(whole: Choice, sizes: Mapping[str, int], machine: Machine) -> list[int]:
    """The lengths of blocks in which a kernel's scan may be worth computing: where its groups are
    fewer than multiprocessors, those that make them more."""
    kernel, groups = whole.kernel, _groups(whole, sizes)
    if groups > machine.sms or why_not_resumed(kernel):
        return []
    return [n for n in RUNS if n < sizes[kernel.stream.axis]]


@dataclass(frozen=True, eq=False)
class Series:
    """Two kernels or three in place of one.

    Attributes:
        what: them in words.
        kernels: the kernels in the order they run: each stores states, or sums, for those after.
        sizes: the sizes that they are priced at.
    """

    what: str
    kernels: tuple[Kernel, ...]
    sizes: Mapping[str, int]


def in_parts(kernel: Kernel, sizes: Mapping[str, int], numbers: Iterable[int]) -> Iterator[Series]:
    """A kernel of parts and the one that merges them, for each number of parts; of a scan, the
    three that take parts of it."""
    made = scanned if why_not_parted(kernel) else parted
    for number in numbers:
        known = {**sizes, part_axis(kernel.stream.axis, number): number}
        what = f"{kernel_text(kernel)}; {number} parts of {kernel.stream.axis}"
        yield Series(what, made(kernel, number), known)


def adding_in_parts(
    kernel: Kernel, sizes: Mapping[str, int], numbers: Iterable[int], _: float = 0
) -> Iterator[Series]:
    """A kernel whose parts add in memory and the one that computes what follows, for each number of
    parts; none of a scan."""
    for number in () if why_not_parted(kernel) else numbers:
        known = {**sizes, part_axis(kernel.stream.axis, number): number}
        what = f"{kernel_text(kernel)}; {number} parts of {kernel.stream.axis} that add in memory"
        for both in adding_parts(kernel, number):
            yield Series(what, both, known)


def adding_in_groups(
    name: str,
    outputs: Sequence[Output],
    names: Mapping[Node, str],
    sizes: Mapping[str, int],
    machine: Machine,
    most: float,
) -> Iterator[Series]:
    """A kernel with groups along an axis that some outputs carry and others are summed over, and
    the one that computes what follows the sums, for each such axis and each axis to stream, or
    axes that are summed over together; none that takes `most` seconds in any case."""
    legal, every = weaved(outputs), dict.fromkeys(a for o in outputs for a in o.axes)
    for axis, least in least_adding(outputs, names, sizes, machine).items():
        cut = axis.split()
        carry = [o for o in outputs if {*cut} <= {*o.axes}]
        streams = dict.fromkeys(["", *reduced(outputs), *summed_together(carry)])
        for stream in streams if least < most else ():
            streamed = stream.split()
            if not {*cut, *legal}.isdisjoint(streamed):
                continue
            whole = [a for a in every if a not in {*cut, *streamed, *legal}]
            if not may_fit(outputs, whole, sizes):
                continue
            for found in ACCUMULATED.matches(name, outputs, names, axis, stream):
                both = ACCUMULATED.apply(found)
                what = f"{kernel_text(both[0])}; groups of {axis} that add in memory"
                yield Series(what, both, sizes)


def least_adding(
    outputs: Sequence[Output],
    names: Mapping[Node, str],
    sizes: Mapping[str, int],
    machine: Machine,
) -> dict[str, float]:
    """The axes that some outputs carry and others are summed over, with seconds that no kernel
    undercuts whose groups along it add in memory, with what comes before and after it. Where a key
    set may leave out chunks, that is what one group adds."""

    def seconds(axis: str, sums: Iterable[Node]) -> float:
        axes = axis.split()
        every = math.prod([-(-sizes[a] // MAX_GROUP) for a in axes])
        groups = {n: 1 if _in_key_set(n, axes) else every for n in sums}
        added = sum(count * math.prod(sizes[a] for a in n.axes) for n, count in groups.items())
        return 2 * at_least(machine, 0) + at_least(machine, 0, added=4 * added)

    return {axis: seconds(axis, sums) for axis, sums in sums_along(outputs, names)}


def _in_key_set(n: Node, axes: Collection[str]) -> bool:
    """Whether a term is computed of a key set over some of these axes."""
    return any(m.op == "keys" and not {*axes}.isdisjoint(m.axes) for m in postorder([n]))


def in_blocks(kernel: Kernel, sizes: Mapping[str, int]) -> Iterator[Series]:
    """A kernel that folds blocks of the streamed axis while it streams the depth of a product, and
    the one that merges their states, for each length of a block."""
    for inner, length in itertools.product(_depths(kernel, sizes), BLOCKS):
        if length >= sizes[kernel.stream.axis] or (made := blocked(kernel, inner, length)) is None:
            break
        yield Series(_blocks_text(kernel, length), made, sizes)


def in_runs(kernel: Kernel, sizes: Mapping[str, int], lengths: Iterable[int]) -> Iterator[Series]:
    """The kernels that scan the streamed axis in blocks, for each length of a block."""
    for length in lengths:
        for made in RESUMED.matches(kernel, length):
            yield Series(_blocks_text(kernel, length), RESUMED.apply(made), sizes)


def in_chunks_ahead(kernel: Kernel, sizes: Mapping[str, int]) -> Iterator[Series]:
    """The kernel that computes what all chunks give by themselves, and the one that carries the
    states; none where no positions of a chunk are paired."""
    twin = kernel.stream.twin
    if twin and not why_not_ahead(kernel):
        number = max(1, -(-sizes[twin.axis] // twin.length))
        what = f"{kernel_text(kernel)}; chunks of {twin.length} of {twin.axis} ahead"
        yield Series(what, ahead(kernel, number), {**sizes, part_axis(twin.axis, number): number})


def _blocks_text(kernel: Kernel, length: int) -> str:
    return f"{kernel_text(kernel)}; blocks of {length} of {kernel.stream.axis}"


def _depths(kernel: Kernel, sizes: Mapping[str, int]) -> list[str]:
    """The axes that a kernel holds whole as depth of a product whose result it folds to few values:
    only then do blocks store less than the product."""
    if why_not_parted(kernel):
        return []
    known, axis = kernel.sized(sizes), kernel.stream.axis
    states = sum(math.prod(known[a] for a in s.axes) for s in kernel.stream.states)
    found: dict[str, None] = {}
    for rows, columns, depth in live_set(kernel).products:
        own = math.prod(known[a] for a in {*rows, *columns} - {*depth, axis})
        if axis in {*rows, *columns} and states * FEW <= own * BLOCKS[-1]:
            found |= dict.fromkeys(a for a in depth if a in kernel.whole)
    return list(found)


def _alone(series: Series, dtype: str, machine: Machine, most: float) -> float:
    """Seconds that the first kernel may take as groups by themselves, for it to take `most`: any,
    where it may run as warpgroups."""
    return math.inf if may_specialise(series.kernels[0], dtype, machine) else most


def best_of_all(
    series: Series, dtype: str, machine: Machine, most: float, effort: Effort
) -> tuple[Choice, ...] | None:
    """The best tiles of the kernels. None where one does not fit, or they take `most` seconds or
    more: the tracer is told so."""
    on = series.sizes, dtype, machine
    least = [least_seconds(k, *on) for k in series.kernels]
    found, left = list[Choice](), most - sum(least)
    for kernel, own in zip(series.kernels, least, strict=True):
        if left <= 0:
            break
        under = left + own if found else _alone(series, dtype, machine, left + own)
        choice = best_tiles(kernel, *on, effort, under)
        if choice is None:
            break
        took = choice if found else launched(choice, dtype, machine)
        left -= took.time.seconds - own
        found.append(choice)
    if len(found) == len(series.kernels) and left > 0:
        return tuple(found)
    if (tracer := active()) is not None:
        why = "one of its kernels does not fit"
        if most < math.inf:
            why += f", or they do not take less than {times(most)}, below which they pay"
        tracer.dropped("kernel", series.what, why)
    return None
