"""Rules fold numbers in floats, and laws hold to that."""

from __future__ import annotations

import pytest

import napkin as nk
from napkin.algebra.rule import Instance, LawError, Rule, between, hold_terms
from napkin.ir.node import Node

EXPAND = Rule("expand", "(x + c)^2 = x^2 + 2 c x + c^2", lambda terms: ())


def term(f) -> Node:
    return nk.diagram("x -> x")(f).outputs[0].node


def held(c: float, square: float) -> None:
    before = term(lambda X: (X + c) * (X + c))
    after = term(lambda X: X * X + X * (2 * c) + square)
    hold_terms(EXPAND, [before], [after], Instance(before, between([before], [after])))


@pytest.mark.parametrize("c", [0.1, 0.7, 0.5, 3.0])
def test_a_folded_number_is_rounded(c: float) -> None:
    """0.1 x 0.1 is 0.010000000000000002, which rational numbers tell from the product."""
    held(c, c * c)


@pytest.mark.parametrize(("c", "square"), [(0.1, 0.01 + 1e-9), (0.5, 0.25 + 1e-15), (0.1, 0.02)])
def test_another_number_breaks_the_law(c: float, square: float) -> None:
    with pytest.raises(LawError, match="expand"):
        held(c, square)
