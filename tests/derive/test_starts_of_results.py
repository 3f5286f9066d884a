"""What results are before a pass has seen anything of them, and while all that it has seen is
masked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fold_law import breach

import napkin as nk
from napkin.algebra.law import folded, ranges
from napkin.derive.kernel import leaves, tensor_of
from napkin.ir.taking import table_of

SIZES = {"q": 2, "x": 12}
CUTS = ((5, 0, 4, 3), (1, 11), (1,) * 12)


def total(x: Any) -> Any:
    return nk.reduce(x, "sum", over="x")


def mean(x: Any) -> Any:
    return nk.reduce(x, "mean", over="x")


@nk.diagram("q x -> q")
def about_a_maximum(X: Any) -> Any:
    """The square begins at a guess of the maximum, and the exponentials at none."""
    m = nk.reduce(X, "max", over="x")
    return total((X - m) ** 2) * total(nk.exp(X - m))


@nk.diagram("q x -> q")
def about_a_minimum(X: Any) -> Any:
    m = nk.reduce(X, "min", over="x")
    return total((X + 2000.0 - (m + 2000.0)) ** 2) * total(nk.exp(-2.0 * X + 2.0 * m))


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("diagram", [about_a_maximum, about_a_minimum])
def test_sums_that_begin_at_other_values_of_one_result(
    diagram: nk.Diagram, sign: float, cut: tuple[int, ...]
) -> None:
    X = np.random.default_rng(0).normal(size=(2, 12)) + sign * 1000.0
    kernel = diagram.stream("x").kernel
    assert breach(kernel, {"X": X}, SIZES, cut) is None


@nk.diagram("q x -> q")
def about_a_mean_folded_over(X: Any) -> Any:
    """For means from -5 on it is the mean, and for others not."""
    return total((X - (nk.abs(mean(X) + 5.0) - 5.0)) ** 2)


@pytest.mark.parametrize("at", [-10.0, 0.0])
def test_a_sum_that_is_read_off_may_have_any_sign(at: float) -> None:
    X = np.random.default_rng(0).normal(size=(2, 12)) + at
    kernel = about_a_mean_folded_over.stream("x").kernel
    assert breach(kernel, {"X": X}, SIZES, (5, 0, 4, 3)) is None


@nk.diagram("q x, x -> q")
def variance_of_logits(S: Any, M: Any) -> Any:
    t = S - nk.reduce(S + M, "logsumexp", over="x")
    return mean((t - mean(t)) ** 2)


@pytest.mark.parametrize("cut", CUTS)
def test_no_square_is_about_a_maximum_of_what_is_masked_so_far(cut: tuple[int, ...]) -> None:
    """The lowest float takes all digits of the others."""
    with pytest.raises(nk.Refusal, match="no difference from a mean of its own"):
        variance_of_logits.stream("x")
    S, M = np.random.default_rng(0).normal(size=(2, 12)), np.zeros(12)
    M[:5] = -np.inf
    kernel = variance_of_logits.stream("x", passes=2).kernel
    assert breach(kernel, {"S": S, "M": M}, SIZES, cut) is None


@nk.diagram("q x, q x -> q")
def from_the_largest(Z: Any, X: Any) -> Any:
    return total(Z - nk.reduce(X, "max", over="x"))


@nk.diagram("q x, q x -> q")
def from_the_second(Z: Any, X: Any) -> Any:
    (one, two), _ = nk.topk(X, 2, over="x")
    return total(Z - (one - 0.5 * two))


@pytest.mark.parametrize("hold", [(), ("m",)])
def test_a_result_that_is_infinite_in_the_end_is_not_held_at_a_guess(hold: tuple[str, ...]) -> None:
    Z, X = np.random.default_rng(0).normal(size=(2, 2, 12))
    X[0] = -np.inf
    kernel = from_the_largest.stream("x", hold=hold).kernel
    bind = {a.leaf: {"Z": Z, "X": X}[a.tensor] for a in kernel.reads}
    found = folded(kernel.stream, bind, SIZES, ranges((5, 4, 3)))[1]["O"]
    assert found[0] == np.inf
    assert np.isfinite(found[1])


@pytest.mark.parametrize("cut", CUTS)
def test_a_result_that_is_infinite_for_a_while_is_not_held(cut: tuple[int, ...]) -> None:
    """Of the first position there is no second largest."""
    Z, X = np.random.default_rng(0).normal(size=(2, 2, 12))
    names = from_the_second.stream("x").prepared.names.values()
    for name in (n for n in names if n.startswith("m")):
        kernel = from_the_second.stream("x", hold=(name,)).kernel
        assert breach(kernel, {"Z": Z, "X": X}, SIZES, cut) is None


@nk.diagram("q x, x -> q")
def about_what_is_taken(X: Any, Y: Any) -> Any:
    at = nk.take(Y, x=nk.argmax(X, over="x"))
    return total((X - mean(X * (1.0 + at**2))) ** 2)


def test_a_square_about_a_result_of_what_is_read_at_an_extremum() -> None:
    """What is read at one position for each row cannot be read along them."""
    rng = np.random.default_rng(0)
    data = {"X": rng.normal(size=(2, 12)), "Y": rng.normal(size=12)}
    with pytest.raises(nk.Refusal, match="does not separate"):
        about_what_is_taken.stream("x")
    kernel = about_what_is_taken.stream("x", passes=2).kernel
    read = leaves(kernel.terms)
    bind = {n: data[tensor_of(n)] for n in (*read, *map(table_of, read)) if not n.args}
    found = folded(kernel.stream, bind, SIZES, ranges((5, 4, 3)))[1]["O"]
    np.testing.assert_allclose(found, about_what_is_taken.evaluate(*data.values()))


@nk.diagram("q x, q x -> q")
def from_the_level(Z: Any, X: Any) -> Any:
    return total(Z - nk.reduce(X, "logsumexp", over="x"))


@pytest.mark.parametrize("hold", ["m", "z"])
def test_a_sum_is_not_held_at_the_level_of_scores_that_are_masked_so_far(hold: str) -> None:
    """The lowest float takes all digits of the sum."""
    Z, X = np.random.default_rng(0).normal(size=(2, 2, 12))
    X[1, :5] = -np.inf
    kernel = from_the_level.stream("x", hold=(hold,)).kernel
    assert breach(kernel, {"Z": Z, "X": X}, SIZES, (5, 0, 4, 3)) is None


@nk.diagram("q x, q x -> q, q")
def of_what_is_kept(X: Any, K: Any) -> Any:
    m = nk.reduce(nk.where(K > 0, X, -np.inf), "max", over="x")
    return total(nk.where(K > 0, X - m, 0.0)), total(nk.where(K > 0, X * m, 0.0))


@pytest.mark.parametrize("cut", CUTS)
def test_rows_that_keep_nothing_sum_up_to_0(cut: tuple[int, ...]) -> None:
    """Though the maximum that is brought out of the sum is -inf there."""
    X, K = np.random.default_rng(0).normal(size=(2, 2, 12))
    K[0] = -1.0
    kernel = of_what_is_kept.stream("x").kernel
    assert of_what_is_kept.evaluate(X, K)[0][0] == 0
    assert breach(kernel, {"X": X, "K": K}, SIZES, cut) is None


@nk.diagram("q x, q x -> q")
def of_a_share(X: Any, K: Any) -> Any:
    share = 1.0 / total(nk.where(K > 0, 1.0, 0.0))
    return total(nk.where(K > 0, X * share, 0.0))


@pytest.mark.parametrize("cut", CUTS)
def test_shares_of_rows_that_count_nothing_sum_up_to_0(cut: tuple[int, ...]) -> None:
    """Though the share that is brought out of the sum is infinite there."""
    X, K = np.random.default_rng(0).normal(size=(2, 2, 12))
    K[0] = -1.0
    kernel = of_a_share.stream("x").kernel
    with np.errstate(divide="ignore"):
        assert of_a_share.evaluate(X, K)[0] == 0
        assert breach(kernel, {"X": X, "K": K}, SIZES, cut) is None


@nk.diagram("q x, q x -> q")
def of_either(X: Any, K: Any) -> Any:
    m = nk.reduce(X, "max", over="x")
    return total(nk.where(K > 0, X - m, m))


@pytest.mark.parametrize("cut", CUTS)
def test_a_sum_that_chooses_one_or_the_other_everywhere(cut: tuple[int, ...]) -> None:
    """Both conditions hold nowhere, and yet there is a sum."""
    X, K = np.random.default_rng(0).normal(size=(2, 2, 12))
    K[0] = -1.0
    kernel = of_either.stream("x").kernel
    assert breach(kernel, {"X": X, "K": K}, SIZES, cut) is None
