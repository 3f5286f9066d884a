"""x == max_x x of the largest, where the maximum is of another kernel: both are rounded alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.run.arrays import to_device
from napkin.run.interpreted import run_recipe


@nk.diagram("b x -> b x", sizes={"b": 64, "x": 100_000})
def largest(X: Any) -> Any:
    """max_x (x r) = r max_x x would be rounded otherwise, and so is what passes in bf16."""
    t = X * (1.0 / (nk.reduce(nk.abs(X), "sum", over="x") + 0.1)) * 0.7
    return nk.where(t == nk.reduce(t, "max", over="b x"), 1.0, 0.0)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_largest_is_found_by_another_kernel(dtype: str) -> None:
    plan = nk.derive(largest, on="h100", dtype=dtype)
    assert len(plan.kernels) > 1
    rng = np.random.default_rng(0)
    for _ in range(8):
        X = to_device(rng.normal(size=(5, 33)), dtype)
        found = run_recipe(plan.recipe, {"X": X}, {"b": 5, "x": 33}, {}).tensors["O"].to_float64()
        np.testing.assert_array_equal(found, largest.evaluate(X.to_float64()))


@nk.diagram("t d, d e, e -> t, t, t, t", sizes={"t": 8192, "d": 1024, "e": 256})
def routed(X: Any, W: Any, B: Any) -> Any:
    """The second expert is a maximum of values that no sum hands on: those of the other experts."""
    S = nk.sigmoid(nk.contract(X, W, over="d"))
    _, (first, second) = nk.topk(S + B, 2, over="e")
    return nk.take(S, e=first), nk.take(S, e=second), first, second


@nk.diagram("t d, d e -> t, t, t, t, t, t, t, t", sizes={"t": 8192, "d": 1024, "e": 256})
def eight_best(X: Any, W: Any) -> Any:
    return nk.topk(nk.sigmoid(nk.contract(X, W, over="d")), 8, over="e")[1]


@pytest.mark.parametrize("diagram", [routed, eight_best], ids=lambda d: d.name)
def test_ranks_are_found_by_another_kernel(diagram: nk.Diagram) -> None:
    """What a maximum is taken of passes in float32, as what is compared with it."""
    plan = nk.derive(diagram)
    assert len(plan.kernels) > 1
    verdict = plan.check(sizes={"t": 5, "d": 4, "e": 12}, resources=False)
    assert verdict.ok, str(verdict)
