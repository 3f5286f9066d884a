"""What a state starts from is a start in float32: twice the lowest float is beyond it, and beside
an exponential of 0 no number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.diagram.diagram import Diagram
from napkin.plan.plan import Plan
from napkin.run.arrays import to_device
from napkin.run.interpreted import run_recipe


@nk.diagram("q x -> q")
def by_a_difference(S: Any) -> Any:
    """The rescale of x (x - m) exp(2 (x - m)) has 2 m beside its exponential."""
    t = S - nk.reduce(S, "mean", over="x")
    return nk.contract(S, nk.exp(t), nk.exp(t), t, over="x")


@nk.diagram("q x -> q")
def by_a_square(S: Any) -> Any:
    t = S - nk.reduce(S, "mean", over="x")
    return nk.contract(nk.exp(t), t, t, over="x")


def test_a_square_beside_an_exponential_far_from_zero(forced: Callable[..., Plan]) -> None:
    """The mean is not that by its weights, so it is found in a pass of its own."""
    sizes = {"q": 2, "x": 11}
    with pytest.raises(nk.Refusal, match="no difference from a mean of its own"):
        by_a_square.stream("x")
    plan = forced(by_a_square, sizes, "x", passes=2)
    S = to_device(1e4 + np.random.default_rng(0).normal(size=(2, 11)), "fp32")
    (o,) = by_a_square.outputs
    found = run_recipe(plan.recipe, {"S": S}, sizes, {}).tensors[o.name].to_float64()
    np.testing.assert_allclose(found, by_a_square.evaluate(S.to_float64()), rtol=2e-2)


@pytest.mark.parametrize(
    ("diagram", "passes"), [(by_a_difference, 1), (by_a_square, 2)], ids=["difference", "square"]
)
@pytest.mark.parametrize("mean", [-100.0, 0.0, 100.0])
def test_an_exponential_about_a_mean_far_from_zero(
    diagram: Diagram, passes: int, mean: float, forced: Callable[..., Plan]
) -> None:
    sizes = {"q": 2, "x": 11}
    plan = forced(diagram, sizes, "x", passes=passes)
    S = to_device(mean + np.random.default_rng(0).normal(size=(2, 11)), "fp32")
    ran = run_recipe(plan.recipe, {"S": S}, sizes, {})
    found = ran.tensors[diagram.outputs[0].name].to_float64()
    wanted = diagram.evaluate(S.to_float64())
    np.testing.assert_allclose(found, wanted, rtol=1e-3)
