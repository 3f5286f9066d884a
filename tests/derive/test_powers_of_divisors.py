"""A sum that is scaled by a power of a result is divided by one factor after another: the power
leaves the range of floats long before the quotient does, and what is divided by it would be 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fold_law import breach

import napkin as nk
from napkin.run.interpreted import run_recipe, stored


def total(x: Any) -> Any:
    return nk.reduce(x, "sum", over="x")


@nk.diagram("q x -> q")
def concentration(X: Any) -> Any:
    return total((X / total(X)) ** 2)


@nk.diagram("q x, q x -> q")
def between_shares(X: Any, Y: Any) -> Any:
    return total(X * Y / (total(X) * total(Y) * total(X)))


BACKWARD = nk.gradient(concentration)


@pytest.mark.parametrize("scale", [1e-110, 1.0, 1e110])
def test_cubes_beyond_the_range_of_floats(scale: float) -> None:
    rng = np.random.default_rng(0)
    X, Y = scale * np.abs(rng.normal(size=(2, 2, 12)))
    sizes = {"q": 2, "x": 12}
    kernel = BACKWARD.stream("x", passes=2).kernel
    assert breach(kernel, {"X": X, "dO": np.ones(2)}, sizes, (5, 3, 4)) is None
    kernel = between_shares.stream("x").kernel
    assert breach(kernel, {"X": X, "Y": Y}, sizes, (5, 3, 4)) is None


def test_a_plan_in_float32() -> None:
    """The cube of a sum of 2e13 is infinite in float32, and the gradient had lost a term."""
    plan = nk.derive(BACKWARD, sizes={"q": 8192, "x": 65536}, dtype="fp32")
    (planned,) = plan.kernels
    assert len(planned.choice.kernel.stream.passes) == 2
    X = 1e9 * np.abs(np.random.default_rng(1).normal(size=(2, 20_000)))
    sizes = {"q": 2, "x": 20_000}
    ran = run_recipe(plan.recipe, stored(plan.diagram, [X, np.ones(2)], "fp32"), sizes, {})
    found = ran.tensors[plan.tensor_of["dX"]].to_float64()
    shares = X / X.sum(axis=1, keepdims=True)
    wanted = shares - (shares**2).sum(axis=1, keepdims=True)
    wanted *= 2 / X.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
