"""Sums, products, quotients, powers and extrema."""

from __future__ import annotations

import math
from typing import Any

from napkin.ir.operators.record import (
    FUNCTIONS,
    Function,
    Operator,
    Reduction,
    Sign,
    Term,
    define,
    every,
    jitted,
    never_negative,
)

_NAN = "propagate_nan=tl.PropagateNan.ALL"


def _sum_sign(n: Term, *signs: Sign) -> Sign:
    return "positive" if all(signs) and "positive" in signs else every(n, *signs)


def _difference_sign(n: Term, *signs: Sign) -> Sign:
    # max(x, y) - y is never negative.
    above, below = n.args
    return "nonnegative" if above.op == "maximum" and below in above.args else ""


def _product_sign(n: Term, *signs: Sign) -> Sign:
    # x * x is never negative.
    return (signs[0] or "nonnegative") if n.args[0] is n.args[1] else every(n, *signs)


def _power_sign(n: Term, base: Sign, exponent: Sign) -> Sign:
    return "positive" if base == "positive" else every(n, base, exponent)


def _power_certain(n: Term, base: float, exponent: float) -> bool:
    # Kernels take real powers by logarithms.
    return n.args[1].kind != "real" or (base >= 0 and exponent != 0 and math.isfinite(exponent))


def _power_slope(op: Any, a: Any, b: Any) -> Any:
    """b times a to the power b - 1: b where that is 0 or 1, also at 0, where the power is 1 / a or
    0 ** 0. Elsewhere it is not chosen, but computed, and has slopes of its own."""
    if b.node.op == "number":
        known = b.node.params[0]
        return b * op.pow(a, known - 1) if known else 0.0
    at_zero = op.equal(a, 0) & (op.equal(b, 0) | op.equal(b, 1))
    return op.where(at_zero, b, b * op.pow(a, b - 1))


def _most_sign(n: Term, *signs: Sign) -> Sign:
    return "positive" if "positive" in signs else "nonnegative" if any(signs) else ""


def _size_sign(n: Term, inner: Sign) -> Sign:
    return inner or "nonnegative"


define(Operator(
    "add", 2, lambda xp, a, b: a + b, "{0} + {1}", text="{0} + {1}",
    meaning=lambda sp, a, b: a + b, sign=_sum_sign, rational=True, absorbing=-math.inf,
    stem="shifted", derivative=lambda op, y, a, b: (1, 1),
))  # fmt: skip
define(Operator(
    "sub", 2, lambda xp, a, b: a - b, "{0} - {1}", text="{0} - {1}",
    meaning=lambda sp, a, b: a - b, sign=_difference_sign, rational=True,
    absorbing=-math.inf, stem="difference", derivative=lambda op, y, a, b: (1, -1),
))  # fmt: skip
define(Operator(
    "mul", 2, lambda xp, a, b: a * b, "{0} * {1}", text="{0} * {1}",
    meaning=lambda sp, a, b: a * b, sign=_product_sign, rational=True,
    functions={"multiply": jitted("multiply", "The product, for `tl.reduce`", "return a * b")},
    stem="scaled", derivative=lambda op, y, a, b: (b, a),
))  # fmt: skip
define(Operator(
    "div", 2, lambda xp, a, b: xp.true_divide(a, b), "{0} / {1}", "real", "{0} / {1}",
    meaning=lambda sp, a, b: a / b, sign=every, rational=True, pole=True, absorbing=0.0,
    flops=0, special=1, stem="ratio", derivative=lambda op, y, a, b: (1.0 / b, -(y / b)),
))  # fmt: skip
define(Operator(
    "pow", 2, lambda xp, a, b: xp.power(xp.asarray(a, float), b), "tl.exp2(tl.log2({0}) * {1})",
    "real", "{0} ** {1}", meaning=lambda sp, a, b: a**b, sign=_power_sign, certain=_power_certain,
    flops=26, special=1,
    variants={"whole power": "power({0}, {1})"},
    functions={"power": jitted(
        "power",
        "a to a whole power b, where exp2(b * log2(a)) is NaN for a < 0",
        "size = tl.where(b == 0, 1.0, tl.exp2(tl.log2(tl.abs(a)) * b))",
        "below = (a < 0) | (1.0 / a < 0)  # -0.0 is, too",
        "return tl.where((b % 2 != 0) & below, size * -1.0, size)  # -0.0, in every Triton",
    )}, stem="power", derivative=lambda op, y, a, b: (
        _power_slope(op, a, b), op.where(op.equal(a, 0) & (b >= 0), 0.0, y * op.log(a))
    ),
))  # fmt: skip
define(Operator(
    "neg", 1, lambda xp, a: -a, "-{0}", text="-{0}", meaning=lambda sp, a: -a, rational=True,
    variants={"real": "{0} * -1.0"},  # Triton 3.6 takes a negative from +0
    stem="negated", derivative=lambda op, y, a: -1,
))  # fmt: skip
define(Operator(
    "abs", 1, lambda xp, a: abs(a), "tl.abs({0})", meaning=lambda sp, a: sp.Abs(a), back="Abs",
    sign=_size_sign, rational=True, python="abs({0})",
    derivative=lambda op, y, a: op.where(a > 0, 1, op.where(a < 0, -1, 0)),
))  # fmt: skip
define(Operator(
    "sqrt", 1, lambda xp, a: xp.sqrt(a), "tl.sqrt_rn({0})", "real",
    meaning=lambda sp, a: sp.sqrt(a), sign=_size_sign, pole=True, flops=0, special=1,
    python="math.sqrt({0})", derivative=lambda op, y, a: 0.5 / y,
))  # fmt: skip
define(Operator(
    "rsqrt", 1, lambda xp, a: 1 / xp.sqrt(a), "tl.rsqrt({0})", "real",
    meaning=lambda sp, a: a ** sp.Rational(-1, 2), sign=never_negative, pole=True,
    flops=0, special=1, python="1 / math.sqrt({0})", derivative=lambda op, y, a: -0.5 * y * y * y,
))  # fmt: skip


