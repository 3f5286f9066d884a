"""Results so far that go far from the data, and come back: what is held about them loses its
digits, though the diagram does not. Such sums wait for another pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fold_law import breach

import napkin as nk
from napkin.diagram.diagram import Diagram
from napkin.ir.evaluate import close_to

SIZES = {"q": 2, "x": 12, "a": 3}


def total(x: Any) -> Any:
    return nk.reduce(x, "sum", over="x")


def mean(x: Any) -> Any:
    return nk.reduce(x, "mean", over="x")


def centred(x: Any) -> Any:
    return x - mean(x)


@nk.diagram("q x, q x -> q")
def by_shares(P: Any, V: Any) -> Any:
    """The variance by weights that add up to 1 in the end: the mean so far is a part of it."""
    return total(P * (V - total(P * V)) ** 2)


@nk.diagram("q x -> q")
def by_the_size(V: Any) -> Any:
    """A sum so far over all positions is a part of the mean."""
    return total((V - total(V) * nk.size("x") ** -1.0) ** 2) / nk.size("x")


@nk.diagram("q x -> q")
def by_a_count_to_come(V: Any) -> Any:
    seen = nk.index("x") <= nk.index("q")
    m = total(nk.where(seen, V, 0.0)) / (nk.index("q") + 1)
    return total(nk.where(seen, (V - m) ** 2, 0.0))


@nk.diagram("q x, q x, x -> q")
def about_a_masked_maximum(U: Any, V: Any, M: Any) -> Any:
    return total((U - nk.reduce(V + M, "max", over="x")) ** 2)


@nk.diagram("q x, q x -> q")
def rejected(V: Any, P: Any) -> Any:
    """What is left of V beside its part along P."""
    return total((V - total(V * P) * P) ** 2)


@nk.diagram("q x, q x -> q")
def about_a_mean_by_other_weights(S: Any, V: Any) -> Any:
    return total((V - total(nk.softmax(S, over="x") * V)) ** 2)


@nk.diagram("q x, q x, q x -> q")
def products_by_other_weights(U: Any, V: Any, P: Any) -> Any:
    return total(P * centred(U) * centred(V))


FAR = [by_shares, by_the_size, about_a_masked_maximum, rejected, about_a_mean_by_other_weights]
FAR += [products_by_other_weights, by_a_count_to_come]


@pytest.mark.parametrize("diagram", FAR, ids=lambda d: d.name)
def test_they_take_two_passes(diagram: Diagram) -> None:
    with pytest.raises(nk.Refusal, match="is no difference from a mean of its own"):
        diagram.stream("x")
    kernel = diagram.stream("x", passes=2).kernel
    rng = np.random.default_rng(0)
    arrays = {str(n.params[0]): rng.normal(size=[SIZES[a] for a in n.axes]) for n in diagram.inputs}
    assert breach(kernel, arrays, SIZES, (2, 0, 7, 3)) is None


@nk.diagram("q x -> q")
def fourth(V: Any) -> Any:
    return mean(centred(V) ** 4)


@nk.diagram("q x -> q")
def by_hand(V: Any) -> Any:
    """A sum over a size counts what it has seen, as a mean does."""
    return total((V - total(V) / nk.size("x")) ** 2) / nk.size("x")


@nk.diagram("a q x -> q")
def by_hand_over_two(V: Any) -> Any:
    m = nk.reduce(V, "sum", over="a x") / (nk.size("x") * nk.size("a"))
    return nk.reduce((V - m) ** 2, "sum", over="a x")


@nk.diagram("q x, q x -> q")
def left_by_a_line(U: Any, V: Any) -> Any:
    """The squares that least squares leave are the least so far, too."""
    return total((V - total(U * V) / total(U * U) * U) ** 2)


@nk.diagram("q x, q x:bool -> q")
def of_those_that_count(V: Any, K: Any) -> Any:
    n = nk.maximum(total(nk.where(K, 1.0, 0.0)), 1.0)
    return total(nk.where(K, (V - total(nk.where(K, V, 0.0)) / n) ** 2, 0.0)) / n


@nk.diagram("q x -> q")
def in_a_range(V: Any) -> Any:
    """An extremum of what it is taken from goes one way alone."""
    low, high = (nk.reduce(V, how, over="x") for how in ("min", "max"))
    return total(((V - low) / (high - low)) ** 2)


NEAR = [fourth, by_hand, by_hand_over_two, left_by_a_line, of_those_that_count, in_a_range]


@pytest.mark.parametrize("diagram", NEAR, ids=lambda d: d.name)
def test_one_pass_is_enough_where_results_stay_near(diagram: Diagram) -> None:
    kernel = diagram.stream("x").kernel
    rng = np.random.default_rng(1)
    arrays = {str(n.params[0]): rng.normal(size=[SIZES[a] for a in n.axes]) for n in diagram.inputs}
    arrays |= {"K": arrays["K"] > 0} if "K" in arrays else {}
    assert breach(kernel, arrays, SIZES, (4, 3, 5)) is None


def test_a_plan_in_float32() -> None:
    """At a mean of 10,000 deviations, an error of 6e-4 is that of the mean; held about a part of
    the mean, all digits were lost."""
    rng = np.random.default_rng(2)
    sizes = {"q": 2, "x": 70_000}
    P = np.abs(rng.normal(size=(2, 70_000)))
    P, V = (P / P.sum(axis=1, keepdims=True)).astype(np.float32), 1e4 + rng.normal(size=P.shape)
    V = V.astype(np.float32).astype(float)
    for diagram, arrays in ((by_shares, (P, V)), (by_the_size, (V,))):
        plan = nk.derive(diagram, sizes=sizes, dtype="fp32")
        assert close_to(plan(*arrays), diagram.evaluate(*arrays)) < 1e-3
