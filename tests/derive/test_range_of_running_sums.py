"""Bodies that leave the range of floats for a while: exp(X - max 2X) of a chunk of large negative X
is infinite before the largest is seen, and infinity times a rescale of 0 is no number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fold_law import breach

import napkin as nk
from napkin.algebra import rule
from napkin.derive.exponents import Body
from napkin.diagram.diagram import Diagram

SIZES = {"n": 3, "x": 12, "d": 2}


def largest(T: Any) -> Any:
    return nk.reduce(T, "max", over="x")


@nk.diagram("n x -> n")
def below_the_largest_of_twice(X: Any) -> Any:
    return nk.reduce(nk.exp(X - largest(2 * X)), "sum", over="x")


@nk.diagram("n x -> n")
def below_a_mean(X: Any) -> Any:
    return nk.reduce(nk.exp(0.01 * (X - nk.reduce(X, "mean", over="x"))), "sum", over="x")


@nk.diagram("n x -> n")
def below_a_sum(X: Any) -> Any:
    return nk.reduce(nk.exp(X - nk.reduce(X * X, "sum", over="x")), "sum", over="x")


@nk.diagram("n x, n x -> n")
def below_the_largest_of_others(X: Any, Y: Any) -> Any:
    return nk.reduce(nk.exp(X - largest(X) - Y - largest(Y)) * Y, "sum", over="x")


@nk.diagram("n x -> n")
def entropy_below_twice(X: Any) -> Any:
    d = X - largest(2 * X)
    return nk.reduce(d * nk.exp(d), "sum", over="x")


@nk.diagram("n x, n x -> n")
def where_one_is_seen(X: Any, Y: Any) -> Any:
    top = largest(nk.where(Y > 0, 2 * X, -np.inf))
    return nk.reduce(nk.where(Y > 0, nk.exp(X - top), 0.0), "sum", over="x")


@nk.diagram("n x, x d -> n")
def of_more_axes_than_the_exponent(X: Any, V: Any) -> Any:
    return nk.reduce(V * nk.exp(X - largest(2 * X)), "sum", over="x d")


EVERY = [below_the_largest_of_twice, below_a_mean, below_a_sum, below_the_largest_of_others,
         entropy_below_twice, where_one_is_seen, of_more_axes_than_the_exponent]  # fmt: skip


@pytest.mark.parametrize("diagram", EVERY, ids=lambda d: d.name)
@pytest.mark.parametrize("first", [-900.0, 0.0, 900.0])
def test_a_chunk_far_below_the_rest_is_no_infinity(diagram: Diagram, first: float) -> None:
    rng = np.random.default_rng(5)
    X = np.where(np.arange(12) < 5, first, 300.0) + rng.normal(size=(3, 12))
    arrays = {"X": X, "Y": rng.normal(size=(3, 12)), "V": rng.normal(size=(12, 2))}
    arrays = {str(n.params[0]): arrays[str(n.params[0])] for n in diagram.inputs}
    kernel = diagram.stream("x").kernel
    assert len(kernel.stream.passes) == 1
    assert breach(kernel, arrays, SIZES, (5, 7), tolerance=1e-9) is None


def test_a_row_of_which_nothing_is_seen_is_0() -> None:
    X, Y = np.full((3, 12), 5.0), -np.ones((3, 12))
    kernel = where_one_is_seen.stream("x").kernel
    assert breach(kernel, {"X": X, "Y": Y}, SIZES, (5, 7)) is None


def test_exponents_that_lack_an_axis_of_the_sum() -> None:
    @nk.diagram("n x, x -> ()")
    def below(X: Any, B: Any) -> Any:
        return nk.reduce(nk.exp(B - nk.reduce(X, "max", over="n x")) * X, "sum", over="n x")

    rng = np.random.default_rng(7)
    far = np.where(np.arange(12) < 5, -900.0, 0.0)
    arrays = {"X": rng.normal(size=(3, 12)) + far, "B": rng.normal(size=12) + far[::-1]}
    assert breach(below.stream("x").kernel, arrays, SIZES, (5, 7)) is None


def test_a_bound_that_the_body_has_needs_no_other() -> None:
    """Softmax holds one maximum, also where a sink joins it, and multiplied by a number."""

    @nk.diagram("n x, n -> n")
    def with_a_sink(S: Any, sink: Any) -> Any:
        return nk.reduce(nk.exp(0.5 * (S - nk.maximum(largest(S), sink))), "sum", over="x")

    states = with_a_sink.stream("x").kernel.stream.passes[0].states
    assert not [s.name for s in states if "top" in s.name]


def test_a_square_of_shares_of_the_largest_divides_first() -> None:
    """A norm that is scaled by the largest is written so because X * X overflows."""

    @nk.diagram("n x -> n")
    def norm(X: Any) -> Any:
        return nk.reduce((X / largest(abs(X))) ** 2, "sum", over="x") ** 0.5

    with pytest.raises(nk.Refusal, match="may overflow before it is scaled"):
        norm.stream("x")
    X = np.random.default_rng(6).normal(size=(3, 12)) * np.float64(1e200)
    assert breach(norm.stream("x", passes=2).kernel, {"X": X}, SIZES, (5, 7)) is None


def test_the_law_is_run_where_exponentials_leave_the_range_of_floats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rule, "VERIFYING", True)
    below_the_largest_of_twice.stream("x")
    monkeypatch.setattr(Body, "shifted", lambda self, term, results: (term, None))
    with pytest.raises(rule.LawError, match="steep values"):
        below_the_largest_of_twice.stream("x")
