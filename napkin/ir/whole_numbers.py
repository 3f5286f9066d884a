"""Whole-number arithmetic on the bounds of key sets, and what users may give for a number."""

from __future__ import annotations

import contextlib
import operator
import reprlib
from typing import SupportsIndex

from napkin.errors import InputError
from napkin.ir.infer import pointwise
from napkin.ir.node import Node, node, number

FARTHEST = 2**30
"""The largest number that a position is moved by in a bound: their sum does not wrap."""


def whole(value: object, what: str, least: int = 0, most: int | None = None) -> int:
    """A whole number that a user gave, from `least` on, up to `most`.

    Raises:
        InputError: it is something else.
    """
    # numpy's whole numbers count; booleans, which Python takes for numbers, do not.
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        with contextlib.suppress(TypeError):  # arrays have __index__, too
            found = operator.index(value)
            if found >= least and (most is None or found <= most):
                return found
    to = "" if most is None else f" to {most}"
    raise InputError(f"{what}={reprlib.repr(value)} is not a whole number from {least}{to}")


def flag(value: object, what: str) -> bool:
    """A flag that a user gave: True, False, or 1 and 0 in their place.

    Raises:
        InputError: it is something else, such as a text.
    """
    kind = type(value)  # numpy's booleans are no int, and napkin is imported without numpy
    of_numpy = kind.__module__ == "numpy" and kind.__name__ in {"bool", "bool_"}
    if of_numpy or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise InputError(f"{what}={reprlib.repr(value)} is not True or False")


def plus(a: Node, value: int) -> Node:
    """a + value."""
    if value == 0:
        return a
    op = "add" if value > 0 else "sub"
    return pointwise(op, (a, number(abs(value))))


def times(a: Node, value: int) -> Node:
    """a * value."""
    return a if value == 1 else pointwise("mul", (a, number(value)))


def over(a: Node, value: int) -> Node:
    """a // value, rounded down."""
    return a if value == 1 else pointwise("floordiv", (a, number(value)))


def modulo(a: Node, value: int) -> Node:
    """a % value, from 0 to value - 1."""
    return number(0) if value == 1 else pointwise("mod", (a, number(value)))


def greater(a: Node, b: Node) -> Node:
    """The larger of two whole numbers."""
    return a if a is b else pointwise("maximum", (a, b))


def lesser(a: Node, b: Node) -> Node:
    """The smaller of two whole numbers."""
    return a if a is b else pointwise("minimum", (a, b))


def length(axis: str) -> Node:
    """The size of an axis."""
    return node("size", params=(axis,), kind="int")
