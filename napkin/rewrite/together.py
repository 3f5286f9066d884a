"""Exponents whose terms are subtracted before they are scaled.

Where a maximum is the lowest float so far, c m is beyond all of them and c t - c m is no number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import sympy

from napkin.algebra.rule import Instance, Rule
from napkin.ir.infer import joined, pointwise
from napkin.ir.node import Node


def _matches(exponent: Any, node: Callable[[Any], Node]) -> Iterator[Instance]:
    """The exponent with the terms of each coefficient together, where one is not 1.

    Args:
        node: gives the node of an expression.
    """
    alike = _by_coefficient(exponent)
    if set(alike) == {sympy.Integer(1)}:
        return
    parts = [
        inner if scale == 1 else pointwise("mul", (node(scale), inner))
        for scale, terms in alike.items()
        for inner in [node(sympy.Add(*terms))]
    ]
    found = joined("add", parts)
    yield Instance(str(exponent), found, lambda: ([node(exponent)], [found]))


TOGETHER = Rule("shift before it is scaled", "c t - c m = c (t - m)", _matches, ("c is a number",))


def write_exponent(total: Any, node: Callable[[Any], Node]) -> Node:
    """The node of an exponent, with its terms together where the rule applies."""
    return TOGETHER.first(total, node) or node(total)


def _by_coefficient(total: Any) -> dict[Any, list[Any]]:
    """The terms of a sum, without the sizes of their coefficients, by these."""
    alike: dict[Any, list[Any]] = {}
    for term in sympy.Add.make_args(total):
        coefficient, rest = term.as_coeff_Mul()
        if not coefficient.is_finite:  # of a mask, which holds inf and 0, and not inf times 0
            coefficient, rest = sympy.Integer(1), term
        alike.setdefault(abs(coefficient), []).append(rest if coefficient > 0 else -rest)
    return alike
