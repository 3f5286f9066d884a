"""Lower bounds of what one kernel moves, in bytes: for a memory, and for one without limit.

Bytes of each tensor are coefficients of the same posynomials (`napkin.count.problem`), so that
mixed types need no case of their own.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import sympy

from napkin.bound.geometric import Layer, Sum, solve
from napkin.bound.posynomial import Posynomial
from napkin.bound.symbolic_cost import Cost
from napkin.count.problem import Problem, without_corners
from napkin.count.traffic import Direction, Transfer, Unit
from napkin.derive.kernel import Kernel
from napkin.errors import InputError
from napkin.ir.symbols import MEMORY, size_symbol

_TOUCH = 1e-6
"""Relative distance within which a memory is full."""


def for_memory(
    cost: Cost, sizes: Mapping[str, int], memory: int, chunk: int | None = None
) -> float:
    """The least bytes that a kernel moves where a group has `memory` bytes: H* of arXiv
    2412.03317, section 3.1; infinite where no tile fits.

    Args:
        cost: in bytes.
        sizes: of every axis of the kernel.
        chunk: values of each streamed axis that are held at once; by default s -> 0, which no
            chunk undercuts.

    Raises:
        InputError: H or M is no posynomial in the tiles (a key set that is read from an input,
            say).
    """
    problem = Problem.of(cost.kernel, cost.unit)
    known: dict[Any, Any] = {size_symbol(a): n for a, n in sizes.items()} | {MEMORY: memory}
    known |= dict.fromkeys(problem.streams, chunk or 0)

    def holds(tiles: Mapping[Any, Any]) -> float:
        return max(_number(c.subs(tiles), known, "memory") for c in problem.columns)

    if holds(dict.fromkeys(problem.groups, 1)) > memory:
        return math.inf
    found = cost.optimum(finite=chunk is not None, sizes=sizes, memory=memory, chunk=chunk)
    # Without a stream, the column that binds is found for long axes; here another may not fit, or
    # several bind, for which their sum stands in: that leaves room.
    held = holds(found.tiles)
    if len(problem.columns) > 1 and abs(held - memory) > memory * _TOUCH:
        with contextlib.suppress(InputError):
            return _under_all(problem, known, memory)
    if held > memory * (1 + _TOUCH):
        return math.inf
    return _number(found.bound, known, "the least H")


def _under_all(problem: Problem, known: Mapping[Any, Any], memory: int) -> float:
    """The least H of a problem without streams where every column fits, by numbers.

    Raises:
        InputError: H or M is no posynomial, or the solver finds no optimum.
    """
    tiles = tuple(problem.groups)

    def numbers(expression: Any, name: str) -> Sum:
        terms = Posynomial.of(expression, tiles, name).terms
        found = {e: _number(c, known, name) for e, c in terms.items()}
        if any(c < 0 for c in found.values()):
            raise InputError(f"{name} has a negative term in the tiles")
        return Sum.of(Posynomial(tiles, {e: sympy.Float(c) for e, c in found.items()}))

    H = numbers(without_corners(problem.H, tiles), "H")
    columns = tuple(numbers(c, "M") for c in problem.columns)
    # A tile that H does not fall with only takes room.
    uppers = [
        _number(size, known, str(v)) if H.rows[:, i].any() else 1.0
        for i, (v, size) in enumerate(problem.groups.items())
    ]
    layer = Layer("memory", H, columns, (float(memory),) * len(columns))
    return H.exactly(np.array(solve([layer], uppers)[0]))


def _number(expression: Any, known: Mapping[Any, Any], what: str) -> float:
    value = expression.subs(known)
    if value.free_symbols:
        unknown = ", ".join(sorted(map(str, value.free_symbols)))
        raise InputError(f"{what} depends on {unknown}, which no size gives")
    return float(value)


def by_tensor(cost: Cost) -> dict[tuple[str, Direction], list[Transfer]]:
    """The transfers of each tensor in each direction: one tensor may be read under two names."""
    out: dict[tuple[str, Direction], list[Transfer]] = {}
    for t in cost.H.parts:
        out.setdefault((t.tensor, t.direction), []).append(t)
    return out


def once(cost: Cost) -> Any:
    """Values that cross where memory has no limit: every tensor once, symbolic."""
    return sympy.expand(sympy.Add(*(own[0].size for own in by_tensor(cost).values())))


def bytes_once(
    cost: Cost, sizes: Mapping[str, int], tiles: Mapping[str, int]
) -> dict[tuple[str, Direction], int]:
    """Bytes that cross where memory has no limit, for each tensor and direction, of a `cost` in
    bytes.

    Of a tensor that is read in part (at computed positions, say), no more than `tiles` read of it.
    """
    known = {size_symbol(a): n for a, n in sizes.items()}
    out: dict[tuple[str, Direction], int] = {}
    for key, own in by_tensor(cost).items():
        whole = int(own[0].size.subs(known))
        read = sum(t.values(sizes, tiles) for t in own)
        out[key] = int(min(whole, read) * cost.unit[key[0]])
    return out


def bytes_of_ones(kernel: Kernel, sizes: Mapping[str, int], unit: Unit) -> int:
    """Bytes that cross where no two values of a result share what they read: H at g = 1."""
    known = kernel.sized(sizes)
    tiles = {a: known[a] if a in kernel.whole else 1 for a in kernel.axes}
    return int(sum(t.values(known, tiles) * unit[t.tensor] for t in Cost(kernel).H.parts))
