"""The cost of a kernel over a chain of levels: nested tiles, all chosen together.

Tiles g_l at every level; the pipe into a level moves H(g_l) and costs Hdot_l^-1 for each byte; what
a level holds, M(g_l), fits it. The sum of the costs is minimised (arXiv 2412.03317, section 3 and
App. A.2). It is a cost to minimise and no time: pipes that work side by side take as long as the
slowest. H and M count each array's own bytes, so arrays of several types need no case of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import sympy

from napkin.bound.geometric import Layer, Sum, solve
from napkin.bound.optimum import Term
from napkin.bound.posynomial import Posynomial
from napkin.bound.symbolic_cost import Cost
from napkin.count.problem import Problem
from napkin.count.traffic import Unit
from napkin.derive.kernel import Kernel
from napkin.errors import InputError
from napkin.ir.symbols import size_symbol
from napkin.machine.chain import Chain, Stage

ACTIVE = 1e-5
"""Relative distance within which a limit binds."""


def unit_of(item: Mapping[str, Fraction]) -> Unit:
    """Bytes of a value of each tensor as sympy numbers; arrays inside a kernel count as the
    widest."""
    known = {t: sympy.Rational(b.numerator, b.denominator) for t, b in item.items()}
    return Unit(known, max(known.values()))


@dataclass(frozen=True)
class Optimum:
    """The least cost over the levels of a chain, in real numbers, for s -> 0.

    Attributes:
        tiles: for each stage, the tile of each axis that is cut.
        bytes: for each stage, what its pipe moves into it and out of it.
        seconds: for each stage, what that costs.
        binds: for each stage, the limits that hold its tile.
    """

    tiles: tuple[dict[str, float], ...]
    bytes: tuple[tuple[float, float], ...]
    seconds: tuple[float, ...]
    binds: tuple[tuple[str, ...], ...]

    @property
    def total(self) -> float:
        """The weighted sum."""
        return sum(self.seconds)


class Program:
    """A kernel at given sizes, as posynomials in numbers: the same ones at every level.

    Args:
        sizes: of every axis.
        item: bytes of a value of each tensor.

    Raises:
        InputError: H or M is no posynomial in the tiles, or depends on values of inputs.
    """

    def __init__(
        self, kernel: Kernel, sizes: Mapping[str, int], item: Mapping[str, Fraction]
    ) -> None:
        self.kernel, self.item = kernel, item
        self.sizes = {**sizes, **kernel.sized(sizes)}
        problem = Problem.of(kernel, unit_of(item))
        self._numbers = {size_symbol(a): sympy.Integer(n) for a, n in self.sizes.items()}
        self.uppers = {
            v: self._number(size, f"the size of {v}")
            for v, size in {**problem.groups, **problem.streams}.items()
        }
        self.variables = tuple(self.uppers)
        self.streams = frozenset(problem.streams)
        self.reads = self._sum(problem.reads, "H")
        self.writes = self._sum(problem.writes, "H")
        self.columns = tuple(self._sum(c, "M") for c in problem.columns)
        self.names = {v: str(v).partition("_")[2] for v in self.variables}

    @cached_property
    def cut(self) -> tuple[Any, ...]:
        """The tile sizes that are chosen: of groups, and of a stream where H falls with it."""
        rows = np.vstack([self.reads.rows, self.writes.rows])
        steered = [v for i, v in enumerate(self.variables) if (rows[:, i] < 0).any()]
        return tuple(v for v in self.variables if v not in self.streams or v in steered)

    def solve(self, chain: Chain, chunks: Sequence[Mapping[str, int]] = ()) -> Optimum:
        """The least cost over a chain.

        Args:
            chunks: for each stage, the sizes of streamed axes that H does not fall with; by
                default they take no room.
        """
        each = zip(chain.stages, chunks or [None] * len(chain.stages), strict=True)
        layers = [self._layer(stage, chunk) for stage, chunk in each]
        layers[-1] = replace(layers[-1], children=0)
        uppers = [self.uppers[v] for v in self.cut]
        # A tile that H does not fall with only takes room.
        useful = [any(layer.cost.rows[:, i].any() for layer in layers) for i in range(len(uppers))]
        found = solve(layers, [u if use else 1.0 for u, use in zip(uppers, useful, strict=True)])
        return self._read(chain, layers, uppers, found)

    def _layer(self, stage: Stage, chunk: Mapping[str, int] | None) -> Layer:
        """A stage of a chain as a level of the program."""
        free = self._free()
        logs = None if chunk is None else {v: math.log(chunk[self.names[v]]) for v in free}
        uses = [self._restricted(c, logs) for c in self.columns]
        fixed = [_constant(u) for u in uses]
        reads, writes = (self._restricted(s, {}) for s in (self.reads, self.writes))
        cost = Sum(
            np.vstack([reads.rows, writes.rows]),
            np.concatenate([reads.factors * stage.read, writes.factors * stage.write]),
        )
        rooms = tuple(stage.memory - c for c in fixed)
        if any(room <= 0 for room in rooms):
            raise InputError(
                f"what does not shrink with a tile needs {max(fixed):,.0f} bytes of"
                f" {stage.name!r}, which holds {stage.memory:,.0f}"
            )
        varying = tuple(_varying(u, "M") for u in uses)
        return Layer(stage.name, _varying(cost, "H"), varying, rooms, stage.children, stage.chips)

    def moved(self, tiles: Mapping[str, float]) -> tuple[float, float]:
        """Bytes into a level and out of it for a tile, by the formulas."""
        g = self._values(tiles)
        return self.reads.exactly(g), self.writes.exactly(g)

    def held(self, tiles: Mapping[str, float]) -> float:
        """Bytes that a level holds for a tile, streamed axes included."""
        g = self._values(tiles)
        return max(c.exactly(g) for c in self.columns)

    def _read(
        self,
        chain: Chain,
        layers: Sequence[Layer],
        uppers: Sequence[float],
        found: Sequence[Sequence[float]],
    ) -> Optimum:
        tiles = [{self.names[v]: g for v, g in zip(self.cut, row, strict=True)} for row in found]
        free = {self.names[v]: 1.0 for v in self._free()}
        moved = [self.moved({**t, **free}) for t in tiles]
        seconds = [
            stage.read * r + stage.write * w
            for stage, (r, w) in zip(chain.stages, moved, strict=True)
        ]
        binds = [self._binding(chain, layers, uppers, found, i) for i in range(len(found))]
        return Optimum(tuple(tiles), tuple(moved), tuple(seconds), tuple(binds))

    def _binding(
        self,
        chain: Chain,
        layers: Sequence[Layer],
        uppers: Sequence[float],
        found: Sequence[Sequence[float]],
        i: int,
    ) -> tuple[str, ...]:
        """The limits that hold the tile of a stage."""
        if not any(len(each.cost.factors) for each in layers):
            return ("nothing: every tile moves as much",)
        out: list[str] = []
        y, layer, stage = np.log(found[i]), layers[i], chain.stages[i]
        if any(
            use.at(y) >= room * (1 - ACTIVE)
            for use, room in zip(layer.uses, layer.rooms, strict=True)
            if len(use.factors)
        ):
            out.append(
                f"memory of {stage.name}" if not stage.children else "memory of its children"
            )
        if layer.children:
            ratio = math.prod(a / b for a, b in zip(found[i], found[i + 1], strict=True))
            if ratio >= layer.children * (1 - ACTIVE):
                out.append(f"{layer.children} children")
        if stage.chips > 1 and math.prod(uppers) / math.prod(found[i]) <= stage.chips * (
            1 + ACTIVE
        ):
            out.append(f"a tile for each of {stage.chips} chips")
        for v, g, top in zip(self.cut, found[i], uppers, strict=True):
            if g >= top * (1 - ACTIVE):
                out.append(f"all of {self.names[v]}")
            elif i and g >= found[i - 1][self.cut.index(v)] * (1 - ACTIVE):
                out.append(f"{self.names[v]} of {chain.stages[i - 1].name}")
        return tuple(out)

    def _free(self) -> list[Any]:
        return [v for v in self.variables if v not in self.cut]

    def _values(self, tiles: Mapping[str, float]) -> Any:
        return np.array([float(tiles[self.names[v]]) for v in self.variables])

    def _number(self, expression: Any, what: str) -> float:
        found = sympy.sympify(expression).xreplace(self._numbers)
        if found.free_symbols:
            unknown = ", ".join(sorted(map(str, found.free_symbols)))
            raise InputError(f"{what} depends on {unknown}, which is known only with the inputs")
        return float(found)

    def _sum(self, expression: Any, name: str) -> Sum:
        found = Posynomial.of(expression, self.variables, name)
        numbers = {e: self._number(c, name) for e, c in found.terms.items()}
        return Sum.of(Posynomial(found.variables, numbers))

    def _restricted(self, one: Sum, logs: Mapping[Any, float] | None) -> Sum:
        """A sum in the tile sizes that are chosen; the others at the logarithms `logs`, or at 0,
        where the terms that hold them vanish."""
        kept = [i for i, v in enumerate(self.variables) if v in self.cut]
        rows, factors = one.rows, one.factors
        for v in self._free():
            i = self.variables.index(v)
            if logs is None:
                stay = rows[:, i] == 0
                rows, factors = rows[stay], factors[stay]
            elif v in logs:
                factors = factors * np.exp(rows[:, i] * logs[v])
        return Sum(rows[:, kept], factors)


def _constant(one: Sum) -> float:
    return float(one.factors[~one.rows.any(axis=1)].sum()) if len(one.factors) else 0.0


def _varying(one: Sum, name: str) -> Sum:
    """Without the constant term; what is left must be positive."""
    stay = one.rows.any(axis=1) & (one.factors != 0)
    if (one.factors[stay] < 0).any():
        raise InputError(
            f"{name} has a negative term in the tiles, so its least over several levels is no"
            " geometric program"
        )
    return Sum(one.rows[stay], one.factors[stay])


# --- in symbols -----------------------------------------------------------------------------------


def canonical(cost: Cost, item: Mapping[str, Any]) -> tuple[Term, ...]:
    """The bound of one level in bytes, sum alpha M^-beta with M in bytes; `item` may hold symbols,
    and with one symbol q for every tensor each alpha carries q^(1+beta)."""
    known = {t: sympy.Rational(b) if isinstance(b, Fraction) else b for t, b in item.items()}
    numbers = all(b.is_number for b in known.values())
    inside = max(known.values()) if numbers else next(iter(known.values()))
    return replace(cost, unit=Unit(known, inside)).terms


def weighted(terms: Iterable[Term], names: Sequence[str]) -> Any:
    """sum_t alpha_t sum_l Hdot_l^-1 M_l^-beta_t, where tiles nest: names are those of the levels
    below the top, which costs nothing."""
    out: Any = sympy.Integer(0)
    for t in terms:
        levels = [memory_symbol(n) ** -t.beta / rate_symbol(n) for n in names]
        out += t.alpha * sympy.Add(*levels)
    return out


def memory_symbol(level: str) -> Any:
    """M of a level."""
    return sympy.Symbol(f"M_{level}", positive=True)


def rate_symbol(level: str) -> Any:
    """Hdot of the pipe into a level."""
    return sympy.Symbol(f"Hdot_{level}", positive=True)
