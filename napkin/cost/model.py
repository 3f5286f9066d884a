"""The cost of one labelled kernel in one object: H, M, the optimum, and the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import sympy

from napkin.cost.bound import Optimum, Term, optimum
from napkin.cost.memory import memory, per_level
from napkin.cost.places import plain
from napkin.cost.traffic import Traffic
from napkin.cost.work import flops
from napkin.derive.kernel import Kernel, label
from napkin.diagram.symbols import group_symbol, size_symbol, stream_symbol
from napkin.diagram.taking import slides


@dataclass(frozen=True, eq=False)
class Cost:
    """Symbolic costs of a kernel, in values and operations.

    Attributes:
        apart: whether the taps of windows are loaded and held one by one, as written kernels do;
            without, what windows share that a group holds is loaded and held once.
    """

    kernel: Kernel
    apart: bool = False

    @cached_property
    def H(self) -> Traffic:
        """Values transferred: `.total`, `.per_tensor`, `.per_group`, `.per_step`."""
        return Traffic(self.kernel, self.apart)

    @cached_property
    def M(self) -> Any:
        """Values that one group holds."""
        return memory(self.kernel, self.apart)

    @cached_property
    def sharing(self) -> Cost | None:
        """The cost of the same kernel with the taps of windows held together, so that what windows
        share crosses once; None where nothing is read in windows."""
        kernel = self.kernel
        taps = {s.tap for a in kernel.reads for s in slides(a.leaf)}
        if not taps:
            return None
        held = label(
            kernel.name,
            kernel.outputs,
            kernel.names,
            streamed=" ".join(a for a in kernel.stream.axes if a not in taps),
            passes=max(len(kernel.stream.passes), 1),
            group=kernel.group,
        )
        return Cost(held)

    @cached_property
    def levels(self) -> dict[str, Any]:
        """Values that one group holds in shared memory and in registers."""
        return per_level(self.kernel)

    @cached_property
    def flops(self) -> Any:
        """Operations of the matrix products, or of all arithmetic where there is none."""
        return flops(self.kernel)

    def optimum(
        self,
        *,
        finite: bool = False,
        sizes: Mapping[str, int] | None = None,
        memory: float | None = None,
        chunk: int | None = None,
    ) -> Optimum:
        """The least H for M values of memory; see `napkin.cost.bound.optimum`.

        Args:
            finite: keep the stream size as a symbol; beside `sizes`, `chunk` is its number.
        """
        splits = self.kernel.splits
        grouped = [a for a in self.kernel.group if a not in self.kernel.residues]
        groups = {group_symbol(a): plain(size_symbol(a), splits) for a in grouped}
        streams = {stream_symbol(a): plain(size_symbol(a), splits) for a in self.kernel.stream.axes}
        numbers = None if sizes is None else {size_symbol(a): n for a, n in sizes.items()}
        if numbers is not None and chunk is not None:
            numbers |= {s: chunk for s in streams}

        tiles = (*groups, *streams)
        total = falling(over_strides(self.H.total), tuple(groups))
        above = without_corners(total, tiles)

        def solve(used: Any) -> Optimum:
            found = optimum(
                above,
                used,
                groups,
                streams=streams,
                finite=finite,
                sizes=numbers,
                memory=memory,
            )
            return found if above == total else replace(found, exact=False)

        columns: tuple[Any, ...] = self.M.args if isinstance(self.M, sympy.Max) else (self.M,)
        if len(columns) == 1:
            return solve(self.M)
        # Without a stream every column must fit: the one whose optimum leaves room for the others
        # binds. If they bind together, their sum is a safe stand-in for the largest.
        for i, column in enumerate(columns):
            found = solve(column)
            others = [c for j, c in enumerate(columns) if j != i]
            if all(_fits(c, column, found) for c in others):
                return found
        return solve(sympy.Add(*columns))

    @cached_property
    def bound(self) -> Any:
        """H at the optimum for s -> 0, in axis sizes and M."""
        return self.optimum().bound

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The bound as sum of alpha * M**-beta."""
        return self.optimum().terms


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


def _fits(other: Any, binding: Any, found: Optimum) -> bool:
    """Whether a column is no larger than the binding one at an optimum, for long axes."""
    gap = sympy.expand((binding - other).xreplace(found.tiles))
    large = {s: sympy.Integer(2) ** (40 + i) for i, s in enumerate(_sorted(gap))}
    value = gap.xreplace(large)
    return bool(value.is_comparable and value >= 0)


def _sorted(expression: Any) -> list[Any]:
    return sorted(expression.free_symbols, key=lambda s: s.name)
