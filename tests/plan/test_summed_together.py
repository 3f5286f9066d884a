"""Reductions over several axes: streamed together where they are contracted, nested where not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.diagram.library import load

LONG = {"b": 8, "t": 2048, "c": 2048, "d": 1024}


@nk.diagram("b t c, b t d -> c d", sizes=LONG)
def weight_gradient(X: Any, D: Any) -> Any:
    return nk.contract(X, D, over="b t")


@nk.diagram("h i j a, h i j c -> a c", sizes={"h": 16, "i": 48, "j": 48, "a": 2048, "c": 2048})
def of_three(A: Any, B: Any) -> Any:
    return nk.contract(A, B, over="h i j")


@nk.diagram("n d, n d -> ()", sizes={"n": 8192, "d": 4096})
def squared_error(X: Any, Y: Any) -> Any:
    return nk.reduce((X - Y) ** 2, "mean", over="n d")


def test_contracted_axes_are_streamed_together() -> None:
    plan = nk.derive(weight_gradient, on="h100")
    (k,) = plan.kernels
    assert k.choice.kernel.stream.axes == ("b", "t")
    assert k.tiles["b"] == 1


@pytest.mark.parametrize("on", ["h100", "a100"])
def test_a_sum_over_two_axes_takes_as_long_as_over_one(on: str) -> None:
    plan = nk.derive(weight_gradient, on=on)
    flat = nk.derive(load("matmul"), on=on, sizes={"a": 2048, "b": 8 * 2048, "c": 1024})
    assert plan.seconds < 1.2 * flat.seconds


def test_values_bytes_and_warpgroups() -> None:
    plan = nk.derive(weight_gradient, on="h100")
    assert plan.launched is not plan
    verdict = plan.check(sizes={"b": 3, "t": 150, "c": 200, "d": 264}, resources=False)
    verdict.raise_if_wrong()
    assert "weight_gradient, warpgroups" in str(verdict)


def test_three_axes() -> None:
    plan = nk.derive(of_three, on="h100")
    assert any(len(k.choice.kernel.stream.axes) > 1 for k in plan.kernels)
    plan.check(sizes={"h": 3, "i": 20, "j": 7, "a": 70, "c": 40}, resources=False).raise_if_wrong()


def test_an_axis_in_one_chunk_is_held_whole() -> None:
    """To stream the other one says the same in fewer words."""
    (k,) = nk.derive(load("matmul_w4a16"), on="h100").kernels
    assert k.choice.kernel.stream.axes == ("g",)


@pytest.mark.parametrize("how", ["sum", "max", "min", "prod"])
def test_a_reduction_of_everything_is_nested(how: str) -> None:
    @nk.diagram("n d -> ()", sizes={"n": 8192, "d": 4096})
    def everything(X: Any) -> Any:
        return nk.reduce(X, how, over="n d")

    plan = nk.derive(everything, on="h100", dtype="fp32")
    assert [k.choice.kernel.group for k in plan.kernels] == [("n",), ()]
    law = f"{how}(X, over n d) = {how}({how}(X, over d), over n)"
    assert law in str(plan.trail)
    assert plan.seconds < 1.5 * 4 * 8192 * 4096 / 3.35e12
    X = np.random.default_rng(0).uniform(0.9, 1.1, size=(70, 33))
    assert np.allclose(plan(X), getattr(np, how)(X), rtol=1e-4)


def test_the_mean_of_everything_counts_both_axes() -> None:
    plan = nk.derive(squared_error, on="h100")
    assert len(plan.kernels) == 2
    plan.check(sizes={"n": 301, "d": 77}, resources=False).raise_if_wrong()
