"""The language on arrays: numbers of numpy beside them, angles, and what is said of other ways."""

from __future__ import annotations

import copy
import cProfile
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import napkin as nk


def traced(made: Callable[[nk.Array, nk.Array], Any]) -> nk.Diagram:
    return nk.diagram("n d, d m -> n m")(lambda X, W: made(X, W))


def product(X: nk.Array, W: nk.Array) -> nk.Array:
    return nk.contract(X, W, over="d")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda X, W: X @ W, "write nk.contract(X, Y, over='...')"),
        (lambda X, W: X[0], "write nk.take(X, axis=position)"),
        (lambda X, W: product(X.T, W), "no 'T'; axes have names and no order"),
        (lambda X, W: X.sum("d"), "no 'sum'; write nk.reduce(x, 'sum', over='...')"),
        (lambda X, W: X.shape, "write nk.size('a')"),
        (
            lambda X, W: np.exp(product(X, W)),
            "np.exp is a function of numpy's arrays; write nk.exp",
        ),
        (lambda X, W: np.ones(3) * product(X, W), "pass it to the diagram as an input"),
        (lambda X, W: product(X, W) / math.sqrt(nk.size("d")), "is no number yet"),
        (
            lambda X, W: nk.reduce(X, "argmax", over="d"),
            "not a reduction; write nk.reduce(nk.where",
        ),
        (lambda X, W: nk.contract(X, W, over="d", keys="causal"), "'causal' is no key set"),
    ],
)
def test_what_is_said_of_other_ways_to_write_it(made: Any, message: str) -> None:
    with pytest.raises(nk.InputError) as found:
        traced(made)
    assert message in str(found.value)


def test_names_that_other_libraries_have() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'relu'; write nk.maximum\(x, 0.0\)"):
        nk.relu  # noqa: B018
    assert not hasattr(nk, "max")
    seen: list[nk.Array] = []
    traced(lambda X, W: seen.append(copy.copy(X)) or product(X, W))
    assert seen[0].axes == ("n", "d")
    assert not hasattr(seen[0], "shape")


def test_numbers_of_numpy_and_numbers_on_the_left() -> None:
    def made(X: nk.Array, W: nk.Array) -> nk.Array:
        S = np.float32(0.5) * product(X, W) + np.int64(3)
        return S * 2 ** (-nk.index("m")) + 7 % (nk.index("n") + 2) + 9 // (nk.index("n") + 1)

    X, W = np.random.default_rng(0).normal(size=(2, 3, 3))
    n = np.arange(3)
    wanted = (X @ W / 2 + 3) * 0.5**n + (7 % (n + 2) + 9 // (n + 1))[:, None]
    assert np.allclose(traced(made).evaluate(X, W), wanted)


def test_sine_and_cosine_in_a_kernel() -> None:
    @nk.diagram("t d -> t d", sizes={"t": 512, "d": 32})
    def turned(X):
        angle = nk.index("t") * 10000.0 ** (-nk.index("d") / nk.size("d"))
        return X * nk.cos(angle) - nk.sin(angle)

    nk.derive(turned, dtype="fp32").check(
        sizes={"t": 77, "d": 19}, resources=False
    ).raise_if_wrong()


def test_tracing_under_a_profiler() -> None:
    """cProfile's hook is an object that is no function; tracing has one of its own meanwhile."""
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        found = traced(product)
    finally:
        profiler.disable()
    assert found.outputs[0].node.op == "sum"
