"""Operators that are written with napkin's own: evaluation and kernel function from the term."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from napkin.diagram.definition import definition_of
from napkin.errors import InputError
from napkin.ir.array import Array
from napkin.ir.node import Node, node, postorder
from napkin.ir.operators.record import POINTWISE, Operator, finite, jitted

_LONGEST = 50
"""Characters of an expression that has no line of its own in the kernel function, at most."""


def operator_of(name: str, function: Callable[..., Any]) -> Operator:
    """The operator of two arguments that a function of two arrays computes.

    Raises:
        InputError: it is more than arithmetic on its arguments and numbers.
    """
    leaves = [node("input", params=(a,)) for a in "ab"]
    try:
        found = function(*map(Array, leaves))
    except TypeError as error:
        raise InputError(f"{name}: it is no function of two arrays ({error})") from error
    if not isinstance(found, Array):
        raise InputError(f"{name}: it gave {found!r}, which is no array")
    term = found.node
    for n in postorder([term]):
        if n not in leaves and n.op != "number" and (n.op not in POINTWISE or n.op == "cast"):
            raise InputError(
                f"{name}: it uses {n.op}; it is arithmetic on its two arguments and numbers"
            )
    records = [POINTWISE[n.op] for n in postorder([term]) if n.op in POINTWISE]
    lines = _lines(term)
    return Operator(
        name, 2, lambda xp, a, b: _value(
            term, dict(zip(leaves, (a, b), strict=True)), lambda v: xp.zeros_like(a) + v,
            lambda r: partial(r.evaluate, xp),
        ),
        f"{name}({{0}}, {{1}})", term.kind, meaning=_meaning(term, leaves, records),
        rational=all(r.rational for r in records), certain=finite,
        functions={name: jitted(name, f"What {name} is of two values", *lines)},
        flops=sum(r.flops for r in records), special=sum(r.special for r in records),
        definition=definition_of(lines, [r.definition for r in records]),
    )  # fmt: skip


def _meaning(term: Node, leaves: Sequence[Node], records: Sequence[Operator]) -> Any:
    """The value of a term of plain arithmetic on sympy expressions; None of any other."""
    if not all(r.rational and r.meaning for r in records):
        return None
    return lambda sp, *given: _value(
        term, dict(zip(leaves, given, strict=True)), sp.sympify, lambda r: partial(r.meaning, sp)
    )


def _value(term: Node, values: dict[Node, Any], number: Any, function: Any) -> Any:
    """The value of a term, given those of its leaves, that of a number, and what computes the
    operator of a record."""
    for n in postorder([term], values):
        if n.op == "number":
            values[n] = number(n.params[0])
        elif n not in values:
            values[n] = function(POINTWISE[n.op])(*(values[a] for a in n.args))
    return values[term]


def _lines(term: Node) -> list[str]:
    """The statements of the kernel function, a term that is used twice once."""
    order = list(postorder([term]))
    uses = Counter(a for n in order for a in n.args)
    texts, lines = dict[Node, str](), list[str]()
    for n in order:
        if not n.args:
            texts[n] = _number(n) if n.op == "number" else str(n.params[0])
            continue
        texts[n] = POINTWISE[n.op].triton.format(*(f"({texts[a]})" for a in n.args))
        if uses[n] > 1 or (n is not term and len(texts[n]) > _LONGEST):
            lines.append(f"t{len(lines)} = {_plain(texts[n])}")
            texts[n] = f"t{len(lines) - 1}"
    return [*lines, f"return {_plain(texts[term])}"]


def _number(n: Node) -> str:
    value = n.params[0]
    finite = not isinstance(value, float) or abs(value) < float("inf")
    return repr(value) if finite else f"float({str(value)!r})"


def _plain(text: str) -> str:
    """An expression without parentheses that it does not need."""
    return ast.unparse(ast.parse(text, mode="eval"))
