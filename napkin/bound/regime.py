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

from napkin.bound.posynomial import Posynomial, solve_exactly
from napkin.errors import InputError

Clip: TypeAlias = Literal["upper", "interior", "lower"]
Clips: TypeAlias = dict[sympy.Symbol, Clip]

_PREFERENCE: dict[Clip, int] = {"upper": 0, "interior": 1, "lower": 2}
_CLOSE = 1e-7
"""Relative error allowed in a condition that holds with equality."""
_TOUCH = 1e-10
"""Relative distance within which a tile or the memory is at its limit."""
_SINGULAR = 1e-14
"""Share of a pivot that is rounding."""


def find_regime(
    cost: Posynomial, use: Posynomial, uppers: Mapping[sympy.Symbol, float], memory: float
) -> tuple[Clips, bool]:
    """The clips at the optimum, and whether the program between them has an exact solution.

    An infinite upper limit is never reached, except by a variable that no memory term holds.

    Raises:
        InputError: even the smallest tiles do not fit.
    """
    smallest = sum(use.terms.values())
    if smallest > memory * (1 + _TOUCH):
        raise InputError(
            f"the smallest tiles need {smallest:.6g} values of memory, which holds {memory:.6g}"
        )
    clips: Clips = {}
    for v in cost.variables:
        if uppers[v] <= 1 or (any(cost.exponents_of(v)) and not any(use.exponents_of(v))):
            clips[v] = "upper"  # costs no memory, or has no choice
        elif not any(cost.exponents_of(v)):
            clips[v] = "lower"  # only costs memory
    free = [v for v in cost.variables if v not in clips]
    for some in _candidates(free, uppers):
        point = _attempt(cost, use, uppers, memory, {**clips, **some})
        if point is not None and _is_optimal(cost, use, uppers, memory, point, {**clips, **some}):
            return {**clips, **some}, True
    if any(math.isinf(uppers[v]) for v in free):
        return {**clips, **dict.fromkeys(free, "interior")}, False
    held = {v: 1.0 if clips[v] == "lower" else uppers[v] for v in clips}
    found = _clips_by_barrier(cost.fixed(held), use.fixed(held), uppers, memory)
    return {**clips, **found}, False


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


def _attempt(
    cost: Posynomial,
    use: Posynomial,
    uppers: Mapping[sympy.Symbol, float],
    memory: float,
    clips: Clips,
) -> dict[sympy.Symbol, float] | None:
    """The point that has these clips and fills the memory with the rest, if it is an exact one."""
    held = {
        v: 1.0 if clip == "lower" else uppers[v] for v, clip in clips.items() if clip != "interior"
    }
    found = solve_exactly(cost.fixed(held), use.fixed(held), memory)
    return found and {**held, **{v: float(g) for v, g in found.tiles.items()}}


def _is_optimal(
    cost: Posynomial,
    use: Posynomial,
    uppers: Mapping[sympy.Symbol, float],
    memory: float,
    point: Mapping[sympy.Symbol, float],
    clips: Clips,
) -> bool:
    """Whether the point is feasible and some lambda >= 0 satisfies every stationarity condition."""
    costs, uses = cost.at(point), use.at(point)
    used = sum(uses)
    if used > memory * (1 + _TOUCH):
        return False
    low, high = 0.0, math.inf if used >= memory * (1 - _TOUCH) else 0.0
    for v, clip in clips.items():
        # A tile that just reaches its whole axis is clipped: the formula of that regime is simpler.
        top = uppers[v] * (1 - _TOUCH if clip == "interior" else 1)
        if not 1 - _TOUCH <= point[v] <= top:
            return False
        gain = -sum(float(e) * h for e, h in zip(cost.exponents_of(v), costs, strict=True))
        price = sum(float(e) * m for e, m in zip(use.exponents_of(v), uses, strict=True))
        # d(H + lambda M)/d(log v) = lambda price - gain: zero inside, >= 0 at 1, <= 0 at the top
        worth = gain / price if price else (math.inf if gain else 0.0)
        if clip != "upper":
            low = max(low, worth * (1 - _CLOSE))
        if clip != "lower" and uppers[v] > 1:
            high = min(high, worth * (1 + _CLOSE)) if price else high
    return low <= high


