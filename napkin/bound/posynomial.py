"""Posynomials in the tile sizes, and the exact solution of small programs made of them.

A transfer cost is a sum of monomials in 1/g_a and a memory use a sum of monomials in g_a, with
coefficients in the axis sizes. Minimising the one under a limit on the other is a geometric
program, convex in log g (Boyd et al., "A tutorial on geometric programming", 2007). Exponents are
exact fractions, and a coefficient is either a float or a sympy expression: one solver serves both,
so that a cheap run on numbers finds the regime and a second run on symbols writes its formula.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias, cast

import sympy
from sympy.polys.matrices import DomainMatrix

from napkin.errors import InputError

Coefficient: TypeAlias = Any
"""A float, or a sympy expression that is positive; every function here takes either."""
Exponents: TypeAlias = tuple[Fraction, ...]

HALF = Fraction(1, 2)


def power(value: Coefficient, exponent: Fraction) -> Coefficient:
    """`value ** exponent` for a positive value, factor by factor so that like factors meet."""
    if exponent == 1:
        return value
    if not isinstance(value, sympy.Basic):
        return float(value) ** float(exponent)
    rational = sympy.Rational(exponent.numerator, exponent.denominator)
    factored: Coefficient = sympy.factor_terms(cast(sympy.Expr, value))
    factors = factored.as_powers_dict()
    if any(base.is_negative for base in factors):  # signs cancel only in the whole product
        return value**rational
    return sympy.Mul(*(base ** (exp * rational) for base, exp in factors.items()))


def product(
    coefficient: Coefficient, exponents: Exponents, values: Sequence[Coefficient]
) -> Coefficient:
    """The monomial `coefficient * prod values_i ** exponents_i`."""
    for value, exponent in zip(values, exponents, strict=True):
        if exponent:
            coefficient = coefficient * power(value, exponent)
    return coefficient


@dataclass(frozen=True)
class Posynomial:
    """A sum of monomials: `terms` maps the exponents of `variables` to the coefficient."""

    variables: tuple[sympy.Symbol, ...]
    terms: dict[Exponents, Coefficient]

    @classmethod
    def of(cls, expr: sympy.Expr, variables: Iterable[sympy.Symbol], name: str) -> Posynomial:
        """Read `expr`; `name` says in an error whose expression was not a posynomial."""
        order = tuple(variables)
        terms: dict[Exponents, Coefficient] = {}
        rest: Coefficient
        for term in sympy.Add.make_args(sympy.expand(expr)):
            if term == 0:
                continue
            coefficient, rest = term.as_independent(*order, as_Add=False)
            powers = rest.as_powers_dict()
            for base, exponent in powers.items():
                if base != 1 and not (base in order and exponent.is_Rational):
                    raise InputError(
                        f"{name} is not a sum of monomials in {', '.join(map(str, order))}: "
                        f"its term {term} holds {base**exponent}"
                    )
            exponents = tuple(
                Fraction(int(powers[v].p), int(powers[v].q)) if v in powers else Fraction(0)
                for v in order
            )
            terms[exponents] = terms.get(exponents, sympy.Integer(0)) + coefficient
        kept = {e: sympy.factor_terms(c) for e, c in terms.items()}
        return cls(order, {e: c for e, c in kept.items() if c != 0})

    @property
    def constant(self) -> Coefficient:
        """The term free of every variable, or 0."""
        return self.terms.get((Fraction(0),) * len(self.variables), 0)

    def varying(self) -> Posynomial:
        """Without the constant term."""
        return Posynomial(self.variables, {e: c for e, c in self.terms.items() if any(e)})

    def fixed(self, values: Mapping[sympy.Symbol, Coefficient]) -> Posynomial:
        """With the variables in `values` replaced by those values."""
        free = tuple(v for v in self.variables if v not in values)
        bound = [values.get(v, 1) for v in self.variables]
        terms: dict[Exponents, Coefficient] = {}
        for exponents, coefficient in self.terms.items():
            pairs = list(zip(self.variables, exponents, strict=True))
            kept = tuple(e for v, e in pairs if v not in values)
            gone = tuple(e if v in values else Fraction(0) for v, e in pairs)
            terms[kept] = terms.get(kept, 0) + product(coefficient, gone, bound)
        return Posynomial(free, terms)

    def without(self, symbols: Iterable[sympy.Symbol]) -> Posynomial:
        """With `symbols` set to 0 in the coefficients."""
        zeros = dict.fromkeys(symbols, sympy.Integer(0))
        terms = {e: c.subs(zeros) for e, c in self.terms.items()}
        return Posynomial(self.variables, {e: c for e, c in terms.items() if c != 0})

    def at(self, values: Mapping[sympy.Symbol, Coefficient]) -> list[Coefficient]:
        """The value of every term, in order."""
        point = [values[v] for v in self.variables]
        return [product(c, e, point) for e, c in self.terms.items()]

    def exponents_of(self, variable: sympy.Symbol) -> list[Fraction]:
        """The exponent of `variable` in every term."""
        index = self.variables.index(variable)
        return [e[index] for e in self.terms]


def reduce_rows(rows: Sequence[Sequence[Fraction]]) -> tuple[list[list[Fraction]], list[int]]:
    """Reduced row echelon form of `rows`, zero rows dropped, and the pivot columns."""
    if not rows or not rows[0]:
        return [], []
    exact = [[sympy.QQ(x.numerator, x.denominator) for x in row] for row in rows]
    reduced, pivots = DomainMatrix(exact, (len(rows), len(rows[0])), sympy.QQ).rref()
    kept: list[list[Any]] = reduced.to_list()[: len(pivots)]
    return [[Fraction(int(x.numerator), int(x.denominator)) for x in row] for row in kept], [
        *pivots
    ]


def null_weights(rows: Sequence[Exponents]) -> list[Fraction] | None:
    """The weights w > 0 with sum w_k rows_k = 0, if they are unique but for their scale."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    reduced, pivots = reduce_rows(columns)
    if len(pivots) != len(rows) - 1:
        return None
    (free,) = set(range(len(rows))) - set(pivots)
    weights = [Fraction(1)] * len(rows)
    for row, pivot in zip(reduced, pivots, strict=True):
        weights[pivot] = -row[free]
    return weights if all(w > 0 for w in weights) else None


