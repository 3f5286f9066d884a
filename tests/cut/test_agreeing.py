"""Kernels of a plan that compute one contraction round its factors in one way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.check.rounding import roundings
from napkin.cut.pieces import Piece, agreeing
from napkin.plan.planned import PlannedKernel
from napkin.run.interpreted import run_recipe, stored

SIZES = {"i": 32, "x": 16, "h": 32, "p": 16}


@nk.diagram("i x:fp32, h x:fp32 -> i")
def totals(X: Any, W: Any) -> Any:
    z = nk.reduce(nk.exp(nk.contract(X, W, over="x")), "sum", over="h")
    return nk.cast(nk.log(z), "fp32")


@nk.diagram("i x:fp32, h x:fp32, i:fp32, h p -> i p")
def weighted(X: Any, W: Any, total: Any, Y: Any) -> Any:
    return nk.contract(nk.exp(nk.contract(X, W, over="x") - total), Y, over="h")


def planned(f: nk.Diagram) -> nk.Plan:
    plan = nk.derive(f, on="h100", sizes={a: SIZES[a] for a in f.axes}, dtype="bf16")
    assert len(plan.kernels) == 1
    return plan


FIRST, SECOND = planned(totals), planned(weighted)


def pieces(names: Mapping[str, str], dtype: str = "bf16") -> list[Piece]:
    first, second = (p.kernels[0].choice for p in (FIRST, SECOND))
    own = {t: names.get(t, t) for t in SECOND.kernels[0].binding}
    both = Piece(first, FIRST.kernels[0].binding, first), Piece(second, own, second)
    return agreeing(both, dtype)


@pytest.mark.parametrize(
    ("names", "dtype", "rounds"),
    [
        ({}, "bf16", ["bf16", "bf16"]),
        ({}, "fp32", ["", ""]),
        ({"W": "another"}, "bf16", ["", ""]),
    ],
)
def test_one_contraction(names: Mapping[str, str], dtype: str, rounds: list[str]) -> None:
    assert [p.choice.kernel.rounds for p in pieces(names, dtype)] == rounds


def test_weights_add_up_to_1() -> None:
    rng = np.random.default_rng(0)
    X, W = 4 * rng.normal(size=(32, 16)), rng.normal(size=(32, 16))
    made = [
        replace(plan, kernels=(PlannedKernel(p.choice, k.binding, "bf16", k.machine),))
        for plan, p in zip((FIRST, SECOND), pieces({}), strict=True)
        for k in plan.kernels
    ]

    def run(plans: list[nk.Plan]) -> np.ndarray:
        first, second = plans
        given = stored(first.diagram, [X, W], "bf16")
        total = run_recipe(first.recipe, given, first.sizes, {}).tensors["O"].to_float64()
        given = stored(second.diagram, [X, W, total, np.ones((32, 16))], "bf16")
        return run_recipe(second.recipe, given, second.sizes, {}).tensors["O"].to_float64()

    assert np.abs(run(made) - 1).max() < 2**-7
    assert np.abs(run([FIRST, SECOND]) - 1).max() > 0.05
    assert roundings(made[0], "O") == {"bf16", "fp32"}
    assert roundings(FIRST, "O") == {"fp32"}


@nk.diagram("b q d, b x d, b x d -> b q d")
def normed(Q: Any, K: Any, V: Any) -> Any:
    def norm(X: Any) -> Any:
        return X * nk.rsqrt(nk.reduce(X * X, "sum", over="d"))

    scores = nk.contract(norm(Q), norm(K), over="d")
    return nk.contract(nk.softmax(scores, over="x"), V, over="x")


def test_kernels_of_a_plan_that_agree() -> None:
    """Three kernels of the gradient compute the scores, of factors that a norm made."""
    sizes = {"b": 64, "q": 2048, "x": 2048, "d": 64}
    plan = nk.derive(nk.gradient(normed), on="h100", sizes=sizes)
    assert [k.choice.kernel.rounds for k in plan.kernels].count("bf16") == 3
