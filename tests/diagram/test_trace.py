"""Tracing: what a diagram keeps of the function that it was written as."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fold_law import assert_law

import napkin as nk
from napkin.diagram.library import load
from napkin.errors import InputError
from napkin.ir.listing import LONGEST
from napkin.ir.storage import own_type


def test_a_called_diagram_keeps_its_names() -> None:
    attention = load("attention")

    @nk.diagram("q d, x d, x d -> q d")
    def residual(Q, K, V):
        return attention(Q, K, V) * 0.5 + Q

    assert "  S = Q_K * (d ** -0.5)" in repr(residual)
    assert set(residual.names.values()) == {"O", "S"}


def test_names_of_the_caller_win() -> None:
    attention = load("attention")

    @nk.diagram("q d, x d, x d -> q d")
    def scaled(Q, K, V):
        A = attention(Q, K, V)
        return A * 0.5

    assert set(scaled.names.values()) == {"A", "S"}


def test_with_sizes() -> None:
    attention = load("attention")
    made = attention.weave("h").with_sizes(h=16, q=128)
    assert dict(made.sizes) == {"h": 16, "q": 128, "x": 4096, "d": 128}
    assert attention.check_sizes({})["q"] == 4096
    with pytest.raises(InputError, match="has no axis 'heads'"):
        attention.with_sizes(heads=2)
    with pytest.raises(InputError, match="not between 1 and"):
        attention.with_sizes(q=0)


def test_a_long_chain_is_listed() -> None:
    @nk.diagram("a -> a")
    def chain(A):
        for _ in range(1200):
            A = A + 1.0
        return A

    assert len(repr(chain)) < 2 * LONGEST


def test_what_is_used_twice_has_a_line() -> None:
    @nk.diagram("a -> a")
    def doubled(X):
        for _ in range(60):
            X = nk.tanh(X) * X
        return X

    assert repr(doubled).splitlines()[1].split() == ["t", "=", "tanh(X)", "*", "X", "[a]"]
    assert len(repr(doubled).splitlines()) == 61


def test_a_choice_by_a_running_result_streams() -> None:
    @nk.diagram("q x -> q")
    def f(S):
        m = nk.reduce(S, "max", over="x")
        return nk.reduce(nk.where(m > 0, S, m), "sum", over="x")

    assert_law(f.stream("x").kernel)


def over_d(Q):
    return nk.reduce(Q, "sum", over="d")


def scaled(Q, scale):
    return Q * scale


@pytest.mark.parametrize(
    ("make", "said"),
    [
        # the decorator
        (
            lambda: nk.diagram(over_d),
            "@nk.diagram stands without a signature; write @nk.diagram('q d, x d -> q x'), with "
            "your own, above the function",
        ),
        (
            lambda: nk.diagram(None),
            "signature None is no text; write inputs -> outputs, as in 'q d, x d -> q x'",
        ),
        (lambda: nk.diagram("q -> q")(3), "@nk.diagram stands above 3, which is no function"),
        # names
        (
            lambda: nk.diagram("q d -> q", name="class")(over_d),
            "name='class' is a reserved word of Python, and the kernel is a function of that name; "
            "write another, such as name='class_'",
        ),
        (
            lambda: nk.diagram("q d -> q")(over_d).named("lambda"),
            "name='lambda' is a reserved word of Python, and the kernel is a function of that "
            "name; write another, such as name='lambda_'",
        ),
        (
            lambda: nk.diagram("q d -> q", name="two words")(over_d),
            "name='two words' is no name for the kernel's function; write letters, digits and _, "
            "as in name='my_kernel'",
        ),
        (
            lambda: nk.diagram("lambda d -> lambda")(over_d),
            "signature 'lambda d -> lambda': 'lambda' is a reserved word of Python; choose another "
            "name, such as lambda_",
        ),
        (
            lambda: nk.diagram("tl d -> tl")(over_d),
            "signature 'tl d -> tl': 'tl' is a name of kernels; choose another name, such as tl_",
        ),
        # what an output holds
        (
            lambda: nk.diagram("q -> q:int")(lambda Q: Q * 0.5),
            "diagram: output 1 holds values of kind 'real', but signature 'q -> q:int' says 'int'; "
            "write nk.cast(..., 'int32'), or leave out ':int'",
        ),
        (
            lambda: nk.diagram("q:int -> q, q:bool")(lambda Q: (Q, Q)),
            "diagram: output 2 holds values of kind 'int', but signature 'q:int -> q, q:bool' says "
            "'bool'; write nk.cast(..., 'bool'), or leave out ':bool'",
        ),
        # weaving
        (
            lambda: nk.diagram("q d -> q")(over_d).weave("b", into=["Q"]),
            "weave into=['Q']: write the inputs in one text, as in into='K V'",
        ),
        # sizes
        (
            lambda: nk.diagram("n, c -> n c, c", sizes={"n": 6, "c": 7})(
                lambda X, Y: (X * Y, nk.rename(X, n="c"))
            ),
            "sizes: c=7, but c is n under another name and n=6; give one size",
        ),
        (
            lambda: nk.diagram("q d -> q", sizes={"q": 1.5})(over_d),
            "sizes: q=1.5 is not a whole number; write one from 1, as in q=1024",
        ),
        (
            lambda: nk.diagram("q d -> q", sizes={"q": "8"})(over_d),
            "sizes: q='8' is not a whole number; write one from 1, as in q=1024",
        ),
        (
            lambda: nk.diagram("q d -> q", sizes={"q": True})(over_d),
            "sizes: q=True is not a whole number; write one from 1, as in q=1024",
        ),
        (
            lambda: nk.diagram("q d -> q", sizes=[4, 5])(over_d),
            "sizes=[4, 5] is no dictionary from axes to sizes; write sizes={'q': 1024}",
        ),
        (
            lambda: nk.derive(nk.diagram("q d -> q")(over_d), sizes=[4, 5]),
            "sizes=[4, 5] is no dictionary from axes to sizes; write sizes={'q': 1024}",
        ),
        (
            lambda: nk.derive(nk.diagram("q d -> q")(over_d), sizes={"q": 1.5}),
            "sizes: q=1.5 is not a whole number; write one from 1, as in q=1024",
        ),
        # parameters
        (
            lambda: nk.diagram("q -> q")(lambda Q, k="a": Q),
            "diagram: the parameter k='a' is a scalar, since the signature has no array for it, "
            "and its default is no number; write one, as in k=1.0",
        ),
        (
            lambda: nk.diagram("q, q -> q")(lambda Q, *, R: Q * R),
            "diagram: signature 'q, q -> q' has 2 arrays but the function takes 1; R stands behind "
            "*, where scalars stand",
        ),
        (
            lambda: nk.diagram("q -> q")(lambda Q, **kw: Q),
            "diagram: **kw does not say which scalars there are; write each as a parameter of its "
            "own, as in scale=1.0",
        ),
        (
            lambda: nk.diagram("q -> q")(scaled).evaluate(np.ones(3), scale="a"),
            "scaled: the scalar scale='a' is no number; write one, as in scale=1.0",
        ),
    ],
)
def test_wrong_input(make: Callable[[], object], said: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value) == said


@pytest.mark.parametrize(
    "function",
    [
        lambda Q, scale: Q * scale,
        lambda Q, scale, /: Q * scale,
        lambda Q, *, scale: Q * scale,
        lambda *Q, scale: Q[0] * scale,
    ],
)
def test_scalars_by_place_and_by_name(function: Callable[..., Any]) -> None:
    made = nk.diagram("q -> q")(function)
    assert made.evaluate(np.ones(2), scale=3.0).tolist() == [3.0, 3.0]


def test_inputs_and_scalars_may_be_called_self() -> None:
    @nk.diagram("q -> q")
    def weighted(self, weight=2.0):
        return self * weight

    assert own_type(weighted.stored(self="fp8").inputs[0]) == "fp8"
    made = nk.diagram("q -> q")(lambda Q, self=2.0: Q * self)
    assert made.evaluate(np.ones(2), self=3.0).tolist() == [3.0, 3.0]
