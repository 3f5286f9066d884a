"""The sign of a term is what the records of its operators say, and values agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.algebra.signs import sign
from napkin.diagram.laws import check_operator
from napkin.ir.evaluate import evaluate
from napkin.ir.infer import pointwise
from napkin.ir.node import node
from napkin.ir.operators import POINTWISE


@pytest.mark.parametrize("function", [nk.ndtr, nk.sigmoid, nk.exp], ids=["ndtr", "sigmoid", "exp"])
def test_a_factor_that_is_not_negative_comes_out_of_a_maximum(function: Any) -> None:
    @nk.diagram("m x, m x -> m")
    def peak(A: Any, T: Any) -> Any:
        top = nk.reduce(A, "max", over="x")
        return nk.reduce(function(top) * T, "max", over="x")

    assert "deferred" in str(peak.stream("x"))


def test_a_factor_that_may_be_negative_does_not() -> None:
    @nk.diagram("m x, m x -> m")
    def peak(A: Any, T: Any) -> Any:
        top = nk.reduce(A, "max", over="x")
        return nk.reduce(nk.erf(top) * T, "max", over="x")

    with pytest.raises(nk.Refusal):
        peak.stream("x")


_OWN = [r for r in POINTWISE.values() if not r.definition and r.name not in {"cast", "where"}]


@pytest.mark.parametrize("record", [r for r in _OWN if r.kind == "real" and r.arity == 1],
                         ids=lambda r: r.name)  # fmt: skip
def test_what_a_record_says_of_its_values_holds(record: Any) -> None:
    check_operator(record)


def test_the_sign_of_a_square_is_known() -> None:
    x = node("input", params=("X",), axes=("a",))
    square = pointwise("mul", (x, x))
    assert sign(x) == ""
    assert sign(square) == "nonnegative"
    (value,) = evaluate([square], {x: np.array([-2.0, 0.0])}, {"a": 2})
    assert (value >= 0).all()


def test_a_relu_and_a_count_are_not_negative() -> None:
    x = node("input", params=("X",), axes=("a",))
    zero, one = (node("number", params=(v,)) for v in (0.0, 1.0))
    assert sign(pointwise("maximum", (x, zero))) == "nonnegative"
    assert sign(pointwise("maximum", (x, one))) == "positive"
    assert sign(pointwise("minimum", (x, zero))) == ""
    assert sign(pointwise("less", (x, zero))) == "nonnegative"
    assert sign(pointwise("sub", (pointwise("maximum", (x, one)), one))) == "nonnegative"
