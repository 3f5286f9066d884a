"""Products by a reciprocal as divisions.

So far a divisor may be as small as one chunk has it, and its reciprocal no number.
"""

from __future__ import annotations

from collections.abc import Iterator

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
