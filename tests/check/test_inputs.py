"""A check on inputs that are given, or drawn from where they make sense."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.check.inputs import given
from napkin.check.verdict import CheckFailed, check

SIZES = {"q": 40, "x": 40, "d": 16}


@nk.diagram("q d, x d, x d, () -> q d", sizes=SIZES)
def decayed(Q: Any, K: Any, V: Any, decay: Any) -> Any:
    """Retention, whose decay is an exponent: where it is positive, 40 positions overflow."""
    S = nk.contract(Q, K, over="d")
    far = nk.index("q") - nk.index("x")
    return nk.contract(S * nk.exp(decay * far), V, over="x")


@nk.diagram("n x, n:int -> n", sizes={"n": 9, "x": 33})
def chosen(X: Any, N: Any) -> Any:
    return nk.reduce(X, "sum", over="x") / N


@pytest.fixture(scope="module")
def plan() -> Any:
    return nk.derive(decayed, dtype="fp32")


def test_an_overflow_is_told_from_an_error(plan: Any) -> None:
    found = check(plan, sizes=SIZES, ranges={"decay": (30.0, 31.0)}, resources=False)
    (row,) = found.values
    assert not found.ok
    assert row.overflow.startswith("exp(decay * ")
    assert row.mark.startswith("OVERFLOW: exp(decay * ")
    assert "past float32; give inputs or ranges" in row.mark
    assert found.to_json()["values"]["rows"][0]["overflow"] == row.overflow
    with pytest.raises(CheckFailed, match="overflow"):
        found.raise_if_wrong()


def test_whole_numbers_wrap_and_the_check_names_them() -> None:
    @nk.diagram("n:int -> n", sizes={"n": 3})
    def cubed(X: Any) -> Any:
        return X**3 + X * X * X

    X = np.array([1, 2**11 + 1, -(2**12) + 5])
    plan = nk.derive(cubed, dtype="fp32")
    np.testing.assert_array_equal(plan(X), (2 * X**3).astype(np.int32))
    (row,) = check(plan, inputs={"X": X}, resources=False).values
    assert row.mark.startswith("OVERFLOW")
    assert "past int32" in row.mark


def test_padded_lanes_may_overflow() -> None:
    """Positions past the end of an axis, of which nobody reads the cubes."""

    @nk.diagram("b -> ()", sizes={"b": 4096})
    def cubes(X: Any) -> Any:
        return nk.contract(X, nk.index("b") ** 3, over="b")

    plan = nk.derive(cubes, dtype="fp32")
    assert plan(np.array([1.0, 2.0, 3.0])) == 26.0


def test_a_range_keeps_a_check_where_it_means_something(plan: Any) -> None:
    found = check(plan, sizes=SIZES, ranges={"decay": (0.01, 0.02)}, resources=False)
    assert found.ok, found
    assert "overflow" not in found.to_json()["values"]["rows"][0]


def test_a_kernel_that_is_wrong_is_wrong_with_ranges_too(plan: Any) -> None:
    @nk.diagram("q d, x d, x d, () -> q d", sizes=SIZES, name="decayed")
    def negated(Q: Any, K: Any, V: Any, decay: Any) -> Any:
        far = nk.index("x") - nk.index("q")
        return nk.contract(nk.contract(Q, K, over="d") * nk.exp(decay * far), V, over="x")

    from dataclasses import replace

    found = check(
        replace(plan, diagram=negated), sizes=SIZES, ranges={"decay": (0.1, 0.2)}, resources=False
    )
    assert [r.mark for r in found.values] == ["WRONG"] or found.values[0].mark.startswith("WRONG;")


def test_inputs_are_those_that_are_given(plan: Any) -> None:
    rng = np.random.default_rng(0)
    arrays = {"Q": rng.normal(size=(7, 16)), "decay": np.asarray(-0.5)}
    found = plan.check(inputs=arrays, resources=False)
    assert found.ok, found
    assert {t.counted for t in found.traffic if t.tensor == "O"} == {7 * 16 * 4}
    past = plan.check(inputs={**arrays, "decay": np.asarray(30.0)}, resources=False)
    assert [r.overflow != "" for r in past.values] == [True]


def test_ranges_of_whole_numbers() -> None:
    plan = nk.derive(chosen, dtype="fp32")
    found = plan.check(sizes=dict(n=9, x=33), ranges={"N": (1, 3)}, resources=False)
    assert found.ok, found
    drawn = given(chosen, None, {"N": (1, 3)})
    values = drawn.values(chosen, chosen.inputs[1], {"n": 99}, np.random.default_rng(0))
    assert set(values) == {1, 2, 3}


WRONG = {
    "a name": (dict(ranges={"decoy": (0, 1)}), "no input 'decoy'; did you mean 'decay'?"),
    "both": (dict(inputs={"decay": 1.0}, ranges={"decay": (0, 1)}), "is given, so it has no range"),
    "one number": (dict(ranges={"decay": 3}), "is 3; write two numbers"),
    "words": (dict(ranges={"decay": ("a", "b")}), "write two numbers"),
    "backwards": (dict(ranges={"decay": (1, 0)}), "runs backwards; write 0 to 1"),
    "infinite": (dict(ranges={"decay": (0, float("inf"))}), "both ends must be finite"),
    "too wide": (dict(ranges={"decay": (-1.7e308, 1.7e308)}), "both ends must be finite"),
    "axes": (dict(inputs={"Q": np.ones(3)}), r"has axes 'q d' but an array of shape \(3,\)"),
    "sizes": (
        dict(inputs={"Q": np.ones((3, 5))}, sizes={"d": 16}),
        "axis d is 5 in Q but 16 elsewhere",
    ),
    "arrays": (
        dict(inputs={"K": np.ones((3, 5)), "V": np.ones((4, 5))}),
        "axis x is 4 in V but 3 elsewhere",
    ),
    "numbers": (dict(inputs={"Q": np.array([["a"]])}), "Q holds real numbers, not <U1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit(plan: Any, name: str) -> None:
    how, said = WRONG[name]
    with pytest.raises(nk.InputError, match=said):
        check(plan, resources=False, **how)


def test_a_range_of_whole_numbers_that_is_none() -> None:
    with pytest.raises(nk.InputError, match="write whole numbers from -2147483648 to"):
        given(chosen, None, {"N": (0.5, 2)})


@nk.diagram("q m k, n m:uint8 -> q n", sizes={"q": 2, "m": 3, "k": 5, "n": 6})
def summed_codes(T: Any, C: Any) -> Any:
    return nk.reduce(nk.take(T, k=C), "sum", over="m")


def test_positions_of_eight_bits_are_drawn_within_their_type() -> None:
    """One past an end is drawn of others, which -1 is not of uint8."""
    found = check(nk.derive(summed_codes), sizes=dict(summed_codes.sizes), resources=False)
    assert found.ok, str(found)


def test_given_inputs_without_axes_are_given_to_one_run() -> None:
    plan = nk.derive(nk.diagram("() -> ()")(lambda x: nk.exp(x) ** 2), dtype="fp32")
    (row,) = check(plan, inputs={"x": 0.5}, resources=False).values
    assert row.case == "as asked"
    assert row.ok


def test_an_overflow_beside_computed_positions() -> None:
    """Positions arrived as floats where the reference was searched for the overflow."""

    @nk.diagram("n d, n:int -> n", sizes={"n": 3, "d": 5})
    def picked(X, at):
        return nk.take(nk.exp(X * X) * 0.0 + X, d=at)

    given = {"X": np.full((3, 5), 20.0), "at": np.array([1, 2, 0])}
    (row,) = nk.derive(picked, dtype="fp32").check(inputs=given, resources=False).values
    assert "past float32" in row.overflow


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"inputs": [1.0]}, r"inputs=\[1.0\] is no dictionary"),
        ({"ranges": 5}, "ranges=5 is no dictionary"),
        ({"seed": -1}, "check: seed=-1 is not a whole number from 0"),
        ({"seed": None}, "check: seed=None is not a whole number"),
    ],
)
def test_what_no_check_takes(plan: Any, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(nk.InputError, match=said):
        check(plan, **asked)


@nk.diagram("q x -> q", sizes={"q": 9, "x": 40})
def capped(X: Any, *, cap: Any, scale: Any = 2.0) -> Any:
    return nk.reduce(nk.tanh(X / cap) * scale, "sum", over="x")


def test_scalars_have_values_of_the_check() -> None:
    plan = nk.derive(capped, dtype="fp32")
    with pytest.raises(nk.InputError, match="needs a value for the scalar cap"):
        check(plan, resources=False)
    with pytest.raises(nk.InputError, match="has no scalar 'cup'; did you mean 'cap'"):
        check(plan, scalars={"cup": 3.0}, resources=False)
    check(plan, scalars={"cap": 3.0}, resources=False).raise_if_wrong()
    back = nk.derive(nk.gradient(capped), dtype="fp32")
    found = check(back, scalars={"cap": 3.0}, gradient_of=capped, resources=False)
    found.raise_if_wrong()
    assert found.derivatives


@pytest.mark.parametrize(
    ("holds", "last"),
    [
        ("n", lambda N: nk.argmax(N, over="n") * 9),
        ("n:bool", lambda N: nk.reduce(N, "sum", over="n") * 9),
        ("q", lambda N: nk.index("q") + nk.cast(N * 10, "int32")),
        ("q:bool", lambda N: nk.where(N, nk.index("q"), 40)),
    ],
)
def test_keys_that_numbers_of_any_kind_choose(holds: str, last: Any) -> None:
    @nk.diagram(f"q d, x d, x d, {holds} -> q d")
    def attention(Q: Any, K: Any, V: Any, N: Any) -> Any:
        keys = nk.causal("q", "x", at=last(N))
        S = nk.contract(Q, K, over="d")
        return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")

    sizes = {
        a: n for a, n in {"q": 1024, "x": 1024, "d": 64, "n": 5}.items() if a in attention.axes
    }
    plan = nk.derive(attention, sizes=sizes, dtype="fp32")
    plan.check(sizes={"q": 70, "x": 90, "d": 16}, resources=False).raise_if_wrong()
