"""A plan at other sizes than its own: what was asked of it stays asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.check.run_plan import plan_for
from napkin.plan.samples import Case, plan_of

SIZES = {"q": 64, "x": 256, "d": 16}


@nk.diagram("q d, x d, x d -> q d", sizes=SIZES)
def attention(Q: Any, K: Any, V: Any) -> Any:
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


@nk.diagram("q d, x d -> q", sizes=SIZES)
def nearest(X: Any, Y: Any) -> Any:
    return nk.reduce(nk.reduce((X - Y) ** 2, "sum", over="d"), "min", over="x")


ASKED: dict[str, tuple[nk.Diagram, dict[str, Any]]] = {
    "arrays": (attention, {"materialise": ["S"]}),
    "every array": (attention, {"materialise": "every"}),
    "squares": (nearest, {"multiply_out": True}),
    "settings": (attention, {"tuned": True, "deterministic": False}),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_was_asked_stays_asked(name: str) -> None:
    diagram, asked = ASKED[name]
    plan, sizes = nk.derive(diagram, dtype="fp32", **asked), {"q": 7, "x": 40, "d": 5}
    other = plan_for(plan, sizes)
    assert other.asked == plan.asked
    assert other.trail == nk.derive(diagram, sizes=sizes, dtype="fp32", **asked).trail
    assert other.materialised.keys() == plan.materialised.keys()


@pytest.mark.parametrize("length", [40, 3, 1, 0])
def test_parts_stay_asked_where_an_axis_has_as_many_values(length: int) -> None:
    plan = nk.derive(attention, dtype="fp32", parts={"x": 4})
    number = min(4, length)
    other = plan_for(plan, {"q": 7, "x": length, "d": 5})
    assert list(other.parts.values()) == [number] * (number > 1)
    rng = np.random.default_rng(0)
    Q, K, V = (rng.normal(size=(n, 5)) for n in (7, length, length))
    weights = np.exp(Q @ K.T / 5**0.5)
    wanted = (weights @ V) / np.maximum(weights.sum(1, keepdims=True), 1e-300)
    assert np.allclose(plan(Q, K, V), wanted, atol=1e-5)


def test_a_batch_is_checked_in_the_parts_that_were_asked() -> None:
    plan = nk.derive(attention, dtype="fp32", parts={"x": 4})
    assert plan_of(plan, Case("batched", {"batch": 2}, weave="batch")).parts == plan.parts


@nk.diagram("c -> w c", sizes={"c": 64})
def beside(X: Any) -> Any:
    """Along a short axis, the kernel that reads `u` computes it."""
    t = (nk.abs(X) + 0.5) ** nk.tanh(X)
    u = nk.rename(t, c="k")
    return nk.compress(t * u, nk.neighborhood(1, queries="c", keys="k"), into="w", fill=0.0)


def test_a_call_runs_the_plan_itself_where_what_was_asked_is_refused() -> None:
    plan = nk.derive(beside, dtype="fp32", materialise=["t", "u"])
    with pytest.raises(nk.Refusal, match="each kernel that reads it computes it"):
        nk.derive(beside, sizes={"c": 2}, dtype="fp32", materialise=["t", "u"])
    assert plan_for(plan, {"c": 2}) is plan
    X = np.random.default_rng(0).normal(size=2)
    np.testing.assert_allclose(plan(X), beside.evaluate(X), rtol=1e-5)
