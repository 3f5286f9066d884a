"""Geometric programs over several levels: nested tiles, all chosen together.

Minimise sum_l cost_l(g_l) subject to use_l(g_l) <= room_l at every level, g_l at least the tile of
the level inside, and 1 <= g <= the axis. In y = log g the logarithm of every posynomial is convex
(Boyd et al., "A tutorial on geometric programming", 2007), so a local optimum is the optimum;
scipy finds it from analytic gradients.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from napkin.bound.posynomial import Posynomial
from napkin.errors import InputError

TOLERANCE = 1e-9
"""How far the logarithm of a constraint may be from holding."""

PRECISIONS = (1e-13, 1e-11, 1e-9, 1e-7)
"""Changes of the logarithm of the cost at which the solver ends, one after another: the finest may
be less than rounding lets it see."""

Array = Any


@dataclass(frozen=True)
class Sum:
    """A sum of monomials in the variables of one level: `factors` times exp(`rows` @ y)."""

    rows: Array
    factors: Array

    @classmethod
    def of(cls, found: Posynomial) -> Sum:
        """A posynomial whose coefficients are numbers."""
        rows = [[float(e) for e in exponents] for exponents in found.terms]
        factors = np.array([float(c) for c in found.terms.values()])
        return cls(np.array(rows).reshape(len(rows), len(found.variables)), factors)

    def at(self, y: Array) -> float:
        """The value at y = log g."""
        return float(self.factors @ np.exp(self.rows @ y)) if len(self.factors) else 0.0

    def exactly(self, g: Array) -> float:
        """The value at g, of whole numbers without rounding."""
        return float(self.factors @ np.prod(g**self.rows, axis=1)) if len(self.factors) else 0.0

    def log(self, y: Array) -> tuple[float, Array]:
        """The logarithm at y, and its gradient."""
        logs = np.log(self.factors) + self.rows @ y
        top = logs.max()
        parts = np.exp(logs - top)
        return float(top + math.log(parts.sum())), (parts / parts.sum()) @ self.rows


@dataclass(frozen=True)
class Layer:
    """A level of the program.

    Attributes:
        name: for messages.
        cost: what is minimised, in any unit.
        uses: each at most its room, in bytes.
        rooms: the limit of each of `uses`.
        children: tiles of the level inside that one tile may hold at most; 0 for any number.
        tiles: tiles that there are at least.
    """

    name: str
    cost: Sum
    uses: tuple[Sum, ...]
    rooms: tuple[float, ...]
    children: int = 0
    tiles: int = 1


def solve(layers: Sequence[Layer], uppers: Sequence[float]) -> list[list[float]]:
    """The tiles of every level, the outermost first, at the least total cost.

    Args:
        layers: outermost first; all in the same variables.
        uppers: the size of the axis that each variable cuts.

    Raises:
        InputError: even the smallest tiles do not fit a level, or the solver finds no optimum.
    """
    width = len(uppers)
    for layer in layers:
        for use, room in zip(layer.uses, layer.rooms, strict=True):
            least = use.at(np.zeros(width))
            if least > room * (1 + TOLERANCE):
                raise InputError(
                    f"the smallest tiles need {least:,.0f} bytes of {layer.name!r}, which holds"
                    f" {room:,.0f}"
                )
    if not width or not any(len(layer.cost.factors) for layer in layers):
        return [[1.0] * width for _ in layers]
    return _solved(layers, np.log(np.asarray(uppers, dtype=float)))


def _solved(layers: Sequence[Layer], tops: Array) -> list[list[float]]:
    """The optimum of a program that has one."""
    optimize: Any = import_module("scipy.optimize")  # slow to import, and has no types
    width, depth = len(tops), len(layers)
    whole = _joint([layer.cost for layer in layers], width)
    limits = [
        (_placed(use, i, depth, width), math.log(room))
        for i, layer in enumerate(layers)
        for use, room in zip(layer.uses, layer.rooms, strict=True)
        if len(use.factors)
    ]
    linear = _linear(layers, tops)

    def room_left(y: Array) -> Array:
        return np.array([top - use.log(y)[0] for use, top in limits])

    def room_slope(y: Array) -> Array:
        return np.array([-use.log(y)[1] for use, _ in limits])

    highest = np.tile(tops, depth)
    constraints: list[Any] = []
    if limits:
        constraints.append({"type": "ineq", "fun": room_left, "jac": room_slope})
    if len(linear[0]):
        rows, least = linear
        constraints.append(
            {"type": "ineq", "fun": lambda y: rows @ y - least, "jac": lambda y: rows}
        )
    found: Any = None
    for start in _starts(highest, depth, room_left, linear):
        for tolerance in PRECISIONS:
            found = optimize.minimize(
                whole.log, start, jac=True, method="SLSQP", bounds=[(0.0, top) for top in highest],
                constraints=constraints, options={"maxiter": 500, "ftol": tolerance},
            )  # fmt: skip
            start = found.x
            if found.success and _holds(found.x, room_left, linear):
                y = np.clip(found.x, 0.0, highest).reshape(depth, width)
                return [[float(g) for g in row] for row in np.exp(y)]
    raise InputError(f"no optimum over the levels was found: {found.message}")


def _starts(
    highest: Array, depth: int, room_left: Any, linear: tuple[Array, Array]
) -> Iterator[Array]:
    """Where the solver may start: from the smallest tiles, and where it is stuck there, among
    constraints that hold with nothing to spare, from tiles that grow outwards."""
    yield np.zeros(len(highest))
    steps = np.repeat(np.linspace(1.0, 0.5, depth), len(highest) // depth)
    for reach in (0.5, 0.2, 0.05, 0.01):
        start = reach * steps * highest
        if _holds(start, room_left, linear):
            yield start


def _holds(y: Array, room_left: Any, linear: tuple[Array, Array]) -> bool:
    rows, least = linear
    fits = bool((room_left(y) >= -1e-6).all()) if len(room_left(y)) else True
    return fits and (not len(rows) or bool((rows @ y - least >= -1e-6).all()))


def _joint(sums: Sequence[Sum], width: int) -> Sum:
    """The sum over levels, in the variables of all of them."""
    parts = [_placed(s, i, len(sums), width) for i, s in enumerate(sums)]
    return Sum(np.vstack([p.rows for p in parts]), np.concatenate([p.factors for p in parts]))


def _placed(one: Sum, level: int, depth: int, width: int) -> Sum:
    """A level's sum in the variables of all levels."""
    rows = np.zeros((len(one.factors), width * depth))
    rows[:, level * width : (level + 1) * width] = one.rows
    return Sum(rows, one.factors)


def _linear(layers: Sequence[Layer], tops: Array) -> tuple[Array, Array]:
    """Rows and least values: tiles nest, a tile holds at most so many of the next, and there are
    at least so many tiles, or as many as there can be."""
    depth, width = len(layers), len(tops)
    each = np.eye(depth * width).reshape(depth, width, -1)  # a row for a variable of a level
    rows: list[Array] = []
    least: list[float] = []
    for i, layer in enumerate(layers):
        if layer.tiles > 1:
            rows.append(-each[i].sum(0))
            least.append(min(math.log(layer.tiles) - float(tops.sum()), 0.0))
        if i + 1 == depth:
            break
        rows += [*(each[i] - each[i + 1])]
        least += [0.0] * width
        if layer.children:
            rows.append((each[i + 1] - each[i]).sum(0))
            least.append(-math.log(layer.children))
    return np.array(rows).reshape(len(rows), width * depth), np.array(least)
