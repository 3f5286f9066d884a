"""Sums of differences far from zero: what is held running keeps the digits of the differences."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import sympy
from draw import draw
from forced import plans
from written import diagram as written

import napkin as nk
from napkin.algebra.meaning import Meaning
from napkin.algebra.rescale import rescaled
from napkin.algebra.rule import Instance, LawError, Rule, verified
from napkin.diagram.diagram import Diagram
from napkin.errors import Refusal
from napkin.ir.evaluate import evaluate
from napkin.ir.infer import along, pointwise
from napkin.ir.node import Node, node
from napkin.rewrite.together import write_exponent

X = node("input", params=("X",), axes=("x",), kind="real")
W = node("input", params=("W",), axes=("x",), kind="real")
SIZE = node("size", params=("x",), kind="int")


@pytest.mark.parametrize("seed", [3000260, 3000741, 3000776, 3000961, 3000222, 3002110])
def test_laws_hold_of_programs_that_broke_them(seed: int) -> None:
    program, rng = draw(seed), random.Random(seed)
    diagram = written(program)
    assert isinstance(diagram, Diagram)
    assert next(iter(plans(diagram, dict(program.sizes), "fp32", rng, 40)), None)


@nk.diagram("q x -> q, q, q", sizes={"q": 4, "x": 64})
def moments(A: Any) -> Any:
    away = A - nk.reduce(A, "mean", over="x")
    squares = nk.reduce(A * A, "sum", over="x")
    return squares, nk.reduce(away * away * away, "sum", over="x"), nk.reduce(A, "sum", over="x")


def test_squares_of_differences_are_not_read_off_squares() -> None:
    """sum (x - r)**2 is s2 - 2 r s1 + r**2 n, which has lost all digits where x is 1e6."""
    (step,) = moments.stream("x").kernel.stream.passes
    assert len([s for s in step.states if s.held == "running"]) == 2


def test_a_repair_by_no_move_is_none() -> None:
    """Of results of 1e6 a fourth power in r_old and r_new left 1e9 of nothing."""
    x, r1, r2, r3 = (sympy.Symbol(name, real=True) for name in ("x0", "r1", "r2", "r3"))
    found = rescaled(((x - r1 - r2) ** 2 - r3) ** 2, Meaning(lambda _: "x", write_exponent))
    at = {r1: 999999.95491016, r2: -1.98120024e-07, r3: 0.12240777}
    at |= {new: at[old] for old, new in zip(found.old, found.new, strict=True)}
    at |= dict.fromkeys(found.moved, 0.0)
    matrix = sympy.lambdify(list(at), found.matrix, "numpy")(*at.values())
    assert np.array_equal(np.asarray(matrix, float), np.eye(len(found.basis)))


def attention(masked: bool) -> Any:
    @nk.diagram("q x, x d -> q d", sizes={"q": 64, "x": 64, "d": 16})
    def deviations(S: Any, V: Any) -> Any:
        keys = nk.sliding(0, 0, queries="q", keys="x") if masked else None
        away = V - nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")
        return nk.reduce(away * away, "sum", over="x")

    return deviations


def test_no_deviations_are_taken_from_what_may_have_seen_nothing() -> None:
    """Where no key of a query has come yet, its attention is 0, and V**2 is no variance. So it is
    where the first scores are -inf."""
    with pytest.raises(Refusal, match="it takes differences from a result that leaves positions"):
        attention(masked=True).stream("x")
    with pytest.raises(Refusal, match="no difference from a mean of its own"):
        attention(masked=False).stream("x")
    for masked in (True, False):
        assert attention(masked).stream("x", passes=2)


def test_deviations_of_what_is_masked_alike_are_taken() -> None:
    @nk.diagram("q x -> q", sizes={"q": 8, "x": 64})
    def variance(S: Any) -> Any:
        seen = nk.index("x") <= nk.index("q")
        count = nk.reduce(nk.where(seen, 1.0, 0.0), "sum", over="x")
        mean = nk.reduce(nk.where(seen, S, 0.0), "sum", over="x") / count
        return nk.reduce(nk.where(seen, (S - mean) * (S - mean), 0.0), "sum", over="x")

    assert variance.stream("x")


def mean(n: Node) -> Node:
    return pointwise("div", (along("sum", n, ("x",)), SIZE))


def covariance(a: Node, b: Node) -> Node:
    return along("sum", pointwise("mul", (a, pointwise("sub", (b, mean(b))))), ("x",))


def multiplied_out(a: Node, b: Node) -> Node:
    products = along("sum", pointwise("mul", (a, b)), ("x",))
    return pointwise("sub", (products, pointwise("mul", (along("sum", a, ("x",)), mean(b)))))


def squares(n: Node) -> Node:
    away = pointwise("sub", (n, mean(n)))
    return along("sum", pointwise("mul", (away, away)), ("x",))


TURNED = Rule("multiply out", "sum a (b - r) = sum a b - r sum a", lambda term: (), empty=False)


def turned(before: Node, after: Node) -> Instance:
    """An application of the rule."""
    return Instance("a sum", [after], lambda: ([before], [after]))


def test_one_difference_may_be_multiplied_out() -> None:
    """Each sum may be off by as much as rounding what it reads moves it, whatever the others."""
    verified(TURNED, turned(covariance(W, X), multiplied_out(W, X)))


def test_a_square_may_not() -> None:
    with pytest.raises(LawError, match="far values"):
        verified(TURNED, turned(squares(X), multiplied_out(X, X)))


def test_a_sum_of_products_with_an_infinite_factor() -> None:
    """-inf * -inf + -inf * 1 is no number, and -inf * (-inf + 1) infinite."""
    A = node("input", params=("A",), axes=(), kind="real")
    total = along("sum", pointwise("mul", (X, A)), ("x",))
    bind = {X: np.array([-np.inf, 1.0]), A: np.asarray(-np.inf)}
    assert np.isnan(evaluate([total], bind, {"x": 2})[0])


@nk.diagram("q x -> q", sizes={"q": 3, "x": 64})
def likelihood(A: Any) -> Any:
    return nk.reduce(A / nk.reduce(A, "max", over="x"), "prod", over="x")


def test_a_product_of_quotients_is_not_a_quotient_of_products() -> None:
    """64 values near 90 have a product of 1e125, and as fractions of the largest one of 1e-3."""
    values = np.random.default_rng(0).uniform(80, 100, (3, 64))
    with pytest.raises(Refusal, match="stays inside it"):
        likelihood.stream("x")
    for plan in plans(likelihood, {"q": 3, "x": 64}, "fp32", random.Random(0), 6):
        np.testing.assert_allclose(plan(values), likelihood.evaluate(values), 1e-4)
