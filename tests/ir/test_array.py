"""Operands that an operator does not take are refused where they are written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk

common = nk.operator(
    "common", 2, kind="int", operands="int", evaluate=lambda xp, a, b: xp.gcd(a, b), triton="a"
)
differs = nk.operator(
    "differs", 2, kind="bool", operands="bool", evaluate=lambda xp, a, b: a != b, triton="a != b"
)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (lambda X: common(X, 2), "common is of whole numbers, and an operand is real"),
        (lambda X: X // 2, "// is of whole numbers, and an operand is real"),
        (lambda X: differs(X > 0, X), "differs joins tests, as in"),
        (lambda X: (X > 0) & X, "& joins tests, as in"),
    ],
)
def test_operands_of_another_type_are_refused(body: Any, says: str) -> None:
    with pytest.raises(nk.InputError, match=says):
        nk.diagram("x -> x", name="drawn")(body)


def test_operands_of_its_type_are_taken() -> None:
    made = nk.diagram("x -> x", name="drawn")(
        lambda X: nk.where(differs(X > 0, X > 1), common(nk.cast(X, "int32"), 4), 0)
    )
    assert made.evaluate([0.5, 6.0, 1.0]).tolist() == [4, 0, 1]


@pytest.mark.parametrize("power", [1, 4, 5, 11, 4.0])
def test_whole_powers_of_whole_numbers_are_whole(power: float) -> None:
    d = nk.diagram("n:int -> n:int")(lambda X: X**power)
    X = np.array([-3, 0, 1, 3, 7])
    found = nk.derive(d, "h100", {"n": 5}, "fp32")(X)
    assert found.tolist() == d.evaluate(X).tolist() == (X ** int(power)).tolist()
    assert found.dtype == np.int64


def test_an_unknown_type_of_operands_is_refused() -> None:
    with pytest.raises(nk.InputError, match="operands is 'real'; it is 'int', 'bool' or None"):
        nk.operator("real_only", 1, operands="real", evaluate=lambda xp, a: a, triton="a")
