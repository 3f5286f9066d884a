"""Statements of a kernel that repeat, as a loop.

A search by halves is the same few statements again and again, each time with half the number, and
written out it takes the compiler seconds. Here it is a loop, in which a number c that is halved
each time is `c >> turn`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import NamedTuple

from napkin.lower import syntax as sx
from napkin.lower.trim import loaded

LEAST = 8
"""Repeats that become a loop, at the least; one more stands before it."""

LONGEST = 64
"""Statements that are repeated together, at most."""

LENGTHS = 2
"""Lengths of a loop that are tried: of the last repeat more may be read than of the others."""

_VARYING = re.compile(r"(?<=id=')\w+|(?<=Constant\(value=)\d+(?=\))")
"""The names and the whole numbers in the dump of a statement."""

_HERE, _BEFORE = "this repeat", "the repeat before"
"""Where what a repeat reads is given; no names."""


class _Line(NamedTuple):
    """A statement that gives a value its only name.

    Attributes:
        shape: its text without names and whole numbers.
        reads: the names that it reads, in order.
        numbers: its whole numbers, in order.
    """

    statement: ast.Assign
    target: str
    shape: str
    reads: tuple[str, ...]
    numbers: tuple[int, ...]


class _Loop(NamedTuple):
    """A loop of statements from the place `first` to before `end`.

    Attributes:
        names: in the statements after it, to the names that it gives the same values.
    """

    first: int
    end: int
    statement: ast.stmt
    names: dict[str, str]


def rolled(body: Sequence[ast.stmt], turn: Callable[[], str]) -> list[ast.stmt]:
    """The statements of a kernel, with loops for those that repeat.

    The first repeat stands before the loop: what it gives is of the type that the others give.

    Args:
        turn: a name that no statement has.
    """
    names = [n for s in body for n in ast.walk(s) if isinstance(n, ast.Name)]
    return _Roller(Counter((n.id, type(n.ctx)) for n in names), turn).rolled(body)


class _Roller:
    """Makes loops of the statements of a kernel, in which each name is used so often."""

    def __init__(
        self, uses: Mapping[tuple[str, type[ast.expr_context]], int], turn: Callable[[], str]
    ) -> None:
        self.uses, self.turn = uses, turn

    def rolled(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Statements that follow each other."""
        for s in body:
            if isinstance(s, ast.For | ast.If):
                s.body = self.rolled(s.body)
        out, left = list[ast.stmt](), list(body)
        while (loop := next(self._loops(left), None)) is not None:
            out += [*left[: loop.first], loop.statement]
            left = [_Named(loop.names).visit(s) for s in left[loop.end :]]
        return [*out, *left]

    def _loops(self, body: Sequence[ast.stmt]) -> Iterator[_Loop]:
        """The loops that statements can be, those that begin first before others."""
        lines = [self._line(s) for s in body]
        for at, period, end in sorted(_alike([x.shape if x else None for x in lines])):
            own = [x for x in lines[at:end] if x]
            each = _as_the_second([own[i : i + period] for i in range(0, len(own), period)])
            for many in range(len(each), max(len(each) - LENGTHS, LEAST), -1):
                end = at + many * period
                names = self._names(each[:many], body[end:])
                if names is not None:
                    yield _Loop(at + period, end, _loop(each[:many], self.turn()), names)

    def _line(self, s: ast.stmt) -> _Line | None:
        if not isinstance(s, ast.Assign) or not isinstance(target := s.targets[0], ast.Name):
            return None
        if self.uses[target.id, ast.Store] > 1:
            return None
        shape, numbers = _VARYING.sub("_", ast.dump(s)), (int(str(n.value)) for n in _numbers(s))
        return _Line(s, target.id, shape, tuple(loaded(s.value)), tuple(numbers))

    def _names(
        self, each: Sequence[Sequence[_Line]], rest: Sequence[ast.stmt]
    ) -> dict[str, str] | None:
        """Names that the last repeat gives, to those of the first that hold the same values after a
        loop; None where more is read of a repeat than what it hands on."""
        kept = _handed_on(*each[:2])
        read = [Counter(name for x in own for name in x.reads) for own in each]
        read.append(Counter(name for s in rest for name in loaded(s)))
        for i, own in enumerate(each):
            for q, x in enumerate(own):
                known = read[i][x.target] + (read[i + 1][x.target] if q in kept else 0)
                if self.uses[x.target, ast.Load] > known and (i > 0 or q in kept):
                    return None
        return {each[-1][q].target: each[0][q].target for q in kept}


