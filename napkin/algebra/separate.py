"""Separability: g(x, r) = sum_k a_k(x) b_k(r), found by rules and proved with sympy.

This one theorem is what lets a reduction stream in the same pass as the reductions that its body
depends on: sum_x g(x, r) = sum_k b_k(r) * sum_x a_k(x). Online softmax, RMSNorm folded into a
product and Chan's variance are instances (arXiv 2412.03317, section 2; arXiv 2505.09326).
Its form for max and min, which are joins and meets of a lattice, is in `napkin.algebra.lattice`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import sympy

from napkin.algebra.sides import NotSeparable, by_side

Parts = list[tuple[Any, Any]]
Split = Callable[[Any], tuple[set[Any], set[Any]]]
"""The x symbols and the r symbols of an expression."""

_ONE = sympy.Integer(1)

REMEMBERED = 1024
"""Expressions of which it is remembered what they are separated into: one body comes again in each
labelling of a term."""

MOST = 128
"""Products of a chunk and a result that an expression is separated into, at most."""


@lru_cache(maxsize=REMEMBERED)
def separate(expression: Any) -> Parts:
    """Pairs (a, b), a over x symbols only and b over r symbols only, whose products sum to
    `expression`.

    Raises:
        NotSeparable: the rules find no such form, or sympy cannot prove it.
    """
    return separate_by(expression, by_side)


def separate_by(expression: Any, split: Split) -> Parts:
    """`separate` for any way to split symbols in two groups."""
    parts = _merged(_separate(expression, split))
    _prove(expression, parts)
    return parts


def _separate(e: Any, split: Split) -> Parts:
    xs, rs = split(e)
    if not rs:
        return [(e, _ONE)]
    if not xs:
        return [(_ONE, e)]
    if e.is_Add:
        return [pair for a in e.args for pair in _separate(a, split)]
    if e.is_Mul:
        out: Parts = [(_ONE, _ONE)]
        for factor in e.args:
            out = _times(out, _merged(_separate(factor, split)))
        return out
    if e.is_Pow or isinstance(e, sympy.exp):
        return _power(e, split)
    if isinstance(e, sympy.Abs):
        a, b = _single(e, _merged(_separate(e.args[0], split)))
        return [(sympy.Abs(a), sympy.Abs(b))]
    if isinstance(e, sympy.log):
        a, b = _single(e, _merged(_separate(e.args[0], split)))
        if not (a.is_positive and b.is_positive):
            raise NotSeparable("log", "the logarithm of a product whose factors may be negative")
        return [(sympy.log(a), _ONE), (_ONE, sympy.log(b))]
    raise NotSeparable(type(e).__name__.lower(), "it mixes the chunk with a running result")


def _power(e: Any, split: Split) -> Parts:
    base, exponent = e.as_base_exp()
    if base == sympy.E:
        a, b = additive(_merged(_separate(exponent, split)), split, "exp")
        return [(sympy.exp(a), sympy.exp(b))]
    if any(split(exponent)):
        raise NotSeparable("pow", "its exponent is an array")
    parts = _merged(_separate(base, split))
    if len(parts) == 1:
        a, b = parts[0]
        if exponent.is_Integer or (a.is_nonnegative and b.is_nonnegative):
            return [(a**exponent, b**exponent)]
        raise NotSeparable("pow", "a root of a product whose factors may be negative")
    if exponent.is_Integer and 2 <= exponent <= 6:
        out = parts
        for _ in range(int(exponent) - 1):
            out = _times(out, parts)
        return out
    raise NotSeparable("pow", f"a sum of the chunk and a running result, to the power {exponent}")


def _times(left: Parts, right: Parts) -> Parts:
    if len(left) * len(right) > MOST:
        raise NotSeparable("mul", f"multiplied out it has more than {MOST} terms")
    return [(a * c, b * d) for (a, b), (c, d) in itertools.product(left, right)]


def _single(e: Any, parts: Parts) -> tuple[Any, Any]:
    if len(parts) != 1:
        raise NotSeparable(
            type(e).__name__.lower(), "its argument adds the chunk and a running result"
        )
    return parts[0]


def _merged(parts: Parts) -> Parts:
    """The same sum with as few pairs as equal factors allow."""
    for _ in range(2):
        table: dict[Any, Any] = {}
        for a, b in parts:
            coefficient, a = a.as_coeff_Mul()
            table[a] = table.get(a, 0) + coefficient * b
        # Second round: the pairs are turned over, so equal b factors meet as well.
        parts = [(b, a) for a, b in table.items() if b != 0]
    out: Parts = []
    for a, b in parts:
        coefficient, a = a.as_coeff_Mul()  # a sign belongs to the tail, not to every chunk
        out.append((a, coefficient * b))
    return out


def _prove(expression: Any, parts: Parts) -> None:
    gap = expression - sum((a * b for a, b in parts), sympy.Integer(0))
    if gap == 0 or sympy.expand(gap) == 0 or sympy.simplify(gap) == 0:
        return
    raise NotSeparable(str(expression), "sympy cannot prove the separated form equal")


def additive(parts: Parts, split: Split, op: str) -> tuple[Any, Any]:
    """(a, b) with g = a + b, `a` of the chunk alone and `b` of results, from the parts of g.

    Raises:
        NotSeparable: some part multiplies the chunk by a running result.
    """
    a = b = sympy.Integer(0)
    for p, q in parts:
        if not split(p)[0]:
            b += p * q
        elif not split(q)[1]:
            a += p * q
        else:
            raise NotSeparable(op, "its body multiplies the chunk by a running result")
    return a, b


@lru_cache(maxsize=REMEMBERED)
def running_symbols(expression: Any) -> frozenset[Any]:
    """The r symbols that must be held running: those inside an exponential, or a square or another
    product of differences, that mixes them with the chunk. Multiplied out, such a term has parts
    that overflow, or that cancel: of data whose mean is c deviations, a square loses c**2 of its
    precision so, and only c where it is held."""
    return frozenset(running_symbols_by(expression, by_side))


def running_symbols_by(expression: Any, split: Split) -> set[Any]:
    """`running_symbols` for any way to split symbols in two groups."""
    found = set[Any]()
    part: Any
    for part in sympy.preorder_traversal(expression):
        base, _ = part.as_base_exp()
        if base == sympy.E and all(split(part)):
            found |= split(part)[1]
        for factor in multiplied_sums(part, lambda base: all(split(base))):
            found |= split(factor)[1]
    return found


def multiplied_sums(product: Any, chosen: Callable[[Any], bool] = bool) -> list[Any]:
    """The factors of a product that are powers of chosen sums, where there are two or more of them,
    or one to a whole power: multiplied out, differences in them lose their precision."""
    powers = [(factor, *factor.as_base_exp()) for factor in sympy.Mul.make_args(product)]
    held = [(factor, n) for factor, base, n in powers if base.is_Add and chosen(base)]
    several = len(held) > 1 or any(n.is_Integer and n > 1 for _, n in held)
    return [factor for factor, _ in held] if several else []
