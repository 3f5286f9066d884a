"""Padded lanes: every reduction of a term sees its own identity there, whatever else reduces it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.plan.plan import Plan

RAGGED = {"n": 3, "b": 5}


@nk.diagram("n b, b -> n")
def gate(X: Any, V: Any) -> Any:
    g = nk.sigmoid(nk.reduce(X, "sum", over="b"))
    return nk.contract(g, nk.softmax(X, over="b"), V, over="b")


def test_a_sum_within_a_contraction_does_not_see_the_lanes_of_a_maximum() -> None:
    X = np.random.default_rng(0).normal(size=(3, 5))
    plan = nk.derive(gate, sizes=RAGGED, dtype="fp32")
    np.testing.assert_allclose(plan(X, np.ones(5)), gate.evaluate(X, np.ones(5)), rtol=1e-5)


def _softmaxed(x: Any) -> Any:
    return nk.reduce(nk.softmax(x, over="b") * x, "sum", over="b")


def _variance(x: Any) -> Any:
    return nk.reduce((x - nk.reduce(x, "mean", over="b")) ** 2, "mean", over="b")


def _row(how: str) -> Callable[[Any], Any]:
    return lambda x: nk.reduce(x, how, over="b")


TERMS: dict[str, Callable[[Any], Any]] = {
    "zero beyond the end": lambda X: X,
    "another number there": lambda X: nk.exp(X * 0.5) - 0.5,
}
"""What is reduced, by what its padded lanes hold."""

REDUCED: dict[str, Callable[[Any], Any]] = {
    **{how: _row(how) for how in ("sum", "mean", "max", "min", "prod", "logsumexp")},
    "any": lambda x: nk.where(nk.reduce(x > 1.5, "any", over="b"), 1.0, 2.0),
    "all": lambda x: nk.where(nk.reduce(x > -1.5, "all", over="b"), 1.0, 2.0),
    "softmax": _softmaxed,
    "variance": _variance,
    "cumsum": lambda x: nk.reduce(nk.cumsum(x, along="b"), "max", over="b"),
    "sort": lambda x: nk.contract(nk.sort(x, along="b"), nk.index("b") + 1, over="b"),
}

KEEP_THE_AXIS = {"cumsum", "sort"}
"""Those that no stream along it can hold."""

RUNS = [(one, "") for one in REDUCED] + [(one, "b") for one in REDUCED if one not in KEEP_THE_AXIS]


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize(("one", "streamed"), RUNS)
def test_every_pair_of_reductions_of_a_term(
    forced: Callable[..., Plan], one: str, streamed: str, term: str
) -> None:
    others = [s for s in REDUCED if not streamed or s not in KEEP_THE_AXIS]

    @nk.diagram(f"n b -> {', '.join('n' for _ in others)}")
    def pairs(X: Any) -> Any:
        t = TERMS[term](X)
        return tuple(REDUCED[one](t) * 0.5 + REDUCED[other](t) for other in others)

    forced(pairs, RAGGED, streamed).check(sizes=RAGGED, resources=False).raise_if_wrong()


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("one", REDUCED)
def test_a_reduction_within_the_body_of_another(
    forced: Callable[..., Plan], one: str, term: str
) -> None:
    """Its lanes are its own, and those of the body the other's."""

    @nk.diagram("n b, b -> n, n, n, n")
    def nested(X: Any, V: Any) -> Any:
        t = TERMS[term](X)
        inner = nk.sigmoid(REDUCED[one](t))
        down = nk.exp(nk.reduce(t, "min", over="b") - t)
        upper = nk.contract(inner, nk.softmax(t, over="b"), V, over="b")
        sorted_too = nk.reduce(nk.sort(t * inner, along="b") * down, "max", over="b")
        return (
            upper,
            nk.contract(inner, down, V, over="b"),
            sorted_too,
            nk.reduce(t * inner, "prod", over="b"),
        )

    forced(nested, RAGGED).check(sizes=RAGGED, resources=False).raise_if_wrong()


@pytest.mark.parametrize("one", ["softmax", "logsumexp", "max", "min", "sum", "mean"])
@pytest.mark.parametrize("streamed", ["", "b"])
def test_whole_numbers_do_not_wrap_in_padded_lanes(
    forced: Callable[..., Plan], one: str, streamed: str
) -> None:
    """The lowest whole number less a maximum wraps to a large one."""

    @nk.diagram("n b:int -> n, n")
    def whole(X: Any) -> Any:
        t = X % 7 + 1
        return REDUCED[one](t) * 1.0, nk.reduce(nk.softmax(t, over="b"), "max", over="b")

    forced(whole, RAGGED, streamed).check(sizes=RAGGED, resources=False).raise_if_wrong()


@pytest.mark.parametrize("streamed", ["", "b c"])
@pytest.mark.parametrize("how", ["sum", "mean", "max", "min", "prod", "logsumexp"])
def test_two_padded_axes(forced: Callable[..., Plan], how: str, streamed: str) -> None:
    """One reduction over both, and two nested ones, of the same term."""
    sizes = {"n": 3, "b": 5, "c": 3}

    @nk.diagram("n b c -> n, n")
    def both(X: Any) -> Any:
        t = nk.exp(X * 0.5) - 0.5
        joint = nk.reduce(t, how, over="b c")
        largest = nk.reduce(t, "max", over="b c")
        return joint + nk.reduce(t, "sum", over="b c"), nk.reduce(t - largest, how, over="b c")

    forced(both, sizes, streamed).check(sizes=sizes, resources=False).raise_if_wrong()


def test_a_positive_factor_that_underflows_is_no_factor_of_infinity() -> None:
    """exp(-200) is 0 in float32, and 0 times -inf is no -inf."""

    @nk.diagram("n b, n -> n")
    def cooled(X: Any, c: Any) -> Any:
        m = nk.reduce(X, "max", over="b")
        return nk.reduce(X * nk.exp(c), "max", over="b") + m

    X, c = np.ones((3, 5)), np.full(3, -200.0)
    plan = nk.derive(cooled, sizes=RAGGED, dtype="fp32")
    np.testing.assert_allclose(plan(X, c), cooled.evaluate(X, c), rtol=1e-5)
