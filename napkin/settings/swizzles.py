"""The order in which groups start: in blocks of rows, so that L2 has what neighbours read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from napkin.count.crossing import CacheTraffic
from napkin.settings.tiled import Tiled

ROWS = (4, 8, 16, 32)
"""Groups along one axis in a block: the number is taken for which least comes from memory."""

BLOCK = 8
"""The number for warp-specialised CTAs that only add products up: of 21 settings of 7 products, 1 %
more in the middle than with the best of 4, 8, 16, 32 and all, 11 % at most; with 32 4 and 21 %,
with all 6 and 52 % (H100)."""

SHAPED = 2**16
"""Groups up to which blocks of rows are tried that do not divide an axis."""


@dataclass(frozen=True)
class Traffic:
    """What passes between the levels of a machine, and from and to the outermost memory ("read",
    "write"), with a swizzle of so many rows; 0 for none."""

    caches: CacheTraffic
    outer: dict[str, int]
    swizzle: int


def swizzled(tiled: Tiled, plain: CacheTraffic, sums: bool) -> Traffic:
    """The traffic with the swizzle for which least comes from memory; with none where each
    array comes once as it is.

    Args:
        sums: whether a warp-specialised kernel only adds products up.
    """

    def blocked(rows: int) -> Traffic:
        caches = replace(plain, order=tiled.order.blocked(rows))
        return Traffic(caches, caches.outer(), rows)

    found = [Traffic(plain, plain.outer(), 0)]
    axes = tiled.of.launching.in_blocks(tiled.tiles)
    if axes is None or (not sums and found[0].outer["read"] <= plain.requests.once["read"]):
        return found[0]
    many = tiled.cuts[axes[0]]
    if sums and many >= BLOCK:
        return blocked(BLOCK)
    even = tiled.groups > SHAPED
    found += [blocked(n) for n in ROWS if n <= many and not (even and many % n)]
    return min(found, key=lambda t: t.outer["read"])
