"""A running maximum that starts at -inf: chunks without a finite score must not poison the rest."""

from __future__ import annotations

import numpy as np
import pytest
from fold_law import breach

import napkin as nk
from napkin.algebra.law import folded


@nk.diagram("q x, x d -> q d")
def by_hand(S, V):
    m = nk.reduce(S, "max", over="x")
    e = nk.exp(S - m)
    return nk.contract(e / nk.reduce(e, "sum", over="x"), V, over="x")


@pytest.mark.parametrize("cut", [1, 4, 7])
def test_a_first_chunk_of_masked_scores(cut):
    rng = np.random.default_rng(0)
    S, V = rng.normal(size=(3, 8)), rng.normal(size=(8, 2))
    S[0, :4] = -np.inf
    S[1, 2:5] = -np.inf
    kernel = by_hand.stream("x").kernel
    bind = {a.leaf: {"S": S, "V": V}[a.tensor] for a in kernel.reads}
    sizes = {"q": 3, "x": 8, "d": 2}
    _, found = folded(kernel.stream, bind, sizes, [range(cut), range(cut, 8)])
    np.testing.assert_allclose(found["O"], by_hand.evaluate(S, V), rtol=1e-12)


def over_x(X, how):
    return nk.reduce(X, how, over="x")


def mean_by(W, X):
    """Of weights that are not negative: their sum so far is not close to 0 but where all are."""
    return over_x(nk.abs(W) * X, "sum") / over_x(nk.abs(W), "sum")


@nk.diagram("q x, q x -> q")
def shifted(X, Y):
    """The shift by a maximum cancels in the sum of exponentials."""
    return over_x(over_x(X, "max") + Y, "logsumexp")


@nk.diagram("q x -> q")
def variance(X):
    return over_x((X - over_x(X, "mean")) ** 2, "mean")


@nk.diagram("q x, q x, q x -> q")
def weighted(X, Y, W):
    """Squares about a mean that has no value while the weights are 0."""
    return over_x(nk.abs(W) * (X * Y - mean_by(W, X * Y)) ** 2, "sum")


@nk.diagram("q x, q a, x d -> q d")
def beside(S, T, V):
    """A maximum that another axis, which the loop does not go over, has a say in."""
    m = nk.maximum(over_x(S, "max"), nk.reduce(T, "max", over="a"))
    e = nk.exp(S - m)
    return nk.contract(
        e / (over_x(e, "sum") + nk.reduce(nk.exp(T - m), "sum", over="a")), V, over="x"
    )


@nk.diagram("a x -> a")
def products(X):
    """Means that another axis is summed over: a state without it, read off states that have it."""
    t = (X - over_x(X, "mean")) * 0.5
    return over_x(nk.reduce(t, "sum", over="a") * t, "sum")


@nk.diagram("a x, a x -> a")
def weighted_products(X, W):
    """The same about weighted means, which have no value while one of their weights is 0."""
    t = X - mean_by(W, X)
    return over_x(nk.reduce(t, "sum", over="a") * t, "sum")


@nk.diagram("a x -> ()")
def squares(X):
    """Only what is read off the means is held beside the sum, not the means."""
    t = X - over_x(X, "mean")
    return over_x((nk.reduce(t, "sum", over="a") + 1) ** 2, "sum")


@nk.diagram("a x, a x -> ()")
def weighted_squares(X, W):
    t = X - mean_by(W, X)
    return over_x((nk.reduce(t, "sum", over="a") + 1) ** 2, "sum")


@nk.diagram("a x, x, a -> ()")
def weighted_beside_an_input(X, W, C):
    """The mean has no value on nothing, and an input that is not streamed has a say in it."""
    w = nk.abs(W)
    m = nk.reduce(nk.contract(X, w, over="x") * C, "sum", over="a") / over_x(w, "sum")
    return over_x(w * (nk.reduce(X * C, "sum", over="a") - m) ** 2, "sum")


ALL = [weighted_beside_an_input, shifted, variance, weighted, beside, products, weighted_products]
ALL += [squares, weighted_squares]
AGAIN = [weighted_products, weighted_squares]
"""Those that read x twice: their means are by weights that their sums do not have."""


def streamed(diagram):
    return diagram.stream("x", passes=1 + (diagram in AGAIN)).kernel


