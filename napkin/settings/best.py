"""The settings of one labelled kernel, the best first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from napkin.algebra.tracer import active
from napkin.count.shares import positions
from napkin.derive.kernel import Kernel
from napkin.lower.build import build
from napkin.machine.machines import Machine
from napkin.settings.choice import Choice, Unpriced, in_rank
from napkin.settings.effort import most_settings
from napkin.settings.phrases import kernel_text
from napkin.settings.pricing import Pricing
from napkin.settings.tiles import Tiles

TRIED = 40
"""Settings in turn that are passed over before no more of them are tried."""

BOUNDED = (
    "the search is bounded: of each number of values of a group and of a chunk, those for which "
    "groups ask for the fewest values are priced"
)
"""Why settings are left out where a kernel has more than are priced."""


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
        if choice.flat:
            last = i
            yield resolved(choice)
            continue
        folded.append(choice)
        if i - last == TRIED:
            break
    yield from map(resolved, folded)


def unpriced(
    kernel: Kernel, sizes: Mapping[str, int], dtype: str, machine: Machine
) -> Iterator[Unpriced]:
    """The settings of a labelled kernel, small tiles first; those have choices that fit by their
    operands."""
    known = kernel.sized(sizes)
    tiles = Tiles(kernel, known, most=most_settings(positions(kernel, known)))
    if tiles.left_out and (tracer := active()) is not None:
        what = f"{kernel_text(kernel)}; of more than {tiles.most:,} settings"
        tracer.dropped("setting", what, BOUNDED)
    return Pricing(kernel, known, dtype, machine).unpriced(tiles.settings())


def resolved(choice: Choice) -> Choice:
    """A choice with what of its schedule serves its program, whatever the type of its values."""
    return replace(choice, schedule=build(choice.kernel, choice.schedule).schedule)
