"""What states start from is looked at in float32, in which kernels compute."""

from __future__ import annotations

import math

import pytest

import napkin as nk
from napkin.algebra.fold import state_leaf
from napkin.algebra.terms import value_at
from napkin.ir.infer import pointwise
from napkin.ir.node import Node, number

R = state_leaf("r", "old", (), "real")
SQUARE = pointwise("mul", (R, R))
INVERSE = pointwise("div", (number(1.0), SQUARE))


@pytest.mark.parametrize(
    ("term", "start", "finite"),
    [
        (SQUARE, 2.0**48, True),
        (SQUARE, 2.0**96, False),  # 2**192, a number in float64 alone
        (INVERSE, 2.0**-48, True),
        (INVERSE, 2.0**-96, False),  # its square underflows to 0
        (pointwise("exp", (R,)), 88.0, True),
        (pointwise("exp", (R,)), 89.0, False),
    ],
)
def test_a_value_is_a_number_only_where_float32_has_it(
    term: Node, start: float, finite: bool
) -> None:
    assert math.isfinite(value_at(term, {R: start})) == finite


def test_a_number_keeps_all_its_digits() -> None:
    """It is written into the kernel as it is."""
    assert value_at(R, {R: 0.001}) == 0.001


def test_positions_are_whole_numbers() -> None:
    """A sum at positions that an input gives adds at places of an array."""

    @nk.diagram("a d, e:int -> a e")
    def looked_up(C: nk.Array, D: nk.Array) -> nk.Array:
        return nk.take(C, d=D)

    (output,) = nk.gradient(looked_up).outputs
    assert value_at(output.node, {}) == 1.0
