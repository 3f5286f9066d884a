"""Pointwise operators as Triton expressions, where Triton and the diagram disagree made to agree.

Triton has functions of floats only, adds booleans as bits, rounds whole quotients to zero, has no
powers of negative numbers, and its maximum loses a NaN.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import cast

from napkin.algebra.signs import sign
from napkin.ir.node import FLOOR, Kind, Node, number, stabilises
from napkin.ir.operators import POINTWISE
from napkin.lower import syntax as sx
from napkin.lower.spelling import Language
from napkin.lower.syntax import Expr

TYPES = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8e4nv",
    "int64": "int64",
    "int32": "int32",
    "bool": "int1",
}
"""The words of storage types, and of those that casts name."""

TILES: dict[Kind, str] = {"real": "float32", "int": "int32", "bool": "int1"}
"""What tiles are computed in."""


def pointwise(lang: Language, n: Node, values: Sequence[Expr], approximate: bool = False) -> Expr:
    """A pointwise term from the expressions of its arguments.

    Args:
        approximate: whether it is rounded to 16 bits, as a factor of what is stored.
    """
    values = [_typed(lang, n, a, v) for a, v in zip(n.args, values, strict=True)]
    if n.op == "where" and n.args[0].kind != "bool":
        values[0] = ast.Compare(values[0], [ast.NotEq()], [sx.const(0)])
    return lang.filled(_spelling(n, approximate), values)


def _spelling(n: Node, approximate: bool) -> str:
    """The expression of a record that is written for a term: the first whose condition holds."""
    row = POINTWISE[n.op]
    for condition, text in row.variants.items():
        if approximate if condition == "approximate" else _CONDITIONS[condition](n):
            return text
    return row.triton


def _keeps_no_nan(n: Node) -> bool:
    return n.kind != "real" or any(stabilises(a) or a is number(FLOOR) for a in n.args)


def negated(n: Node) -> Node | None:
    """What a whole number is the negative of; None where it is written as no such."""
    if n.kind != "int" or n.op not in {"neg", "sub", "mul"}:
        return None
    first, last = n.args[0], n.args[-1]
    if n.op == "mul":
        return {first: last, last: first}.get(number(-1))
    return last if n.op == "neg" or first is number(0) else None


def as_kind(lang: Language, kind: Kind, a: Node, value: Expr) -> Expr:
    """The value of `a` as a tile of a wider item type, where it is of a narrower one."""
    if a.kind == kind or kind == "bool" or (a.kind, kind) == ("real", "int"):
        return value
    if a.op == "number" and kind == "real":
        return sx.const(float(cast("int", a.params[0])))
    if a.constant:
        return sx.binary(value, "+", 0.0) if kind == "real" else value
    return sx.method(value, "to", lang.word(TILES[kind]))


def _typed(lang: Language, n: Node, a: Node, value: Expr) -> Expr:
    row = POINTWISE[n.op]
    if row.kind == "real" and n.op != "div":  # Triton divides whole numbers as floats
        # A whole exponent stays one: `power` asks whether it is odd.
        whole = n.op == "pow" and a is n.args[1] and a.kind != "real"
        return as_kind(lang, "int" if whole else "real", a, value)
    arithmetic = row.kind in {None, "int"} or n.op == "div"
    if a.kind == "bool" and arithmetic and n.op not in {"where", "cast"}:
        return as_kind(lang, "int", a, value)
    return value


_CONDITIONS: dict[str, Callable[[Node], bool]] = {
    "nonnegative": lambda n: all(map(sign, n.args)),
    "whole power": lambda n: n.args[-1].kind != "real",
    "no NaN": _keeps_no_nan,
    "real": lambda n: n.kind == "real",
}
"""The conditions of `Operator.variants`."""
