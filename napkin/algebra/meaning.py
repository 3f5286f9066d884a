"""Between nodes and sympy: what a body means as a function of two groups of arrays.

For a reduction over a streamed axis, a body is a function g(x, r) of arrays that carry the axis
(x) and of arrays that do not and that depend on other reductions of the same pass (r). Every
maximal subterm that lies wholly on one side becomes one sympy symbol; only the terms that mix the
sides are translated operator by operator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator
from contextlib import suppress
from typing import Any, cast

import sympy

from napkin.algebra.lattice import bounded_on_nothing, distributed
from napkin.algebra.separate import Parts, Split, additive, running_symbols, separate_by
from napkin.algebra.sides import NotSeparable, Side, by_side
from napkin.algebra.signs import sign
from napkin.algebra.terms import as_written, carrying, extent, identity, of_reals, starting, worst
from napkin.ir.infer import along, joined, pointwise
from napkin.ir.node import INT32, REDUCTIONS, Node, in_kind, landings, number, over
from napkin.ir.operators.integer import truncates
from napkin.ir.operators.meant import joins_as
from napkin.ir.operators.record import COMPUTING, POINTWISE
from napkin.ir.storage import widens

LARGEST, DEEPEST, POWERS = 150, 20, 2
"""Operations in an expression that is separated, how deep they are nested, and how deep
exponentials are, at most."""


Exponent = Callable[[Any, Callable[[Any], Node]], Node]
"""How the exponent of a power is written, which may be shifted before it is scaled."""


class Meaning(Container[Node]):
    """A translation of one body: symbols for its one-sided subterms.

    Args:
        side_of: says on which side a node lies.
        exponent: gives the node of an exponent, and is given what gives that of any expression.
    """

    def __init__(self, side_of: Callable[[Node], Side], exponent: Exponent) -> None:
        self.side_of, self.exponent = side_of, exponent
        self.nodes: dict[sympy.Symbol, Node] = {}
        self._symbols: dict[Node, sympy.Symbol] = {}
        self._expressions: dict[Node, Any] = {}
        self._known: dict[Any, Node] = {}
        self._indicators: dict[sympy.Symbol, tuple[Node, bool]] = {}
        self._cancelled: set[Node] = set()
        self._measured: dict[Any, tuple[int, int, int]] = {}

    # --- to sympy ---------------------------------------------------------------------------

    def of(self, n: Node) -> Any:
        """The sympy expression of `n`.

        Raises:
            NotSeparable: `n` mixes the sides in an operator without algebra, or is too large.
        """
        for deep in landings([n], self):
            self._expressions[deep] = self._read(deep)
        if n not in self._expressions:
            self._expressions[n] = self._read(n)
        return self._expressions[n]

    def __contains__(self, n: object) -> bool:
        """Whether a term is translated without what is below it."""
        return isinstance(n, Node) and (n in self._expressions or self.side_of(n) != "mixed")

    def _measure(self, expression: Any) -> tuple[int, int, int]:
        """Operations of an expression, and how deep they and the exponentials are nested."""
        if expression not in self._measured:
            each = [self._measure(a) for a in expression.args]
            size = sum(s for s, _, _ in each) + max(len(each) - 1, 1 if each else 0)
            deep, powers = (max((x[i] for x in each), default=0) for i in (1, 2))
            powers += isinstance(expression, sympy.exp)
            self._measured[expression] = size, deep + bool(each), powers
        return self._measured[expression]

    def _read(self, n: Node) -> Any:
        if n.op == "number" and not isinstance(n.params[0], bool):
            return _constant(cast("float | int", n.params[0]))
        if self.side_of(n) != "mixed":
            return self.symbol(n)
        expression = self._mixed(n)
        size, depth, powers = self._measure(expression)
        if size > LARGEST or depth > DEEPEST or powers > POWERS:
            raise NotSeparable(n.op, f"it has more than {LARGEST} operations, or is deeply nested")
        if self._lost(n, expression):
            self._cancelled.add(n)
        elif all(by_side(expression)):  # it may have simplified to one side, and other axes
            self._known.setdefault(expression, n)
        return expression

    def _lost(self, n: Node, expression: Any) -> bool:
        """Whether something cancels in `n`: written as it is, it would still be computed."""
        if n.op not in POINTWISE:
            return False
        read = set[Any]().union(*(self.of(a).free_symbols for a in n.args))
        return not read <= expression.free_symbols or not self._cancelled.isdisjoint(n.args)

    def symbol(self, n: Node) -> sympy.Symbol:
        """The symbol of a one-sided subterm."""
        if n not in self._symbols:
            known = sign(n)
            facts: dict[str, bool] = {known: True} if known else {"real": True}
            made = sympy.Symbol(f"{self.side_of(n)}{len(self._symbols)}", **facts)
            self._symbols[n], self.nodes[made] = made, n
        return self._symbols[n]

    def _mixed(self, n: Node) -> Any:
        if n.op == "where":
            return self._where(n)
        if n.op in REDUCTIONS:
            return self._inner(n)
        if n.op == "exp" and (found := self._divided(n)) is not None:
            return found
        row = POINTWISE.get(n.op)
        if row is not None and row.meaning is not None and not (n.op == "cast" and truncates(n)):
            found = row.meaning(sympy, *(self.of(a) for a in n.args))
            if not found.has(sympy.floor):
                return found
        raise NotSeparable(n.op, f"{n.op} mixes the chunk with a running result")

    def _divided(self, n: Node) -> Any:
        """exp(t - log c) as exp(t) / c, where c is a result: it is then a factor of the tail, and
        no part of what rescales. None where c may be negative, and its logarithm no number, or t
        has no result that keeps exp(t) in range."""
        terms = list(_added(n.args[0]))
        logs = [(s, t) for s, t in terms if self.side_of(t) == "r" and _is_logarithm(t)]
        rest = [(s, t) for s, t in terms if (s, t) not in logs]
        if not logs or not any(self.side_of(t) == "r" for _, t in rest):
            return None
        found = sympy.exp(sum(s * self.of(t) for s, t in rest))
        for s, t in logs:
            found *= self.symbol(_unwidened(t).args[0]) ** s
        return found

    def _where(self, n: Node) -> Any:
        test, yes, no = n.args
        side = self.side_of(test)
        if side == "mixed":
            test, side = self._test(test)
        both = [self._indicator(test, side, value) for value in (True, False)]
        return both[0] * self.of(yes) + both[1] * self.of(no)

    def _indicator(self, test: Node, side: Side, value: bool) -> sympy.Symbol:
        """The symbol that is 1 where a condition has a value, and 0 elsewhere."""
        mark = f"{side}{'if' if value else 'else'}{len(self._indicators)}"
        made = sympy.Symbol(mark, nonnegative=True)
        self._indicators[made] = (test, value)
        return made

    def _test(self, test: Node) -> tuple[Node, Side]:
        """A condition whose mixed arguments simplify to one side, over that side alone."""
        if test.args and test.op in POINTWISE:
            values = [self.of(a) for a in test.args]
            sides = [by_side(v) for v in values]
            xs, rs = any(x for x, _ in sides), any(r for _, r in sides)
            if not (xs and rs):
                sided = pointwise(test.op, [self.node(v) for v in values], test.params)
                return sided, "r" if rs else "x"
        raise NotSeparable("where", "its condition mixes the chunk with a running result")

    def _inner(self, n: Node) -> Any:
        # A reduction over another axis: what does not carry that axis comes out.
        body = self.of(n.args[0])
        if as_written(n):
            raise NotSeparable(n.op, "something is compared with it as it is rounded")
        record = REDUCTIONS[n.op]
        if joins_as(record) == "add":
            if running_symbols(body):
                what = f"it multiplies out a difference under {' '.join(over(n))}"
                raise NotSeparable(n.op, what)
            return self._total(self._split_body(body, over(n))[0], n)
        if record.over == "add":
            with suppress(NotSeparable):
                return self._shifted(n, body)
        if record.order:
            return self.extremum(n, body, lambda e: self._how(e, over(n)))[0]
        raise NotSeparable(n.op, f"{n.op} over another axis mixes with a running result")

    def _split_body(self, body: Any, gone: tuple[str, ...]) -> tuple[Parts, Split]:
        """The parts that a body under a reduction of `gone` separates into, and by which split."""
        return separate_by(body, by_side), by_side

    def _total(self, parts: Parts, n: Node) -> Any:
        """The sum of the products of `parts`, in each of which one factor at most carries an axis
        that the sum removes."""
        gone = over(n)
        total = sympy.Integer(0)
        for a, b in parts:
            if not self.carries(a, gone):
                a, b = b, a
            if self.carries(b, gone):
                raise NotSeparable(
                    n.op, f"a running result carries {' '.join(gone)}, which {n.op} removes"
                )
            if self.carries(a, gone):
                total += b * self.symbol(self.reduced("sum", a, n))
            else:  # the same everywhere: counted, so that it can cancel against a mean's count
                total += a * b * self.symbol(self.positions(gone))
        return total

    def _shifted(self, n: Node, body: Any) -> Any:
        """A reduction of a + b that is that of a, and then + b."""
        gone = over(n)
        parts, split = self._split_body(body, gone)
        a, b = additive(parts, split, n.op)
        if self.carries(b, gone):
            raise NotSeparable(n.op, f"a running result carries {' '.join(gone)}")
        return self.symbol(along(n.op, carrying(self.node(a), gone), gone, n.params[1:])) + b

    def _how(self, e: Any, gone: tuple[str, ...]) -> str:
        """How an expression depends on axes that a reduction removes, as `lattice.Kind` says."""
        if not self.carries(e, gone):
            return ""
        xs, rs = by_side(e)
        return "mixed" if xs and rs else "x" if xs else "r"

    def extremum(self, n: Node, body: Any, kind: Callable[[Any], str]) -> tuple[Any, list[Node]]:
        """The max or min `n` of `body` over extrema of one-sided terms, and those extrema.

        Raises:
            NotSeparable: no rule brings it to that form.
        """
        folds: dict[Any, tuple[str, Any]] = {}

        def folded(op: str, a: Any) -> Any:
            made = self.symbol(self.reduced(op, a, n))
            folds[made] = (op, a)
            return made

        plain = (s for s in body.free_symbols if s not in self._indicators)
        real = all(self.nodes[s].kind == "real" for s in plain)
        found = distributed(n.op, body, kind, folded, real)
        join, meet = (sympy.Max, sympy.Min) if n.op == "max" else (sympy.Min, sympy.Max)
        if bounded_on_nothing(n.op, found, folds):
            found = meet(found, self.symbol(_limit(n)))
        if identity(n) != worst(n.op):
            found = join(found, self.symbol(number(identity(n))))
        return found, [self.nodes[s] for s in folds]

    def reduced(self, op: str, a: Any, n: Node) -> Node:
        """The reduction of an expression by `op` along the axes of `n`, in which it stands."""
        return along(op, carrying(self.body(a, n), over(n)), over(n), starting(op))

    def positions(self, axes: tuple[str, ...]) -> Node:
        """The number of positions along `axes`."""
        return extent(axes)

    def carries(self, expression: Any, axes: Collection[str]) -> bool:
        """Whether a symbol of an expression carries one of `axes`."""
        held = {a for s in expression.free_symbols for a in self.stands_for(s).axes}
        return not held.isdisjoint(axes)

    def stands_for(self, symbol: Any) -> Node:
        """The term that a symbol stands for, or the condition that it is the indicator of."""
        return self.nodes[symbol] if symbol in self.nodes else self._indicators[symbol][0]

    def condition(self, symbol: Any) -> Node | None:
        """The condition that a symbol is 1 under, and 0 elsewhere."""
        test, positive = self._indicators.get(symbol, (None, False))
        return test if positive else None

    # --- back to nodes ----------------------------------------------------------------------

    def body(self, e: Any, n: Node) -> Node:
        """The node of an expression as the body of a reduction in the place of `n`."""
        made, real = self.node(e), n.kind == "real" and joins_as(REDUCTIONS[n.op]) == "add"
        return of_reals(made, map(self.stands_for, e.free_symbols)) if real else made

    def node(self, expression: Any) -> Node:
        """The node of an expression over this translation's symbols."""
        if expression in self._known:
            return self._known[expression]
        if expression in self.nodes:
            return self.nodes[expression]
        if expression.is_Symbol:
            return self._chosen(number(1.0), expression)
        if expression.is_Number:
            value = float(expression)
            whole = expression.is_Integer and int(value) in INT32
            return number(int(value)) if whole else number(value)
        if expression.is_Add:
            return self._sum(expression)
        if expression.is_Mul:
            return self._product(expression)
        if expression.is_Pow:
            return self._power(expression)
        if isinstance(expression, sympy.exp):
            return pointwise("exp", (self.exponent(expression.args[0], self.node),))
        row = COMPUTING.get(type(expression).__name__)
        if row is None:
            raise NotSeparable(str(expression), "no operator computes it")
        args = [self.node(a) for a in expression.args]
        if row.arity == 1:
            return pointwise(row.name, args)
        return joined(row.name, args)

    def _chosen(self, value: Node, indicator: Any, other: float = 0.0) -> Node:
        test, positive = self._indicators[indicator]
        pair = (value, number(other)) if positive else (number(other), value)
        return pointwise("where", (test, *pair))

    def where_kept(self, expression: Any, value: Node, other: float) -> Node:
        """A node where the conditions of the chunk in a product hold, and a number elsewhere."""
        found = by_side(expression)[0] & self._indicators.keys()
        for indicator in sorted(found, key=lambda s: s.name):
            value = self._chosen(value, indicator, other)
        return value

    def _sum(self, expression: Any) -> Node:
        key = sympy.default_sort_key
        plus = sorted((a for a in expression.args if not a.could_extract_minus_sign()), key=key)
        minus = sorted((-a for a in expression.args if a.could_extract_minus_sign()), key=key)
        if plus:
            total = joined("add", map(self.node, plus))
        else:
            total = pointwise("neg", (self.node(minus.pop(0)),))
        return joined("sub", [total, *map(self.node, minus)])

    def _product(self, expression: Any) -> Node:
        coefficient, rest = expression.as_coeff_Mul()
        if coefficient == -1:
            return pointwise("neg", (self.node(rest),))
        args = sorted(expression.args, key=sympy.default_sort_key)
        chosen = [a for a in args if a in self._indicators]
        above = [a for a in args if a not in chosen and not _is_reciprocal(a)]
        below = [1 / a for a in args if a not in chosen and _is_reciprocal(a)]
        total = self._times(above) if above else None
        if below:
            total = pointwise("div", (total or number(1.0), self._times(below)))
        total = total or number(1.0)
        for indicator in chosen:
            total = self._chosen(total, indicator)
        return total

    def _times(self, parts: list[Any]) -> Node:
        return joined("mul", map(self.node, parts))

    def _power(self, expression: Any) -> Node:
        base, exponent = expression.as_base_exp()
        if base == sympy.E:
            return pointwise("exp", (self.exponent(exponent, self.node),))
        if exponent == sympy.Rational(1, 2):
            return pointwise("sqrt", (self.node(base),))
        if exponent == sympy.Rational(-1, 2):
            return pointwise("rsqrt", (self.node(base),))
        if exponent.is_negative:
            return pointwise("div", (number(1.0), self.node(1 / expression)))
        if exponent.is_Integer and exponent <= 4:
            return self._times([base] * int(exponent))
        return pointwise("pow", (self.node(base), self.node(exponent)))


