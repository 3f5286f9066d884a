"""Tracing: what a diagram keeps of the function that it was written as."""

from __future__ import annotations

import pytest

import napkin as nk
from napkin.derive.law import assert_law
from napkin.diagram.library import load
from napkin.diagram.listing import LONGEST
from napkin.errors import InputError


def test_a_called_diagram_keeps_its_names() -> None:
    attention = load("attention")

    @nk.diagram("q d, x d, x d -> q d")
    def residual(Q, K, V):
        return attention(Q, K, V) * 0.5 + Q

    assert "  S = t * (d ** -0.5)" in repr(residual)
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
        return nk.reduce(nk.where(m > 0, S, m) ** 2, "sum", over="x")

    assert_law(f.stream("x").kernel)
