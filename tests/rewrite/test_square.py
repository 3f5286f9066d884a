"""Squared differences are multiplied out where that is asked for, and round as is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import napkin as nk
from napkin.algebra.rule import LawError
from napkin.derive.rules.table import TABLE
from napkin.errors import Refusal
from napkin.ir.evaluate import evaluate
from napkin.ir.infer import along, pointwise
from napkin.ir.node import Node, node, number
from napkin.rewrite.square import SQUARED, WEIGHTED

LARGE = {"n": 8192, "m": 8192, "d": 128}
SMALL = {"n": 21, "m": 37, "d": 19}


@nk.diagram("n d, m d -> n m")
def distances(X: Any, Y: Any) -> Any:
    return nk.reduce((X - Y) ** 2, "sum", over="d")


@nk.diagram("n d, m d, d -> n")
def nearest(X: Any, Y: Any, w: Any) -> Any:
    return nk.reduce(nk.contract(w, X - Y, X - Y, over="d"), "min", over="m")


def leaf(name: str, axes: str, kind: Any = "real") -> Node:
    return node("input", params=(name,), axes=axes, kind=kind)


def square(x: Node, y: Node, *others: Node, gone: str = "d") -> Node:
    t = pointwise("sub", (x, y))
    body = pointwise("mul", (t, t))
    for p in others:
        body = pointwise("mul", (body, p))
    return along("sum", body, (*gone,))


X, Y, W = leaf("X", "nd"), leaf("Y", "md"), leaf("W", "md")


@pytest.mark.parametrize("n", [square(X, Y), square(X, Y, W), square(pointwise("exp", (X,)), Y)])
def test_the_law_holds_without_rounding(n: Node) -> None:
    (found,) = SQUARED.matches([n])
    assert SQUARED.apply(found) is found.made
    assert sum(m.op == "sum" for m in found.made.args[0].args) == 2


def test_another_factor_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    from napkin.rewrite import square as rule

    monkeypatch.setattr(rule, "number", lambda _: number(1.0))
    (found,) = SQUARED.matches([square(X, Y)])
    with pytest.raises(LawError, match="multiply squares out"):
        SQUARED.apply(found)


OTHERS = {
    "one side has no axis of its own": square(leaf("Z", "d"), Y),
    "both sides have the same axes": square(leaf("Z", "nd"), X),
    "a side lacks the axis": square(leaf("z", "n"), Y),
    "whole numbers": square(leaf("I", "nd", "int"), leaf("J", "md", "int")),
    "a difference to the third": square(X, Y, pointwise("sub", (X, Y))),
}


@pytest.mark.parametrize("why", OTHERS)
def test_no_other_sum_is_multiplied_out(why: str) -> None:
    assert not list(SQUARED.matches([OTHERS[why]]))


@given(st.integers(0, 2**16), st.floats(0, 1e4))
@settings(max_examples=40, deadline=None)
def test_the_rounding_is_that_of_the_squares(seed: int, far: float) -> None:
    """Of d additions in float32, each of 2^-24 of |x|^2 + |y|^2, and not of |x - y|^2."""
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(5, 16)) + far).astype(np.float32)
    y = (rng.normal(size=(4, 16)) + far).astype(np.float32)
    (found,) = SQUARED.matches([square(X, Y)])
    sizes, wide = {"n": 5, "m": 4, "d": 16}, {X: x.astype(float), Y: y.astype(float)}
    before, after = (n for (n,) in found.sides())
    (wanted,), (exact,) = evaluate([before], wide, sizes), evaluate([after], wide, sizes)
    (rounded,) = evaluate([after], {X: x, Y: y}, sizes)
    squares = (wide[X] ** 2).sum(-1)[:, None] + (wide[Y] ** 2).sum(-1)[None]
    np.testing.assert_allclose(exact, wanted, rtol=1e-9, atol=1e-12 * (1 + far) ** 2)
    assert (abs(rounded - wanted) <= 16 * 2.0**-24 * squares).all()


def test_nothing_does_it_unasked() -> None:
    assert not TABLE["multiply squares out"].alternative
    (k,) = nk.derive(distances, sizes=LARGE).kernels
    assert "tl.dot(" not in k.written.source


@pytest.mark.parametrize("d", [distances, nearest], ids=lambda d: d.name)
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_asked_for_it_is_a_matrix_product(d: Any, dtype: str) -> None:
    plan = nk.derive(d, sizes=LARGE, dtype=dtype, multiply_out=True)
    assert "tl.dot(" in plan.source
    assert "the square under the sum over d, multiplied out" in str(plan.trail)
    plan.check(sizes=SMALL, resources=False).raise_if_wrong()
    if dtype == "bf16":
        slow = nk.derive(d, sizes=LARGE, dtype=dtype)
        assert plan.seconds * 15 < slow.seconds


def test_where_there_is_none_it_is_refused() -> None:
    d = nk.diagram("n d, m d -> n m")(lambda X, Y: nk.contract(X, Y, over="d"))
    with pytest.raises(Refusal, match=r"no sum of \(x - y\) \*\* 2 has an x and a y"):
        nk.derive(d, sizes=SMALL, multiply_out=True)


@nk.diagram("n d, m d -> n")
def least(X: Any, Y: Any) -> Any:
    off = X - Y
    return nk.reduce(nk.contract(off, off, over="d"), "min", over="m")


def test_windows_are_looked_for_after_a_named_difference_is_multiplied_out() -> None:
    """The difference is gone, and its name with it."""
    assert nk.derive(least, sizes=LARGE, dtype="fp32", multiply_out=True).kernels


G = leaf("G", "nm")


def weighted(x: Node, y: Node, *weights: Node, gone: str = "m") -> Node:
    body = pointwise("sub", (x, y))
    for p in weights:
        body = pointwise("mul", (body, p))
    return along("sum", body, (*gone,))


@pytest.mark.parametrize(
    "n", [weighted(X, Y, G), weighted(Y, X, G), weighted(X, Y, G, leaf("w", "m")),
          weighted(leaf("x", "n"), Y, G)],
)  # fmt: skip
def test_weighted_differences_are_multiplied_out(n: Node) -> None:
    """The side that lacks the axis scales the sum of the weights."""
    (found,) = WEIGHTED.matches([n])
    assert WEIGHTED.apply(found) is found.made
    assert found.made.op == "sub"
    assert sorted(m.op for m in found.made.args) == ["mul", "sum"]


@pytest.mark.parametrize(
    "n", [weighted(X, Y, leaf("w", "m")), weighted(X, leaf("y", "m"), leaf("w", "m")),
          weighted(Y, leaf("Z", "md"), G), weighted(X, Y, G, pointwise("sub", (X, Y))),
          weighted(leaf("I", "nd", "int"), leaf("J", "md", "int"), leaf("K", "nm", "int"))],
)  # fmt: skip
def test_no_other_weighted_sum_is_multiplied_out(n: Node) -> None:
    """No product is gained, both sides carry the axis, the difference is squared, whole numbers."""
    assert not list(WEIGHTED.matches([n]))


@nk.diagram("n d, m d -> n")
def soft_nearest(X: Any, Y: Any) -> Any:
    return -nk.reduce(-nk.reduce((X - Y) ** 2, "sum", over="d"), "logsumexp", over="m")


@pytest.mark.parametrize("d", [distances, soft_nearest], ids=lambda d: d.name)
def test_gradients_of_squared_distances_are_products_where_that_is_asked_for(d: Any) -> None:
    """Differences of all pairs, weighted: 4,315 us were priced for those of 8,192 points."""
    gradient = nk.gradient(d)
    assert "tl.dot(" not in nk.derive(gradient, "h100", LARGE).source
    plan = nk.derive(gradient, "h100", LARGE, multiply_out=True)
    assert "the difference under the sum over m, multiplied out" in str(plan.trail)
    assert all("tl.dot(" in k.written.source for k in plan.kernels)
    plan.check(sizes=SMALL, resources=False).raise_if_wrong()


@pytest.mark.parametrize("signature", ["n m:int, n d, m d -> n d", "n m:int, n d, m d:int -> n d"])
def test_whole_numbers_that_are_weighed_are_summed_as_reals(signature: str) -> None:
    """A real factor makes reals of them: their own sum would wrap at 2^31."""

    @nk.diagram(signature)
    def moved(K: Any, X: Any, Y: Any) -> Any:
        return nk.reduce(K * (X - Y), "sum", over="m")

    plan = nk.derive(moved, "h100", LARGE, dtype="fp32", multiply_out=True)
    K, X = np.full((3, 64), 2**26, np.int32), np.ones((3, 2), np.float32)
    Y = np.zeros((64, 2), np.int32 if "d:int" in signature else np.float32)
    np.testing.assert_allclose(plan(K, X, Y), 2.0**32)


def test_whole_numbers_that_are_squared_are_summed_as_reals() -> None:
    @nk.diagram("n d, m d:int -> n m")
    def far(X: Any, J: Any) -> Any:
        return nk.reduce((X - J) ** 2, "sum", over="d")

    plan = nk.derive(far, "h100", LARGE, dtype="fp32", multiply_out=True)
    X, J = np.zeros((2, 64), np.float32), np.full((3, 64), 2**15, np.int32)
    np.testing.assert_allclose(plan(X, J), 64 * 2.0**30)
