"""The inputs of a check: those that are given, and random ones, such as what reads them can make
sense of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from napkin.diagram.diagram import Diagram
from napkin.diagram.reading import numbers
from napkin.errors import InputError, check_known
from napkin.ir.key_sets import spec_of
from napkin.ir.node import Node
from napkin.ir.storage import storage_type
from napkin.ir.taking import taken_axes
from napkin.ir.types import RANGES
from napkin.keys.typical import drawn, needed

Numbers = np.ndarray[Any, Any]
Range = tuple[float, float]
"""The least and the largest number that is drawn."""


@dataclass(frozen=True)
class Given:
    """What a user says of inputs: the numbers of some, the ranges of others; made by `given`.

    Attributes:
        sizes: of the axes of the arrays.
    """

    arrays: Mapping[str, Numbers] = field(default_factory=dict[str, Numbers])
    ranges: Mapping[str, Range] = field(default_factory=dict[str, Range])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])

    def values(
        self, diagram: Diagram, n: Node, sizes: Mapping[str, int], rng: np.random.Generator
    ) -> Numbers:
        """The numbers of an input: as given, or drawn."""
        name, shape = str(n.params[0]), [sizes[a] for a in n.axes]
        if name in self.arrays:
            return self.arrays[name]
        if name in self.ranges:
            low, high = self.ranges[name]
            if n.kind == "real":
                return rng.uniform(low, high, shape)
            return rng.integers(int(low), int(high) + 1, shape)
        if n.kind == "int":
            return whole_numbers(diagram, n, shape, sizes, rng)
        return rng.normal(size=shape) if n.kind == "real" else rng.integers(0, 2, size=shape)


def given(
    diagram: Diagram,
    inputs: Mapping[str, Any] | None,
    ranges: Mapping[str, Any] | None,
    sizes: Mapping[str, int] | None = None,
) -> Given:
    """What is said of inputs, beside sizes that are asked for, checked.

    Raises:
        InputError: there is no such input, an array does not fit it, or a range is none.
    """
    for what, of in (("inputs", inputs), ("ranges", ranges)):
        if not isinstance(of, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"{diagram.name}: {what}={of!r} is no dictionary from names of inputs")
    leaves = dict(zip(diagram.input_names, diagram.inputs, strict=True))
    for name in (*(inputs or {}), *(ranges or {})):
        check_known(name, leaves, f"{diagram.name} has no input {name!r}")
        if name in (inputs or {}) and name in (ranges or {}):
            raise InputError(f"{diagram.name}: {name} is given, so it has no range; leave one out")
    spans = {k: _range(diagram, leaves[k], r) for k, r in (ranges or {}).items()}
    arrays = {k: numbers(a, leaves[k], diagram.name) for k, a in (inputs or {}).items()}
    found: dict[str, int] = {}
    for name, array in arrays.items():
        axes = leaves[name].axes
        if array.ndim != len(axes):
            raise InputError(
                f"{diagram.name}: {name} has axes '{' '.join(axes)}' but an array of shape "
                f"{array.shape} was given"
            )
        found = {**dict(zip(axes, array.shape, strict=True)), **found}
        for axis, size in zip(axes, array.shape, strict=True):
            other = (sizes or {}).get(axis, found[axis])
            if size != other:
                raise InputError(
                    f"{diagram.name}: axis {axis} is {size} in {name} but {other} elsewhere"
                )
    return Given(arrays, spans, found)


def _range(diagram: Diagram, n: Node, given: Any) -> Range:
    """A range, as numbers that the input holds."""
    where = f"{diagram.name}: the range of {n.params[0]}"
    try:
        low, high = map(float, given)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{where} is {given!r}; write two numbers, as in (0.9, 1.0)") from None
    if not (math.isfinite(low) and math.isfinite(high) and math.isfinite(high - low)):
        raise InputError(f"{where} is {low:g} to {high:g}; both ends must be finite")
    if low > high:
        raise InputError(f"{where} runs backwards; write {high:g} to {low:g}")
    holds = range(2) if n.kind == "bool" else RANGES.get(storage_type(n, ""))
    if holds is not None and not (holds[0] <= low == int(low) and holds[-1] >= high == int(high)):
        raise InputError(f"{where} is {low:g} to {high:g}; write whole numbers from {holds[0]} to "
                         f"{holds[-1]}")  # fmt: skip
    return low, high


def whole_numbers(
    diagram: Diagram,
    n: Node,
    shape: Sequence[int],
    sizes: Mapping[str, int],
    rng: np.random.Generator,
) -> np.ndarray[Any, Any]:
    """Values of the input `n`: lengths and places for key sets, positions for takes (one past
    either end among them, which are clamped), else anything that a type of 8 bits or less holds, or
    up to the largest axis."""
    for keys in diagram.key_sets:
        what = needed(keys.args).get(n)
        if what is not None:
            return drawn(what, tuple(shape), sizes[spec_of(keys).keys[0]], rng)
    holds = RANGES[storage_type(n, "")]
    for t in diagram.takes:
        for axis, at in zip(taken_axes(t), t.args[1:], strict=True):
            if at is n:
                low, high = max(-1, holds[0]), min(sizes[axis], holds[-1])
                return rng.integers(low, high + 1, size=shape)
    if len(holds) <= 256:
        return rng.integers(holds[0], holds[-1] + 1, size=shape)
    others = [sizes[a] for a in diagram.axes if a not in n.axes] or [2]
    return rng.integers(0, max(others), size=shape)
