"""The gradient of a diagram beside slopes of the diagram's values, in float64.

`napkin.gradient` has no part in either slope. Central differences move an input along random
directions. torch's autograd differentiates the evaluation of the diagram term by term.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from napkin.check.inputs import Given
from napkin.check.verdict_rows import ValueRow
from napkin.diagram.diagram import Diagram
from napkin.errors import InputError
from napkin.gradient.gradient import gradient_names

Array = np.ndarray[Any, Any]
Autograd = Callable[[Diagram, Sequence[Array], Sequence[Array]], list[Array]]
"""From a diagram, its inputs and cotangents of its real outputs: gradients by its real inputs."""

TOLERANCE = 1e-6
"""Largest relative error of a gradient, by norm."""

STEPS = (1e-4, 1e-5, 1e-6, 1e-3, 1e-7)
"""How far inputs are moved: one of these is neither lost in rounding nor past a bend."""

WAYS = 4
"""Directions in which an input is moved."""

NOTHING = "every cotangent is 0, as that of what is no finite number"
"""Why there is nothing to compare with where no value counts."""

LOST = 1e-9
"""A slope is compared with at least this part of the values, which are rounded."""


@dataclass(frozen=True)
class Point:
    """Where a diagram is differentiated.

    Attributes:
        f: the diagram.
        arrays: its inputs, in order.
        cotangents: of its outputs of real numbers, in order.
    """

    f: Diagram
    arrays: Sequence[Array]
    cotangents: Sequence[Array]

    @cached_property
    def size(self) -> float:
        """The sum of the sizes of what `value` adds up."""
        pairs = zip(self.cotangents, real_results(self.f, self.arrays), strict=True)
        return float(sum(np.abs(_weighted(c, v)).sum() for c, v in pairs))

    @property
    def weighted(self) -> bool:
        """Whether there is a cotangent that is not 0, if there are any."""
        return any(c.any() or not c.size for c in self.cotangents)

    def value(self, i: int, x: Array) -> float:
        """The sum of outputs times cotangents where input `i` is `x`."""
        found = real_results(self.f, [*self.arrays[:i], x, *self.arrays[i + 1 :]])
        return float(
            sum(_weighted(c, v).sum() for c, v in zip(self.cotangents, found, strict=True))
        )

    def slope(self, i: int, way: Array, step: float) -> float:
        """The central difference of `value` as input `i` moves by `step` in the direction `way`."""
        x = self.arrays[i]
        return (self.value(i, x + step * way) - self.value(i, x - step * way)) / (2 * step)

    def bends(self, i: int, ways: Sequence[Array]) -> bool:
        """Whether slopes on both sides of the point differ, as at the bend of a maximum."""
        x, here, step = self.arrays[i], self.value(i, self.arrays[i]), 1e-6
        for way in ways:
            right = (self.value(i, x + step * way) - here) / step
            left = (here - self.value(i, x - step * way)) / step
            slack = 1e-3 * max(abs(left), abs(right)) + LOST * self.size
            if not abs(right - left) <= slack:
                return True
        return False


def derivative_rows(
    f: Diagram,
    made: Diagram,
    sizes: Mapping[str, int],
    said: Given,
    seed: int,
    autograd: Autograd | None,
) -> tuple[list[ValueRow], list[str]]:
    """The errors of each output of a gradient, and notes on what was not compared.

    Args:
        f: the diagram that `made` is the gradient of.
        sizes: of its axes.
        said: of the inputs of `made`.
        autograd: torch's, where torch is installed.
    """
    rng = np.random.default_rng(seed)
    at = drawn(f, made, sizes, said, rng)
    by = {called: name for name, called in gradient_names(f)[1].items()}
    names = [by[o.name] for o in made.outputs]  # of the inputs by which it is taken
    every = results(made, [*at.arrays, *at.cotangents])
    gradients = dict(zip(names, every, strict=True))
    places = {name: i for i, name in enumerate(f.input_names)}
    rows = [_beside_differences(at, places[name], g, rng) for name, g in gradients.items()]
    if autograd is None:
        return rows, ["torch is not installed: gradients are compared with differences alone"]
    try:
        found = autograd(f, at.arrays, at.cotangents)
    except Exception as error:  # of an operator of a user, for which torch may have no function
        why = " ".join(str(error).split())[:160]
        return rows, [f"torch cannot differentiate {f.name}: {type(error).__name__}: {why}"]
    real = [str(n.params[0]) for n in f.inputs if n.kind == "real"]
    theirs = dict(zip(real, found, strict=True))
    rows += [_beside_autograd(at, places[n], g, theirs[n]) for n, g in gradients.items()]
    return rows, []


def check_gradient(f: Diagram, made: Diagram) -> None:
    """Check that a diagram has the inputs and outputs of a gradient of another.

    Raises:
        InputError: it has others, or the first is no diagram.
    """
    if not isinstance(f, Diagram):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"gradient_of={f!r} is no diagram; give the one that nk.gradient was of")
    cotangents, real = gradient_names(f)
    inputs, outputs = [*f.input_names, *cotangents.values()], {*real.values()}
    if made.input_names != inputs or not {o.name for o in made.outputs} <= outputs:
        raise InputError(
            f"{made.name} is no gradient of {f.name}; derive the plan of nk.gradient({f.name})"
        )


def drawn(
    f: Diagram, made: Diagram, sizes: Mapping[str, int], said: Given, rng: np.random.Generator
) -> Point:
    """Inputs and cotangents. Where values of normal inputs are no finite numbers, as the root of a
    negative one, their sizes are taken if that helps. What is no finite number gets cotangent 0."""
    given = {*said.arrays, *said.ranges}
    arrays = [np.asarray(said.values(f, n, sizes, rng)) for n in f.inputs]
    arrays = [a.astype(float) if n.kind == "real" else a
              for a, n in zip(arrays, f.inputs, strict=True)]  # fmt: skip
    free = [n.kind == "real" and str(n.params[0]) not in given for n in f.inputs]
    sizes_of_them = [np.abs(a) if own else a for a, own in zip(arrays, free, strict=True)]
    if _undefined(f, sizes_of_them) < _undefined(f, arrays):
        arrays = sizes_of_them
    full = {**sizes, **f.sizes_of([a.shape for a in arrays])}
    leaves = made.inputs[len(f.inputs) :]
    cotangents = [np.asarray(said.values(made, n, full, rng), float) for n in leaves]
    found = real_results(f, arrays)
    return Point(f, arrays, [np.where(np.isfinite(v), c, 0.0)
                             for c, v in zip(cotangents, found, strict=True)])  # fmt: skip


def results(
    f: Diagram, arrays: Sequence[Array], scalars: Mapping[str, float] | None = None
) -> tuple[Array, ...]:
    """The outputs, in order."""
    found = f.evaluate(*arrays, **(scalars or {}))
    return found if isinstance(found, tuple) else (found,)


def real_results(f: Diagram, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of real numbers, in order."""
    pairs = zip(results(f, arrays), f.outputs, strict=True)
    return [v for v, o in pairs if o.node.kind == "real"]


