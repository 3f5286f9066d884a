"""Scans along a streamed axis: the state of all chunks before, joined with the scan of a chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import napkin as nk
from napkin.derive.kernel import Kernel, label
from napkin.derive.law import breach
from napkin.derive.prepare import prepare

CUTS = st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any)


def streamed(d: nk.Diagram, passes: int = 1) -> Kernel:
    ready = prepare(d)
    return label("k", ready.outputs, ready.names, streamed="x", passes=passes)


def of_rows(body: Callable[[Any], Any]) -> nk.Diagram:
    return nk.diagram("q x -> q x")(body)


def running(X: Any) -> Any:
    return nk.cumsum(X, along="x")


def of_squares(X: Any) -> Any:
    return nk.exp(-nk.cumsum(X * X, along="x")) + X


def twice(X: Any) -> Any:
    return nk.cumsum(nk.cumsum(X, along="x") * X, along="x")


def centred(X: Any) -> Any:
    return nk.cumsum(X - nk.reduce(X, "mean", over="x"), along="x")


def shares(X: Any) -> Any:
    return nk.cumsum(nk.softmax(X, over="x"), along="x")


@settings(deadline=None)
@given(CUTS, st.sampled_from([running, of_squares]), st.integers(0, 9))
def test_chunks_continue_where_the_last_ended(cut: list[int], body: Any, seed: int) -> None:
    X = np.random.default_rng(seed).normal(size=(3, sum(cut)))
    assert breach(streamed(of_rows(body)), {"X": X}, {"q": 3, "x": sum(cut)}, cut) is None


@settings(deadline=None)
@given(CUTS, st.sampled_from([centred, shares]), st.integers(0, 9))
def test_what_is_summed_may_need_a_pass_before(cut: list[int], body: Any, seed: int) -> None:
    kernel = streamed(of_rows(body), passes=2)
    X = np.random.default_rng(seed).normal(size=(3, sum(cut)))
    assert breach(kernel, {"X": X}, {"q": 3, "x": sum(cut)}, cut) is None
    with pytest.raises(nk.Refusal, match="needs a reduction over it to finish"):
        streamed(of_rows(body))


def test_whole_numbers_and_tests_are_counted() -> None:
    d = nk.diagram("x -> x")(lambda X: nk.cumsum(X > 0, along="x"))
    X = np.array([1.0, -1.0, 2.0, 3.0, -4.0])
    assert breach(streamed(d), {"X": X}, {"x": 5}, [2, 0, 3]) is None
    assert d.evaluate(X).tolist() == [1, 1, 2, 3, 3]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda X: nk.sort(X, along="x"), "sort mixes positions along x and its output carries"),
        (
            lambda X: X + nk.reduce(nk.cumsum(X, along="x"), "max", over="x"),
            "it reduces a scan along x: no merge of it is known",
        ),
        (twice, "it scans a scan along x: no merge of it is known"),
        (
            lambda X: nk.cumsum(
                nk.where(nk.reduce(X, "sum", over="x", keys=nk.causal("q", "x")) > 0, X, 0.0),
                along="x",
            ),
            "a scan along x goes over all of its chunks",
        ),
    ],
)
def test_refusals(body: Any, reason: str) -> None:
    with pytest.raises(nk.Refusal, match=reason):
        streamed(of_rows(body), passes=2)


@pytest.mark.parametrize("signature", ["q x -> q x", "x q -> x q"])
def test_kernels_of_long_rows(signature: str) -> None:
    d = nk.diagram(signature)(of_squares)
    plan = nk.derive(d, sizes={"q": 3, "x": 100_001}, dtype="fp32")
    assert "stream x" in str(plan)
    plan.check().raise_if_wrong()
