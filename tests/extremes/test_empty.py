"""Axes of size 0: sums of nothing, attention over no keys, and outputs without a value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.diagram.library import load

INF, NAN = np.inf, np.nan


@nk.diagram("n x -> n, n, n, n, n, n")
def reductions(X: Any) -> Any:
    how = ("sum", "max", "min", "prod", "mean", "logsumexp")
    return tuple(nk.reduce(X, h, over="x") for h in how)


@nk.diagram("n x -> n:bool, n:bool")
def truths(X: Any) -> Any:
    return nk.reduce(X > 0, "any", over="x"), nk.reduce(X > 0, "all", over="x")


@nk.diagram("n x:int -> n:int, n:int, n:int, n:int")
def counts(I: Any) -> Any:  # noqa: E741
    return tuple(nk.reduce(I, h, over="x") for h in ("sum", "max", "min", "prod"))


def test_every_reduction_of_nothing(agree: Any) -> None:
    found = agree(reductions, np.zeros((3, 0)))
    for value, wanted in zip(found, (0, -INF, INF, 1, NAN, -INF), strict=True):
        np.testing.assert_array_equal(value, [wanted] * 3)
    for value, wanted in zip(agree(truths, np.zeros((3, 0))), (False, True), strict=True):
        np.testing.assert_array_equal(value, [wanted] * 3)


def test_whole_numbers_have_no_infinity(agree: Any) -> None:
    found = agree(counts, np.zeros((2, 0), int))
    for value, wanted in zip(found, (0, -(2**31), 2**31 - 1, 1), strict=True):
        np.testing.assert_array_equal(value, [wanted] * 2)


def shapes(name: str, **sizes: int) -> tuple[tuple[int, ...], ...]:
    known = {"q": 3, "x": 5, "d": 4, "n": 3, "v": 5, "m": 3, "a": 3, "b": 2, "c": 4, "f": 5, "e": 3}
    known |= {"k": 2, "r": 2, "h": 2} | sizes
    return tuple(tuple(known[a] for a in n.axes) for n in load(name).inputs)


ZERO = [
    ("attention", {"x": 0}),
    ("softcapped_attention", {"x": 0}),
    ("linear_attention", {"x": 0}),
    ("grouped_query_attention", {"x": 0}),
    ("matmul", {"b": 0}),
    ("mlp", {"f": 0}),
    ("mlp", {"d": 0}),
]


@pytest.mark.parametrize(("name", "sizes"), ZERO)
def test_sums_of_nothing_are_zero(agree: Any, rng: Any, name: str, sizes: dict[str, int]) -> None:
    found = agree(load(name), *(rng.normal(size=s) for s in shapes(name, **sizes)))
    assert found.size
    assert (found == 0).all()


EMPTY = [
    ("attention", {"q": 0}),
    ("attention", {"d": 0}),
    ("grouped_query_attention", {"b": 0, "x": 0}),
    ("softmax", {"x": 0}),
    ("softmax", {"n": 0}),
    ("rmsnorm", {"d": 0}),
    ("layernorm", {"n": 0}),
    ("matmul", {"a": 0}),
]


@pytest.mark.parametrize(("name", "sizes"), EMPTY)
def test_outputs_may_be_empty(agree: Any, rng: Any, name: str, sizes: dict[str, int]) -> None:
    found = agree(load(name), *(rng.normal(size=s) for s in shapes(name, **sizes)))
    assert found.size == 0


def test_what_a_bias_adds_to_nothing(agree: Any, rng: Any) -> None:
    bias = rng.normal(size=4)
    found = agree(load("matmul_bias_gelu"), np.zeros((3, 0)), np.zeros((0, 4)), bias)
    assert np.isfinite(found).all()
    assert (found == found[0]).all()


def test_means_of_nothing(agree: Any) -> None:
    assert np.isnan(agree(load("variance"), np.zeros((3, 0)))).all()
    loss = agree(load("cross_entropy"), np.zeros((3, 0)), np.zeros(3, int))
    assert (loss == -INF).all()


@pytest.mark.parametrize("name", ["l1_attention", "rmsnorm_linear"])
def test_a_division_by_the_norm_of_nothing(ways: Any, rng: Any, name: str) -> None:
    """Evaluation divides no numbers and adds none: 0. A kernel divides the sum, and 0/0 is NaN."""
    given = shapes(name, x=0) if "attention" in name else shapes(name, d=0)
    nothing = ways(load(name), tuple(rng.normal(size=s) for s in given))
    assert (nothing.evaluated()[0] == 0).all()
    assert np.isnan(nothing.planned()[0]).all()


def test_an_empty_batch_of_torch_tensors_keeps_its_shape() -> None:
    torch = pytest.importorskip("torch")
    plan = nk.derive(load("attention"), sizes={"q": 4, "x": 4, "d": 4}, dtype="fp32")
    found = plan(torch.zeros(0, 4), torch.zeros(5, 4), torch.zeros(5, 4))
    assert found.shape == (0, 4)
    assert found.dtype == torch.float32


def test_no_halves_of_bytes() -> None:
    @nk.diagram("n x:int4 -> n", sizes={"n": 3, "x": 8})
    def summed(X: Any) -> Any:
        return nk.reduce(X * 0.5, "sum", over="x")

    np.testing.assert_array_equal(nk.derive(summed)(np.zeros((3, 0))), [0.0] * 3)


@pytest.mark.parametrize(("x", "found"), [(0, []), (3, []), (6, []), (7, [15.0]), (8, [15.0, 18])])
def test_an_axis_that_is_shorter_than_its_windows(x: int, found: list[float]) -> None:
    @nk.diagram("x -> r", sizes={"x": 15})
    def windows_of_windows(X: Any) -> Any:
        tops = nk.reduce(nk.slide(X, over="x", into="p w", window=5), "max", over="w")
        return nk.reduce(nk.slide(tops, over="p", into="r v", window=3), "sum", over="v")

    given = np.arange(float(x))
    np.testing.assert_array_equal(nk.derive(windows_of_windows, dtype="fp32")(given), found)
    np.testing.assert_array_equal(windows_of_windows.evaluate(given), found)