@pytest.mark.parametrize("diagram", ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("cut", [(0, 0, 3), (0, 3), (3, 0, 0), (2, 0, 0, 1), (1, 1, 1)])
def test_parts_without_positions(diagram, cut):
    """Two of them merge to nothing, which must still join with something."""
    kernel = streamed(diagram)
    sizes = {"q": 2, "a": 3, "d": 2, "x": sum(cut)}
    rng = np.random.default_rng(3)
    arrays = {str(n.params[0]): rng.normal(size=[sizes[a] for a in n.axes]) for n in diagram.inputs}
    assert breach(kernel, arrays, sizes, cut) is None


def test_a_first_chunk_without_a_maximum_of_its_own():
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(2, 2, 8))
    X[0, :4] = -np.inf  # but not what is shifted by it
    kernel = shifted.stream("x").kernel
    sizes = {"q": 2, "x": 8}
    assert breach(kernel, {"X": X, "Y": Y}, sizes, (4, 4)) is None
    assert breach(kernel, {"X": X, "Y": Y}, sizes, (2, 2, 4)) is None


def test_a_first_chunk_of_weights_0():
    rng = np.random.default_rng(2)
    X, Y, W = rng.normal(size=(3, 2, 8))
    W = abs(W)
    W[0, :4] = 0
    arrays = {"X": X, "Y": Y, "W": W}
    assert breach(weighted.stream("x").kernel, arrays, {"q": 2, "x": 8}, (4, 4)) is None


@pytest.mark.parametrize("diagram", AGAIN, ids=lambda d: d.name)
def test_a_first_chunk_in_which_one_of_the_weights_is_0(diagram):
    """What is read off both means has no value there, though the other mean has one."""
    rng = np.random.default_rng(6)
    X, W = rng.normal(size=(2, 2, 8))
    W = abs(W)
    W[0, :4] = 0
    kernel = streamed(diagram)
    for cut in ((4, 4), (2, 2, 4), (0, 3, 5)):
        assert breach(kernel, {"X": X, "W": W}, {"a": 2, "x": 8}, cut) is None


def test_a_variance_over_a_window_that_begins_later():
    @nk.diagram("q x -> q")
    def windowed(X):
        seen = nk.sliding(2, 0, "q", "x")
        mean = nk.reduce(X, "mean", over="x", keys=seen)
        return nk.reduce((X - mean) ** 2, "mean", over="x", keys=seen)

    X = np.random.default_rng(4).normal(size=(9, 9))
    assert breach(windowed.stream("x").kernel, {"X": X}, {"q": 9, "x": 9}, (3, 3, 3)) is None


@pytest.mark.parametrize("level", [-3000.0, 0.0, 3000.0])
def test_scores_far_from_zero_beside_another_axis(level):
    """Before the first chunk the maximum is below any score, or its rescale would overflow."""
    rng = np.random.default_rng(5)
    S, T, V = (
        rng.normal(size=(4, 300)) + level,
        rng.normal(size=(4, 3)) + level,
        rng.normal(size=(300, 16)),
    )
    plan = nk.derive(beside, sizes={"q": 4, "x": 4096, "a": 3, "d": 16}, dtype="fp32")
    assert plan.kernels[0].choice.kernel.stream.axis == "x"
    np.testing.assert_allclose(plan(S, T, V), beside.evaluate(S, T, V), rtol=2e-3, atol=1e-5)


@nk.diagram("q x, q x -> q")
def left_by_a_slope(U, V):
    """What a regression leaves: the slope has no value while U is the same everywhere."""
    a, b = (t - over_x(t, "mean") for t in (U, V))
    return over_x((b - over_x(a * b, "sum") / over_x(a * a, "sum") * a) ** 2, "mean")


@pytest.mark.parametrize("cut", [(4, 4), (2, 2, 4), (1, 3, 0, 4)])
def test_a_first_chunk_in_which_all_are_one_number(cut):
    U = np.repeat([[0.0, 1.0], [3.0, 2.0]], 4, axis=1)
    V = 2 * U + np.random.default_rng(7).normal(size=(2, 8))
    kernel = left_by_a_slope.stream("x").kernel
    assert breach(kernel, {"U": U, "V": V}, {"q": 2, "x": 8}, cut) is None
