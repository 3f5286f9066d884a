"""Gradients of rows of large equal scores, in float32 kernels: the weights of the backward are as
right as those of the forward. One number for each row, their log-sum-exp, would not do: beside 1e8
float32 has no digits left for the logarithm of a sum."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import napkin as nk
from napkin.diagram.library import load
from napkin.errors import Refusal
from napkin.plan.plan import Plan

CLOSE = 1e-6
"""Relative to the largest value of a row, whose weights are in float32."""

MEANS = [0.0, 1.0, -3e4, 1e8, -1e9, -1e30, 3e38]


def seen(name: str, keys: nk.KeySet | None = None) -> nk.Diagram:
    def weighted(S: Any, V: Any) -> Any:
        return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")

    return nk.diagram("q x, x d -> q d", name=name)(weighted)


@nk.diagram("q x, x d -> q d")
def by_hand(S: Any, V: Any) -> Any:
    return nk.contract(nk.exp(S - nk.reduce(S, "logsumexp", over="x")), V, over="x")


@nk.diagram("n x, n:int -> n")
def smoothed(S: Any, T: Any) -> Any:
    level = nk.reduce(S, "logsumexp", over="x")
    return 0.9 * (level - nk.take(S, x=T)) + 0.1 * (level - nk.reduce(S, "mean", over="x"))


@cache
def plan_of(f: nk.Diagram, **sizes: int) -> Plan:
    """A plan for large sizes, which streams: its kernels hold at small ones."""
    return nk.derive(f, on="h100", dtype="fp32", sizes=sizes)


def rows(seed: int, count: int, width: int) -> np.ndarray:
    """Scores that float32 holds: in each row equal ones, or a few steps of float32 apart."""
    rng = np.random.default_rng(seed)
    means = np.float32(rng.choice(MEANS, size=count))
    steps = rng.integers(0, 4, size=(count, width)) * rng.integers(0, 2, size=(count, 1))
    with np.errstate(over="ignore"):
        apart = np.maximum(np.abs(np.spacing(means)), np.float32(0.25))[:, None] * steps
    return np.float64(np.float32(means[:, None] - np.float32(apart)))


def weights(S: np.ndarray) -> np.ndarray:
    e = np.exp(S - S.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def agree(found: Any, wanted: np.ndarray) -> None:
    gap = np.abs(np.asarray(found, float) - wanted).max(axis=1)
    assert (gap <= CLOSE * np.abs(wanted).max(axis=1)).all(), (gap, wanted)


@settings(max_examples=6, deadline=None, phases=[Phase.generate])
@given(st.integers(0, 2**31))
def test_gradients_of_a_softmax(seed: int) -> None:
    S, g = rows(seed, 5, 70), np.random.default_rng(seed).normal(size=(5, 70)).astype(np.float32)
    P = weights(S)
    wanted = P * (g - (P * g).sum(axis=1, keepdims=True))
    made = nk.gradient(load("softmax"))
    agree(made.evaluate(S, g), wanted)
    agree(plan_of(made, n=8192, x=4096)(S, g), wanted)


@settings(max_examples=3, deadline=None, phases=[Phase.generate])
@given(st.integers(0, 2**31))
@pytest.mark.parametrize(
    ("f", "keys"),
    [(seen("all_keys"), None), (seen("causal", nk.causal("q", "x")), True), (by_hand, None)],
    ids=["all keys", "causal", "by hand"],
)
def test_gradients_of_weighted_sums(f: nk.Diagram, keys: bool | None, seed: int) -> None:
    rng = np.random.default_rng(seed)
    S = rows(seed, 40, 40)
    V, g = (rng.normal(size=(40, 16)).astype(np.float32) for _ in range(2))
    P = weights(np.where(np.tri(40, dtype=bool), S, -np.inf) if keys else S)
    D = g.astype(float) @ V.T
    wanted = P * (D - (P * D).sum(axis=1, keepdims=True)), P.T @ g
    for found in (
        nk.gradient(f).evaluate(S, V, g),
        plan_of(nk.gradient(f), q=4096, x=4096 if keys else 2048, d=16)(S, V, g),
    ):
        scale = np.abs(D).max(axis=1)  # what a difference within a row is rounded by
        assert (np.abs(found[0] - wanted[0]).max(axis=1) <= CLOSE * scale).all()
        terms = (P.T @ np.abs(g)).max(axis=0)  # what a sum that cancels is rounded by
        assert (np.abs(found[1] - wanted[1]).max(axis=0) <= CLOSE * terms).all()


@settings(max_examples=3, deadline=None, phases=[Phase.generate])
@given(st.integers(0, 2**31))
@pytest.mark.parametrize("f", [load("cross_entropy"), smoothed], ids=lambda f: f.name)
def test_losses_and_their_gradients(f: nk.Diagram, seed: int) -> None:
    rng = np.random.default_rng(seed)
    S, T, g = rows(seed, 6, 50), rng.integers(0, 50, size=6), rng.normal(size=6)
    g = g.astype(np.float32).astype(float)
    hit = np.arange(50) == T[:, None]
    hit = 0.9 * hit + 0.1 / 50 if f is smoothed else hit
    axis = f.inputs[0].axes[1]
    made = nk.gradient(f)
    agree(made.evaluate(S, T, g), (weights(S) - hit) * g[:, None])
    agree(plan_of(made, n=8192, **{axis: 4096})(S, T, g), (weights(S) - hit) * g[:, None])


@pytest.mark.parametrize("name", ["cross_entropy", "linear_cross_entropy"])
def test_a_loss_of_equal_logits_is_the_logarithm_of_their_number(name: str) -> None:
    f, width, T = load(name), 50, np.array([3, 4, 5])
    if name == "cross_entropy":
        given = [np.full((3, width), 1e8), T]
    else:
        given = [np.full((3, 4), 5e3), np.full((width, 4), 5e3), T]
    assert np.allclose(f.evaluate(*given), np.log(width), rtol=1e-6)
    plan = nk.derive(f, on="h100", dtype="fp32")
    assert np.allclose(plan(*given), np.log(width), rtol=1e-6)


def test_a_row_without_a_score_has_gradient_zero() -> None:
    S = np.full((2, 8), -np.inf)
    S[1] = -1e30
    made = nk.gradient(load("softmax"))
    g = np.arange(16.0).reshape(2, 8)
    for found in (made.evaluate(S, g), plan_of(made, n=8192, x=4096)(S, g)):
        assert not found[0].any()
        assert np.allclose(found[1], (g[1] - g[1].mean()) / 8)


def test_what_is_kept_serves_as_well() -> None:
    f = load("cross_entropy")
    made = nk.training(f, sizes={"n": 64, "v": 512}, dtype="fp32", keep="fastest")
    S, T, g = rows(3, 6, 50), np.arange(6), np.ones(6)
    more = made.forward(S, T)
    kept = dict(zip([o.name for o in made.forward.diagram.outputs], more, strict=True))
    found = made.backward(S, T, g, *(kept[name] for name in made.kept))
    agree(found, weights(S) - (np.arange(50) == T[:, None]))


def test_the_logarithm_of_a_negative_result_is_no_number() -> None:
    """exp(x - log(s)) is none there, and exp(x) / s would be one."""

    @nk.diagram("n x, n x -> n")
    def shifted_by_a_sum(X: Any, W: Any) -> Any:
        total = nk.reduce(W, "sum", over="x")
        top = nk.reduce(X, "max", over="x")
        return nk.reduce(nk.exp(X - top - nk.log(total)) * W, "sum", over="x")

    X, W = np.random.default_rng(5).normal(size=(2, 4, 40))
    W = np.abs(W) * np.array([1, -1, 1, -1])[:, None]
    wanted = shifted_by_a_sum.evaluate(X, W)
    assert np.isnan(wanted).tolist() == [False, True, False, True]
    with pytest.raises(Refusal, match="log of a result so far"):
        _ = shifted_by_a_sum.stream("x").kernel
