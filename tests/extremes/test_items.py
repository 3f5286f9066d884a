"""Whole numbers and booleans: kernels compute on them as the evaluation does."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import napkin as nk

I = np.array([[-7, 7, 3, -3, 0], [7, -7, -1, 1, 5], [-8, 8, 6, -6, 2]])  # noqa: E741
J = np.array([[2, -2, -3, 3, 4], [3, 4, 5, -5, -5], [2, -4, -7, 7, 1]])
X = np.array([[-2, 0.5, 3, -0.25, 1], [0, 1, -1, 2, -3], [1, 1, 1, 1, 1]])

GIVEN = {"i": I, "j": J, "x": X}


def computed(agree: Any, function: Callable[..., Any], output: str) -> Any:
    """A function of some of i, j and x in every way."""
    names = list(inspect.signature(function).parameters)
    inputs = ", ".join("n x" if n == "x" else "n x:int" for n in names)
    diagram = nk.diagram(f"{inputs} -> {output}", name="items")(function)
    return agree(diagram, *(GIVEN[n] for n in names), plan=False)


WHOLE: dict[str, Callable[..., Any]] = {
    "i // j": lambda i, j: i // j,
    "i % j": lambda i, j: i % j,
    "position": lambda i: i * (nk.index("x") // 2) + nk.index("x") % 3,
    "true + true": lambda i, j: (i > 0) + (j > 0),
    "true - true": lambda i, j: (i > 0) - (j > 0),
    "true * true + true": lambda i, j: (i > 0) * (j > 0) + (i > 0),
    "-true": lambda i: -(i > 0),
    "larger": lambda i, j: nk.maximum(i, j) - nk.minimum(i > 0, j > 0),
    "square": lambda i: i**2,
    "count so far": lambda i: nk.cumsum(i > 0, along="x"),
    "to int": lambda i, j: nk.cast(i / 2, "int32") + nk.cast(nk.cast(j / 2, "bool"), "int32"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers(agree: Any, name: str) -> None:
    found = computed(agree, WHOLE[name], "n x:int")
    assert found.dtype == np.int64
    if name == "i // j":
        np.testing.assert_array_equal(found, I // J)  # rounded down, as in Python
    if name == "i % j":
        np.testing.assert_array_equal(found, I % J)
    if name == "true + true":
        assert found.max() == 2


REAL: dict[str, Callable[..., Any]] = {
    "x ** 4": lambda x: x**4,
    "x ** 4.0": lambda x: x**4.0,
    "x ** -2": lambda x: (x + 4) ** -2,
    "x ** 0": lambda x: x**0,
    "x ** i": lambda x, i: (x + 5.25) ** i,
    "exp of whole numbers": lambda x, i: nk.exp(i) + nk.exp(i > 0) + nk.exp(x > 0),
    "softmax of whole numbers": lambda i: nk.softmax(i, over="x"),
    "quotient of whole numbers": lambda x, i: i / 4 + (i > 0) / 2 + x * (x > 0),
    "mean of booleans": lambda x: nk.reduce(x > 0, "mean", over="x") + x,
    "contraction with booleans": lambda x, i: nk.contract(x > 0, i, over="x") * x,
    "product over a sum": lambda x, i: (
        nk.reduce(x * nk.reduce(i, "sum", over="x"), "prod", "x") + x
    ),
}


@pytest.mark.parametrize("name", REAL)
def test_reals_from_whole_numbers(agree: Any, name: str) -> None:
    found = computed(agree, REAL[name], "n x")
    assert np.isfinite(found).all()
    if name.startswith("x ** 4"):
        np.testing.assert_allclose(found, X**4)


BEYOND: dict[str, Callable[..., Any]] = {
    "a factor outside of the sum": lambda x, i: nk.contract(most(x), i, over="x"),
    "a number": lambda i: nk.reduce(i * 0.5, "sum", over="x"),
    "two of them": lambda x, i: nk.reduce(most(x) * i * i, "sum", over="x"),
    "two of them behind others": lambda x, i: nk.contract(x, i, i, over="x"),
    "a sum of them": lambda x, i: nk.reduce(most(x) * i + i * most(x), "sum", over="x"),
    "a product": lambda x, i: nk.reduce(most(x) * (i // 2**20), "prod", over="x"),
    "a sum under another": lambda x, i: nk.reduce(
        nk.reduce(i.rename(n="m") * most(x), "sum", over="m") + x, "sum", over="x"
    ),
    "a mean": lambda i: nk.reduce(i, "mean", over="x"),
    "a mean over keys": lambda i: nk.reduce(i, "mean", "x", nk.sinks(3, "n", "x", nk.index("n"))),
    "a scan from a real number": lambda i: most(nk.scan(lambda h: h + i, 0.5, along="x")),
    "a scan from 0.0": lambda i: most(nk.scan(lambda h: h + i, 0.0, along="x")),
    "a scan by a real factor": lambda i: most(nk.scan(lambda h: h * 1.0 + i, 0, along="x")),
    "a scan by a whole factor": lambda i: most(nk.scan(lambda h: h * 2 + i, 2**30, along="x")),
    "a gradient": lambda x, i: nk.gradient(SCALED)(most(x), i, most(x)),
}
SCALED = nk.diagram("n, n x:int -> n")(lambda s, i: nk.contract(s, i, over="x"))
"""Reals computed of whole numbers, of which sums and products do not fit into int32."""


def most(x: nk.Array) -> nk.Array:
    """A result for each row."""
    return nk.reduce(x, "max", over="x")


@pytest.mark.parametrize("name", BEYOND)
def test_whole_numbers_in_reals_do_not_wrap(agree: Any, name: str) -> None:
    inputs = {"x": X, "i": np.full_like(I, 2**30)}
    names = list(inspect.signature(BEYOND[name]).parameters)
    signature = ", ".join("n x" if n == "x" else "n x:int" for n in names)
    diagram = nk.diagram(f"{signature} -> n", name="beyond")(BEYOND[name])
    found = agree(diagram, *(inputs[n] for n in names))
    assert np.abs(found).max() >= 2**30


def test_a_cast_rounds_in_kernels_only(ways: Any) -> None:
    """Evaluation keeps float64; a kernel rounds once and goes on in float32."""
    diagram = nk.diagram("n x -> n x", name="rounded")(lambda x: nk.exp(nk.cast(x, "bf16")) + 1)
    thirds = ways(diagram, (np.full((2, 3), 1 / 3),))
    rounded = 0.333984375  # 1/3 in bf16
    np.testing.assert_allclose(thirds.evaluated()[0], np.exp(1 / 3) + 1, rtol=1e-7)
    np.testing.assert_allclose(thirds.planned()[0], np.exp(rounded) + 1, rtol=1e-6)