def _clips_by_barrier(
    cost: Posynomial, use: Posynomial, uppers: Mapping[sympy.Symbol, float], memory: float
) -> Clips:
    """The clips at the numeric optimum, by Newton steps on a logarithmic barrier in y = log g."""
    names = cost.variables
    tops = [math.log(uppers[v]) for v in names]
    barrier = _Barrier(
        _LogSum.of(cost.varying()), _LogSum.of(use.varying()), tops, memory - use.constant
    )
    point = [top / 2 for top in tops]
    while math.isinf(barrier.at(1, point)[0]):
        point = [y / 2 for y in point]
        if max(point) < 1e-12:  # the smallest tiles fill the memory
            return dict.fromkeys(names, "lower")
    weight = 1.0
    while weight < 1e10:
        weight *= 30
        for _ in range(50):
            value, slope, bend = barrier.at(weight, point)
            step = _solve(bend, [-s for s in slope])
            fall = -sum(a * b for a, b in zip(slope, step, strict=True))
            if fall < 1e-8:
                break
            length = 1.0
            while length > 1e-12:
                trial = [y + length * d for y, d in zip(point, step, strict=True)]
                if barrier.at(weight, trial)[0] < value - fall * length / 4:
                    break
                length /= 2
            else:
                break
            point = trial
    near = weight**-0.5  # there the multiplier of a limit outweighs the distance to it
    return {
        v: "lower" if y < near else "upper" if top - y < near else "interior"
        for v, y, top in zip(names, point, tops, strict=True)
    }


@dataclass(frozen=True)
class _LogSum:
    """log of a posynomial, a convex function of y = log g."""

    rows: list[list[float]]
    logs: list[float]

    @classmethod
    def of(cls, sum_: Posynomial) -> _LogSum:
        rows = [[float(x) for x in exponents] for exponents in sum_.terms]
        return cls(rows, [math.log(c) for c in sum_.terms.values()])

    def at(self, point: Sequence[float]) -> tuple[float, list[float], list[list[float]]]:
        """Value, gradient and Hessian."""
        logs = [
            c + sum(a * y for a, y in zip(row, point, strict=True))
            for row, c in zip(self.rows, self.logs, strict=True)
        ]
        peak = max(logs)
        parts = [math.exp(x - peak) for x in logs]
        total = sum(parts)
        shares = [p / total for p in parts]
        size = range(len(point))
        mean = [sum(p * row[i] for p, row in zip(shares, self.rows, strict=True)) for i in size]
        away = [[x - m for x, m in zip(row, mean, strict=True)] for row in self.rows]
        bend = [
            [sum(p * row[i] * row[j] for p, row in zip(shares, away, strict=True)) for j in size]
            for i in size
        ]
        return peak + math.log(total), mean, bend


@dataclass(frozen=True)
class _Barrier:
    """weight log cost - log(log memory - log use) - sum log y (top - y)."""

    cost: _LogSum
    use: _LogSum
    tops: list[float]
    memory: float

    def at(
        self, weight: float, point: Sequence[float]
    ) -> tuple[float, list[float], list[list[float]]]:
        """Value, gradient and Hessian; an infinite value outside the limits."""
        if self.memory <= 0 or any(
            not 0 < y < top for y, top in zip(point, self.tops, strict=True)
        ):
            return math.inf, [], []
        level, level1, level2 = self.use.at(point)
        room = math.log(self.memory) - level
        if room <= 0:
            return math.inf, [], []
        height, height1, height2 = self.cost.at(point)
        value = weight * height - math.log(room)
        slope = [weight * a + b / room for a, b in zip(height1, level1, strict=True)]
        size = range(len(point))
        bend = [
            [
                weight * height2[i][j] + level2[i][j] / room + level1[i] * level1[j] / room**2
                for j in size
            ]
            for i in size
        ]
        for i, (y, top) in enumerate(zip(point, self.tops, strict=True)):
            value -= math.log(y) + math.log(top - y)
            slope[i] += 1 / (top - y) - 1 / y
            bend[i][i] += 1 / y**2 + 1 / (top - y) ** 2
        return value, slope, bend


def _solve(rows: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Gaussian elimination for a positive definite matrix; 0 along what rounding leaves singular,
    as where only a product of variables is steep."""
    work = [[*row, b] for row, b in zip(rows, right, strict=True)]
    size = len(work)
    sound: list[bool] = []
    for i in range(size):
        sound.append(work[i][i] > _SINGULAR * abs(rows[i][i]))
        for j in range(i + 1, size) if sound[i] else ():
            factor = work[j][i] / work[i][i]
            work[j] = [x - factor * y for x, y in zip(work[j], work[i], strict=True)]
    answer = [0.0] * size
    for i in reversed(range(size)):
        known = sum(work[i][j] * answer[j] for j in range(i + 1, size))
        answer[i] = (work[i][size] - known) / work[i][i] if sound[i] else 0.0
    return answer
