"""Constants that are equal but not the same: signed zeros, kinds, what is no number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.ir.node import node, number

VALUES = np.array([-1.0, 1.0, 0.0, -0.0, math.inf, -math.inf, math.nan, 2.5])

FUNCTIONS: list[Callable[[Any, Any], Any]] = [
    lambda m, x: 1.0 / m.where(x > 0, 0.0, -0.0),
    lambda m, x: 1.0 / m.where(x > 0, -0.0, 0.0),
    lambda m, x: x * -0.0,
    lambda m, x: x * 0.0,
    lambda m, x: 0 * x,
    lambda m, x: 1.0 / (x + 0.0),
    lambda m, x: 1.0 / (x + -0.0),
    lambda m, x: 1.0 / (x - 0.0),
    lambda m, x: 1.0 / (0.0 - x),
    lambda m, x: 1.0 / -x,
    lambda m, x: 1.0 / (x * 1.0),
    lambda m, x: 1.0 / (x / 1),
    lambda m, x: m.where(x > 0, x, math.nan),
    lambda m, x: m.where(x > 0, math.inf, -math.inf),
    lambda m, x: x * True + 1 + 1.0,
]


def same(found: Any, wanted: Any) -> None:
    """Equal within float32, and so is every sign, that of a NaN apart."""
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    signs = [np.signbit(np.where(np.isnan(x), 0.0, x)) for x in (found, wanted)]
    np.testing.assert_array_equal(*signs)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_signed_zeros_infinities_and_nan_are_kept(function: Callable[[Any, Any], Any]) -> None:
    diagram = nk.diagram("n -> n")(lambda X: function(nk, X))
    with np.errstate(all="ignore"):
        wanted = np.broadcast_to(function(np, VALUES), VALUES.shape)
    same(diagram.evaluate(VALUES), wanted)
    same(nk.derive(diagram, sizes={"n": 8}, dtype="fp32")(VALUES), wanted)


def test_what_was_traced_before_does_not_matter() -> None:
    """0.0 was interned first, so -0.0 was it."""
    kept = [number(0.0), number(1), node("max", (), (("x",), 0.0))]
    assert math.copysign(1.0, float(str(number(-0.0).params[0]))) == -1.0
    assert number(-0.0) is number(-0.0)
    assert len({*kept, number(-0.0), number(1.0), number(True), number(0), number(False)}) == 8
    assert node("max", (), (("x",), -0.0)) is not kept[2]


def test_nan_is_one_constant() -> None:
    assert number(float("nan")) is number(float("nan"))


def test_the_fill_of_slots_has_its_sign() -> None:
    def window(fill: float) -> nk.Diagram:
        return nk.diagram("q x -> q w")(
            lambda S: nk.compress(S, nk.sliding(2, 0, "q", "x"), into="w", fill=fill)
        )

    S = np.ones((4, 4))
    zeros = [window(fill).evaluate(S)[0, 2] for fill in (0.0, -0.0, 0.0)]
    assert [bool(np.signbit(z)) for z in zeros] == [False, True, False]


def test_numbers_of_numpy_are_those_of_python() -> None:
    diagram = nk.diagram("n -> n")(lambda X: X * np.float64(0.5) + np.float32(0.25) + np.int64(3))
    plain = nk.diagram("n -> n")(lambda X: X * 0.5 + 0.25 + 3)
    assert diagram.roots == plain.roots
