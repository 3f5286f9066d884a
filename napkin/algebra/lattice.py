"""Separability of an extremum: max_x g(x, r) over maxima and minima of terms in x alone.

max and min are the join and the meet of a distributive lattice. Each rule is an identity over one
position or more, and so is its dual for min:

* max_x max(a, b) = max(max_x a, max_x b), and max_x min(r, a) = min(r, max_x a);
* max_x (r + a) = r + max_x a, max_x (r a) = r max_x a where r >= 0, max_x (-a) = -min_x a;
* max_x (c a) = c max_x a for a number c > 0, which keeps c (max_x a - r) together: where nothing is
  finite so far, r is the lowest float, and c r is beyond all of them;
* max_x h(a) = h(max_x a) where h increases;
* a meet distributes over a join. A sum does as well, but not where inf meets -inf: there a masked
  score would become NaN, so that a + max(r, b) is left alone.

Over no position the left sides are -inf and some right sides are not: `bounded_on_nothing`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import sympy

from napkin.algebra.sides import NotSeparable
from napkin.ir.operators.record import COMPUTING

Kind = Callable[[Any], str]
"""How a term depends on the axis: "" where it is the same everywhere, "mixed" where it cannot be
reduced as it is, any other word where it can, together with others of that word."""

Folded = Callable[[str, Any], Any]
"""The symbol that stands for the max or min of a term."""

Folds = Mapping[Any, tuple[str, Any]]
"""What the symbols that `Folded` gave stand for."""

_DUAL = {"max": "min", "min": "max"}
_JOIN: dict[str, Any] = {"max": sympy.Max, "min": sympy.Min}
_TRIALS, _POSITIONS = 4, 3
_DIGITS = 30
"""Of numbers that are not rational, where the two sides of an equation are compared."""


def distributed(op: str, body: Any, kind: Kind, folded: Folded, real: bool = True) -> Any:
    """The max or min (`op`) of `body` as a term over `folded` ones.

    Args:
        real: whether terms are real. A multiple of the least whole number would wrap.

    Raises:
        NotSeparable: the rules find no such form, or it fails on numbers.
    """
    folds: dict[Any, tuple[str, Any]] = {}

    def noted(op: str, term: Any) -> Any:
        scale, term = unscaled(term) if real else (1, term)
        made = folded(op, term)
        folds[made] = (op, term)
        return scale * made

    found = _Rules(kind, noted).of(op, body)
    free = body.free_symbols.union(found.free_symbols, *(a.free_symbols for _, a in folds.values()))
    moving = frozenset(s for s in free if kind(s))
    why = _fails(op, body, found, tuple(folds.items()), moving)
    if why:
        raise NotSeparable(op, why)
    return found


def unscaled(term: Any) -> tuple[Any, Any]:
    """(c, a) with term = c a and a number c > 0, so that max_x c a = c max_x a."""
    scale, rest = term.as_coeff_Mul()
    return (-scale, -rest) if scale.is_negative else (scale, rest)


def bounded_on_nothing(op: str, found: Any, folds: Folds) -> bool:
    """Whether a term that `distributed` found is not surely -inf (inf for min) over no position."""
    nothing = {s: -sympy.oo if inner == "max" else sympy.oo for s, (inner, _) in folds.items()}
    try:
        left = found.xreplace(nothing)  # all at once: top + oo would be oo of any top
    except ValueError:  # where inf meets -inf, a join of what is left has no value
        return True
    return bool(left != (-sympy.oo if op == "max" else sympy.oo))


class _Rules:
    def __init__(self, kind: Kind, folded: Folded) -> None:
        self.kind, self.folded = kind, folded

    def of(self, op: str, e: Any) -> Any:
        kind = self.kind(e)
        if not kind:
            return e
        if kind != "mixed":
            return self.folded(op, e)
        if isinstance(e, _JOIN[op]):
            return self._join(op, e.args)
        if isinstance(e, _JOIN[_DUAL[op]]):
            return self._meet(op, e)
        if e.is_Add:
            return self._sum(op, e)
        if e.is_Mul:
            return self._product(op, e)
        if (row := COMPUTING.get(type(e).__name__)) and row.increasing:
            return e.func(self.of(op, e.args[0]))
        raise _mixes(op)

    def _join(self, op: str, terms: Sequence[Any]) -> Any:
        alike: dict[str, list[Any]] = {}
        others: list[Any] = []
        for term in terms:
            kind = self.kind(term)
            (alike.setdefault(kind, []) if kind not in {"", "mixed"} else others).append(term)
        done = [self.of(op, term) for term in others]
        return _JOIN[op](*done, *(self.folded(op, _JOIN[op](*t)) for t in alike.values()))

    def _meet(self, op: str, e: Any) -> Any:
        meet = _JOIN[_DUAL[op]]
        still, moving = self._parted(e.args)
        if still:
            return meet(*still, self.of(op, meet(*moving)))
        for i, term in enumerate(moving):
            if isinstance(term, _JOIN[op]) and self.kind(term) == "mixed":
                others = [*moving[:i], *moving[i + 1 :]]
                return _JOIN[op](*(self.of(op, meet(*others, a)) for a in term.args))
        raise _mixes(op)

    def _sum(self, op: str, e: Any) -> Any:
        still, moving = self._parted(e.args)
        if still:
            return sympy.Add(*still, self.of(op, sympy.Add(*moving)))
        expanded = sympy.expand(e)
        if expanded == e:
            raise _mixes(op)
        return self.of(op, expanded)

    def _product(self, op: str, e: Any) -> Any:
        still, moving = self._parted(e.args)
        factor, rest = sympy.Mul(*still), sympy.Mul(*moving)
        if not still:
            raise _mixes(op)
        if factor.is_nonnegative:
            return factor * self.of(op, rest)
        if factor.is_nonpositive:
            return factor * self.of(_DUAL[op], rest)
        raise NotSeparable(op, "its body multiplies the chunk by a result that may be negative")

    def _parted(self, terms: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        still = [term for term in terms if not self.kind(term)]
        return still, [term for term in terms if self.kind(term)]


def _mixes(op: str) -> NotSeparable:
    return NotSeparable(op, "it mixes the chunk with a running result")


# --- the proof ------------------------------------------------------------------------------


@lru_cache(maxsize=4096)  # the same equation comes with every segment that holds its terms
def _fails(
    op: str, body: Any, found: Any, pairs: Sequence[tuple[Any, tuple[str, Any]]], moving: Any
) -> str:
    """Why both sides are not equal on exact numbers, as sympy has no normal form in which they
    would be; "" where they are."""
    rng, folds = random.Random(0), dict(pairs)
    free = body.free_symbols.union(*(a.free_symbols for _, a in folds.values()))
    named = sorted(free | found.free_symbols, key=lambda s: s.name)
    for _ in range(_TRIALS):
        still = {s: _drawn(s, rng) for s in named if s not in moving}
        moved = [s for s in named if s in free & moving]
        places = [still | {s: _drawn(s, rng) for s in moved} for _ in range(_POSITIONS)]
        try:
            known = {
                s: _JOIN[inner](*(value_at(a, dict(place)) for place in places))
                for s, (inner, a) in folds.items()
            }
            whole = _JOIN[op](*(value_at(body, {**place, **known}) for place in places))
            gap = sympy.N(value_at(found, {**still, **known}) - whole)
        except (TypeError, ValueError):  # of a root or a logarithm that is no real number
            return "the separated form has no value on numbers"
        if not (gap.is_real and abs(gap) < 1e-9):
            return "the separated form fails on numbers"
    return ""


def value_at(expression: Any, known: dict[Any, Any]) -> Any:
    """The value of an expression, from those of its symbols: a rational number is exact, and others
    have `_DIGITS` digits. Every distinct term is computed once, and is noted in `known`.

    Raises:
        TypeError, ValueError: a term has no real value.
    """
    stack = [expression]
    while stack:
        e = stack[-1]
        todo = [a for a in e.args if a not in known] if e not in known else []
        if todo:
            stack += todo
            continue
        if stack.pop() not in known:
            made = e.func(*(known[a] for a in e.args)) if e.args else e
            known[e] = made.evalf(_DIGITS) if made.is_number and not made.is_Rational else made
    return known[expression]


def _drawn(symbol: Any, rng: random.Random) -> Any:
    value = sympy.Rational(rng.randint(1, 12), 5)
    return value if symbol.is_nonnegative else rng.choice((-1, 1)) * value
