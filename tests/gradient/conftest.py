"""Gradients beside central differences, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import napkin as nk

STEP = 1e-5


def each(found: Any) -> tuple[Any, ...]:
    """Results as a tuple."""
    return found if isinstance(found, tuple) else (found,)


def differences(f: nk.Diagram, arrays: Sequence[Any], cotangents: Sequence[Any], i: int) -> Any:
    """The central differences of the sum of outputs times cotangents by input `i`."""
    real = [o.node.kind == "real" for o in f.outputs]

    def value(x: Any) -> float:
        found = each(f.evaluate(*arrays[:i], x, *arrays[i + 1 :]))
        kept = [v for v, r in zip(found, real, strict=True) if r]
        return float(sum((c * v).sum() for c, v in zip(cotangents, kept, strict=True)))

    out = np.zeros_like(arrays[i])
    for at in np.ndindex(out.shape):
        step = np.zeros_like(out)
        step[at] = STEP
        out[at] = (value(arrays[i] + step) - value(arrays[i] - step)) / (2 * STEP)
    return out


@pytest.fixture
def gradients_agree() -> Callable[..., None]:
    """Checks a diagram's gradient at arrays that are given."""

    def check(f: nk.Diagram, *arrays: Any, tolerance: float = 1e-6) -> nk.Diagram:
        made = nk.gradient(f)
        rng = np.random.default_rng(7)
        arrays = tuple(np.asarray(a, float) if n.kind == "real" else np.asarray(a)
                       for a, n in zip(arrays, f.inputs, strict=True))  # fmt: skip
        values = [v for v, o in zip(each(f.evaluate(*arrays)), f.outputs, strict=True)
                  if o.node.kind == "real"]  # fmt: skip
        cotangents = [rng.normal(size=v.shape) for v in values]
        names = [str(n.params[0]) for n in f.inputs]
        for o, found in zip(made.outputs, each(made.evaluate(*arrays, *cotangents)), strict=True):
            wanted = differences(f, arrays, cotangents, names.index(o.name[1:]))
            gap = np.linalg.norm(found - wanted)
            assert gap <= tolerance * (1 + np.linalg.norm(wanted)), (o.name, found, wanted)
        return made

    return check
