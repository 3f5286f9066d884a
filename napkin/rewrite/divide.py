"""Products by a reciprocal as divisions.

So far a divisor may be as small as one chunk has it, and its reciprocal no number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy

from napkin.algebra.meaning import Meaning
from napkin.algebra.rule import Instance, Rule, one_node
from napkin.algebra.terms import scaled
from napkin.ir.infer import pointwise
from napkin.ir.node import Node


def _matches(term: Node) -> Iterator[Instance]:
    """The term of a sum that has such products."""
    found = quotients(term)
    if found is not term:
        yield one_node(term, found)


DIVIDED = Rule("divide", "(1 / b) a = a / b", _matches, ("1 / b is finite",), infinite=True)


def quotients(n: Node) -> Node:
    """A sum with the products by a reciprocal in it written as divisions."""
    if n.op == "add":
        return pointwise("add", tuple(map(quotients, n.args)))
    if n.op == "mul" and n.args[0].op == "div":
        return scaled(n.args[1], n.args[0])
    return n


def scaled_by(n: Node, b: Any, meaning: Meaning) -> Node:
    """A sum times a factor of results."""
    if b == 1:
        return n
    return one_by_one(n, b, meaning) or pointwise("mul", (meaning.node(b), n))


def one_by_one(n: Node, b: Any, meaning: Meaning) -> Node | None:
    """A sum times a factor with two divisors or more, by one after another: their product leaves
    the range of floats long before the quotient does. None of another factor."""
    above, divisors = sympy.Integer(1), list[Any]()
    for factor in sympy.Mul.make_args(b):
        base, power = factor.as_base_exp()
        whole = base != sympy.E and power.is_Integer and power < 0
        divisors += [base] * int(-power) if whole else []
        above *= 1 if whole else factor
    if len(divisors) < 2:
        return None
    for i, d in enumerate(divisors):
        n = pointwise("div", (n, meaning.node(d)))
        n = n if i or above == 1 else pointwise("mul", (meaning.node(above), n))
    return n