def _alike(shapes: Sequence[str | None]) -> Iterator[tuple[int, int, int]]:
    """Where statements of some shapes may be repeats: the place of the first, how many are repeated
    together, and the place after the last."""
    for period in range(1, min(LONGEST, len(shapes) // (LEAST + 1)) + 1):
        first = 0
        for at in range(len(shapes) - period + 1):
            shape = shapes[at + period] if at + period < len(shapes) else None
            if shape is not None and shape == shapes[at]:
                continue
            for start in range(first, min(first + period, at)):
                times = (at + period - start) // period
                if times > LEAST:
                    yield start, period, start + times * period
            first = at + 1


def _as_the_second(each: Sequence[Sequence[_Line]]) -> Sequence[Sequence[_Line]]:
    """As many of the repeats as read of the one before what the second reads of the first, and have
    its numbers, or half of those before; none where the second reads what has a new value by
    then."""
    reads = [(i, q) for i, line in enumerate(_said(*each[:2])) for at, q in line if at == _BEFORE]
    if any(i > q for i, q in reads):
        return []
    said, halved = _said(*each[:2]), _halved(*each[1:3])
    for i, (before, own) in enumerate(pairwise(each[1:]), 2):
        if _said(before, own) != said or halved is None or _halved(before, own) != halved:
            return each[:i]
    return each


def _said(before: Sequence[_Line], own: Sequence[_Line]) -> list[list[tuple[str, int]]]:
    """What each statement of a repeat reads: a name, or where it is given and the place there."""
    places = {x.target: (_BEFORE, i) for i, x in enumerate(before)}
    places |= {x.target: (_HERE, i) for i, x in enumerate(own)}
    return [[places.get(name, (name, 0)) for name in x.reads] for x in own]


def _halved(before: Sequence[_Line], own: Sequence[_Line]) -> set[tuple[int, int]] | None:
    """The numbers of a repeat that are half of those of the one before, by statement and place in
    it; None where some differ otherwise."""
    pairs = [
        (i, j, *two)
        for i, (a, b) in enumerate(zip(before, own, strict=True))
        for j, two in enumerate(zip(a.numbers, b.numbers, strict=True))
    ]
    found = {(i, j) for i, j, a, b in pairs if a != b}
    return found if all(a == 2 * b for i, j, a, b in pairs if (i, j) in found) else None


def _handed_on(first: Sequence[_Line], second: Sequence[_Line]) -> list[int]:
    """The places in a repeat of what it gives that the next one reads."""
    read = {name for x in second for name in x.reads}
    return [q for q, x in enumerate(first) if x.target in read]


def _loop(each: Sequence[Sequence[_Line]], turn: str) -> ast.stmt:
    """All repeats but the first, as a loop of the second."""
    first, second, third, *_ = each
    halved = _halved(second, third) or set()
    names = {second[q].target: first[q].target for q in _handed_on(first, second)}
    body = list[ast.stmt]()
    for i, x in enumerate(second):
        own = deepcopy(x.statement)
        numbers = [n for j, n in enumerate(_numbers(own)) if (i, j) in halved]
        body.append(_Named(names, dict.fromkeys(numbers, turn)).visit(own))
    return sx.loop(turn, sx.call("range", len(each) - 1), body)


def _numbers(s: ast.stmt) -> list[ast.Constant]:
    """The whole numbers of a statement."""
    return [n for n in ast.walk(s) if isinstance(n, ast.Constant) and type(n.value) is int]


class _Named(ast.NodeTransformer):
    """Gives names others, and halves numbers as often as a name says."""

    def __init__(
        self, names: Mapping[str, str], halved: Mapping[ast.Constant, str] | None = None
    ) -> None:
        self.names, self.halved = names, halved or {}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return sx.binary(node, ">>", self.halved[node]) if node in self.halved else node
