"""Bodies that are too large to be separated wait for another pass; no walk visits a term twice."""

import numpy as np
import pytest
import sympy

import napkin as nk
from napkin.algebra.meaning import DEEPEST
from napkin.algebra.separate import MOST, separate
from napkin.algebra.sides import NotSeparable
from napkin.algebra.signs import sign


def test_a_product_of_many_sums_is_not_multiplied_out() -> None:
    pairs = [sympy.symbols(f"x{i} r{i}") for i in range(40)]
    with pytest.raises(NotSeparable, match=f"more than {MOST}"):
        separate(sympy.Mul(*(x + r for x, r in pairs)))


def test_the_sign_of_a_term_that_is_shared_many_ways() -> None:
    @nk.diagram("a -> a")
    def shared(X):
        Y = nk.sigmoid(X)
        for _ in range(400):
            Y = Y + Y * Y
        return Y

    (root,) = shared.roots
    assert sign(root) == "nonnegative"


POSITIVE = {
    "a number beside it": (lambda X: nk.sigmoid(X) + 1.0, "positive"),
    "its type widened": (lambda X: nk.cast(nk.exp(X) + 1e-3, "fp32"), "positive"),
    "a masked score": (nk.sigmoid, "nonnegative"),
    "infinity": (lambda X: nk.rsqrt(nk.abs(X) + 1.0), "nonnegative"),
    "less than 1": (lambda X: nk.cast(nk.exp(X) + 1e-3, "int32"), "nonnegative"),
    "less than half a step": (lambda X: nk.cast(nk.exp(X) + 1e-3, "fp8"), "nonnegative"),
}


@pytest.mark.parametrize("name", POSITIVE)
def test_what_may_be_0_is_not_positive(name: str) -> None:
    body, wanted = POSITIVE[name]
    d = nk.diagram("a -> a", name="drawn")(body)
    (root,) = d.roots
    assert sign(root) == wanted
    hard = np.array([-np.inf, np.inf, -1e3, 0.0, 1.0])
    with np.errstate(all="ignore"):
        found = d.evaluate(hard)
    if wanted == "positive" or name != "less than half a step":  # evaluation does not round
        assert (found > 0).all() == (wanted == "positive")


@pytest.mark.parametrize("times", [25, 200])
def test_a_result_that_is_shared_many_ways_is_reduced_again(times: int) -> None:
    @nk.diagram("a b -> a")
    def shared(X):
        Y = nk.reduce(X, "max", over="b")
        Z = X
        for _ in range(times):
            Z = nk.tanh(Z * Z + Y)
        return nk.reduce(Z, "sum", over="b")

    with pytest.raises(nk.Refusal, match="separate"):
        shared.stream("b")
    assert shared.stream("b", passes=2)


def test_what_is_nested_deeply_is_not_separated() -> None:
    @nk.diagram("a b -> a")
    def nested(X):
        Y = nk.reduce(X, "max", over="b")
        Z = X
        for _ in range(DEEPEST):
            Z = nk.exp((Z + Y) * 0.5)
        return nk.reduce(Z, "sum", over="b")

    with pytest.raises(nk.Refusal, match="does not separate"):
        nested.stream("b")
