"""Whole numbers, and conversions between item types."""

from __future__ import annotations

import math

from napkin.ir.operators.record import Operator, Sign, Term, define, jitted


def _whole_sign(n: Term, *signs: Sign) -> Sign:
    return "nonnegative" if all(signs) else ""


# Triton 3.6 and 3.9 take a // 4 of -8, -7, -6, -5 for one value where one thread has all four, as
# though they rounded down (axis analysis, issue 7749 of Triton). So the remainder goes first.
define(Operator(
    "floordiv", 2, lambda xp, a, b: xp.floor_divide(a, b), "floor_divide({0}, {1})", "int",
    "{0} // {1}", operands="int", meaning=lambda sp, a, b: sp.floor(a / b), sign=_whole_sign,
    variants={"nonnegative": "{0} // {1}"},
    functions={"floor_divide": jitted(
        "floor_divide",
        "The whole quotient rounded down; Triton rounds to zero",
        "r = a % b",
        "down = (r != 0) & ((a < 0) != (b < 0))",
        "return (a - r) // b - down.to(tl.int32)",
    )}, stem="quotient",
))  # fmt: skip
define(Operator(
    "mod", 2, lambda xp, a, b: xp.mod(a, b), "remainder({0}, {1})", "int", "{0} % {1}",
    operands="int", meaning=lambda sp, a, b: a - b * sp.floor(a / b), sign=_whole_sign,
    variants={"nonnegative": "{0} % {1}"},
    functions={"remainder": jitted(
        "remainder",
        "The remainder with the sign of b; Triton gives it the sign of a",
        "r = a % b",
        "return tl.where((r != 0) & ((a < 0) != (b < 0)), r + b, r)",
    )}, stem="rest",
))  # fmt: skip


def truncates(n: Term) -> bool:
    """Whether a cast changes values: to booleans, or of reals to whole numbers."""
    return n.kind != "real" and n.args[0].kind not in {n.kind, "bool"}


def _cast_sign(n: Term, inner: Sign) -> Sign:
    small = truncates(n) or n.params[0] in {"fp16", "fp8"}  # in which what is small becomes 0
    return inner and "nonnegative" if small else inner


def _cast_certain(n: Term, value: float) -> bool:
    if math.isinf(value):
        return n.kind == "real" and n.params[0] != "fp8"
    return value in {0.0, 1.0}  # which every type holds


# The item type of a cast is its parameter; lowering writes the conversion itself.
define(Operator(
    "cast", 1, lambda xp, a: a, "{0}", meaning=lambda sp, a: a, sign=_cast_sign,
    certain=_cast_certain, stem="rounded", python="{0}", derivative=lambda op, y, a: 1,
))  # fmt: skip
