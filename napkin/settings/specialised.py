"""Whether the groups of a kernel run as warpgroups that share what they stream, and how many do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from napkin.algebra.terms import is_operand
from napkin.algebra.tracer import active, times
from napkin.count.residency import live_set
from napkin.count.traffic import ITEM_BYTES
from napkin.derive.kernel import Kernel
from napkin.errors import Refusal
from napkin.ir.storage import own_type
from napkin.lower.build import build
from napkin.lower.descriptors import ITEM
from napkin.lower.launch import served
from napkin.lower.parameters import Written
from napkin.lower.program import Program
from napkin.lower.warpgroups.cta import ROWS, SpecialisedCta
from napkin.lower.warpgroups.resources import register_budget, registers_of, shared_of
from napkin.lower.warpgroups.whether import gluon_lacks, why_not
from napkin.lower.warpgroups.write_gluon import write_cta
from napkin.machine.machines import Machine
from napkin.schedule import specialised
from napkin.settings.choice import Choice
from napkin.settings.phrases import kernel_text
from napkin.settings.pricing import Pricing
from napkin.settings.tiles import Tiles, power_of_two
from napkin.target import LINE

COOPERATIVE = (2, 3)
"""Warpgroups of a cooperative kernel; where each adds up what it computes of products, the first
number: three of 64 x 64 took 1.1 to 1.6 times as long as two of 64 x 128 (fp8, H100)."""

PING_PONG = 2
"""Warpgroups of a ping-pong kernel: while one multiplies, the other has as long to finish."""

STAGES = 2
"""Chunks in shared memory: more of them changed nothing, in 14 problems of attention by at most
1.5 % (H100)."""

DEEPEST = 6
"""Chunks of sums in shared memory, at most."""

CHUNKS = (128, 64)
"""Values of a chunk: the most that fit. Attention over 16,384 keys with 128 values a head took
3,288 us with 128 in two warpgroups, 3,838 with 64; causal 1,683 and 1,967, and 1,931 with 64 in
three (H100)."""

LEVEL, LONG = 1.03, 100e-6
"""Times that a warp-specialised CTA of sums may be predicted to take, over its groups by
themselves, to be taken,
and seconds from which that is so: of 5 products of 150 us and more that were taken so,
warp-specialised CTAs took 0.91 to 1.00 times as long; one of 14 us took 1.05 (H100)."""

BLOCKS = (0, 4, 8, 16)
"""Rows of groups in a block that warp-specialised CTAs of sums are tuned over, predicted to take as
long. With these the first 14 settings have one within 1 % of the best of 9 to 24 on record, for 22
of 24 products (H100)."""

RESULTS = tuple(ROWS << n for n in range(6, 9))
"""Values of a group of sums: up to a product of 64 rows and 256 columns, or of 128 and 128."""


def cta_of(choice: Choice) -> SpecialisedCta:
    """The warp-specialised CTA of a choice that has one."""
    return SpecialisedCta(build(choice.kernel, choice.schedule, ITEM))


def best_specialised(alone: Choice, dtype: str, machine: Machine) -> Choice | None:
    """The warp-specialised CTA that is predicted to take least; None where groups by themselves are
    as fast, or where the kernel does not run as warpgroups."""
    if not _may(alone, dtype, machine):
        return None
    most = alone.time.seconds
    if not alone.run.chained and most >= LONG:
        most *= LEVEL
    for found in specialised_choices(alone.kernel, alone.sizes, dtype, machine):
        found.sort(key=lambda c: c.rank)
        best = next(that_run((c for c in found if c.time.seconds < most), machine), None)
        _tell(alone, found, best)
        return best
    return None


def _tell(alone: Choice, found: Sequence[Choice], best: Choice | None) -> None:
    """Report the warp-specialised CTAs of a kernel, and why others are taken."""
    if (tracer := active()) is None:
        return
    for c in found:
        tracer.considered("setting", _text(c), c.time.seconds)
        if best is None or c.schedule != best.schedule:
            taken = "the best such CTA takes" if best else "groups by themselves take"
            why = f"{times(c.time.seconds)}, and {taken} {times((best or alone).time.seconds)}"
            tracer.dropped("setting", _text(c), why)


def _text(choice: Choice) -> str:
    return f"{kernel_text(choice.kernel)}; {choice.schedule}"


@lru_cache(maxsize=256)
def launched(alone: Choice, dtype: str, machine: Machine) -> Choice:
    """A kernel as it runs on tensors that descriptors serve, as the search prices it. Of kernels
    that only add products up, warp-specialised CTAs take about as long: they are priced as they
    are."""
    found = best_specialised(alone, dtype, machine) if alone.run.chained else None
    return found or alone


def every_specialised(alone: Choice, dtype: str, machine: Machine) -> Iterator[Choice]:
    """The warp-specialised CTAs of a kernel that fit and can be written, least predicted time
    first; those of sums with other rows of groups in a block, too."""
    if not _may(alone, dtype, machine):
        return
    found = [
        c for part in specialised_choices(alone.kernel, alone.sizes, dtype, machine) for c in part
    ]
    sums = [c for c in found if not c.run.chained]
    found += [c.under(swizzle=n) for c in sums for n in BLOCKS if n != c.schedule.swizzle]
    yield from that_run(sorted(found, key=lambda c: c.rank), machine)


def _may(alone: Choice, dtype: str, machine: Machine) -> bool:
    """Whether a kernel may run as warpgroups, and descriptors serve it; by itself it reads operands
    of 8 bits through none."""
    served = alone.schedule.described or any(own_type(a.leaf) == "fp8" for a in alone.kernel.reads)
    return bool(served) and may_specialise(alone.kernel, dtype, machine)


def may_specialise(kernel: Kernel, dtype: str, machine: Machine) -> bool:
    """Whether a kernel may run as warpgroups on a machine."""
    if not machine.target.has_warpgroups or ITEM_BYTES[dtype] != ITEM:
        return False
    streams = live_set(kernel).products and kernel.stream.axes
    lying = all(own_type(a.leaf) in {"", "fp8", "fp32"} for a in kernel.reads)
    emitted = {e.output for p in kernel.stream.passes for e in p.emits}
    alone = not (kernel.part or kernel.merges) and emitted.issuperset(kernel.added)
    return bool(streams) and alone and lying and not gluon_lacks(kernel.terms)


def specialised_choices(
    kernel: Kernel, sizes: Mapping[str, int], dtype: str, machine: Machine
) -> Iterator[list[Choice]]:
    """The warp-specialised CTAs of a kernel that fit, priced, those of the largest chunks first."""
    pricing = Pricing(kernel, sizes, dtype, machine)
    chained = pricing.of.chained and not _adds_values(kernel)
    wide = _columns(kernel, pricing.of.sizes) if chained else {}
    rows, chunks = (ROWS * math.prod(wide.values()),), CHUNKS
    if not chained:
        rows, chunks = RESULTS, (_line(pricing),)
    asked = Tiles(kernel, sizes, rows, chunks).settings()
    settings = [tiles for tiles in asked if wide.items() <= tiles.items()]
    for values in chunks:
        found: list[Choice] = []
        for tiles in settings:
            if math.prod(tiles[a] for a in kernel.stream.axes) != values:
                continue
            axes = [a for a in kernel.group if tiles[a] > 1]
            for axis in axes if chained else (*axes, ""):
                program = build(kernel, specialised(tiles, PING_PONG, axis), ITEM)
                if not why_not(program) and (chained or _few_rows(program)):
                    found += _priced(pricing, program, machine)
        if found:
            yield found


def _adds_values(kernel: Kernel) -> bool:
    """Whether a kernel adds up what it computes of products of readings, as may be done value by
    value (`SpecialisedCta.sums`)."""
    states = [s for p in kernel.stream.passes for s in p.states]
    products = [c.parts for c in kernel.contractions.values() if c.is_product]
    return all(is_operand(p, parts) for parts in products for p in parts) and all(
        s.step.op == "add" and s.step.args[0] is s.leaf("old") for s in states
    )


def _line(pricing: Pricing) -> int:
    """Values of a chunk of sums: those of which operands have a line, together with what is held
    whole; one, where the products of chunks add nothing up along the stream."""
    kernel, sizes = pricing.of.kernel, pricing.of.sizes
    item = 1 if any(c.dtype for c, _ in pricing.of.counts) else ITEM
    gone = {a for *_, own in live_set(kernel).products for a in own}
    whole = math.prod(power_of_two(sizes[a]) for a in gone if a in kernel.whole)
    added = gone.intersection(kernel.stream.axes)
    return max(1, LINE // item // whole) if added else 1


def _columns(kernel: Kernel, sizes: Mapping[str, int]) -> dict[str, int]:
    """The grouped axes that are columns of a product, each whole: a group of fewer would compute
    the rows of the others again."""
    columns = {a for _, columns, _ in live_set(kernel).products for a in columns}
    return {a: power_of_two(sizes[a]) for a in kernel.group if a in columns}


def _few_rows(program: Program) -> bool:
    """Whether a group has the rows of one instruction, or of two at most in ping-pong.
    Cooperative, 256 x 128 took 0.96 to 1.13 times as long as 128 x 256, 1.05 in the middle of 22
    products; in ping-pong, 256 x 64 took up to 1.6 times its predicted time (H100)."""
    rows = program.extent(SpecialisedCta(program).row)
    return rows <= (ROWS if program.schedule.axis else 2 * ROWS)


def _priced(pricing: Pricing, program: Program, machine: Machine) -> Iterator[Choice]:
    """The warp-specialised CTAs of one group's program that fit, each with as many stages as there
    is room for."""
    added, axis = bool(SpecialisedCta(program).sums), program.schedule.axis
    described = program.schedule.described
    lasting = machine.sms if added else 0
    several = COOPERATIVE[:1] if SpecialisedCta(program).anew else COOPERATIVE
    for groups in several if axis else (PING_PONG,):
        for stages in range(DEEPEST, STAGES - 1, -1) if added else (STAGES,):
            schedule = specialised(program.tiles, groups, axis, stages, described, lasting)
            cta = SpecialisedCta(replace(program, schedule=schedule))
            if len(cta.crossing) < len(program.adds):  # its sums have no part for each of so many
                break
            shared = shared_of(cta)
            if shared <= machine.shared_per_block and registers_of(cta) <= register_budget(cta):
                yield replace(pricing.at(schedule), shared=shared)
                break


@lru_cache(maxsize=64)
def written(choice: Choice) -> Written:
    """The Gluon kernel of a choice that has a warp-specialised CTA."""
    return write_cta(cta_of(choice))


def that_run(found: Iterable[Choice], machine: Machine) -> Iterator[Choice]:
    """Those of some choices whose kernels Gluon has all for, and that fit with what their warps
    pass to each other; none where no descriptor serves their tensors, whatever the tiles."""
    for choice in found:
        try:
            made = written(choice)
        except Refusal as refusal:
            if (tracer := active()) is not None:
                tracer.dropped("setting", _text(choice), str(refusal))
            continue
        if not served(made.entry, choice.sizes):
            return
        shared = shared_of(cta_of(choice), made.passed)
        if shared <= machine.shared_per_block:
            yield replace(choice, shared=shared)
