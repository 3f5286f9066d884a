"""Sums so far that are 0, or as good as 0, for a while, and extrema of no whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fold_law import breach

import napkin as nk
from napkin.count.residency import live_set
from napkin.derive.kernel import Kernel
from napkin.derive.label import label
from napkin.derive.prepare import prepare


def streamed(diagram: nk.Diagram, passes: int = 1) -> Kernel:
    ready = prepare(diagram)
    return label("k", ready.outputs, ready.names, streamed="n", passes=passes)


@nk.diagram("n, n -> ()")
def spread_of_weights(R: Any, s: Any) -> Any:
    """The variance of softmax weights whose scores come less their maximum, as another kernel
    stores them: no maximum is kept here."""
    z = nk.reduce(nk.exp(R), "sum", over="n")
    P = nk.exp(R) / nk.where(z == 0, 1.0, z)
    t = nk.reduce(s * P, "sum", over="n") / (nk.reduce(s, "sum", over="n") + 0.1)
    return nk.reduce(s * (P - t) ** 2, "sum", over="n")


@pytest.mark.parametrize("first", [-409.0, -810.0, -60.0, 0.0])
def test_no_rescale_divides_by_a_sum_that_is_next_to_0_for_a_while(first: float) -> None:
    """exp(-409) is a float64 whose square is 0, and exp(-810) is 0."""
    with pytest.raises(nk.Refusal, match="it divides by a sum that may be 0 for a while"):
        streamed(spread_of_weights)
    arrays = {"R": np.array([first, first - 9, -770.0, 0.0, -1.0]), "s": np.linspace(0.5, 2.0, 5)}
    assert breach(streamed(spread_of_weights, 2), arrays, {"n": 5}, [3, 1, 1]) is None


def test_an_extremum_of_whole_numbers_waits_for_another() -> None:
    """max S - min S of nothing is no extremum of nothing: whole numbers have no infinity."""

    @nk.diagram("n q:int -> q")
    def range_of(S: Any) -> Any:
        return nk.reduce(S - nk.reduce(S, "min", over="n"), "max", over="n")

    with pytest.raises(nk.Refusal, match="the extremum of no whole numbers is no infinity"):
        streamed(range_of)
    plan = nk.derive(range_of, sizes={"n": 50_000, "q": 2}, dtype="fp32")
    for n in (0, 3):
        S = np.arange(2 * n, dtype=np.int32).reshape(n, 2)
        assert np.array_equal(plan(S), range_of.evaluate(S))


def test_a_take_at_one_position_needs_no_address_for_each_value() -> None:
    @nk.diagram("n d, g d m -> n m")
    def gate(X: Any, W: Any) -> Any:
        return nk.contract(X, nk.take(W, g=1), over="d")

    ready = prepare(gate)
    found = live_set(label("k", ready.outputs, ready.names, streamed="d"))
    assert not found.addressed
    assert not found.gathered


def test_quotients_of_a_rescale_are_of_single_factors() -> None:
    """(a / b)**2 is (a / b) * (a / b): a**2 / b**2 is 0 / 0 where both are small."""
    from napkin.algebra.rescale import _single

    sympy = pytest.importorskip("sympy")
    a, b = sympy.symbols("a b", positive=True)
    assert sorted(_single(a**2 * b), key=str) == [a, a, b]
    assert _single(sympy.Integer(1)) == []