def _beside_differences(at: Point, i: int, g: Array, rng: np.random.Generator) -> ValueRow:
    """The row of one gradient beside central differences, at the step that shows it best."""
    ways = [rng.normal(size=g.shape) * _scale(at.arrays[i]) for _ in range(WAYS)]
    said = np.array([float((g * way).sum()) for way in ways])
    error = math.inf
    for step in STEPS:
        wanted = np.array([at.slope(i, way, step) for way in ways])
        error = min(error, _gap(said, wanted, LOST * at.size / step))
        if error <= TOLERANCE:
            break
    why = "" if error <= TOLERANCE else _why(at, i, ways)
    why = why if at.weighted else NOTHING
    return ValueRow("central differences", _name(at.f, i), error, TOLERANCE, undefined=why)


def _beside_autograd(at: Point, i: int, g: Array, wanted: Array) -> ValueRow:
    """The row of one gradient beside torch's. Where torch has no finite number, differences alone
    judge."""
    there = np.isfinite(wanted)
    error = _gap(g[there], wanted[there], LOST * at.size / _scale(at.arrays[i]))
    why = "torch has no finite number there" if wanted.size and not there.any() else ""
    why = why if at.weighted else NOTHING
    return ValueRow("torch's autograd", _name(at.f, i), error, TOLERANCE, undefined=why)


def _why(at: Point, i: int, ways: Sequence[Array]) -> str:
    """Why there is no slope to compare with, in words; "" where there is one."""
    real = [o.name for o in at.f.outputs if o.node.kind == "real"]
    for name, v in zip(real, real_results(at.f, at.arrays), strict=True):
        if not np.isfinite(v).all():
            return f"{name} has values that are no finite numbers"
    return f"values bend where {at.f.inputs[i].params[0]} is moved" if at.bends(i, ways) else ""


def _gap(found: Array, wanted: Array, least: float) -> float:
    """The relative error by norm, beside `least` where what is wanted is smaller; inf for NaN."""
    gap = float(np.linalg.norm(found - wanted))
    error = gap / max(float(np.linalg.norm(wanted)), least, 1e-300)
    return error if math.isfinite(error) else math.inf


def _scale(x: Array) -> float:
    """The root of the mean square of an input, and 1 for zeros."""
    return float(np.sqrt(np.mean(np.square(x)))) or 1.0 if x.size else 1.0


def _weighted(c: Array, v: Array) -> Array:
    return np.where(c == 0, 0.0, c * np.where(c == 0, 0.0, v))


def _undefined(f: Diagram, arrays: Sequence[Array]) -> int:
    return sum(int((~np.isfinite(v)).sum()) for v in real_results(f, arrays))


def _name(f: Diagram, i: int) -> str:
    return gradient_names(f)[1][str(f.inputs[i].params[0])]
