"""Gradients beside central differences, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.check.gradient_slopes import Point, real_results

STEP = 1e-5


def each(found: Any) -> tuple[Any, ...]:
    """Results as a tuple."""
    return found if isinstance(found, tuple) else (found,)


def differences(at: Point, i: int) -> Any:
    """The central differences at a point by every number of input `i`."""
    out = np.zeros_like(at.arrays[i])
    for where in np.ndindex(out.shape):
        way = np.zeros_like(out)
        way[where] = 1.0
        out[where] = at.slope(i, way, STEP)
    return out


@pytest.fixture
def gradients_agree() -> Callable[..., None]:
    """Checks a diagram's gradient at arrays that are given."""

    def check(f: nk.Diagram, *arrays: Any, tolerance: float = 1e-6) -> nk.Diagram:
        made = nk.gradient(f)
        rng = np.random.default_rng(7)
        arrays = tuple(np.asarray(a, float) if n.kind == "real" else np.asarray(a)
                       for a, n in zip(arrays, f.inputs, strict=True))  # fmt: skip
        cotangents = [rng.normal(size=v.shape) for v in real_results(f, arrays)]
        at = Point(f, arrays, cotangents)
        names = [str(n.params[0]) for n in f.inputs]
        for o, found in zip(made.outputs, each(made.evaluate(*arrays, *cotangents)), strict=True):
            wanted = differences(at, names.index(o.name[1:]))
            gap = np.linalg.norm(found - wanted)
            assert gap <= tolerance * (1 + np.linalg.norm(wanted)), (o.name, found, wanted)
        return made

    return check
