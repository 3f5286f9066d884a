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
from napkin.cost.traffic import VALUES, Traffic, Unit, in_bytes
from napkin.cost.work import flops
from napkin.derive.kernel import Kernel
from napkin.diagram.symbols import group_symbol, size_symbol, stream_symbol


@dataclass(frozen=True, eq=False)
class Cost:
    """Symbolic costs of a kernel, in values (or bytes, see `in_bytes`) and operations."""

    kernel: Kernel
    unit: Unit = VALUES

    def in_bytes(self, dtypes: Mapping[str, str], rest: str) -> Cost:
        """The same in bytes: H, M, and the optimum for M bytes of memory.

        Args:
            dtypes: the storage type of each tensor; they need not be one.
            rest: the type as which values count that no tensor holds.
        """
        return replace(self, unit=in_bytes(dtypes, rest))

    @cached_property
    def H(self) -> Traffic:
        """Values transferred: `.total`, `.per_tensor`, `.per_group`, `.per_step`."""
        return Traffic(self.kernel, self.unit)

    @cached_property
    def M(self) -> Any:
        """Values that one group holds."""
        return memory(self.kernel, self.unit)

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
        """The least H for M values (or bytes) of memory; see `napkin.cost.bound.optimum`.

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

        def solve(used: Any) -> Optimum:
            return optimum(
                falling(over_strides(self.H.total), tuple(groups)),
                used,
                groups,
                streams=streams,
                finite=finite,
                sizes=numbers,
                memory=memory,
            )

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


def _fits(other: Any, binding: Any, found: Optimum) -> bool:
    """Whether a column is no larger than the binding one at an optimum, for long axes."""
    gap = sympy.expand((binding - other).xreplace(found.tiles))
    large = {s: sympy.Integer(2) ** (40 + i) for i, s in enumerate(_sorted(gap))}
    value = gap.xreplace(large)
    return bool(value.is_comparable and value >= 0)


def _sorted(expression: Any) -> list[Any]:
    return sorted(expression.free_symbols, key=lambda s: s.name)
