"""A factor of the tail that carries an axis which the reduction removes stays inside of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fold_law import assert_law

import napkin as nk
from napkin.derive.prepare import prepare
from napkin.diagram.diagram import Diagram
from napkin.settings.labels import labellings

SIZES = {"a": 5, "b": 4, "c": 3}


def over(x: Any, how: str, axes: str) -> Any:
    return nk.reduce(x, how, over=axes)


@nk.diagram("c b a, b c -> c a")
def a_mean_of_each_row(X: Any, Y: Any) -> Any:
    t = nk.contract(Y, over(Y, "mean", "b"), over="c b")
    return t * over(X, "sum", "b")


@nk.diagram("a, a b -> ()")
def weights_beside_a_matrix(X: Any, W: Any) -> Any:
    return nk.contract(nk.softmax(X, over="a"), W, over="a b")


@nk.diagram("a, b -> ()")
def weights_beside_a_vector(X: Any, W: Any) -> Any:
    return nk.contract(nk.softmax(X, over="a"), W, over="a b")


@nk.diagram("a b, b -> ()")
def a_maximum(X: Any, W: Any) -> Any:
    return over(X + over(X, "max", "a") * W, "max", "a b")


@nk.diagram("a b, b -> ()")
def a_maximum_of_two(X: Any, W: Any) -> Any:
    return over(nk.maximum(X, over(X, "max", "a") + W), "max", "a b")


@nk.diagram("a b -> ()")
def a_minimum_of_positive(X: Any) -> Any:
    return over(X * nk.exp(over(X, "min", "a")), "min", "a b")


@nk.diagram("a b, b -> ()")
def a_product(X: Any, W: Any) -> Any:
    return over(X * over(X, "sum", "a") * W, "prod", "a b")


@nk.diagram("a b, b -> ()")
def squares_about_each_mean(X: Any, W: Any) -> Any:
    return over((X - over(X, "mean", "a")) ** 2 * W, "sum", "a b")


@nk.diagram("a b c -> ()")
def two_orders(X: Any) -> Any:
    m = over(X, "mean", "a")
    return over((X * X - m) * over(m * X, "sum", "a b"), "sum", "a b c")


@nk.diagram("a b, b -> ()")
def inside_an_exponential(X: Any, W: Any) -> Any:
    return over(X * nk.exp(over(X, "mean", "a b") * W), "sum", "a b")


ALL = [a_mean_of_each_row, weights_beside_a_matrix, weights_beside_a_vector, a_maximum]
ALL += [a_maximum_of_two, a_minimum_of_positive, a_product, squares_about_each_mean]
ALL += [two_orders, inside_an_exponential]


@pytest.mark.parametrize("diagram", ALL, ids=lambda d: d.name)
def test_every_stream_keeps_its_law(diagram: Diagram) -> None:
    ready = prepare(diagram)
    streamed = [
        kernel
        for kernel in labellings("k", ready.outputs, ready.names, SIZES)
        if kernel.stream.axes
    ]
    assert streamed
    for kernel in streamed:
        assert_law(kernel, trials=6)


def test_in_kernels() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(7, 16, 3)), rng.normal(size=(16, 7))
    plan = nk.derive(a_mean_of_each_row, sizes={"c": 7, "b": 16, "a": 3}, dtype="fp32")
    np.testing.assert_allclose(plan(X, Y), a_mean_of_each_row.evaluate(X, Y), rtol=1e-4, atol=1e-5)
    S, W = rng.normal(size=64), rng.normal(size=(64, 32))
    plan = nk.derive(weights_beside_a_matrix, sizes={"a": 64, "b": 32}, dtype="fp32")
    np.testing.assert_allclose(plan(S, W), weights_beside_a_matrix.evaluate(S, W), rtol=1e-4)
