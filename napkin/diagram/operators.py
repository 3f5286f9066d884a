"""The table of pointwise operators: adding one is adding a row here (and a test).

A row says how an operator evaluates (numpy), what it means (sympy, for separability) and how it is
written in a kernel (Triton). numpy and sympy are imported when a row is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from napkin.diagram.node import Kind


@dataclass(frozen=True)
class Pointwise:
    """One pointwise operator.

    Attributes:
        name: the operator's name in nodes and listings.
        arity: the number of arguments.
        numpy: the value, on aligned numpy arrays; takes `(np, *arrays)`.
        sympy: the meaning, on sympy expressions; takes `(sympy, *expressions)`. None where the
            operator has no algebra that separation could use.
        triton: the kernel expression as Python text with `{0}`, `{1}`, ... for the arguments.
        kind: the item type of the result; None where it is the widest of the arguments.
        text: how listings print it, with the same placeholders; None prints a call.
        flops: arithmetic operations per value.
        special: operations per value of the special-function unit.
    """

    name: str
    arity: int
    numpy: Callable[..., Any]
    sympy: Callable[..., Any] | None
    triton: str
    kind: Kind | None = None
    text: str | None = None
    flops: int = 1
    special: int = 0


def _erf(np: Any, x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[float])(x)


def _ndtr(np: Any, x: Any) -> Any:
    # By the complement of erf, which keeps what is small.
    return np.vectorize(math.erfc, otypes=[float])(x * -math.sqrt(0.5)) / 2


def _relation(name: str, symbol: str, ufunc: str) -> Pointwise:
    return Pointwise(
        name,
        2,
        lambda np, a, b: getattr(np, ufunc)(a, b),
        None,
        f"{{0}} {symbol} {{1}}",
        "bool",
        f"{{0}} {symbol} {{1}}",
    )


def _sigmoid(np: Any, x: Any) -> Any:
    return np.where(x >= 0, 1 / (1 + np.exp(-abs(x))), np.exp(-abs(x)) / (1 + np.exp(-abs(x))))


_ROWS = [
    Pointwise(
        "add",
        2,
        lambda np, a, b: a + b,
        lambda sp, a, b: a + b,
        "{0} + {1}",
        None,
        "{0} + {1}",
    ),
    Pointwise(
        "sub",
        2,
        lambda np, a, b: a - b,
        lambda sp, a, b: a - b,
        "{0} - {1}",
        None,
        "{0} - {1}",
    ),
    Pointwise(
        "mul",
        2,
        lambda np, a, b: a * b,
        lambda sp, a, b: a * b,
        "{0} * {1}",
        None,
        "{0} * {1}",
    ),
    Pointwise(
        "div",
        2,
        lambda np, a, b: np.true_divide(a, b),
        lambda sp, a, b: a / b,
        "{0} / {1}",
        "real",
        "{0} / {1}",
        flops=0,
        special=1,
    ),
    Pointwise(
        "pow",
        2,
        lambda np, a, b: np.power(np.asarray(a, float), b),
        lambda sp, a, b: a**b,
        "tl.exp2(tl.log2({0}) * {1})",
        "real",
        "{0} ** {1}",
        flops=0,
        special=1,
    ),
    Pointwise(
        "maximum",
        2,
        lambda np, a, b: np.maximum(a, b),
        lambda sp, a, b: sp.Max(a, b),
        "tl.maximum({0}, {1})",
    ),
    Pointwise(
        "minimum",
        2,
        lambda np, a, b: np.minimum(a, b),
        lambda sp, a, b: sp.Min(a, b),
        "tl.minimum({0}, {1})",
    ),
    Pointwise("neg", 1, lambda np, a: -a, lambda sp, a: -a, "-{0}", None, "-{0}"),
    Pointwise("abs", 1, lambda np, a: abs(a), lambda sp, a: sp.Abs(a), "tl.abs({0})"),
    Pointwise(
        "exp",
        1,
        lambda np, a: np.exp(a),
        lambda sp, a: sp.exp(a),
        "tl.exp({0})",
        "real",
        flops=0,
        special=1,
    ),
    Pointwise(
        "exp2",
        1,
        lambda np, a: np.exp2(a),
        lambda sp, a: 2**a,
        "tl.exp2({0})",
        "real",
        flops=0,
        special=1,
    ),
    Pointwise(
        "log",
        1,
        lambda np, a: np.log(a),
        lambda sp, a: sp.log(a),
        "tl.log({0})",
        "real",
        flops=0,
        special=1,
    ),
    Pointwise(
        "sqrt",
        1,
        lambda np, a: np.sqrt(a),
        lambda sp, a: sp.sqrt(a),
        "tl.sqrt_rn({0})",
        "real",
        flops=0,
        special=1,
    ),
    Pointwise(
        "rsqrt",
        1,
        lambda np, a: 1 / np.sqrt(a),
        lambda sp, a: a ** sp.Rational(-1, 2),
        "tl.rsqrt({0})",
        "real",
        flops=0,
        special=1,
    ),
    Pointwise(
        "tanh",
        1,
        lambda np, a: np.tanh(a),
        lambda sp, a: sp.tanh(a),
        "2 * tl.sigmoid(2 * {0}) - 1",
        "real",
        flops=0,
        special=4,
    ),
    Pointwise("sin", 1, lambda np, a: np.sin(a), None, "tl.sin({0})", "real", flops=20),
    Pointwise("cos", 1, lambda np, a: np.cos(a), None, "tl.cos({0})", "real", flops=20),
    Pointwise("sigmoid", 1, _sigmoid, None, "tl.sigmoid({0})", "real", flops=0, special=3),
    Pointwise("erf", 1, _erf, lambda sp, a: sp.erf(a), "erf({0})", "real", flops=18, special=1),
    Pointwise(
        "ndtr",
        1,
        _ndtr,
        lambda sp, a: (1 + sp.erf(a / sp.sqrt(2))) / 2,
        "ndtr({0})",
        "real",
        flops=13,
        special=1,
    ),
    _relation("less", "<", "less"),
    _relation("less_equal", "<=", "less_equal"),
    _relation("greater", ">", "greater"),
    _relation("greater_equal", ">=", "greater_equal"),
    _relation("equal", "==", "equal"),
    _relation("not_equal", "!=", "not_equal"),
    Pointwise(
        "and", 2, lambda np, a, b: np.logical_and(a, b), None, "{0} & {1}", "bool", "{0} & {1}"
    ),
    Pointwise(
        "or", 2, lambda np, a, b: np.logical_or(a, b), None, "{0} | {1}", "bool", "{0} | {1}"
    ),
    Pointwise("not", 1, lambda np, a: np.logical_not(a), None, "{0} == 0", "bool", "not {0}"),
    Pointwise(
        "floordiv",
        2,
        lambda np, a, b: np.floor_divide(a, b),
        None,
        "{0} // {1}",
        "int",
        "{0} // {1}",
    ),
    Pointwise("mod", 2, lambda np, a, b: np.mod(a, b), None, "{0} % {1}", "int", "{0} % {1}"),
    Pointwise("where", 3, lambda np, c, a, b: np.where(c, a, b), None, "tl.where({0}, {1}, {2})"),
    # The item type of a cast is its parameter; lowering writes the conversion itself.
    Pointwise("cast", 1, lambda np, a: a, lambda sp, a: a, "{0}"),
]

POINTWISE: dict[str, Pointwise] = {row.name: row for row in _ROWS}

RELATIONS = frozenset({"less", "less_equal", "greater", "greater_equal", "equal", "not_equal"})
"""Operators whose value the least error may turn, but where they compare with 0."""