def _share(op: Any, y: Any, a: Any, b: Any) -> Any:
    """The part of an extremum that is `a`'s: equal ones share it."""
    return op.where(op.equal(a, b), 0.5, op.where(op.equal(a, y), 1, 0))


def _share_of_all(op: Any, y: Any, x: Any) -> Any:
    """The same of a value among all along the axes; none where a rank is past the last value."""
    hit = op.equal(x, y)
    return op.where(hit, 1.0 / op.maximum(op.along("sum", op.where(hit, 1.0, 0.0)), 1.0), 0)


def _product_of_others(op: Any, y: Any, x: Any) -> Any:
    """The product of all values but one, where some may be 0."""
    zero = op.equal(x, 0)
    rest = op.along("prod", op.where(zero, 1.0, x))
    zeros = op.along("sum", op.where(zero, 1.0, 0.0))
    alone, none = op.where(op.equal(zeros, 1), rest, 0), op.where(op.equal(zeros, 0), rest / x, 0)
    return op.where(zero, alone, none)


_COMPOSED = jitted(
    "composed",
    "One map h -> a h + b after another",
    "return a * c, b * c + d",
    arguments="a, b, c, d",
)
_LINEAR_SCAN = jitted(
    "linear_scan",
    "h = a h + b from position to position, beginning with 0",
    "return tl.associative_scan((a, b), axis, composed)[1]",
    arguments="a, b, axis: tl.constexpr",
)
FUNCTIONS["linear_scan"] = Function(f"{_COMPOSED.triton}\n{_LINEAR_SCAN.triton}")
define(Reduction(
    "sum", "add", 0.0, lambda xp, x, axes, begin: xp.sum(x, axis=axes), over="mul",
    sign=lambda inner: inner, native="sum", counts=True, stem="total",
    derivative=lambda op, y, x: 1,
))  # fmt: skip


def _extremum(name: str, most: str, function: str, larger: str, sign: Any) -> None:
    """The larger or the smaller of two, and of all values along axes."""
    way, back = ("max", "Max") if name == "maximum" else ("min", "Min")
    start = -math.inf if way == "max" else math.inf
    define(Operator(
        name, 2, lambda xp, a, b: getattr(xp, name)(a, b), f"tl.{name}({{0}}, {{1}}, {_NAN})",
        meaning=lambda sp, a, b: getattr(sp, back)(a, b), back=back, rational=True, sign=sign,
        variants={"no NaN": f"tl.{name}({{0}}, {{1}})"},
        stem=larger, python=f"{way}({{0}}, {{1}})", functions={function: jitted(
            function, f"The {larger}, or NaN if one is NaN, for `tl.reduce`",
            f"return tl.{name}(a, b, {_NAN})",
        )}, derivative=lambda op, y, a, b: (_share(op, y, a, b), _share(op, y, b, a)),
    ))  # fmt: skip
    define(Reduction(
        way, name, start, lambda xp, x, axes, begin: getattr(xp, way)(x, axis=axes, initial=begin),
        order=way, pole=True, over="add", sign=lambda inner: inner,
        native=way, function=function, stem=most, derivative=_share_of_all,
    ))  # fmt: skip


_extremum("maximum", "m", "largest", "larger", _most_sign)
_extremum("minimum", "low", "smallest", "smaller", every)
define(Reduction(
    "prod", "mul", 1.0, lambda xp, x, axes, begin: xp.prod(x, axis=axes),
    sign=lambda inner: inner, function="multiply", counts=True, stem="product",
    derivative=_product_of_others,
))  # fmt: skip
