"""What is minimised for a kernel, under which limit: H and M as posynomials in its tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from napkin.count.memory import memory
from napkin.count.split_axes import plain
from napkin.count.traffic import VALUES, Unit, transfers
from napkin.derive.kernel import Kernel
from napkin.ir.symbols import group_symbol, size_symbol, stream_symbol


@dataclass(frozen=True)
class Problem:
    """H and M of one level, each array weighted by what a value of it counts.

    Attributes:
        reads: what enters a level, falling in every group size.
        writes: what leaves it.
        columns: what it holds at one moment each; every one must fit. With a stream, one.
        groups: the size of the axis that each group size cuts.
        streams: the size of the axis that each stream size cuts.
    """

    reads: Any
    writes: Any
    columns: tuple[Any, ...]
    groups: dict[Any, Any]
    streams: dict[Any, Any]

    @classmethod
    def of(cls, kernel: Kernel, unit: Unit = VALUES, tap_by_tap: bool = False) -> Problem:
        """The problem of a labelled kernel, in values or bytes; `tap_by_tap` as in `Cost`."""
        splits = kernel.splits
        grouped = [a for a in kernel.group if a not in kernel.alone]
        groups = {group_symbol(a): plain(size_symbol(a), splits) for a in grouped}
        streams = {stream_symbol(a): plain(size_symbol(a), splits) for a in kernel.stream.axes}

        def moved(*directions: str) -> Any:
            parts = [t for t in transfers(kernel, tap_by_tap) if t.direction in directions]
            sums = [t.total * unit[t.tensor] for t in parts]
            return falling(over_strides(sympy.expand(sympy.Add(*sums))), tuple(groups))

        live = memory(kernel, unit, tap_by_tap)
        columns = live.args if isinstance(live, sympy.Max) else (live,)
        return cls(moved("read"), moved("write", "add"), tuple(columns), groups, streams)

    @property
    def H(self) -> Any:
        """What crosses in both directions."""
        return sympy.expand(self.reads + self.writes)


def over_strides(expression: Any) -> Any:
    """H for groups of a stride of queries or more, where it is a sum of monomials."""
    found = expression.replace(sympy.Max, lambda *a: sympy.Add(*(x for x in a if x != 0)))
    return sympy.expand(found)


def falling(expression: Any, tiles: Sequence[Any]) -> Any:
    """H with what grows with a tile taken at tiles of 1, which is no more: a value that is read for
    every pair of a query and a key is read for keys that only other queries of the group see."""
    terms: list[Any] = []
    for term in sympy.Add.make_args(sympy.expand(expression)):
        powers = term.as_powers_dict()
        terms.append(term.subs({v: 1 for v in tiles if powers.get(v, 0) > 0}))
    return sympy.Add(*terms)


def without_corners(expression: Any, tiles: Sequence[Any]) -> Any:
    """H without what it takes away as a tile falls: where windows and their taps are both cut,
    that is what the halos of both share, and H is a little less than this."""
    by: dict[Any, Any] = {}
    for term in sympy.Add.make_args(sympy.expand(expression)):
        scale, shape = term.as_independent(*tiles)
        by[shape] = by.get(shape, 0) + scale
    kept = (c * shape for shape, c in by.items() if shape == 1 or not c.is_negative)
    return sympy.expand(sympy.Add(*kept))
