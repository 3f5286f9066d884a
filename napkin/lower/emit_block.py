"""A block of statements for the terms of a loop program, and what is known in it."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Self

from napkin.ir.node import Node, factors
from napkin.lower import syntax as sx
from napkin.lower.program import Program
from napkin.lower.scope import DESCRIPTORS, Scope
from napkin.lower.syntax import Expr


class Layouts:
    """How tiles lie in registers, and leave them: as Triton has it."""

    def laid(self, made: Expr, dims: Sequence[int]) -> Expr:
        """A tile that begins here, with these dimensions."""
        return made

    def spread(self, value: Expr, have: Sequence[int], want: Sequence[int]) -> Expr:
        """`value` with dimensions `have`, indexed to broadcast as dimensions `want`."""
        return sx.expanded(value, have, want)

    def read(self, n: Node, held: Expr) -> Expr:
        """The tile of a reading in registers; `held` is where it lies."""
        return held

    def reduced(self, value: Expr, had: Sequence[int], have: Sequence[int]) -> Expr:
        """What a reduction of a tile with dimensions `had` leaves, with dimensions `have`."""
        return value

    def stored(
        self, into: Block, tensor: str, axes: Sequence[str], at: Expr, value: Expr, plain: ast.stmt
    ) -> list[ast.stmt]:
        """A tile stored as a box of a tensor, with `axes` in its order, which begins `at`; `plain`
        where the call gives no descriptor."""
        if len(into.program.shape_of(axes)) != len(axes):
            value = into.lang("reshape", value, sx.tuple_of(into.block(a) for a in axes))
        box = ast.Expr(sx.method(into.scope.tensor(tensor), "store", at, value))
        return [ast.If(sx.name(DESCRIPTORS), [box], [plain])]


class Block(ABC):
    """Statements, in the order they are needed, and the terms that have a value.

    Attributes:
        have: those terms, with their values.
        raw: of them, tiles in the type they are stored in.
        uses: how often each term is used.
        inside: axes that no tile reaches past here.
        made: matrix products that a loop has made.
        mishandled: reductions that are written along the first dimension (`thread_locality`).
        layouts: how tiles lie in registers.
    """

    def __init__(self, program: Program, scope: Scope, layouts: Layouts | None = None) -> None:
        self.program, self.scope, self.lang = program, scope, scope.lang
        self.layouts = layouts or Layouts()
        self.made: dict[Node, Expr] = {}
        self.mishandled: frozenset[Node] = frozenset()
        self.statements: list[ast.stmt] = []
        self.have: dict[Node, Expr] = {}
        self.raw: set[Node] = set()
        self.uses: Counter[Node] = Counter()
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
        inner = type(self)(self.program, self.scope, self.layouts)
        inner.have, inner.raw, inner.uses = dict(self.have), set(self.raw), self.uses
        inner.inside, inner.made, inner.mishandled = set(self.inside), self.made, self.mishandled
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
    def computed(self, n: Node) -> Expr:
        """The expression that computes `n`, whether or not it has a value."""

    def fit(self, n: Node, dims: Sequence[int]) -> Expr:
        """`n` indexed to broadcast over `dims`."""
        return self.layouts.spread(self.value(n), self.program.shape(n), dims)

    def along(self, axis: str, name: str, dims: Sequence[int]) -> Expr:
        """What has a value for each position along an axis, indexed to broadcast over `dims`."""
        return self.layouts.spread(sx.name(name), self.program.shape_of((axis,)), dims)

    def extents(self, dims: Sequence[int]) -> Expr:
        """The shape of a tile with these dimensions."""
        return sx.tuple_of(self.scope.extent(d) for d in dims)

    def block(self, axis: str) -> Expr:
        """The values of a tile along an axis."""
        single = self.program.tiles[axis] == 1
        return sx.const(1) if single else sx.name(self.scope.block(axis))

    def permuted(self, value: Expr, have: list[int], want: list[int]) -> Expr:
        """`value` with its dimensions in another order."""
        if len(have) == 2:
            return self.lang("trans", value)
        return self.lang("permute", value, sx.tuple_of(have.index(d) for d in want))
