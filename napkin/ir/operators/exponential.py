"""Exponentials, logarithms, and what is made of them; sines."""

from __future__ import annotations

import math
from typing import Any

from napkin.ir.operators.record import Function, Operator, define, jitted, never_negative

# The logarithm is libdevice's, a polynomial. Of a masked score exp(-inf) and sigmoid(-inf) are 0.
define(Operator(
    "exp", 1, lambda xp, a: xp.exp(a), "tl.exp({0})", "real", meaning=lambda sp, a: sp.exp(a),
    back="exp", sign=never_negative, steep=True, increasing=True, flops=0, special=1, stem="p",
    python="math.exp({0})", derivative=lambda op, y, a: y,
))  # fmt: skip
define(Operator(
    "exp2", 1, lambda xp, a: xp.exp2(a), "tl.exp2({0})", "real", meaning=lambda sp, a: 2**a,
    sign=never_negative, steep=True, flops=0, special=1, stem="p", python="math.exp2({0})",
    derivative=lambda op, y, a: math.log(2) * y,
))  # fmt: skip
define(Operator(
    "log", 1, lambda xp, a: xp.log(a), "tl.log({0})", "real", meaning=lambda sp, a: sp.log(a),
    back="log", pole=True, flops=25, python="math.log({0})",
    derivative=lambda op, y, a: 1.0 / a,
))  # fmt: skip
define(Operator(
    "tanh", 1, lambda xp, a: xp.tanh(a), "2 * tl.sigmoid(2 * {0}) - 1", "real",
    meaning=lambda sp, a: sp.tanh(a, evaluate=False), back="tanh",
    sign=lambda n, a: a and "nonnegative", increasing=True, flops=0, special=4,
    python="math.tanh({0})", derivative=lambda op, y, a: 1.0 - y * y,
))  # fmt: skip


def _sigmoid(xp: Any, x: Any) -> Any:
    small = xp.exp(-abs(x))
    return xp.where(x >= 0, 1 / (1 + small), small / (1 + small))


_LOGISTIC = jitted("sigmoid", "The logistic function", "return 1 / (1 + tl.exp(-x))", arguments="x")

define(Operator(
    "sigmoid", 1, _sigmoid, "tl.sigmoid({0})", "real", sign=never_negative, flops=0, special=3,
    functions={"sigmoid": Function("", _LOGISTIC.triton)}, python="1 / (1 + math.exp(-{0}))",
    derivative=lambda op, y, a: y * (1.0 - y),
))  # fmt: skip
define(Operator(
    "sin", 1, lambda xp, a: xp.sin(a), "tl.sin({0})", "real", steep=True, flops=20,
    python="math.sin({0})", derivative=lambda op, y, a: op.cos(a),
))  # fmt: skip
define(Operator(
    "cos", 1, lambda xp, a: xp.cos(a), "tl.cos({0})", "real", steep=True, flops=20,
    python="math.cos({0})", derivative=lambda op, y, a: -op.sin(a),
))  # fmt: skip
