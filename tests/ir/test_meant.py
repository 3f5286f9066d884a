"""What rooms ask of an operator's meaning, of a user's operators, too."""

from __future__ import annotations

import pytest

import napkin as nk
from napkin.ir.operators import POINTWISE, REDUCTIONS
from napkin.ir.operators.meant import divisors, is_fraction, joins_as, meant

nk.operator(
    "shared", 3, evaluate=lambda xp, a, b, c: a + c * (b - a), triton="a + c * (b - a)",
    meaning=lambda sp, a, b, c: a + c * (b - a),
)  # fmt: skip
plus = nk.operator(
    "plus", 2, evaluate=lambda xp, a, b: a + b, triton="a + b", meaning=lambda sp, a, b: a + b
)
nk.operator("unknown_plus", 2, evaluate=lambda xp, a, b: a + b, triton="a + b")
nk.operator(
    "reciprocal", 1, evaluate=lambda xp, a: 1 / a, triton="1 / x", meaning=lambda sp, a: 1 / a
)
nk.reduction("joined_up", combine=plus, identity=0.0)
nk.reduction("summed", combine=lambda a, b: a + b, identity=0.0)
nk.reduction("timed", combine=lambda a, b: a * b, identity=1.0)
nk.reduction("united", combine=lambda a, b: nk.maximum(a, b), identity=float("-inf"))


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "neg", "shared", "plus", "reciprocal"])
def test_arguments_of_a_fraction_may_cancel(op: str) -> None:
    assert is_fraction(POINTWISE[op])


@pytest.mark.parametrize("op", ["cast", "exp", "maximum", "mod", "pow", "ndtr", "unknown_plus"])
def test_others_are_no_fractions(op: str) -> None:
    assert not is_fraction(POINTWISE[op])


@pytest.mark.parametrize(
    ("op", "which"), [("div", [1]), ("rsqrt", [0]), ("pow", [0]), ("reciprocal", [0])]
)
def test_an_operator_divides_by_an_argument(op: str, which: list[int]) -> None:
    record = POINTWISE[op]
    assert divisors(record) == [meant(record)[1][i] for i in which]


@pytest.mark.parametrize("op", ["sqrt", "exp2", "mul", "unknown_plus"])
def test_others_divide_by_nothing_that_may_be_0(op: str) -> None:
    assert all(base.is_positive for base in divisors(POINTWISE[op]))


@pytest.mark.parametrize(
    ("reduction", "op"),
    [("sum", "add"), ("joined_up", "add"), ("summed", "add"), ("prod", "mul"), ("timed", "mul"),
     ("max", ""), ("united", "")],
)  # fmt: skip
def test_what_a_reduction_is_to_the_algebra(reduction: str, op: str) -> None:
    assert joins_as(REDUCTIONS[reduction]) == op
