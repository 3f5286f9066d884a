"""Random numbers: the same bits everywhere, and random enough."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import napkin as nk
from napkin.ir.operators.randomness import mixed


def drawn(seed: Any, shape: tuple[int, int] = (200, 300)) -> Any:
    d = nk.diagram("q x -> q x")(lambda X: X + nk.uniform(seed, along="q x"))
    return d.evaluate(np.zeros(shape))


def by_words(a: int, b: int) -> int:
    """The hash, one operation of 32 bits after another."""
    h = np.uint32((a ^ b) % 2**32)
    with np.errstate(over="ignore"):
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x21F0AAAD)
        h = (h ^ (h >> np.uint32(15))) * np.uint32(0xD35A2D97)
        return int((h ^ (h >> np.uint32(15))).astype(np.int32))


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_the_hash_is_of_32_bits(a: int, b: int) -> None:
    assert mixed(np, np.array([a]), np.array([b])).tolist() == [by_words(a, b)]


def test_moments_and_correlations() -> None:
    """Within 5 standard deviations of those of independent uniform numbers."""
    U = drawn(0, (2000, 300))
    assert 0 < U.min() < 1e-4
    assert 1 > U.max() > 1 - 1e-4
    assert abs(U.mean() - 0.5) < 5 / math.sqrt(12 * U.size)
    assert abs(U.var() - 1 / 12) < 5 / math.sqrt(180 * U.size)
    for sample in (U, U.T[:, :300], drawn(1, (2000, 300)) - U):
        r = np.corrcoef(sample.T)[np.triu_indices(sample.shape[1], 1)]
        assert abs(r).max() * math.sqrt(len(sample)) < 5.5
    both = np.corrcoef(U.ravel(), drawn(1, (2000, 300)).ravel())[0, 1]
    assert abs(both) * math.sqrt(U.size) < 5


def test_seeds_are_told_apart() -> None:
    seeds = [0, 1, -1, 2**32, 2**40, -(2**40)]
    first = [drawn(s, (1, 8)).tolist() for s in seeds]
    assert all(a != b for i, a in enumerate(first) for b in first[:i])


def test_a_seed_is_no_position() -> None:
    """Number i of seed s is not number s of seed i, and no row is the same for all seeds."""
    line = np.stack([drawn(s, (64, 1))[:, 0] for s in range(64)])
    assert len(np.unique(line)) > line.size - 10  # of 2^23 numbers some are drawn twice
    assert len(np.unique(np.diag(line))) == 64
    rows = [drawn(s, (16, 32))[s] for s in range(16)]
    assert len({r.tobytes() for r in rows}) == 16


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_kernels_draw_the_same_bits(dtype: str) -> None:
    def draw(X: Any, seed: Any) -> Any:
        return nk.cast(nk.uniform(seed, along="q x") + 0.0 * X, "fp32")

    d = nk.diagram("q x, ():int -> q x")(draw)
    plan = nk.derive(d, sizes={"q": 70, "x": 90}, dtype=dtype)
    X = np.zeros((70, 90))
    for seed in (0, -5, 2**31 - 1):
        assert np.array_equal(plan(X, np.array(seed)), d.evaluate(X, np.array(seed)))


@pytest.mark.parametrize("seed", [0, 7, -5, 2**31 - 1, -(2**31)])
def test_a_seed_that_is_written_draws_as_one_that_is_given(seed: int) -> None:
    d = nk.diagram("q x, ():int -> q x")(lambda X, seed: X + nk.uniform(seed, along="q x"))
    given = d.evaluate(np.zeros((2, 3)), np.array(seed))
    assert np.array_equal(drawn(seed, (2, 3)), given)


def test_torch_evaluates_the_same_bits() -> None:
    torch = pytest.importorskip("torch")
    from napkin.torch.reference import NAMES

    a, b = torch.tensor([5, -7, 2**31 - 1]), torch.tensor([1, 2, -(2**31)])
    assert mixed(NAMES, a, b).tolist() == mixed(np, a.numpy(), b.numpy()).tolist()


def test_dropout_scales_what_it_keeps() -> None:
    d = nk.diagram("q x -> q x")(lambda X: nk.dropout(X, 0.25, 3))
    found = d.evaluate(np.ones((400, 500)))
    assert set(np.unique(found)) == {0.0, 1 / 0.75}
    assert abs((found == 0).mean() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / found.size)


def test_dropout_of_nothing_and_of_all() -> None:
    nothing = nk.diagram("q -> q")(lambda X: nk.dropout(X, 0, 3))
    assert nothing.evaluate(np.ones(50)).tolist() == [1.0] * 50
    every = nk.diagram("q -> q")(lambda X: nk.dropout(X, 1.0, 3))
    assert every.evaluate(np.ones(50)).tolist() == [0.0] * 50
    asked = nk.diagram("q -> q")(lambda X, p: nk.dropout(X, p, 3))
    assert asked.evaluate(np.ones(50), p=1.0).tolist() == [0.0] * 50


def test_dropout_along_some_axes_repeats_along_the_others() -> None:
    """An order that is named is that of `uniform`, whatever the order of the array."""
    d = nk.diagram("q x -> q x")(lambda X: nk.dropout(X, 0.5, 3, along="x"))
    found = d.evaluate(np.ones((5, 40)))
    assert (found == found[0]).all()
    assert set(np.unique(found)) == {0.0, 2.0}
    turned = nk.diagram("q x -> q x")(lambda X: nk.dropout(X, 0.5, 3, along="x q"))
    wanted = nk.diagram("x q -> x q")(lambda X: nk.dropout(X, 0.5, 3))
    assert np.array_equal(turned.evaluate(np.ones((5, 8))), wanted.evaluate(np.ones((8, 5))).T)


def test_dropout_along_an_axis_that_is_not_there_is_refused() -> None:
    with pytest.raises(nk.InputError, match="dropout along q y: the array has no axis y; write"):
        nk.diagram("q x -> q x")(lambda X: nk.dropout(X, 0.5, 3, along="q y"))


def test_attention_with_dropout_is_one_kernel() -> None:
    @nk.diagram("q d, x d, x d, ():int -> q d")
    def dropped(Q: Any, K: Any, V: Any, seed: Any) -> Any:
        P = nk.softmax(nk.contract(Q, K, over="d"), over="x")
        return nk.contract(nk.dropout(P, 0.1, seed), V, over="x")

    plan = nk.derive(dropped, sizes={"q": 4096, "x": 4096, "d": 64})
    assert len(plan.kernels) == 1
    plan.check().raise_if_wrong()


def test_samples_by_gumbel_have_the_softmax_for_their_shares() -> None:
    def sample(L: Any) -> Any:
        return nk.argmax(L - nk.log(-nk.log(nk.uniform(11, along="n v"))), over="v")

    shares = np.array([0.5, 0.3, 0.15, 0.05])
    logits = np.broadcast_to(np.log(shares), (20_000, 4))
    found = np.bincount(nk.diagram("n v -> n")(sample).evaluate(logits), minlength=4) / 20_000
    assert np.all(abs(found - shares) < 5 * np.sqrt(shares * (1 - shares) / 20_000))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda X: nk.uniform(0.5, along="q"), "seed=0.5 is no whole number; write one, or an in"),
        (lambda X: nk.uniform(X, along="q"), "is no whole number"),
        (lambda X: nk.uniform(True, along="q"), "seed=True is no whole number"),
        (lambda X: nk.uniform(1, along=""), "uniform names no axis; write along='...'"),
        (lambda X: nk.dropout(X, 1.5, 0), "dropout p=1.5: a probability is between 0 and 1"),
    ],
)
def test_messages(made: Any, message: str) -> None:
    with pytest.raises(nk.InputError, match=message):
        nk.diagram("q -> q")(made)


@pytest.mark.parametrize("gradient", [False, True])
def test_products_with_random_numbers_stay_within_16_bits(gradient: bool) -> None:
    """2^23 is beyond the range of fp16: the numbers enter a product as they are, and not as bits
    of which the sum is scaled."""

    @nk.diagram("q x, x d, ():int -> q d", sizes={"q": 64, "x": 64, "d": 64})
    def weighted(X: Any, V: Any, seed: Any) -> Any:
        return nk.contract(X * nk.uniform(seed, along="q x"), V, over="x")

    made = nk.gradient(weighted) if gradient else weighted
    nk.derive(made, dtype="fp16").check(resources=False).raise_if_wrong()
