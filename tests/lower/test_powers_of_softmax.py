"""Powers of a softmax where a chunk, or a lane, has no finite score.

Twice the lowest float is beyond float32, so 2 t - 2 m would be no number there, and 2 (t - m) is.
"""

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
def squared(S: Any) -> Any:
    P = nk.softmax(S, over="x")
    return nk.contract(P, P, over="x")


@nk.diagram("q x -> q")
def scaled(S: Any) -> Any:
    """A constant is folded into the exponential."""
    P = nk.softmax(S * 3.0, over="x")
    return nk.contract(P, P, P, over="x")


@nk.diagram("q x -> q")
def top(S: Any) -> Any:
    """Also read at a maximum of squares, which is exp(2 (max t - m))."""
    P = nk.softmax(S, over="x")
    return nk.reduce(P * P, "max", over="x")


@nk.diagram("q x, q x -> q")
def two(S: Any, T: Any) -> Any:
    P = nk.softmax(S, over="x") * nk.softmax(T, over="x")
    return nk.contract(P, P, over="x")


@pytest.mark.parametrize("diagram", [squared, scaled, top, two], ids=lambda d: d.name)
@pytest.mark.parametrize("tiles", [{"x": 4}, {"x": 1024}], ids=["chunks", "lanes"])
def test_powers_of_a_softmax_without_a_finite_score_at_first(
    diagram: Diagram, tiles: dict[str, int], forced: Callable[..., Plan]
) -> None:
    sizes = {"q": 3, "x": 11}
    plan = forced(diagram, sizes, "x", tiles, passes=1)
    rng, arrays = np.random.default_rng(0), dict[str, Any]()
    for n in diagram.inputs:
        arrays[str(n.params[0])] = rng.normal(size=[3, 11])
        arrays[str(n.params[0])][0, :5] = -np.inf
        arrays[str(n.params[0])][1, 2:9] = -np.inf
        arrays[str(n.params[0])][2] = -np.inf
    ran = run_recipe(plan.recipe, {t: to_device(x, "fp32") for t, x in arrays.items()}, sizes, {})
    found = ran.tensors[diagram.outputs[0].name].to_float64()
    np.testing.assert_allclose(found, diagram.evaluate(*arrays.values()), rtol=1e-5)
