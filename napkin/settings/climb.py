"""The best tiles of a kernel: of all its settings, or, in a search for a diagram, of few."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from napkin.algebra.tracer import active
from napkin.count.shares import positions
from napkin.derive.kernel import Kernel
from napkin.machine.machines import Machine
from napkin.settings.best import in_order, resolved, unpriced
from napkin.settings.choice import Choice, Unpriced, in_rank, most_over
from napkin.settings.effort import Effort, most_settings
from napkin.settings.phrases import kernel_text
from napkin.settings.pricing import Pricing
from napkin.settings.tiles import Tiles

FEW = 40
"""Settings of a kernel that are priced before those beside the best of them, about."""

FARTHER = 1.5
"""Times as long as pays that settings far apart may take for those beside them to be priced."""

FLAT = 4
"""Times as long as tiles that must be flattened that others take at most to come first."""

CLIMBED = "they lie farther off than those beside the best setting, all of which take longer"


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
        effort: what the search for a diagram has done, to which this adds; few settings are then
            priced, of which none beside the best is better. By default all are.
        under: seconds; None may be the answer, too, where the best tiles take as many or more.
    """
    known = kernel.sized(sizes)
    most = under * most_over(kernel, known)
    if effort is None:
        return next(in_order(unpriced(kernel, sizes, dtype, machine), most), None)
    tiles = Tiles(kernel, known, most=most_settings(positions(kernel, known)))
    return _climbed(_Landscape(tiles), Pricing(kernel, known, dtype, machine), effort, most)


def _climbed(every: _Landscape, pricing: Pricing, effort: Effort, most: float) -> Choice | None:
    """The best of settings that are far apart, of those beside it, and so on, until none beside is
    better.

    Args:
        most: the first number of a rank, above which no choice is wanted.
    """
    found: dict[int, Unpriced] = {}
    best: Choice | None = None
    left = list(range(every.number)) if every.number <= FEW else every.apart(FEW)
    while left:
        settings = effort.counted(every.tiles.settings(left))
        found |= zip(left, pricing.unpriced(settings), strict=True)
        best = _first([found[i] for i in sorted(found)], most * FARTHER)
        if best is not None:
            left = [i for i in every.beside(best) if i not in found]
        elif most == math.inf:
            left = [i for i in range(every.number) if i not in found]
        else:
            break
    if len(found) < every.number and (tracer := active()) is not None:
        what = f"{kernel_text(pricing.of.kernel)}; {every.number - len(found):,} settings"
        tracer.dropped("setting", what, CLIMBED)
    return best


def _first(found: Sequence[Unpriced], most: float) -> Choice | None:
    """The best of some settings, as `in_order` has them but where others are far better."""
    best = next(in_order(found, most), None)
    folded = next(in_rank(found, lambda: most), None)
    if best and folded and folded.rank[0] * FLAT < best.rank[0]:
        return resolved(folded)
    return best


class _Landscape:
    """The settings of a kernel, each by its place, and how far they are from each other.

    Attributes:
        number: how many there are.
    """

    def __init__(self, tiles: Tiles) -> None:
        self.tiles, self.number = tiles, len(tiles.every)
        self._places = {tuple(row): i for i, row in enumerate(tiles.every.tolist())}
        self._exponents = np.log2(tiles.every).round()

    def apart(self, most: int) -> list[int]:
        """At most about twice so many settings that are far apart: the tiles of some, and the
        groups and chunks of others, have the fewest values, four times as many, and so on."""
        kernel, every = self.tiles.kernel, self.tiles.every
        along = (kernel.group, kernel.stream.axes)
        values = np.stack([self.tiles.values(every, axes) for axes in along], axis=1)
        found = [self._exponents, np.log2(values).round()]
        some = (every[((x - x.min(axis=0)) % 2 == 0).all(axis=1)] for x in found)
        return sorted({self._place(t) for x in some for t in self.tiles.few(x, most).tolist()})

    def beside(self, best: Choice) -> list[int]:
        """The settings whose tiles differ from one by a factor of two along an axis or two, or that
        have as many values in another shape along two axes."""
        tiles = best.schedule.tiles
        own = self._exponents[self._place([tiles[a] for a in self.tiles.columns])]
        steps = self._exponents - own
        near = (abs(steps) <= 1).all(axis=1) & (abs(steps).sum(axis=1) <= 2)
        swapped = (steps.sum(axis=1) == 0) & ((steps != 0).sum(axis=1) <= 2)
        return np.flatnonzero(near | swapped).tolist()

    def _place(self, tiles: Sequence[int]) -> int:
        return self._places[tuple(tiles)]
