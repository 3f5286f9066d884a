"""Key sets: facts 1 to 10 of the specification of key sets, on masks and on diagrams."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

import napkin as nk


def attention(keys: nk.KeySet) -> nk.Diagram:
    """Attention over one axis with its log-sum-exp."""

    @nk.diagram("q d, x d, x d -> q d, q")
    def made(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        P = nk.softmax(S, over="x", keys=keys)
        return nk.contract(P, V, over="x"), nk.reduce(S, "logsumexp", over="x", keys=keys)

    return made


def plane(keys: nk.KeySet) -> nk.Diagram:
    """Attention over a plane of queries i j and keys k l."""

    @nk.diagram("i j d, k l d, k l d -> i j d")
    def made(Q, K, V):
        S = nk.contract(Q, K, over="d")
        return nk.contract(nk.softmax(S, over="k l", keys=keys), V, over="k l")

    return made


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def dense(Q: np.ndarray, K: np.ndarray, V: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Attention in numpy, on tokens."""
    e = np.exp(Q @ K.T) * mask
    return e / e.sum(1, keepdims=True) @ V


def legal(size: int, dilations: range) -> Iterator[tuple[int, int, int]]:
    """Window, stride and dilation that fit."""
    for d in dilations:
        for k in range(1, size // d + 1):
            for s in range(1, k + 1):
                yield k, s, d


def test_fact_01_even_windows_have_one_more_key_on_the_left() -> None:
    found = nk.neighborhood(4)
    assert found.keys(4, 8) == [2, 3, 4, 5]
    assert found.keys(1, 8) == [0, 1, 2, 3]


def test_fact_02_windows_are_shifted_and_never_cut() -> None:
    for layout, k in (((8,), (4,)), ((4, 5), (3, 3)), ((5, 6), (2, 5)), ((3, 4, 5), (3, 2, 4))):
        for s in itertools.product(*(range(1, n + 1) for n in k)):
            counts = nk.neighborhood(k, s).mask(layout).sum(1)
            assert set(counts.tolist()) == {math.prod(k)}
    assert nk.neighborhood((2, 2), dilation=(2, 3)).mask((5, 7)).sum(1).tolist() == [4] * 35
    (first,) = np.flatnonzero(nk.neighborhood((3, 3)).mask((4, 5))[0]).reshape(1, -1).tolist()
    assert first == [0, 1, 2, 5, 6, 7, 10, 11, 12]


def test_fact_03_a_window_of_the_whole_axis_is_dense_attention() -> None:
    for stride in range(1, 7):
        assert nk.neighborhood(6, stride).mask(6).all()
    assert nk.neighborhood((3, 4), (2, 3)).mask((3, 4)).all()
    Q, K, V = numbers(3, 3, 6, 4)
    every = attention(nk.neighborhood(6, 4)).evaluate(Q, K, V)[0]
    np.testing.assert_allclose(every, dense(Q / 2, K, V, np.ones((6, 6))), rtol=1e-12)
    for size in range(1, 9):
        causal = nk.neighborhood(size, is_causal=True).mask(size)
        assert np.array_equal(causal, np.tri(size, dtype=bool))
        assert np.array_equal(causal, nk.causal().mask(size))


def test_fact_04_every_query_sees_itself() -> None:
    for size in (1, 2, 7, 10, 11):
        for k, s, d in legal(size, range(1, 4)):
            for causal in (False, True):
                assert nk.neighborhood(k, s, d, causal).mask(size).diagonal().all()
    both = nk.neighborhood((3, 4), (2, 4), (2, 1), (True, False))
    assert both.mask((7, 9)).diagonal().all()


def test_fact_05_dilation_is_one_problem_for_each_slice() -> None:
    size, d = 11, 3
    Q, K, V = numbers(5, 3, size, 4)
    for k, s, causal in ((3, 1, False), (3, 2, False), (2, 2, True), (3, 3, True)):
        found = attention(nk.neighborhood(k, s, d, causal)).evaluate(Q, K, V)
        for g in range(d):
            alone = attention(nk.neighborhood(k, s, 1, causal))
            for whole, part in zip(found, alone.evaluate(Q[g::d], K[g::d], V[g::d]), strict=True):
                np.testing.assert_allclose(whole[g::d], part, rtol=1e-12)
    both = nk.neighborhood((2, 3), (1, 2), (2, 3), (False, True)).mask((5, 9))
    grid = both.reshape(5, 9, 5, 9)
    for g, h in itertools.product(range(2), range(3)):
        rows = len(range(g, 5, 2))
        part = nk.neighborhood((2, 3), (1, 2), 1, (False, True)).mask((rows, 3))
        assert np.array_equal(grid[g::2, h::3, g::2, h::3].reshape(3 * rows, -1), part)
        assert grid[g::2, h::3].sum() == part.sum()  # and nothing of another slice


def test_fact_05_a_dilated_window_of_the_whole_axis_is_dense_in_each_slice() -> None:
    for k, d in ((4, 3), (5, 2), (1, 6)):
        place = np.arange(k * d) % d
        assert np.array_equal(nk.neighborhood(k, 1, d).mask(k * d), place[:, None] == place)


def test_fact_06_the_first_causal_query_returns_its_own_value() -> None:
    Q, K, V = numbers(6, 3, 8, 4)
    out, lse = attention(nk.neighborhood(3, is_causal=True)).evaluate(Q, K, V)
    assert np.array_equal(out[0], V[0])
    assert lse[0] == pytest.approx(Q[0] @ K[0] / 2, rel=1e-15)


def test_fact_07_uniform_scores_give_means_of_the_window() -> None:
    Q, V = np.zeros((8, 1)), np.arange(8.0)[:, None]
    for k, wanted in (
        (3, [1, 1, 2, 3, 4, 5, 6, 6]),
        (4, [1.5, 1.5, 1.5, 2.5, 3.5, 4.5, 5.5, 5.5]),
    ):
        out, lse = attention(nk.neighborhood(k)).evaluate(Q, Q, V)
        np.testing.assert_allclose(out[:, 0], wanted, rtol=1e-15)
        np.testing.assert_allclose(lse, math.log(k), rtol=1e-15)


def test_fact_08_queries_of_each_key() -> None:
    assert nk.neighborhood(5).mask(8).sum(0).tolist() == [3, 4, 5, 8, 8, 5, 4, 3]


def test_fact_09_shared_heads_equal_repeated_keys_and_values() -> None:
    seen = nk.neighborhood(3, 2, queries="q", keys="x")

    @nk.diagram("g r q d, g x d, g x d -> g r q d")
    def grouped(Q, K, V):
        P = nk.softmax(nk.contract(Q, K, over="d"), over="x", keys=seen)
        return nk.contract(P, V, over="x")

    Q, K, V = numbers(9, 6, 9, 4), numbers(10, 2, 9, 4), numbers(11, 2, 9, 4)
    found = grouped.evaluate(Q.reshape(2, 3, 9, 4), K, V).reshape(6, 9, 4)
    heads = attention(nk.neighborhood(3, 2)).weave("h")
    repeated = heads.evaluate(2 * Q, np.repeat(K, 3, 0), np.repeat(V, 3, 0))[0]
    np.testing.assert_allclose(found, repeated, rtol=1e-12)


def test_fact_09_swapping_two_axes_swaps_the_result() -> None:
    k, s, d, causal = (3, 2), (2, 1), (1, 3), (True, False)
    Q, K, V = numbers(12, 3, 5, 7, 4)
    found = plane(nk.neighborhood(k, s, d, causal)).evaluate(Q, K, V)
    turned = plane(nk.neighborhood(k[::-1], s[::-1], d[::-1], causal[::-1]))
    swapped = turned.evaluate(*(A.swapaxes(0, 1) for A in (Q, K, V)))
    np.testing.assert_allclose(found, swapped.swapaxes(0, 1), rtol=1e-12)
    mask = nk.neighborhood(k, s, d, causal).mask((5, 7))
    tokens = [A.reshape(35, 4) for A in (Q, K, V)]
    np.testing.assert_allclose(found.reshape(35, 4), dense(*tokens, mask), rtol=1e-12)


def test_fact_10_what_cannot_be_is_an_error() -> None:
    too_long = attention(nk.neighborhood(3, dilation=3))
    with pytest.raises(nk.InputError, match="a window of 3 keys, 3 apart, does not fit"):
        too_long.evaluate(*numbers(13, 3, 8, 4))
    with pytest.raises(nk.InputError, match="must be at least 9"):
        too_long.check_sizes({"q": 8, "x": 8, "d": 4})
    with pytest.raises(nk.InputError, match="stride 4 exceeds kernel_size 3"):
        nk.neighborhood(3, stride=4)
    apart = attention(nk.neighborhood(3))
    with pytest.raises(nk.InputError, match=r"queries and keys share one layout, but q=5 and x=6"):
        apart.evaluate(numbers(14, 5, 4), numbers(15, 6, 4), numbers(16, 6, 4))
    with pytest.raises(nk.InputError, match=r"queries and keys share one layout, but q=5 and x=6"):
        apart.check_sizes({"q": 5, "x": 6, "d": 4})