def solve_monomials(
    rows: Sequence[Exponents], values: Sequence[Coefficient], scaled: Sequence[bool]
) -> tuple[list[Coefficient | None], list[Exponents]]:
    """Solve prod_i g_i ** rows_ki = values_k for g, up to one unknown factor on the `scaled` rows.

    A linear system in log g, solved on exponents. Returns the value of each g_i, or None where it
    is free, and for each g_i its exponents in the free ones.
    """
    count = len(rows[0])
    units = [
        [Fraction(int(k == j)) for j in range(len(rows))] for k in range(len(rows))
    ]  # carries along which values each reduced row combines
    # The unknown factor comes first, so that elimination leaves it out of the other rows.
    augmented = [
        [Fraction(-int(s)), *row, *unit] for s, row, unit in zip(scaled, rows, units, strict=True)
    ]
    reduced, pivots = reduce_rows(augmented)
    answer: list[Coefficient | None] = [None] * count
    links = [[Fraction(int(i == j)) for j in range(count)] for i in range(count)]
    for row, pivot in zip(reduced, pivots, strict=True):
        if 1 <= pivot <= count:
            answer[pivot - 1] = product(1, tuple(row[count + 1 :]), values)
            links[pivot - 1] = [-x for x in row[1 : count + 1]]
            links[pivot - 1][pivot - 1] = Fraction(0)
    return answer, [tuple(link) for link in links]


@dataclass(frozen=True)
class Solution:
    """The tiles of an optimum, the cost there (all of H), and the variables set by free choice."""

    tiles: dict[sympy.Symbol, Coefficient]
    cost: Coefficient
    arbitrary: tuple[sympy.Symbol, ...] = ()


def solve_exactly(cost: Posynomial, use: Posynomial, budget: Coefficient) -> Solution | None:
    """Minimise `cost` subject to `use` = `budget`, no variable at a clip; None if out of reach.

    Only combinations of variables that some term shows can matter: the rest are set to 1 (all the
    weight goes to the first variables). Solved: one variable, linear or quadratic in a power of it;
    as many terms as the weights of the dual determine (Duffin, Peterson and Zener's zero degrees of
    difficulty); two variables with cost in 1/g, 1/h, 1/(g h) and use in g h, g, h. None also where
    the stationary point would lie at 0 or infinity, that is, where some variable must be clipped.
    """
    rows = [*cost.varying().terms, *use.varying().terms]
    pivots = reduce_rows(rows)[1]
    arbitrary = tuple(v for i, v in enumerate(cost.variables) if i not in pivots)
    ones = dict.fromkeys(arbitrary, _number(Fraction(1), budget))
    cost, use = cost.fixed(ones), use.fixed(ones)
    room = budget - use.constant
    if cost.variables and not isinstance(room, sympy.Basic) and room <= 0:
        return None
    found = _solve_determined(cost, use.varying(), room)
    return found and Solution({**found.tiles, **ones}, found.cost, arbitrary)


