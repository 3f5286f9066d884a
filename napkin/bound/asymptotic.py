"""The leading-order solution of a program whose exact one has no closed form.

As the memory M grows, tiles grow as powers of it, g_i = C_i M^y_i, and each sum is ruled by its
largest monomials. The exponents y solve a linear program; the monomials that its dual weighs fix
the constants, as in the exact solver; whatever those leave open, the next largest monomials decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import sympy

from napkin.bound.posynomial import (
    Coefficient,
    Exponents,
    Posynomial,
    Solution,
    power,
    product,
    reduce_rows,
    solve_monomials,
)


@dataclass(frozen=True)
class _Monomial:
    """A monomial of the "cost", one of the "use" (at most the budget), or a "floor" (at most 1)."""

    role: str
    coefficient: Coefficient
    """Holds the budget as one of its factors, where it does."""
    exponents: Exponents


def solve_leading(cost: Posynomial, use: Posynomial, budget: sympy.Symbol) -> Solution:
    """Tiles C_i * budget**y_i, y_i >= 0, that minimise `cost` to leading order as `budget` grows.

    They fill the budget to leading order: smaller terms of `use` may pass it, and at a given budget
    a tile may lie beyond a clip, 1 included where it does not grow. The exponents of the
    cost are right, and so is its leading coefficient, unless more terms tie than the dual of the
    linear program can weigh: then it is an upper bound. The cost is every term of `cost` at those
    tiles, so terms below the leading one are those of these tiles, not of a better approximation.
    """
    count = len(cost.variables)
    units = [tuple(Fraction(int(i == j)) for j in range(count)) for i in range(count)]
    one = sympy.Integer(1)
    tiles: list[tuple[Coefficient, Exponents]] = [(one, unit) for unit in units]
    pending = [_Monomial("cost", c, e) for e, c in cost.varying().terms.items()]
    pending += [_Monomial("use", c, e) for e, c in use.varying().terms.items()]
    pending += [_Monomial("floor", one, tuple(-x for x in unit)) for unit in units]
    while any(m.role == "cost" for m in pending):
        weights = _dominant(pending, budget)
        ruling = [(m, w) for m, w in zip(pending, weights, strict=True) if w]
        constants, links = solve_monomials(
            [m.exponents for m, _ in ruling],
            _targets(ruling, budget),
            [m.role == "cost" for m, _ in ruling],
        )
        step = [(one if c is None else c, link) for c, link in zip(constants, links, strict=True)]
        tiles = [_substitute(c, e, step) for c, e in tiles]
        pending = [
            _Monomial(m.role, *_substitute(m.coefficient, m.exponents, step))
            for m, w in zip(pending, weights, strict=True)
            if not w
        ]
        pending = [m for m in pending if any(m.exponents)]
    # Nothing in the cost moves any more: variables that are still free stay at 1.
    names = cost.variables
    free = tuple(v for v, (_, e), unit in zip(names, tiles, units, strict=True) if e == unit)
    values = {v: c for v, (c, _) in zip(names, tiles, strict=True)}
    full = [term for term in use.varying().at(values) if _order(term, budget) == 1]
    excess = sympy.Add(*full) / budget  # above 1 only where tied terms must share the budget
    if full and excess != 1:
        values = {v: c.subs(budget, budget / excess) for v, c in values.items()}
    return Solution(values, sum(cost.at(values)), free)


def _order(term: Coefficient, budget: sympy.Symbol) -> Fraction:
    """The power of `budget` in a product."""
    exponent = term.as_powers_dict().get(budget, sympy.Integer(0))
    return Fraction(int(exponent.p), int(exponent.q))


def _substitute(
    coefficient: Coefficient, exponents: Exponents, step: Sequence[tuple[Coefficient, Exponents]]
) -> tuple[Coefficient, Exponents]:
    """The monomial after each variable became a monomial in the ones still free."""
    links = zip(*(link for _, link in step), strict=True)
    return (
        product(coefficient, exponents, [c for c, _ in step]),
        tuple(
            sum((e * x for e, x in zip(exponents, link, strict=True)), Fraction(0))
            for link in links
        ),
    )


def _targets(
    ruling: Sequence[tuple[_Monomial, Fraction]], budget: sympy.Symbol
) -> list[Coefficient]:
    """What prod g**exponents of each ruling monomial must equal, the cost ones up to one factor."""
    shared = sum((w for m, w in ruling if m.role == "use"), Fraction(0))
    targets: list[Coefficient] = []
    for monomial, weight in ruling:
        share = weight / shared if monomial.role == "use" else weight
        level = sympy.Rational(share.numerator, share.denominator)
        if monomial.role == "use":
            level = level * budget
        elif monomial.role == "floor":
            level = sympy.Integer(1)
        targets.append(level * power(monomial.coefficient, Fraction(-1)))
    return targets


def _dominant(pending: Sequence[_Monomial], budget: sympy.Symbol) -> list[Fraction]:
    """The dual weights of min over y of the largest exponent of a cost monomial.

    The simplex method on fractions, from tiles that stay as they are, and with the first row that
    may leave or enter, so that it ends (Bland, 1977). A monomial of positive weight rules; the ones
    that rule are as many as fix the variables in them, up to one scale.
    """
    columns = [i for i in range(len(pending[0].exponents)) if any(m.exponents[i] for m in pending)]
    size, known = len(columns) + 1, len(pending)
    orders = [_order(m.coefficient, budget) for m in pending]
    costs = [k for k, m in enumerate(pending) if m.role == "cost"]
    largest = max(costs, key=orders.__getitem__)
    rows = [[*(m.exponents[i] for i in columns), Fraction(-(m.role == "cost"))] for m in pending]
    room = [Fraction(m.role == "use") - x for m, x in zip(pending, orders, strict=True)]
    for k in costs:
        room[k] += orders[largest]
    # A row after those of the monomials holds a variable where it is until it leaves.
    rows += [[Fraction(i == j) for j in range(size)] for i in range(size - 1)]
    basis, aim = [largest, *range(known, len(rows))], [*[Fraction(0)] * (size - 1), Fraction(-1)]
    while True:
        basis.sort()
        square = [rows[k] for k in basis]
        weights = _solve_square([list(c) for c in zip(*square, strict=True)], aim)
        leaves = (i for i, w in enumerate(weights) if w < 0 or (w and basis[i] >= known))
        at = next(leaves, None)
        if at is None:
            weighed = dict(zip(basis, weights, strict=True))
            return [weighed.get(k, Fraction(0)) for k in range(known)]
        sign = 1 if weights[at] > 0 else -1
        way = _solve_square(square, [Fraction(sign * (i == at)) for i in range(size)])
        slopes = [sum((a * x for a, x in zip(row, way, strict=True)), Fraction(0)) for row in rows]
        ends = {k: room[k] / slopes[k] for k in range(known) if k not in basis and slopes[k] > 0}
        if not ends:
            raise ArithmeticError("a bounded linear program has an optimal vertex")
        basis[at] = min(ends, key=ends.__getitem__)
        room = [x - ends[basis[at]] * slope for x, slope in zip(room, slopes, strict=False)]


def _solve_square(rows: Sequence[Sequence[Fraction]], right: Sequence[Fraction]) -> list[Fraction]:
    """The solution of a square system of independent rows."""
    reduced, _ = reduce_rows([[*row, b] for row, b in zip(rows, right, strict=True)])
    return [row[-1] for row in reduced]
