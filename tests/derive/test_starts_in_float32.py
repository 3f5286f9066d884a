"""What states start from is looked at in float32, in which kernels compute."""

from __future__ import annotations

import math
from typing import Any

import pytest

import napkin as nk
from napkin.derive.fold import state_leaf
from napkin.derive.repair import Repair
from napkin.derive.terms import value_at
from napkin.diagram.infer import pointwise
from napkin.diagram.node import Node, number

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


@nk.diagram("q x -> q, q, q", sizes={"q": 4, "x": 64})
def moments(X: Any) -> Any:
    away = X - nk.reduce(X, "mean", over="x")
    squares = nk.reduce(X * X, "sum", over="x")
    return squares, nk.reduce(away * away * away, "sum", over="x"), nk.reduce(X, "sum", over="x")


@pytest.mark.parametrize(("start", "states"), [(0.0, 1), (2.0**48, 1), (2.0**96, 2)])
def test_squares_are_read_off_only_where_float32_has_their_start(
    monkeypatch: pytest.MonkeyPatch, start: float, states: int
) -> None:
    """sum (x - r)**2 is s2 - 2 r s1 + r**2 n, of which r**2 is infinite at r = 2**96, and times
    n = 0 no number: then it is a state of its own, that starts at 0."""
    monkeypatch.setattr(Repair, "start", lambda self, _: dict.fromkeys(self.old, start))
    (step,) = moments.stream("x").kernel.stream.passes
    assert len([s for s in step.states if s.held == "running"]) == states
