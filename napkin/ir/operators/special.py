"""The error function and the normal distribution function.

In kernels they are polynomials. The coefficients are the least largest error (linear programs over
some 3,000 points), rounded to float32; errors are against float64 at 2,600,000 values of float32,
with 2**p rounded once. libdevice's erf is 30 instructions of sm_90 a value, 13 of them moves of
coefficients.
"""

from __future__ import annotations

import math
from typing import Any

from napkin.ir.operators.record import Operator, define, jitted, never_negative


def _horner(name: str, of: str, *coefficients: float) -> list[str]:
    """Statements for a polynomial, one multiply-add each; its coefficients, the constant first."""
    *rest, first, top = coefficients
    out = [f"{name} = {top!r} * {of} + {first!r}"]
    return out + [f"{name} = {name} * {of} + {c!r}" for c in reversed(rest)]


def _erf(xp: Any, x: Any) -> Any:
    return xp.vectorize(math.erf, otypes=[float])(x)


def _ndtr(xp: Any, x: Any) -> Any:
    # By the complement of erf, which keeps what is small.
    return xp.vectorize(math.erfc, otypes=[float])(x * -math.sqrt(0.5)) / 2


_ERF = jitted(
    "erf",
    "The error function, within 1.2e-7, and 1.7e-7 of itself near 0",
    "y = tl.abs(x)",
    "z = x * x",
    *_horner("p", "z", 1.1283791, -0.37612525, 0.11282141, -0.026778908, 0.0050119627,
             -0.000609036),
    *_horner("q", "y", -0.0027088881, -1.6160936, -0.9388416, -0.13144265, 0.022475779,
             -0.0018056176),
    "away = 1.0 - tl.exp2(q)",
    "return tl.where(y < 0.9, x * p, tl.where(x < 0, -away, away))",
    arguments="x",
)  # fmt: skip
_NDTR = jitted(
    "ndtr",
    "The normal distribution function, within 8e-8, and 7e-7 of itself down to -2, 3e-4 to -8",
    "y = tl.abs(x)",
    *_horner("p", "y", -1.0, -1.151105, -0.45921147, -0.052476574, 0.007011125, -6.465392e-05,
             -0.00024152013, 6.3113686e-05, -8.279047e-06, 5.7351485e-07, -1.6548785e-08),
    "return tl.abs(tl.where(x > 0, 1.0, 0.0) - tl.exp2(p))",
    arguments="x",
)  # fmt: skip
_NDTR_16 = jitted(
    "ndtr_16",
    "The normal distribution function, within 1e-4 of itself down to -7, 4e-4 to -8",
    "y = tl.abs(x)",
    *_horner("p", "y", -1.0, -1.1508163, -0.45967603, -0.0527967, 0.0079888003, -0.0008129594,
             4.8483553e-05, -1.2627827e-06),
    "return tl.abs(tl.where(x > 0, 1.0, 0.0) - tl.exp2(p))",
    arguments="x",
)  # fmt: skip

define(Operator(
    "erf", 1, _erf, "erf({0})", "real", meaning=lambda sp, a: sp.erf(a), back="erf",
    sign=lambda n, a: a and "nonnegative", increasing=True, functions={"erf": _ERF}, flops=18,
    special=1, python="math.erf({0})",
    derivative=lambda op, y, a: 2 / math.sqrt(math.pi) * op.exp(-(a * a)),
))  # fmt: skip
define(Operator(
    "ndtr", 1, _ndtr, "ndtr({0})", "real", meaning=lambda sp, a: (1 + sp.erf(a / sp.sqrt(2))) / 2,
    sign=never_negative, variants={"approximate": "ndtr_16({0})"},
    functions={"ndtr": _NDTR, "ndtr_16": _NDTR_16}, flops=13, special=1,
    python="math.erfc(-{0} / math.sqrt(2)) / 2",
    derivative=lambda op, y, a: 1 / math.sqrt(2 * math.pi) * op.exp(-0.5 * (a * a)),
))  # fmt: skip
