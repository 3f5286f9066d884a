"""Scores at the ends of the range: every row has a value, or NaN where mathematics has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.diagram.library import load

INF, NAN = np.inf, np.nan
X = 6
ROWS = {
    "all masked": [-INF] * X,
    "a masked beginning": [-INF, -INF, -INF, -INF, 0.5, 1],
    "a masked end": [0.5, 1, -INF, -INF, -INF, -INF],
    "large": [1e4, 1e4, 1e4, 1e4, 1e4, 1e4],
    "one large": [-1e4, -1e4, 1e4, -1e4, -1e4, -1e4],
    "small": [-1e4, -1e4, -1e4, -1e4, -1e4, -1e4],
    "huge": [1e30, -1e30, 0, 1, -1e30, 1e30],
    "huge below": [-1e30, -1e30, -2e30, -INF, -3e30, -1e30],
    "as low as bf16 goes": [-(2.0**127) * (2 - 2.0**-7)] * X,
    "not a number": [0, 1, NAN, 1, 0, 1],
    "only that": [NAN] * X,
    "not a number beside the masked": [-INF, -INF, -INF, -INF, -INF, NAN],
    "infinite": [0, INF, 1, 0, 1, 2],
    "infinite at last": [-INF, 0, 1, 0, 1, INF],
    "both infinities": [-INF, INF, INF, -INF, 0, 1],
}
SCORES = np.array(list(ROWS.values()))
NONE = np.isnan(SCORES).any(1) | (SCORES == INF).any(1)
"""Rows whose softmax has no value: infinity minus infinity, or NaN to begin with."""


def softmax(scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """By definition, row by row: 0 where all is masked, NaN where there is no value."""
    out = np.full(scores.shape, NAN)
    for row, weights in zip(scores, out, strict=True):
        if np.isnan(row).any() or (row == INF).any():
            continue
        top = row.max()
        weights[:] = 0 if top == -INF else np.exp(row - top) / np.exp(row - top).sum()
    return out


@nk.diagram("q d, x d, x d, q x -> q d")
def masked_attention(Q: Any, K: Any, V: Any, M: Any) -> Any:
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5 + M
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


@nk.diagram("q d, x d, x d -> q d")
def causal_attention(Q: Any, K: Any, V: Any) -> Any:
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    seen = nk.where(nk.index("x") < nk.index("q"), S, float("-inf"))
    return nk.contract(nk.softmax(seen, over="x"), V, over="x")


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_softmax(agree: Any, dtype: str) -> None:
    found = agree(load("softmax"), SCORES, dtype=dtype)
    np.testing.assert_allclose(found, softmax(SCORES), atol=2e-3)
    assert (found[0] == 0).all()


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_logsumexp(agree: Any, dtype: str) -> None:
    found = agree(load("logsumexp"), SCORES, dtype=dtype)
    assert found[0] == -INF
    np.testing.assert_array_equal(np.isnan(found), NONE)
    finite = ~NONE & (found != -INF)
    expected = np.logaddexp.reduce(SCORES[finite], axis=1)
    np.testing.assert_allclose(found[finite], expected, rtol=5e-3)


def test_cross_entropy(agree: Any) -> None:
    targets = np.arange(len(SCORES)) % X
    found = agree(load("cross_entropy"), SCORES, targets)
    assert np.isnan(found[0])  # -inf - (-inf): no target has a probability
    row = list(ROWS).index("a masked beginning")
    assert found[row] == INF  # the target is masked and others are not
    assert np.isnan(found[NONE]).all()


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_attention_under_a_mask(agree: Any, rng: Any, dtype: str) -> None:
    Q, K, V = rng.normal(size=(len(SCORES), 4)), rng.normal(size=(X, 4)), rng.normal(size=(X, 4))
    found = agree(masked_attention, Q, K, V, SCORES, dtype=dtype, tolerance=TIES[dtype])
    assert (found[0] == 0).all()  # as in cuDNN and FlashAttention
    np.testing.assert_array_equal(np.isnan(found).all(1), NONE)
    np.testing.assert_array_equal(np.isnan(found).any(1), NONE)
    row = list(ROWS).index("one large")
    np.testing.assert_allclose(found[row], V[2], rtol=1e-2)


TIES = {"fp32": 1e-3, "bf16": 2e-2}
"""A score of 1e4 has an error of 1e4 * 2**-24 in float32, and so has its weight."""


@pytest.mark.parametrize("scale", [1e4, 1e30])
@pytest.mark.parametrize("name", ["attention", "softcapped_attention"])
def test_attention_with_large_queries(agree: Any, rng: Any, name: str, scale: float) -> None:
    Q, K, V = rng.normal(size=(5, 4)) * scale, rng.normal(size=(X, 4)), rng.normal(size=(X, 4))
    found = agree(load(name), Q, K, V, tolerance=1e-3)
    S = Q @ K.T / 2
    scores = S if name == "attention" else 30 * np.tanh(S / 30)
    np.testing.assert_allclose(found, softmax(scores) @ V, atol=1e-2)


def test_attention_without_a_key_that_counts(agree: Any, rng: Any) -> None:
    Q, K, V = rng.normal(size=(5, 4)), rng.normal(size=(X, 4)), rng.normal(size=(X, 4))
    found = agree(causal_attention, Q, K, V)
    assert (found[0] == 0).all()
    np.testing.assert_allclose(found[1], V[0])


def test_a_masked_value_still_counts_as_a_factor(agree: Any, rng: Any) -> None:
    """0 * NaN is NaN, as in torch: a mask on the scores does not hide NaN in V."""
    Q, K, V = rng.normal(size=(5, 4)), rng.normal(size=(X, 4)), rng.normal(size=(X, 4))
    V[X - 1, 1] = NAN
    found = agree(causal_attention, Q, K, V)
    assert np.isnan(found[:, 1]).all()
    assert not np.isnan(np.delete(found, 1, axis=1)).any()


def test_a_softcap_bounds_what_was_masked_before(agree: Any, rng: Any) -> None:
    """tanh(-inf) is -1: a mask goes behind the cap, or it is none."""
    Q, K, V = rng.normal(size=(5, 4)), rng.normal(size=(X, 4)), rng.normal(size=(X, 4))
    Q[0] = [INF, 0, 0, 0]
    K[:, 1:] = 0.5
    found = agree(load("softcapped_attention"), Q, K, V)
    assert np.isfinite(found).all()


def test_scores_past_float32_are_infinite_in_a_kernel(ways: Any) -> None:
    """Kernels accumulate in float32; only the evaluation knows 1e40."""
    big = ways(load("attention"), (np.full((1, 4), 1e20), np.full((X, 4), 1e20), np.ones((X, 4))))
    np.testing.assert_allclose(big.evaluated()[0], 1)
    assert np.isnan(big.planned()[0]).all()


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_the_entropy_of_scaled_scores(agree: Any, rng: Any, scale: float) -> None:
    """Twice the lowest float, from which a maximum starts, is infinite: no sum moves by that."""

    @nk.diagram("n x -> n", name="entropy")
    def entropy(S: Any) -> Any:
        logs = S * scale - nk.reduce(S * scale, "logsumexp", over="x")
        return nk.reduce(nk.exp(logs) * logs, "sum", over="x")

    assert np.isfinite(agree(entropy, rng.normal(size=(3, X)))).all()
