"""Dependences that cancel: softmax(x - c) is softmax(x), and t - mean(t) with t = x - r lacks r.

A term may name a reduction that its value does not depend on. Translated to sympy such a reduction
drops out: what has no algebra is a symbol, and over another axis a sum, or a shifted max or min,
lets out what does not carry that axis. x - x is 0 for every x, as though every value were finite;
x / x is 1 only where x is known not to be 0.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial, reduce
from typing import Any

import numpy as np
import sympy

from napkin.algebra.meaning import Meaning
from napkin.algebra.rule import Instance, Rule, between
from napkin.algebra.separate import Parts, Split, multiplied_sums, running_symbols_by, separate_by
from napkin.algebra.sides import NotSeparable
from napkin.algebra.terms import Uses, like
from napkin.ir.expansion import count
from napkin.ir.infer import pointwise, rebuilt
from napkin.ir.node import REDUCTIONS, Node, number, over, postorder
from napkin.ir.operators import POINTWISE
from napkin.ir.operators.meant import divisors, is_fraction, meant
from napkin.ir.operators.record import COMPUTING
from napkin.ir.rewrite import rewrite
from napkin.ir.types import STORAGE
from napkin.rewrite.together import write_exponent

_WIDE = STORAGE["fp32"]

MOST = 4
"""Reductions over the axes among which one that cancels is looked for."""

LARGEST = 60
"""Operations in an expression that is looked through; a longer one is a symbol."""

REMEMBERED = 4096
"""Terms that a translation remembers, about."""

SHIFT, SEEN = 1.37, 1e-6
"""What symbols are multiplied by to see whether a value changes with them, and how much it does
then, of itself, at least: more than roundings."""

GOLDEN = 0.6180339887
"""Multiples of it lie apart, taken without their whole part."""

VALUES: Mapping[Any, Callable[..., float]] = {
    sympy.Add: lambda *terms: math.fsum(terms), sympy.Mul: lambda *factors: math.prod(factors),
    sympy.Pow: operator.pow,
}  # fmt: skip
"""The value of sympy's own operations; the others are those of operators."""


def _lets_cancel(op: str) -> bool:
    """Whether arguments of an operator cancel against each other, or what two of them share may
    still cancel behind it."""
    if op in REDUCTIONS:
        return bool(REDUCTIONS[op].over)
    return op in POINTWISE and is_fraction(POINTWISE[op])


def _matches(roots: Sequence[Node], axes: Collection[str]) -> Iterator[Instance]:
    """Maps from every node under `roots` to a form that depends on no reduction over `axes` which
    is seen to cancel. The second looks through every term: what multiplies such a reduction may
    be 0, and another one may not depend on what it seems to. None where it sees nothing, or there
    are more than `MOST` reductions."""
    folds = [n for n in postorder(roots) if n.op in REDUCTIONS and set(axes) & set(over(n))]
    tried, seen = [list(roots)], len(folds) <= MOST and _cancels(roots, frozenset(axes))
    for through in (False, True) if seen else ():
        done = _simplified(tuple(roots), frozenset(axes), through)
        after = [done[n] for n in roots]
        if after not in tried:
            tried.append(after)
            yield Instance(" ".join(axes), done, between(roots, after))


CANCELLED = Rule("leave out what cancels", "t + r - r = t", _matches, ("values are finite",))


def _cancels(roots: Sequence[Node], axes: frozenset[str]) -> bool:
    """Whether a term under `roots` is seen to depend on fewer reductions than it names. Nearly none
    does, and terms come again under other roots: what was seen of them is remembered."""
    if len(_remembered(axes).unchanged) > REMEMBERED:
        _remembered.cache_clear()
    found = not _remembered(axes).keep(roots)
    if found:  # a term that was made of another would be known as that
        _remembered.cache_clear()
    return found


@lru_cache(maxsize=32)
def _remembered(axes: frozenset[str]) -> _Cancelling:
    return _Cancelling(axes, through=True)


@lru_cache(maxsize=8)  # the same for any number of passes, which are tried in turn
def _simplified(
    roots: tuple[Node, ...], axes: frozenset[str], through: bool
) -> Mapping[Node, Node]:
    return rewrite(roots, _Cancelling(axes, through=through).simplified)


