"""Dependences that cancel do not stand in the way of a stream; those that only seem to, do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import sympy
from fold_law import assert_law

import napkin as nk
from napkin.algebra.law import folded, ranges
from napkin.diagram.diagram import Diagram
from napkin.rewrite.cancel import CANCELLED, _Cancelling, _is_product_of_sum, _value

taken_off = nk.operator(
    "taken_off", 2, evaluate=lambda xp, a, b: a - b, triton="a - b", meaning=lambda sp, a, b: a - b
)
inverse = nk.operator(
    "inverse", 1, evaluate=lambda xp, x: 1 / x, triton="1 / x", meaning=lambda sp, x: 1 / x
)


def over_x(x: Any, how: str = "sum") -> Any:
    return nk.reduce(x, how, over="x")


def mean(x: Any, axis: str) -> Any:
    return nk.reduce(x, "mean", over=axis)


def norm(X: Any) -> Any:
    return nk.sqrt(over_x(X * X) + 1e-3)


def drawn(signature: str, body: Callable[..., Any]) -> Diagram:
    return nk.diagram(signature, name="drawn")(body)


def without_algebra(X: Any) -> Any:
    """A result over x that sympy does not see into: its factors carry b, which the sum removes."""
    return nk.reduce(nk.tanh(X * over_x(X)), "sum", over="b")


def shift_beside_its_mean(X: Any, Y: Any) -> Any:
    t = nk.tanh(Y) - nk.reduce(X / norm(X), "max", over="b")
    return t - mean(t, "a")


CANCELS = {
    "a result taken off again": ("n x -> n x", lambda X: X + over_x(X) - over_x(X), "X"),
    "a difference by an operator of ones own": (
        "n x -> n x",
        lambda X: taken_off(X + over_x(X), over_x(X)),
        "X",
    ),
    "an output that lacks the axis": (
        "b x, n -> n x",
        lambda X, Y: (lambda r: Y + r - r)(without_algebra(X)),
        "Y",
    ),
    "a shift of a softmax": (
        "n x, x -> n x",
        lambda X, C: nk.softmax(X - over_x(C), over="n"),
        "X",
    ),
    "a shift beside its mean": ("b x, a x -> a x", shift_beside_its_mean, "Y"),
    "a sum of deviations": (
        "b x -> b x",
        lambda X: X * nk.reduce(X - mean(X, "b"), "sum", over="b") * over_x(X, "max"),
        "",
    ),
    "a factor that is 0": ("n x, x -> n x", lambda X, Y: (X - X) * (X + over_x(Y)), ""),
    "a factor that cannot be 0": ("n x -> n x", lambda X: X * norm(X) / norm(X), "X"),
    "a condition": (
        "n x -> n x",
        lambda X: (lambda t: nk.where(t > 0, t, 0.1 * t))(X + over_x(X) - over_x(X)),
        "X",
    ),
    "deviations in a sum": (
        "b x -> x",
        lambda X: nk.reduce((X - mean(X, "b")) * over_x(nk.reduce(X, "max", over="b")),
                            "sum", over="b"),
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CANCELS)
def test_what_cancels_is_not_waited_for(name: str) -> None:
    signature, body, read = CANCELS[name]
    kernel = drawn(signature, body).stream("x").kernel
    assert not kernel.stream.states
    assert "".join(a.tensor for a in kernel.reads) == read
    if read:
        assert_law(kernel)
        return
    _, found = folded(kernel.stream, {}, dict.fromkeys(kernel.axes, 4), ranges([1, 3]))
    assert not any(value.any() for value in found.values())


def test_what_cancels_in_a_body() -> None:
    def body(X: Any, Y: Any) -> Any:
        r = nk.tanh(over_x(Y) * X) * over_x(Y, "max")
        return over_x(nk.exp(X + r - r))

    kernel = drawn("n x, x -> n", body).stream("x").kernel
    assert [a.tensor for a in kernel.reads] == ["X"]
    assert_law(kernel)


STAYS = {
    # The weights of a row without scores sum to 0, not to 1.
    "a sum of weights": (
        "x b -> x",
        lambda S: (lambda w: w - mean(w, "x"))(nk.reduce(nk.softmax(S, over="b"), "sum", over="b")),
    ),
    "a factor that may be 0": ("n x -> n x", lambda X: X * over_x(X) / over_x(X)),
    "its inverse by an operator of ones own": (
        "n x -> n x",
        lambda X: X * over_x(X) * inverse(over_x(X)),
    ),
    # It is 0 where all scores are masked, or where it is small.
    "a sigmoid": ("n x -> n x", lambda X: (lambda r: X * r / r)(nk.sigmoid(over_x(X, "max")))),
    "a cast": ("n x -> n x", lambda X: (lambda r: X * r / r)(nk.cast(norm(X), "int32"))),
    "a narrow cast": ("n x -> n x", lambda X: (lambda r: X * r / r)(nk.cast(norm(X), "fp16"))),
    "what rounding takes off": (
        "n x -> n x",
        lambda X: (lambda t: t - nk.cast(t, "bf16"))(X * over_x(X)),
    ),
    "a mean": ("n x -> n x", lambda X: X - mean(X, "x")),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_only_seems_to_cancel(name: str) -> None:
    with pytest.raises(nk.Refusal, match="needs a reduction over it to finish"):
        drawn(*STAYS[name]).stream("x")


def test_an_output_that_does_not_depend_on_the_axis() -> None:
    def body(X: Any) -> Any:
        t = nk.reduce(X * nk.reduce(X, "max", over="x"), "sum", over="b")
        return nk.reduce(t - mean(t, "x"), "sum", over="x")

    with pytest.raises(nk.Refusal):
        drawn("x b -> ()", body).stream("x")


def test_a_cast_to_whole_numbers_has_no_algebra() -> None:
    def body(X: Any) -> Any:
        return nk.reduce(nk.cast((X - over_x(X, "max")) * 3.0, "int32"), "sum", over="x")

    with pytest.raises(nk.Refusal, match="does not separate from m"):
        drawn("x -> ():int", body).stream("x")


def test_a_condition_that_is_a_cast_keeps_its_type() -> None:
    def body(X: Any) -> Any:
        where = nk.cast(X * over_x(X, "max") - X * over_x(X, "max"), "bool")
        return nk.reduce(nk.where(where, X, 1.0), "sum", over="x")

    assert_law(drawn("x -> ()", body).stream("x").kernel)


def test_what_was_seen_of_a_term_holds_under_other_roots() -> None:
    """A term that was looked through is remembered, and what cancels beside it is still found."""

    def kept(X: Any) -> Any:
        return X * over_x(X)

    def gone(X: Any) -> Any:
        return kept(X) + (lambda t: t - t)(X * over_x(X, "max"))

    for body, found in ((kept, False), (gone, True), (kept, False), (gone, True)):
        roots = [o.node for o in drawn("n x -> n x", body).outputs]
        assert bool(list(CANCELLED.matches(roots, ("x",)))) == found


A, B, C = sympy.symbols("a b c", positive=True)
EXPRESSIONS = [
    A * (B + C), A / (B + C), (A + B) ** 2, (A + B) ** 3 / C, (A + B) * (A - B), A * B / C - B,
    sympy.exp(A * (B + C)), sympy.tanh(A * (B - C)) - A, sympy.log(A * B), sympy.sqrt(A + B) * A,
    sympy.Rational(-1, 2) * A - sympy.Rational(3, 2) * B ** sympy.Rational(-1, 2), -A - B, -A / B,
    sympy.Max(A, -B) / (C + A / B), 1 / (A + B), 1 / ((A + B) * (B + C)), (A * (B + C)) ** 0.5,
    -0.5 * A * (A + sympy.exp(-B)) ** -1.5, (A + B / C) ** sympy.Rational(-3, 2) * -A,
]  # fmt: skip


@pytest.mark.parametrize("e", EXPRESSIONS, ids=str)
def test_what_has_nothing_to_multiply_out_is_left_as_it_is(e: Any) -> None:
    if not any(map(_is_product_of_sum, sympy.preorder_traversal(e))):
        assert sympy.expand(e, power_exp=False, power_base=False, log=False) == e


@pytest.mark.parametrize("e", EXPRESSIONS, ids=str)
def test_a_bound_on_operations_is_no_less_than_their_number(e: Any) -> None:
    size, *_ = _Cancelling(frozenset("x"), through=True)._measure(e)
    assert e.count_ops() <= 3 * size + 2 * (size + 1)


def test_expressions_have_the_values_that_operators_compute() -> None:
    """Else all that holds a maximum would be multiplied out, whatever it depends on."""
    x, y = sympy.symbols("x y", positive=True)
    at = {x: 0.7, y: 1.1}
    e = sympy.Max(x, y, 2) * sympy.exp(-x) + sympy.Abs(y - 3) + sympy.erf(x) * sympy.Min(x, y)
    assert _value(list(sympy.postorder_traversal(e)), at) == pytest.approx(float(e.subs(at)))
    unknown = sympy.Function("f")(x) + y
    assert math.isnan(_value(list(sympy.postorder_traversal(unknown)), at))
