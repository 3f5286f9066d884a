"""Comparisons, tests, and the choice by a test."""

from __future__ import annotations

from napkin.ir.operators.record import Operator, Sign, Term, define, every, never_negative

_COMPARISONS = {
    "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==",
    "not_equal": "!=",
}  # fmt: skip

RELATIONS = frozenset(_COMPARISONS)
"""Operators whose value the least error may turn, but where they compare with 0."""


def _relation(name: str, symbol: str) -> None:
    text = f"{{0}} {symbol} {{1}}"
    define(Operator(
        name, 2, lambda xp, a, b: getattr(xp, name)(a, b), text, "bool", text, rational=True,
        sign=never_negative, stem="test",
    ))  # fmt: skip


for _name, _symbol in _COMPARISONS.items():
    _relation(_name, _symbol)
define(Operator(
    "and", 2, lambda xp, a, b: xp.logical_and(a, b), "{0} & {1}", "bool", "{0} & {1}",
    operands="bool", rational=True, sign=never_negative, stem="test",
))  # fmt: skip
define(Operator(
    "or", 2, lambda xp, a, b: xp.logical_or(a, b), "{0} | {1}", "bool", "{0} | {1}",
    operands="bool", rational=True, sign=never_negative, stem="test",
))  # fmt: skip
define(Operator(
    "not", 1, lambda xp, a: xp.logical_not(a), "{0} == 0", "bool", "not {0}",
    operands="bool", rational=True, sign=never_negative, stem="test",
))  # fmt: skip


def _chosen_sign(n: Term, test: Sign, yes: Sign, no: Sign) -> Sign:
    if _guards_zero(n) and yes == "positive" and no:
        return "positive"
    return every(n, yes, no)


def _guards_zero(n: Term) -> bool:
    # where(z == 0, c, z): never zero when z is not negative and c is positive
    test, _, kept = n.args
    if test.op != "equal" or test.args[0] is not kept:
        return False
    return test.args[1].op == "number" and test.args[1].params[0] == 0


define(Operator(
    "where", 3, lambda xp, c, a, b: xp.where(c, a, b), "tl.where({0}, {1}, {2})",
    sign=_chosen_sign, rational=True, stem="chosen", python="{1} if {0} else {2}",
    derivative=lambda op, y, c, a, b: (None, op.where(c, 1, 0), op.where(c, 0, 1)),
))  # fmt: skip
