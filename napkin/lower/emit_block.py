"""A block of statements for the terms of a loop program, and what is known in it."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Self

from napkin.ir.node import Kind, Node, factors
from napkin.lower import syntax as sx
from napkin.lower.program import Program
from napkin.lower.scope import Scope
from napkin.lower.syntax import Expr

TILES: dict[Kind, str] = {"real": "tl.float32", "int": "tl.int32", "bool": "tl.int1"}
"""What tiles are computed in."""


class Block(ABC):
    """Statements, in the order they are needed, and the terms that have a value.

    Attributes:
        have: those terms, with their values.
        raw: of them, tiles in the type they are stored in.
        uses: how often each term is used.
        helpers: functions of the kernel file that are called.
        inside: axes that no tile reaches past here.
    """

    def __init__(self, program: Program, scope: Scope) -> None:
        self.program, self.scope = program, scope
        self.statements: list[ast.stmt] = []
        self.have: dict[Node, Expr] = {}
        self.raw: set[Node] = set()
        self.uses: Counter[Node] = Counter()
        self.helpers: set[str] = set()
        self.inside: set[str] = set()
        steps = [step for loop in program.loops for step in loop.steps.values()]
        self.begun = {a for n in steps if n.op in {"maximum", "minimum"} for a in n.args}

    def count(self, roots: Iterable[Node]) -> None:
        """Note how often each term is used, to write single-use arithmetic in line."""
        seen: set[Node] = set()
        stack = list(roots)
        self.uses.update(stack)
        while stack:
            n = stack.pop()
            if n in seen or n.constant:
                continue
            seen.add(n)
            below = factors(n.args[0]) if n.op == "sum" else n.args
            self.uses.update(below)
            stack.extend(below)

    def recount(self, roots: Iterable[Node]) -> None:
        """Note the uses in `roots` alone: of one loop among several that stand for one pass."""
        self.uses = Counter()
        self.count(roots)

    def child(self) -> Self:
        """An emitter for a block inside this one: it knows what is computed here."""
        inner = type(self)(self.program, self.scope)
        inner.have, inner.raw, inner.uses = dict(self.have), set(self.raw), self.uses
        inner.helpers, inner.inside = self.helpers, set(self.inside)
        return inner

    def drain(self) -> list[ast.stmt]:
        """The statements so far, which go elsewhere."""
        found, self.statements = self.statements, []
        return found

    def seen_as(self, program: Program) -> Self:
        """An emitter for a block inside this one whose terms have the dimensions of `program`."""
        inner = self.child()
        inner.program, inner.scope = program, self.scope.seen_as(program)
        return inner

    @abstractmethod
    def value(self, n: Node) -> Expr:
        """`n` as an expression, in float32 if it is real, in int32 if it is whole."""

    @abstractmethod
    def _define(self, n: Node) -> Expr:
        """The expression that computes `n`, whether or not it has a value."""

    def fit(self, n: Node, dims: Sequence[int]) -> Expr:
        """`n` indexed to broadcast over `dims`."""
        return self.spread(self.value(n), self.program.shape(n), dims)

    def spread(self, value: Expr, have: Sequence[int], want: Sequence[int]) -> Expr:
        """`value` with dimensions `have`, indexed to broadcast as dimensions `want`."""
        return sx.expanded(value, have, want)

    def laid(self, made: Expr, dims: Sequence[int]) -> Expr:
        """A tile that begins here, with these dimensions, as the language wants it made."""
        return made

    def _extents(self, dims: Sequence[int]) -> Expr:
        return sx.tuple_of(self.scope.extent(d) for d in dims)

    def block(self, axis: str) -> Expr:
        """The values of a tile along an axis."""
        single = self.program.tiles[axis] == 1
        return sx.const(1) if single else sx.name(self.scope.block(axis))

    def _permuted(self, value: Expr, have: list[int], want: list[int]) -> Expr:
        if len(have) == 2:
            return sx.call("tl.trans", value)
        return sx.call("tl.permute", value, sx.tuple_of(sx.const(have.index(d)) for d in want))
