"""Small builders for Python syntax trees, so that kernels are written as trees and not as text."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

Expr = ast.expr

Operand: TypeAlias = Expr | str | int | float
"""An expression, a name (dotted or not), or a literal."""


def of(value: Operand) -> Expr:
    """An operand as an expression."""
    if isinstance(value, Expr):
        return value
    return name(value) if isinstance(value, str) else const(value)


def name(text: str) -> Expr:
    """A name, dotted or not."""
    head, *rest = text.split(".")
    out: Expr = ast.Name(head, ast.Load())
    for part in rest:
        out = ast.Attribute(out, part, ast.Load())
    return out


def const(value: object) -> Expr:
    """A literal; what is no finite number is written as `float("inf")`."""
    if isinstance(value, float) and not math.isfinite(value):
        return call("float", ast.Constant(str(value)))
    if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    return ast.Constant(value)  # type: ignore[arg-type]


def call(function: str | Expr, *args: Operand, **keywords: Operand) -> Expr:
    """A call."""
    named = [ast.keyword(k, of(v)) for k, v in keywords.items()]
    return ast.Call(of(function), list(map(of, args)), named)


def method(target: Operand, attribute: str, *args: Operand) -> Expr:
    """A method call."""
    return call(ast.Attribute(of(target), attribute, ast.Load()), *args)


_OPS: dict[str, ast.operator] = {
    "+": ast.Add(),
    "-": ast.Sub(),
    "*": ast.Mult(),
    "/": ast.Div(),
    "//": ast.FloorDiv(),
    "%": ast.Mod(),
    "&": ast.BitAnd(),
    "|": ast.BitOr(),
    "<<": ast.LShift(),
    ">>": ast.RShift(),
}


def binary(left: Operand, op: str, right: Operand, *more: Any) -> Expr:
    """`left op right`, and what follows, from the left; times 1 and over 1 it is `left`. Times 1.0
    it is a float, whatever `left` is."""
    left, right = of(left), of(right)
    one = isinstance(right, ast.Constant) and type(right.value) is int and right.value == 1
    made = left if one and op in {"*", "//"} else ast.BinOp(left, _OPS[op], right)
    return binary(made, *more) if more else made


def chain(op: str, parts: Iterable[Operand]) -> Expr:
    """`a op b op c`."""
    return functools.reduce(lambda a, b: binary(a, op, b), map(of, parts))


def compared(left: Operand, by: ast.cmpop, right: Operand) -> Expr:
    """A comparison."""
    return ast.Compare(of(left), [by], [of(right)])


def less(left: Operand, right: Operand) -> Expr:
    """`left < right`."""
    return compared(left, ast.Lt(), right)


def choose(test: Operand, yes: Operand, no: Operand) -> Expr:
    """`yes if test else no`."""
    return ast.IfExp(of(test), of(yes), of(no))


def tuple_of(parts: Iterable[Operand]) -> Expr:
    """A list literal, as Triton takes shapes."""
    return ast.List(list(map(of, parts)), ast.Load())


def pair(*parts: Operand) -> Expr:
    """A tuple."""
    return ast.Tuple(list(map(of, parts)), ast.Load())


def loop(variable: str, over: Expr, body: Iterable[ast.stmt]) -> ast.stmt:
    """`for variable in over`."""
    return ast.For(ast.Name(variable, ast.Store()), over, list(body), [])


def expanded(value: Expr, have: Sequence[int], want: Sequence[int]) -> Expr:
    """`value` with dimensions `have`, indexed to broadcast as dimensions `want`."""
    if tuple(have) == tuple(want) or not have:
        return value
    index: list[Expr] = [ast.Slice() if d in have else ast.Constant(None) for d in want]
    return ast.Subscript(value, ast.Tuple(index, ast.Load()), ast.Load())


def assign(target: str, value: Operand, annotation: Expr | None = None) -> ast.stmt:
    """`target = value`, annotated where a kernel has a constant."""
    left = ast.Name(target, ast.Store())
    if annotation is not None:
        return ast.AnnAssign(left, annotation, of(value), 1)
    return ast.Assign([left], of(value))


class _Fill(ast.NodeTransformer):
    """Fills a template in: names by `values`, and `word` of each attribute of `tl`."""

    def __init__(self, values: Mapping[str, Expr], word: Callable[[str], Expr]) -> None:
        self.values, self.word = values, word

    def visit_Name(self, node: ast.Name) -> Expr:
        return self.values.get(node.id, node)

    def visit_Attribute(self, node: ast.Attribute) -> Expr:
        if isinstance(node.value, ast.Name) and node.value.id == "tl":
            return self.word(node.attr)
        self.generic_visit(node)
        return node


def pattern(text: str, values: Sequence[Expr], word: Callable[[str], Expr] = name) -> Expr:
    """The expression `text` (of an operator's record) with `{0}`, `{1}`, ... filled in."""
    holes = [f"_{i}" for i in range(len(values))]
    tree = ast.parse(text.format(*holes), mode="eval").body
    return _Fill(dict(zip(holes, values, strict=True)), word).visit(tree)
