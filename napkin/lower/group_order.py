"""In which order the groups of a kernel start, as its text takes their numbers apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from napkin.count.starting_order import Order
from napkin.derive.kernel import Kernel
from napkin.ir.taking import read_axes
from napkin.lower.box_loops import rising
from napkin.lower.launch import section


@dataclass(frozen=True, eq=False)
class Launching:
    """The order of a kernel's groups, for any tiles.

    Attributes:
        item: bytes of a value that it streams.
    """

    kernel: Kernel
    item: int

    def order(self, sizes: Mapping[str, int], tiles: Mapping[str, int], rows: int = 0) -> Order:
        """The order at these tiles, in blocks of so many rows where that is not 0; a section that
        ends inside an axis is taken to divide it."""
        group, first = self.kernel.group, self._rising
        digits = [(i, -(-sizes[a] // tiles[a])) for i, a in enumerate(group)]
        if not first:
            plain = Order(tuple(digits))
            return plain.blocked(rows) if rows else plain
        left = section(group, first, self.kernel.streamed, sizes, tiles, self.item)
        inside: list[tuple[int, int]] = []
        outside: list[tuple[int, int]] = []
        for i, n in reversed([d for d in digits if group[d[0]] not in first]):
            part = max(d for d in range(1, min(n, left) + 1) if n % d == 0)
            inside, outside = [(i, part), *inside], [(i, n // part), *outside]
            left //= n if part == n else left
        rises = [d for d in digits if group[d[0]] in first]
        return Order((*outside, *rises, *inside))

    def in_blocks(self, tiles: Mapping[str, int]) -> tuple[str, str] | None:
        """The two last grouped axes, where groups may be numbered in blocks of the first: of what
        is streamed, one array carries only the first, and another only the second. None where they
        may not."""
        if self._last_two is None or any(tiles[a] == 1 for a in self._last_two):
            return None
        return self._last_two

    @cached_property
    def _last_two(self) -> tuple[str, str] | None:
        """The axes of `in_blocks`, for tiles of more than one value along both."""
        kernel = self.kernel
        if len(kernel.group) < 2 or kernel.visits is not None or kernel.ragged or self._rising:
            return None
        row, column = kernel.group[-2:]
        own = [read_axes(a.leaf) for a in kernel.reads if kernel.stream.carried(a.leaf.axes)]
        crossed = {(row in axes, column in axes) for axes in own} >= {(True, False), (False, True)}
        return (row, column) if crossed else None

    @cached_property
    def _rising(self) -> tuple[str, ...]:
        return rising(self.kernel)