def _solve_determined(cost: Posynomial, use: Posynomial, room: Coefficient) -> Solution | None:
    if not cost.variables:
        return Solution({}, cost.constant)
    if len(cost.variables) == 1:
        return _solve_single(cost, use, room)
    found = _solve_by_weights(cost, use, room)
    if found is None and len(cost.variables) == 2:
        found = _solve_bilinear(cost, use, room)
    return found


def _solve_single(cost: Posynomial, use: Posynomial, room: Coefficient) -> Solution | None:
    """One variable: the constraint alone fixes it."""
    order = sorted((e[0], c) for e, c in use.terms.items())
    if len(order) == 1:
        value = room / order[0][1]
    elif len(order) == 2 and order[1][0] == 2 * order[0][0]:
        linear, square = order[0][1], order[1][1]
        # The root in the form without cancellation, which stays accurate in floats.
        value = 2 * room / (linear + power(linear**2 + 4 * square * room, HALF))
    else:
        return None
    tiles = {cost.variables[0]: power(value, 1 / order[0][0])}
    return Solution(tiles, sum(cost.at(tiles)))


def _solve_by_weights(cost: Posynomial, use: Posynomial, room: Coefficient) -> Solution | None:
    """As many terms as variables and one more: the stationary terms stand in fixed proportions.

    Stationarity, sum_t h_t A_t + lambda sum_u m_u B_u = 0, then determines every h_t and every
    lambda m_u up to one scale, and sum_u m_u = room the rest: a linear system in log g.
    """
    moving = dict(cost.varying().terms)
    if len(use.terms) == 1:
        # With a single memory monomial its powers are constant on the limit: they do not steer.
        (limit,) = use.terms
        moving = {e: c for e, c in moving.items() if len(reduce_rows([e, limit])[1]) == 2}
    rows = [*moving, *use.terms]
    if len(reduce_rows(rows)[1]) < len(cost.variables):
        return None
    weights = null_weights(rows)
    if weights is None:
        return None
    total = sum(weights[len(moving) :])
    values = [_number(w, c) / c for w, c in zip(weights, moving.values(), strict=False)]
    for weight, coefficient in zip(weights[len(moving) :], use.terms.values(), strict=True):
        values.append(room * _number(weight / total, coefficient) / coefficient)
    answer, _ = solve_monomials(
        rows, values, [*(True for _ in moving), *(False for _ in use.terms)]
    )
    tiles = dict(zip(cost.variables, answer, strict=True))
    return Solution(tiles, sum(cost.at(tiles)))


def _solve_bilinear(cost: Posynomial, use: Posynomial, room: Coefficient) -> Solution | None:
    """cost = alpha/g + beta/h + gamma/(g h) + c, use = mu g h + p g + r h.

    On the limit 1/(g h) = (mu + p/h + r/g)/room, which folds gamma into alpha and beta. With the
    limit, stationarity is alpha (room - p g)^2 = beta g^2 (mu room + p r): a perfect square.
    """
    one, zero = Fraction(1), Fraction(0)
    if not set(cost.varying().terms) <= {(-one, zero), (zero, -one), (-one, -one)}:
        return None
    if not set(use.terms) <= {(one, one), (one, zero), (zero, one)}:
        return None
    mu, p, r = (use.terms.get(e, 0) for e in ((one, one), (one, zero), (zero, one)))
    gamma = cost.terms.get((-one, -one), 0)
    # alpha and beta are kept multiplied by the room, which keeps sums out of the roots.
    alpha = cost.terms.get((-one, zero), 0) * room + gamma * r
    beta = cost.terms.get((zero, -one), 0) * room + gamma * p
    if alpha == 0 or beta == 0:
        return None
    square = mu * room + p * r
    tiles = {
        cost.variables[0]: _quotient(room, p, beta * square / alpha),
        cost.variables[1]: _quotient(room, r, alpha * square / beta),
    }
    root = power(alpha * beta * square, HALF)
    value = gamma * mu / room + (alpha * p + beta * r + 2 * root) / room**2
    return Solution(tiles, cost.constant + value)


def _quotient(room: Coefficient, part: Coefficient, square: Coefficient) -> Coefficient:
    """room / (part + sqrt(square)), in symbols without the root below where that is shorter."""
    root = power(square, HALF)
    if isinstance(room, sympy.Basic) and part != 0:
        conjugate = sympy.expand(square - part**2)
        if not conjugate.is_Add:
            return (root - part) * room / conjugate
    return room / (part + root)


def _number(value: Fraction, like: Coefficient) -> Coefficient:
    """`value` in the arithmetic of `like`."""
    if isinstance(like, sympy.Basic):
        return sympy.Rational(value.numerator, value.denominator)
    return float(value)
