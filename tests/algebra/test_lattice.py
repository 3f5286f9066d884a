"""max_x max(r, a(x)) = max(r, max_x a(x)), and what else separates under a maximum or a minimum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy
from fold_law import assert_law

import napkin as nk
from napkin.algebra.lattice import bounded_on_nothing, value_at
from napkin.algebra.law import folded, ranges
from napkin.derive.kernel import Kernel
from napkin.diagram.diagram import Diagram

JOINS = {"max": nk.maximum, "min": nk.minimum}


def over_x(x: Any, how: str) -> Any:
    return nk.reduce(x, how, over="x")


def diagram(body: Callable[..., Any], signature: str = "n x, n x -> n") -> Diagram:
    return nk.diagram(signature, name="drawn")(body)


def joined(outer: str, inner: str) -> Diagram:
    return diagram(lambda X, Y: over_x(JOINS[inner](over_x(X, "sum"), Y), outer))


def streamed(d: Diagram) -> Kernel:
    """The kernel that streams x in one pass."""
    kernel = d.stream("x").kernel
    assert len(kernel.stream.passes) == 1
    return kernel


def in_pieces(kernel: Kernel, arrays: list[Any], lengths: list[int]) -> Any:
    bind = {a.leaf: arrays["XY".index(a.tensor)] for a in kernel.reads}
    sizes = {"n": len(arrays[0]), "x": sum(lengths)}
    (found,) = folded(kernel.stream, bind, sizes, ranges(lengths))[1].values()
    return found


@pytest.mark.parametrize("outer", ["max", "min"])
@pytest.mark.parametrize("inner", ["max", "min"])
def test_an_extremum_of_a_join_or_a_meet_with_a_result(outer: str, inner: str) -> None:
    kernel = streamed(joined(outer, inner))
    assert [s.name for s in kernel.stream.states] == ["total", "O"]
    assert_law(kernel, extremes={"Y": (-30.0, 30.0)})


@pytest.mark.parametrize("outer", ["max", "min"])
@pytest.mark.parametrize("inner", ["max", "min"])
def test_nothing_and_nan(outer: str, inner: str, rng: np.random.Generator) -> None:
    d = joined(outer, inner)
    kernel = streamed(d)
    empty = [np.zeros((3, 0))] * 2
    worst = -np.inf if outer == "max" else np.inf
    np.testing.assert_array_equal(d.evaluate(*empty), [worst] * 3)
    np.testing.assert_array_equal(in_pieces(kernel, empty, [0]), [worst] * 3)
    arrays = [rng.normal(size=(3, 5)) for _ in range(2)]
    arrays[0][0, 4] = arrays[1][1, 1] = np.nan
    wanted = d.evaluate(*arrays)
    assert np.isnan(wanted).tolist() == [True, True, False]
    np.testing.assert_allclose(in_pieces(kernel, arrays, [2, 3]), wanted)


SEPARABLE = {
    "clamped": lambda X, Y: over_x(
        nk.maximum(nk.minimum(over_x(X, "max"), Y), over_x(X, "min")), "max"
    ),
    "a meet of joins": lambda X, Y: over_x(
        nk.minimum(nk.maximum(over_x(X, "max"), Y), nk.maximum(X, over_x(Y, "sum"))), "max"
    ),
    "increasing": lambda X, Y: over_x(nk.tanh(over_x(X, "max") + Y), "max"),
    "turned over": lambda X, Y: over_x(
        over_x(X, "sum") - nk.maximum(over_x(X, "max"), Y * 2.0), "min"
    ),
    "scaled": lambda X, Y: over_x(
        nk.exp(over_x(X, "max")) * nk.minimum(over_x(X, "sum"), Y), "max"
    ),
}


@pytest.mark.parametrize("name", SEPARABLE)
def test_what_separates(name: str) -> None:
    assert_law(streamed(diagram(SEPARABLE[name])))


def test_over_another_axis() -> None:
    def body(X: Any, Y: Any) -> Any:
        below = nk.reduce(nk.maximum(X, over_x(Y, "sum")), "max", over="b")
        return over_x(below, "min")

    for signature in ("n x b, n x -> n", "n x b, n b x -> n"):
        d = diagram(body, signature)
        try:
            kernel = streamed(d)
        except nk.Refusal:
            assert "n b x" in signature  # max over b leaves a result beside the chunk's own max
            continue
        assert_law(kernel)


@pytest.mark.parametrize(
    "body",
    [
        lambda X, Y: over_x(nk.minimum(X + over_x(X, "sum"), Y), "max"),
        # -inf - max(r, -inf) is -inf, but max(-inf - r, -inf + inf) is NaN.
        lambda X, Y: over_x(Y - nk.minimum(over_x(X, "max"), Y * 2.0), "max"),
        lambda X, Y: over_x(over_x(X, "sum") * nk.maximum(over_x(X, "max"), Y), "max"),
    ],
)
def test_what_does_not(body: Callable[..., Any]) -> None:
    with pytest.raises(nk.Refusal, match="does not separate"):
        diagram(body).stream("x")


def test_the_separation_is_shown() -> None:
    (found,) = streamed(joined("max", "min")).stream.separations
    assert str(found) == (
        "max(minimum(total, Y), over x) = [minimum(total, max(Y, over x))]; deferred total"
    )


def test_in_a_plan(rng: np.random.Generator) -> None:
    d = joined("max", "max")
    plan = nk.derive(d, sizes={"n": 4, "x": 2**20}, dtype="fp32", parts={"x": 1})
    (kernel,) = plan.kernels
    assert len(kernel.choice.kernel.stream.passes) == 1
    for size in (0, 1, 37):
        arrays = [rng.normal(size=(4, size)).astype(np.float32) for _ in range(2)]
        np.testing.assert_allclose(plan(*arrays), d.evaluate(*arrays), rtol=1e-5)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_sum_of_inf_and_minus_inf_is_a_bound_on_no_position() -> None:
    top, bottom, other = sympy.symbols("top bottom other", real=True)
    folds = {top: ("max", top), bottom: ("min", bottom), other: ("min", other)}
    assert bounded_on_nothing("min", sympy.Min(top + bottom, other), folds)
    assert not bounded_on_nothing("min", sympy.Min(bottom, other), folds)


def test_a_term_that_is_shared_has_its_value_once() -> None:
    """As a tree the term has 2^60 parts. Rational numbers stay exact."""
    x = sympy.Symbol("x", real=True)
    with sympy.evaluate(False):
        shared, exact = sympy.tanh(x), x
        for _ in range(60):
            shared, exact = sympy.Add(shared, sympy.Mul(shared, -1) / 2), sympy.Add(exact, exact)
    third = sympy.Rational(1, 3)
    assert value_at(exact, {x: third}) == third * 2**60
    assert abs(value_at(shared, {x: third}) * 2**60 - sympy.tanh(third).evalf(30)) < 1e-25
