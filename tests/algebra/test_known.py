"""What a term is past the end of an axis, and where that is not certain."""

from __future__ import annotations

import math

import pytest

import napkin as nk
from napkin.algebra.known import value_at
from napkin.ir.array import Array
from napkin.ir.node import node

twice_and_one = nk.operator(
    "twice_and_one", 1, evaluate=lambda xp, x: 2 * x + 1, triton="2 * x + 1"
)
over_one = nk.operator(
    "over_one", 2, evaluate=lambda xp, a, b: a / b, triton="tl.exp(tl.log(a) - tl.log(b))",
    meaning=lambda sp, a, b: a / b,
)  # fmt: skip

PAST_THE_END = {
    "a number over any": (lambda X, n: X / n, 0.0),
    "a number over any, by a text of ones own": (lambda X, n: over_one(X, n), None),
    "an infinity less any": (lambda X, n: (X - math.inf) - n, -math.inf),
    "an operator of ones own": (lambda X, n: twice_and_one(X), 1.0),
    "an operator of ones own, of an infinity": (lambda X, n: twice_and_one(X - math.inf), None),
    "a power by logarithms": (lambda X, n: (X + 1.0) ** (X + 2.5), 1.0),
    "1 to an infinite power": (lambda X, n: (X + 1.0) ** (X + math.inf), None),
    "a type that holds no infinity": (lambda X, n: nk.cast(X + math.inf, "fp8"), None),
    "a type that holds 1": (lambda X, n: nk.cast(X + 1.0, "fp8"), 1.0),
    "a quotient by 0": (lambda X, n: nk.cast(X, "int32") // nk.cast(X, "int32"), None),
    "a remainder": (lambda X, n: nk.cast(X + 1.0, "int32") % 3, 1.0),
}


@pytest.mark.parametrize("name", PAST_THE_END)
def test_values_past_the_end(name: str) -> None:
    body, wanted = PAST_THE_END[name]
    X, n = (Array(node("input", params=(t,), axes=axes)) for t, axes in (("X", ("x",)), ("n", ())))
    assert value_at(body(X, n).node, "x", {}) == wanted