class _Cancelling(Meaning):
    """A translation that shows which reductions over `axes` cancel. Every term without algebra is a
    symbol, and so is every term that uses no such reduction, unless it is looked `through`."""

    def __init__(self, axes: frozenset[str], *, through: bool) -> None:
        super().__init__(
            lambda n: "mixed" if self.uses.of(n) or (through and n.args) else "x",
            write_exponent,
        )
        self.folded, self.through, self.uses = axes, through, Uses(self._is_folded)
        self._tangled = set[Node]()
        self.unchanged = set[Node]()

    def keep(self, roots: Iterable[Node]) -> bool:
        """Whether every term under `roots` stays as it is; those that do are `unchanged`."""
        for n in postorder(roots, self.unchanged):
            if n not in self.unchanged:
                if self.simplified(n, n.args) is not None:
                    return False
                self.unchanged.add(n)
        return True

    def _is_folded(self, n: Node) -> bool:
        return n.op in REDUCTIONS and not self.folded.isdisjoint(over(n))

    def simplified(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        """`old` on other arguments, where that depends on fewer reductions; None where not."""
        uses = [self.uses.of(a) for a in args]
        if not any(uses) or not _lets_cancel(old.op):
            return None
        # Unless all is looked through, only a reduction that comes in by two ways can cancel.
        shared = sum(map(len, uses)) > len(frozenset[Node]().union(*uses))
        twice = len(args) > 1 and (self.through or shared)
        if not twice and self._tangled.isdisjoint(old.args):
            return None
        self._tangled.add(old)
        return self._over_fewer(rebuilt(old, args))

    def _over_fewer(self, n: Node) -> Node | None:
        for expression in self._forms(n):
            if self._used(expression) < self.uses.of(n):
                try:
                    found = like(self.node(expression), n)
                except NotSeparable:
                    continue
                self._expressions[found] = expression  # a 0 stays one
                return found
        return None

    def _forms(self, n: Node) -> Iterator[Any]:
        """The expression of `n`; and multiplied out, which takes long, where its value at some
        numbers does not change with one of the reductions: only such a one can cancel."""
        plain = self.of(n)
        yield plain
        by_use = {s: self.uses.of(self.stands_for(s)) for s in plain.free_symbols}
        every = frozenset[Node]().union(*by_use.values())
        parts = list(dict.fromkeys(sympy.postorder_traversal(plain)))
        at = _somewhere(by_use)
        value = _value(parts, at)
        for r in every:
            moved = {s: SHIFT * x if r in by_use[s] else x for s, x in at.items()}
            if not abs(_value(parts, moved) - value) > SEEN * max(1.0, abs(value)):
                yield _expanded(plain)
                return

    def _used(self, expression: Any) -> frozenset[Node]:
        nodes = [self.stands_for(s) for s in expression.free_symbols]
        return frozenset[Node]().union(*map(self.uses.of, nodes))

    def _read(self, n: Node) -> Any:
        try:
            expression = super()._read(n)
        except NotSeparable:
            return self.symbol(n)
        return expression if self._is_small(expression) else self.symbol(n)

    def _is_small(self, expression: Any) -> bool:
        """Whether an expression has at most `LARGEST` operations."""
        return self._measure(expression)[0] <= LARGEST

    def _mixed(self, n: Node) -> Any:
        if n.op == "div":
            above, below = (self.of(a) for a in n.args)
            if below.is_zero is not False:
                return above * self.symbol(pointwise("div", (number(1.0), n.args[1])))
        elif n.op in POINTWISE and self._has_pole(n):
            return self.symbol(n)
        if n.op == "cast" and STORAGE.get(str(n.params[0]), _WIDE).bits < _WIDE.bits:
            return self.symbol(n)  # what rounding takes off is not nothing
        return super()._mixed(n)

    def _has_pole(self, n: Node) -> bool:
        """Whether an operator may divide by 0, or raise it to a negative power."""
        record = POINTWISE[n.op]
        found = divisors(record)
        of = dict(zip(meant(record)[1], map(self.of, n.args), strict=True)) if found else {}
        return not all(base.xreplace(of).is_positive for base in found)

    def _split_body(self, body: Any, gone: tuple[str, ...]) -> tuple[Parts, Split]:
        def split(e: Any) -> tuple[set[Any], set[Any]]:
            moving = {s for s in e.free_symbols if self.carries(s, gone)}
            return moving, e.free_symbols - moving

        if running_symbols_by(body, split):
            raise NotSeparable("sum", "it would multiply out a difference")
        return separate_by(_expanded(body), split), split

    def _how(self, e: Any, gone: tuple[str, ...]) -> str:
        carried = [self.carries(s, gone) for s in e.free_symbols]
        return "x" if carried and all(carried) else "mixed" if any(carried) else ""

    def positions(self, axes: tuple[str, ...]) -> Node:
        """The number of positions along `axes`, counted where they are streamed, as a mean does."""
        return count(axes) if self.folded & set(axes) else super().positions(axes)


def _somewhere(symbols: Collection[Any]) -> dict[Any, float]:
    """Numbers for symbols, of their signs."""
    each = enumerate(sorted(symbols, key=lambda s: s.name))
    apart = {s: 0.5 + i * GOLDEN % 1.0 for i, s in each}
    return {s: -x if s.is_nonpositive else x for s, x in apart.items()}


def _value(parts: Sequence[Any], at: Mapping[Any, float]) -> float:
    """The value of the last of `parts`, each of which comes after its own; NaN where that is no
    real number, or no operator computes one."""
    found = dict(at)
    try:
        with np.errstate(all="ignore"):
            for e in parts:
                if e not in found:
                    args = [found[a] for a in e.args]
                    found[e] = _computed(e, args) if args else float(e)
    except (ArithmeticError, KeyError, TypeError, ValueError):
        return math.nan
    last = found[parts[-1]]
    return last if isinstance(last, float) else math.nan


def _computed(e: Any, args: Sequence[float]) -> float:
    """The value of an operation on numbers; sympy joins more than two by one max or min."""
    if e.func in VALUES:
        return VALUES[e.func](*args)
    row, arrays = COMPUTING[e.func.__name__], [np.asarray([a], float) for a in args]
    on = partial(row.evaluate, np)
    return float((reduce(on, arrays) if row.arity > 1 else on(*arrays))[0])


def _expanded(e: Any) -> Any:
    """`e` multiplied out, but for exponentials, which would overflow, and products of sums, of
    which differences would lose their precision."""
    every = list(sympy.preorder_traversal(e))
    if not any(map(_is_product_of_sum, every)):
        return e
    stand_ins = {p: sympy.Dummy() for p in every if multiplied_sums(p)}
    outer = e.xreplace(stand_ins)
    done = sympy.expand(outer, power_exp=False, power_base=False, log=False)
    return done.xreplace({d: p for p, d in stand_ins.items()})


def _is_product_of_sum(part: Any) -> bool:
    """Whether a sum, or a power of one, is a factor, so that there may be something to multiply
    out."""
    if part.is_Mul:
        return any(f.as_base_exp()[0].is_Add for f in part.args)
    return bool(part.is_Pow and part.base.is_Add)
