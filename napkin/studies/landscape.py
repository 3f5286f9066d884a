"""Predicted time over tiles: what choosing a tile is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from napkin.plan.planned import PlannedKernel
from napkin.settings.best import unpriced


@dataclass(frozen=True)
class Landscape:
    """The least predicted time of a kernel for each pair of tiles, whatever its other tiles are.

    Attributes:
        axes: the two axes, of those with several tiles to try.
        seconds: by the tiles of both; settings that do not fit, or that the planner takes last
            (see `napkin.settings.best.ranked`), have none.
        chosen: the plan's tiles.
    """

    axes: tuple[str, str]
    seconds: Mapping[tuple[int, int], float]
    chosen: tuple[int, int]


def landscape(k: PlannedKernel) -> Landscape | None:
    """The landscape of a planned kernel over the two axes with the most tiles to try; None where
    fewer than two have several."""
    kernel = k.choice.kernel
    every = unpriced(kernel, k.choice.sizes, k.dtype, k.machine)
    found = sorted((c for u in every for c in u.choices), key=lambda c: c.time.seconds)
    tried = {a: len({c.schedule.tiles[a] for c in found}) for a in kernel.axes}
    several = sorted((a for a in tried if tried[a] > 1), key=lambda a: -tried[a])[:2]
    if len(several) < 2:
        return None
    across, up = several
    out: dict[tuple[int, int], float] = {}
    chosen = k.tiles[across], k.tiles[up]
    out[chosen] = k.choice.time.seconds
    for c in found:
        key = c.schedule.tiles[across], c.schedule.tiles[up]
        if key in out:
            continue
        if c.flat:
            out[key] = c.time.seconds
    return Landscape((across, up), out, chosen)
