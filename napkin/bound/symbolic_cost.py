"""The cost of one labelled kernel in one object: H, M, the optimum, and the work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import sympy

from napkin.bound.optimum import Optimum, Term, optimum
from napkin.count.interior import visited_symbol
from napkin.count.memory import memory, per_level
from napkin.count.problem import Problem, without_corners
from napkin.count.traffic import VALUES, Traffic, Unit, in_bytes
from napkin.count.work import flops
from napkin.derive.kernel import Kernel
from napkin.derive.label import label
from napkin.errors import InputError
from napkin.ir.sliding import taps
from napkin.ir.symbols import size_symbol


@dataclass(frozen=True, eq=False)
class Cost:
    """Symbolic costs of a kernel, in values (or bytes, see `in_bytes`) and operations.

    Attributes:
        tap_by_tap: whether taps of windows are loaded and held one by one, as written kernels do;
            without, what windows share that a group holds is loaded and held once.
        unit: what H and M are counted in.
    """

    kernel: Kernel
    tap_by_tap: bool = False
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
        return Traffic(self.kernel, self.tap_by_tap, self.unit)

    @cached_property
    def M(self) -> Any:
        """Values that one group holds."""
        return memory(self.kernel, self.unit, self.tap_by_tap)

    @cached_property
    def sharing(self) -> Cost | None:
        """The cost of the same kernel with the taps of windows held together, so that what windows
        share crosses once; None where nothing is read in windows."""
        kernel = self.kernel
        shared = {tap for a in kernel.reads for tap in taps(a.leaf)}
        if not shared:
            return None
        held = label(
            kernel.name,
            kernel.outputs,
            kernel.names,
            streamed=" ".join(a for a in kernel.stream.axes if a not in shared),
            passes=max(len(kernel.stream.passes), 1),
            group=kernel.group,
        )
        return Cost(held, unit=self.unit)

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
        """The least H for M values (or bytes) of memory; see `napkin.bound.optimum.optimum`.

        Args:
            finite: keep the stream size as a symbol; beside `sizes`, `chunk` is its number.
        """
        problem = Problem.of(self.kernel, self.unit, self.tap_by_tap)
        numbers = None if sizes is None else {size_symbol(a): n for a, n in sizes.items()}
        if numbers is not None:
            self._check_visited(problem)
        if numbers is not None and chunk is not None:
            numbers |= {s: chunk for s in problem.streams}

        above = without_corners(problem.H, (*problem.groups, *problem.streams))

        def solve(used: Any) -> Optimum:
            found = optimum(
                above,
                used,
                problem.groups,
                streams=problem.streams,
                finite=finite,
                sizes=numbers,
                memory=memory,
            )
            return found if above == problem.H else replace(found, exact=False)

        columns = problem.columns
        if len(columns) == 1:
            return solve(columns[0])
        # Without a stream every column must fit: the one whose optimum leaves room for the others
        # binds. If they bind together, their sum is a safe stand-in for the largest.
        for i, column in enumerate(columns):
            found = solve(column)
            others = [c for j, c in enumerate(columns) if j != i]
            if all(_fits(c, column, found) for c in others):
                return found
        return replace(solve(sympy.Add(*columns)), summed=True)

    def _check_visited(self, problem: Problem) -> None:
        """Refuse numbers where a key set is read from an input: tiles change what is visited."""
        visits = self.kernel.visits
        if visits is not None and visited_symbol(visits.axes) in problem.H.free_symbols:
            raise InputError(
                f"how many values of {' and '.join(visits.axes)} a group visits"
                f" ({visited_symbol(visits.axes)}) is in no closed form"
            )

    @cached_property
    def bound(self) -> Any:
        """H at the optimum for s -> 0, in axis sizes and M."""
        return self.optimum().bound

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The bound as sum of alpha * M**-beta."""
        return self.optimum().terms


def _fits(other: Any, binding: Any, found: Optimum) -> bool:
    """Whether a column is no larger than the binding one at an optimum, for long axes."""
    gap = sympy.expand((binding - other).xreplace(found.tiles))
    symbols = sorted(gap.free_symbols, key=lambda s: s.name)
    large = {s: sympy.Integer(2) ** (40 + i) for i, s in enumerate(symbols)}
    # Roots of cubics are real, but may be written with i: in digits it cancels.
    # Exact roots of such numbers would be factored.
    value = gap.evalf(subs=large, chop=True)
    return bool(value.is_real and value >= 0)
