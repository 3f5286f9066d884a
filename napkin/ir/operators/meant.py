"""What follows from the meaning of an operator, so that no room need know an operator by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from napkin.ir.operators.record import POINTWISE, Operator, Reduction


def meant(record: Operator) -> tuple[Any, tuple[Any, ...]]:
    """The meaning of an operator that has one, and the symbols of its arguments in it."""
    assert record.meaning is not None
    return _meant(record.meaning, record.arity)


@lru_cache(maxsize=256)
def _meant(meaning: Callable[..., Any], arity: int) -> tuple[Any, tuple[Any, ...]]:
    import sympy

    symbols = tuple(sympy.Symbol(f"a{i}", real=True) for i in range(arity))
    return sympy.sympify(meaning(sympy, *symbols), strict=True), symbols


def is_fraction(record: Operator) -> bool:
    """Whether a value is made of the arguments by sums, products and quotients: what stands in two
    of them may cancel."""
    if record.meaning is None:
        return False
    value, symbols = meant(record)
    return not value.is_Symbol and bool(value.is_rational_function(*symbols))


def divisors(record: Operator) -> list[Any]:
    """What an operator divides by, or takes to a power that may be negative, over the symbols of
    `meant`: where that is 0, its value is no number."""
    import sympy

    powers = [p.as_base_exp() for p in meant(record)[0].atoms(sympy.Pow)] if record.meaning else []
    return [base for base, exponent in powers if not exponent.is_nonnegative]


def joins_as(reduction: Reduction) -> str:
    """ "add" where a reduction is a sum, under any name, "mul" where it is a product; else ""."""
    record = POINTWISE[reduction.combine]
    if record.meaning is None:
        return ""
    value, (a, b) = meant(record)
    return "add" if value == a + b else "mul" if value == a * b else ""
