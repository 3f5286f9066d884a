"""Which variables of a program sit at a clip, found on numbers.

The program is min cost(g) subject to use(g) <= memory and 1 <= g_i <= upper_i, with floats for
coefficients. It is convex in log g, so a point where the Karush-Kuhn-Tucker conditions hold is an
optimum, and there are few variables: try every set of clips, the fewest first, and check.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import sympy

from napkin.bound.geometric import Layer, Sum, solve
from napkin.bound.posynomial import Posynomial, solve_exactly
from napkin.errors import InputError

Clip: TypeAlias = Literal["upper", "interior", "lower"]
Clips: TypeAlias = dict[sympy.Symbol, Clip]

_PREFERENCE: dict[Clip, int] = {"upper": 0, "interior": 1, "lower": 2}
_CLOSE = 1e-7
"""Relative error allowed in a condition that holds with equality."""
_TOUCH = 1e-10
"""Relative distance within which a tile or the memory is at its limit."""
_NEAR = 1e-5
"""Relative distance within which a tile that a solver found is at its limit."""


@dataclass(frozen=True)
class Numbers:
    """A program in numbers. An infinite upper limit is never reached, except by a variable that no
    memory term holds."""

    cost: Posynomial
    use: Posynomial
    uppers: Mapping[sympy.Symbol, float]
    memory: float

    def regime(self) -> tuple[Clips, bool]:
        """The clips at the optimum, and whether the program between them has an exact solution.

        Raises:
            InputError: even the smallest tiles do not fit.
        """
        cost, use, uppers = self.cost, self.use, self.uppers
        smallest = sum(use.terms.values())
        if smallest > self.memory * (1 + _TOUCH):
            raise InputError(
                f"the smallest tiles need {smallest:.6g} values of memory, which holds"
                f" {self.memory:.6g}"
            )
        clips: Clips = {}
        for v in cost.variables:
            if uppers[v] <= 1 or (any(cost.exponents_of(v)) and not any(use.exponents_of(v))):
                clips[v] = "upper"  # costs no memory, or has no choice
            elif not any(cost.exponents_of(v)):
                clips[v] = "lower"  # only costs memory
        free = [v for v in cost.variables if v not in clips]
        for some in _candidates(free, uppers):
            point = self._point({**clips, **some})
            if point is not None and self._is_optimal(point, {**clips, **some}):
                return {**clips, **some}, True
        if any(math.isinf(uppers[v]) for v in free):
            return {**clips, **dict.fromkeys(free, "interior")}, False
        return {**clips, **self._clips_by_solver(self._clipped(clips))}, False

    def _clipped(self, clips: Clips) -> dict[sympy.Symbol, float]:
        """The tiles that are held."""
        held = {v: clip for v, clip in clips.items() if clip != "interior"}
        return {v: 1.0 if clip == "lower" else self.uppers[v] for v, clip in held.items()}

    def _point(self, clips: Clips) -> dict[sympy.Symbol, float] | None:
        """The point that has these clips and fills the memory with the rest, if it is an exact
        one."""
        clipped = self._clipped(clips)
        found = solve_exactly(self.cost.fixed(clipped), self.use.fixed(clipped), self.memory)
        return found and {**clipped, **{v: float(g) for v, g in found.tiles.items()}}

    def _is_optimal(self, point: Mapping[sympy.Symbol, float], clips: Clips) -> bool:
        """Whether the point is feasible and some lambda >= 0 satisfies every stationarity
        condition."""
        costs, uses = self.cost.at(point), self.use.at(point)
        used = sum(uses)
        if used > self.memory * (1 + _TOUCH):
            return False
        low, high = 0.0, math.inf if used >= self.memory * (1 - _TOUCH) else 0.0
        for v, clip in clips.items():
            # A tile that just reaches its whole axis is clipped: that regime's formula is simpler.
            top = self.uppers[v] * (1 - _TOUCH if clip == "interior" else 1)
            if not 1 - _TOUCH <= point[v] <= top:
                return False
            gain = -sum(float(e) * h for e, h in zip(self.cost.exponents_of(v), costs, strict=True))
            price = sum(float(e) * m for e, m in zip(self.use.exponents_of(v), uses, strict=True))
            # d(H + lambda M)/d(log v) = lambda price - gain: 0 inside, >= 0 at 1, <= 0 at the top
            worth = gain / price if price else (math.inf if gain else 0.0)
            if clip != "upper":
                low = max(low, worth * (1 - _CLOSE))
            if clip != "lower" and self.uppers[v] > 1:
                high = min(high, worth * (1 + _CLOSE)) if price else high
        return low <= high

    def _clips_by_solver(self, clipped: Mapping[sympy.Symbol, float]) -> Clips:
        """The clips at the optimum of what is not clipped yet, in numbers."""
        cost, use = self.cost.fixed(clipped), self.use.fixed(clipped)
        names, tops = cost.variables, [self.uppers[v] for v in cost.variables]
        use, room = use.varying(), self.memory - use.constant
        if sum(use.terms.values()) >= room * (1 - _TOUCH):  # the smallest tiles fill the memory
            return dict.fromkeys(names, "lower")
        layer = Layer("memory", Sum.of(cost.varying()), (Sum.of(use),), (room,))
        (tiles,) = solve([layer], tops)
        return {
            v: "lower" if g < 1 + _NEAR else "upper" if g > top * (1 - _NEAR) else "interior"
            for v, g, top in zip(names, tiles, tops, strict=True)
        }


def _candidates(
    free: Sequence[sympy.Symbol], uppers: Mapping[sympy.Symbol, float]
) -> Iterator[Clips]:
    """Every set of clips, the fewest first; where the choice is free the first variables grow."""
    choices: list[list[Clip]] = [
        ["interior", "lower"] if math.isinf(uppers[v]) else ["upper", "interior", "lower"]
        for v in free
    ]
    for states in sorted(
        itertools.product(*choices),
        key=lambda states: (
            sum(s != "interior" for s in states),
            [_PREFERENCE[s] for s in states],
        ),
    ):
        yield dict(zip(free, states, strict=True))
