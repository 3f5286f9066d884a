"""`take` against numpy, and what it says to those who ask for what it does not do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import napkin as nk
from napkin.diagram.columns import columns, validate
from napkin.show.dataflow import dot


def numbers(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 12), st.integers(-4, 12))
def test_relative_positions(queries: int, keys: int, size: int, shift: int) -> None:
    """A table read at x - q + shift; what lies outside it is its first or its last entry."""

    @nk.diagram("h q x, h p -> h q x")
    def biased(S, B):
        return S + nk.take(B, p=nk.index("x") - nk.index("q") + shift)

    S, B = numbers(0, 2, queries, keys), numbers(1, 2, size)
    at = np.arange(keys) - np.arange(queries)[:, None] + shift
    wanted = S + np.take(B, at, axis=1, mode="clip")
    assert np.array_equal(biased.evaluate(S, B), wanted)


def test_axes_of_positions_stand_where_the_axis_did_that_they_replace() -> None:
    @nk.diagram("a b c, q:int -> a c q")
    def rows(T, I):  # noqa: E741
        picked = nk.take(T, b=I)
        assert picked.axes == ("a", "q", "c")
        return picked

    T, at = numbers(0, 2, 5, 3), np.array([4, 0, -3, 9])
    wanted = np.take(T, at, axis=1, mode="clip").transpose(0, 2, 1)
    assert np.array_equal(rows.evaluate(T, at), wanted)


def test_an_axis_of_both_is_one_axis() -> None:
    @nk.diagram("h p, h q:int -> h q")
    def each(T, I):  # noqa: E741
        return nk.take(T, p=I)

    T, at = numbers(0, 3, 5), np.random.default_rng(1).integers(-2, 8, size=(3, 4))
    assert np.array_equal(each.evaluate(T, at), np.take_along_axis(T, at.clip(0, 4), axis=1))


def test_two_axes_at_once() -> None:
    @nk.diagram("p r, i j -> i j")
    def corner(T, X):
        return X * nk.take(T, p=nk.index("j") + 1, r=nk.index("i") - nk.index("j"))

    T, X = numbers(0, 4, 6), numbers(1, 5, 3)
    i, j = np.indices((5, 3))
    assert np.array_equal(corner.evaluate(T, X), X * T[(j + 1).clip(0, 3), (i - j).clip(0, 5)])


def test_a_number_is_a_position() -> None:
    @nk.diagram("n p -> n")
    def second(T):
        return nk.take(T, p=1)

    T = numbers(0, 3, 4)
    assert np.array_equal(second.evaluate(T), T[:, 1])


def test_a_permutation_keeps_the_name_of_the_axis() -> None:
    @nk.diagram("n x, x:int -> n x")
    def shuffled(T, I):  # noqa: E741
        return nk.take(T, x=I)

    T, order = numbers(0, 3, 6), np.random.default_rng(1).permutation(6)
    assert np.array_equal(shuffled.evaluate(T, order), T[:, order])


def test_what_is_taken_is_read_under_other_names() -> None:
    """Renamed before it is taken, and after."""

    @nk.diagram("t d, d e -> t e")
    def shifted(T, W):
        before = nk.take(nk.rename(T, t="s"), s=nk.index("t") - 1)
        after = nk.rename(nk.take(nk.rename(T, t="s"), s=nk.index("t") + 1), d="k")
        return nk.contract(before, W, over="d") + nk.reduce(after, "sum", over="k")

    T, W = numbers(0, 5, 3), numbers(1, 3, 4)
    before, after = T[(np.arange(5) - 1).clip(0)], T[(np.arange(5) + 1).clip(0, 4)]
    assert np.allclose(shifted.evaluate(T, W), before @ W + after.sum(1, keepdims=True))


def test_renamed_to_the_axis_that_was_taken() -> None:
    @nk.diagram("h p -> p")
    def turned(T):
        return nk.rename(nk.take(T, p=2), h="p")

    with pytest.raises(nk.InputError, match="p is h under another name"):
        turned.check_sizes({"h": 3, "p": 4})
    T = numbers(0, 4, 4)
    assert np.array_equal(turned.evaluate(T), T[:, 2])


def test_positions_along_a_computed_table_get_the_name_of_its_axis() -> None:
    """It is read along that axis, which the result does not have of it."""

    @nk.diagram("t d -> t d", sizes={"t": 70, "d": 8})
    def turned(X):
        sums = nk.take(nk.cumsum(X, along="t"), t=nk.size("t") - 1 - nk.index("t"))
        return nk.rename(nk.rename(sums, t="u"), u="t") * X

    X = numbers(0, 5, 3)
    np.testing.assert_allclose(turned.evaluate(X), X.cumsum(axis=0)[::-1] * X)
    nk.derive(turned, dtype="fp32").check(resources=False).raise_if_wrong()


def test_weaving_the_table_the_positions_or_both() -> None:
    @nk.diagram("p, q:int -> q")
    def picked(T, I):  # noqa: E741
        return nk.take(T, p=I)

    tables, places = numbers(0, 3, 5), np.random.default_rng(1).integers(0, 5, size=(3, 4))
    found = picked.weave("b", into="T").evaluate(tables, places[0])
    assert np.array_equal(found, tables[:, places[0]])
    found = picked.weave("b", into="I").evaluate(tables[0], places)
    assert np.array_equal(found, tables[0][places])
    found = picked.weave("b").evaluate(tables, places)
    assert np.array_equal(found, np.take_along_axis(tables, places, axis=1))


def test_a_diagram_that_takes_is_called_on_inputs() -> None:
    @nk.diagram("p, q -> q")
    def scaled(T, X):
        return X * nk.take(T, p=nk.index("q"))

    @nk.diagram("h p, h q -> h")
    def total(T, X):
        return nk.reduce(scaled(T, X), "sum", over="q")

    T, X = numbers(0, 2, 3), numbers(1, 2, 5)
    assert np.allclose(total.evaluate(T, X), (X * T[:, [0, 1, 2, 2, 2]]).sum(1))

    @nk.diagram("h p, h q -> h q")
    def doubled(T, X):
        return scaled(T * 2, X)

    assert np.allclose(doubled.evaluate(T, X), 2 * X * T[:, [0, 1, 2, 2, 2]])


def test_whole_numbers_are_taken_and_are_positions() -> None:
    @nk.diagram("m:int, n:int, v -> n")
    def twice(A, B, T):
        return nk.take(T, v=nk.take(A, m=B))

    A, B, T = np.array([2, 0, 5]), np.array([0, 2, 1, -1]), numbers(0, 4)
    assert np.array_equal(twice.evaluate(A, B, T), T[[2, 3, 0, 2]])


def test_whole_numbers_and_tests_beside_what_is_taken_are_taken_again() -> None:
    @nk.diagram("g d, g d:int, g d:bool, d:int -> d")
    def twice(X, I, B, P):  # noqa: E741
        return nk.take(nk.take(X, g=I) * B + I, g=P)

    X, I, P = numbers(0, 3, 3), np.array([[0, 2, 1], [1, 1, 0], [2, 0, 2]]), np.array([2, 0, 1])  # noqa: E741
    B = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0]])
    wanted = (X[I, np.arange(3)] * B + I)[P, np.arange(3)]
    assert np.allclose(twice.evaluate(X, I, B, P), wanted)


def test_computed_tables_are_stored_first() -> None:
    @nk.diagram("q x, q -> q", sizes={"q": 70, "x": 90})
    def diagonal(S, X):
        P = nk.softmax(S, over="x")
        return X + nk.take(P, x=nk.index("q"))

    S, X = numbers(0, 6, 9), numbers(1, 6)
    e = np.exp(S)
    wanted = X + np.diagonal(e / e.sum(1, keepdims=True))
    assert np.allclose(diagonal.evaluate(S, X), wanted)
    with pytest.raises(nk.Refusal, match="what it reads is computed in this kernel"):
        diagonal.group("q")
    plan = nk.derive(diagonal)
    assert list(plan.materialised) == ["P"]
    assert len(plan.kernels) == 2
    sizes = {"q": 37, "x": 41}
    plan.check(sizes=sizes, resources=False).raise_if_wrong()


@pytest.mark.parametrize("at", [0.5, "real", "test"])
def test_positions_are_whole_numbers(at: object) -> None:
    with pytest.raises(nk.InputError, match=r"take p=\.\.\.: positions are whole numbers, as from"):

        @nk.diagram("p, q -> q")
        def between(T, X):
            chosen = {"real": X, "test": X > 0}
            return X + nk.take(T, p=chosen.get(at, at))  # type: ignore[arg-type]


def test_axes_that_are_not_there() -> None:
    with pytest.raises(nk.InputError, match=r"take z=\.\.\.: the array has axes 'h p'"):
        nk.diagram("h p -> h")(lambda T: nk.take(T, z=1))
    with pytest.raises(nk.InputError, match="take names no axis; write axis=position for one of"):
        nk.diagram("h p -> h p")(lambda T: nk.take(T))
    with pytest.raises(nk.InputError, match=r"take reads an array of the diagram, not 1\.5"):
        nk.take(1.5, p=1)  # type: ignore[arg-type]


def test_an_empty_table_holds_nothing_to_take() -> None:
    @nk.diagram("p, q -> q")
    def scaled(T, X):
        return X * nk.take(T, p=nk.index("q"))

    with pytest.raises(nk.InputError, match="p=0, but scaled reads along p at computed positions"):
        scaled.evaluate(np.zeros(0), np.zeros(3))
    assert scaled.evaluate(np.ones(2), np.zeros(0)).shape == (0,)


def test_an_empty_axis_is_read_backwards() -> None:
    @nk.diagram("a p -> a", sizes={"a": 2, "p": 3})
    def last_first(X: Any) -> Any:
        turned = nk.take(nk.cumsum(X, along="p"), p=nk.size("p") - 1 - nk.index("p"))
        return nk.reduce(nk.exp(turned), "sum", over="p")

    empty = np.zeros((2, 0))
    assert (last_first.evaluate(empty) == 0).all()
    assert (nk.derive(last_first, dtype="fp32")(empty) == 0).all()
    assert nk.gradient(last_first).evaluate(empty, np.ones(2)).shape == (2, 0)


def test_what_is_shown() -> None:
    @nk.diagram("h q x, h p -> h q x")
    def biased(S, B):
        bias = nk.take(B, p=nk.index("x") - nk.index("q") + nk.size("q") - 1)
        return nk.softmax(S + bias, over="x")

    assert "bias = take(B, p=index(x) - index(q) + q - 1)" in repr(biased)
    validate(biased)
    assert [s.after.op for s in columns(biased)[1:] if s.after].count("take") == 1
    assert "take" in biased.draw()
    assert "take" in dot(biased)
    assert "take" in biased.weave("b").draw()


def test_a_position_of_sizes_and_scalars_alone_is_passed_to_the_kernel() -> None:
    @nk.diagram("q x -> q, q", sizes={"q": 5, "x": 7})
    def middles(X: Any, s: Any = 4.5) -> Any:
        middle = nk.size("x") // 2
        return nk.take(nk.sort(X, along="x"), x=middle), nk.take(X, x=nk.cast(s, "int32"))

    X = np.random.default_rng(0).normal(size=(5, 7))
    plan = nk.derive(middles, dtype="fp32")
    for found, wanted in zip(plan(X), (np.sort(X)[:, 3], X[:, 4]), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert plan.check(resources=False).ok