def _added(n: Node, sign: int = 1) -> Iterator[tuple[int, Node]]:
    """The terms of a sum, each with 1 or, where it is subtracted, -1."""
    inner = _unwidened(n)
    if inner.op not in {"add", "sub"}:
        yield sign, n
        return
    left, right = inner.args
    yield from _added(left, sign)
    yield from _added(right, -sign if inner.op == "sub" else sign)


def _unwidened(n: Node) -> Node:
    """A term without casts that do nothing in a kernel."""
    while widens(n):
        n = n.args[0]
    return n


def _is_logarithm(n: Node) -> bool:
    """Whether a term is the logarithm of what is not negative."""
    inner = _unwidened(n)
    return inner.op == "log" and bool(sign(inner.args[0]))


def _limit(n: Node) -> Node:
    """A bound on the max or min `n`: of nothing its value, of anything no limit at all."""
    nothing, none = (in_kind(v, n.kind) for v in (worst(n.op), -worst(n.op)))
    empty = pointwise("equal", (extent(over(n)), number(0)))
    return pointwise("where", (empty, number(nothing), number(none)))


def _is_reciprocal(a: Any) -> bool:
    base, exponent = a.as_base_exp()
    return bool(base != sympy.E and exponent.is_number and exponent.is_negative)


def _constant(value: float | int) -> Any:
    if isinstance(value, int) or value.is_integer():
        return sympy.Integer(int(value))
    return sympy.Float(value, 17)
