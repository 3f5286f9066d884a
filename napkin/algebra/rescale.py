"""Rescales: how a sum moves when a result in its body changes.

A body g(x, r) is summed at the current value of r; when a chunk changes r, the sum has to be what
it would be at the new r. Functions of x and r that span g at every r, f(x, r) = B(r) a(x), make
that a matrix: the sums at the new r are B(new) B(old)^-1 times those at the old. It is
exp(m_old - m_new) for an exponential (FlashAttention's rescaling, arXiv 2412.03317, section 2.3)
and a triangular matrix for a square (Chan's update of a variance).

Everything here is algebra on the expressions of a `Meaning`; nothing knows of folds or passes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from typing import Any

import numpy as np
import sympy

from napkin.algebra.meaning import Meaning
from napkin.algebra.separate import separate_by
from napkin.algebra.sides import NotSeparable, by_side
from napkin.ir.infer import joined, pointwise
from napkin.ir.listing import text
from napkin.ir.node import Node, node, number
from napkin.ir.operators.record import COMPUTING

DERIVATIVES = 9
"""Derivatives of a body that a basis is looked for among."""

_LATER = (0.7, 2.3, 1e4, -2.3, -1e4)
"""Values of a result after a chunk, at which a rescale is tried; of a positive one their size."""


@dataclass(frozen=True, eq=False)
class Rescale:
    """The rescale of the sum of one body.

    Attributes:
        meaning: the translation whose symbols the expressions are over.
        old, new: the symbols of the results r, before and after a chunk.
        moved: the symbols of old less new.
        basis: functions of x and r: the body, and those of its derivatives that span with it.
        columns: functions of x alone.
        rows: B(r), the coefficients of each function of `basis` on `columns`.
        matrix: B(new) B(old)^-1.
    """

    meaning: Meaning
    old: tuple[Any, ...]
    new: tuple[Any, ...]
    moved: tuple[Any, ...]
    basis: tuple[Any, ...]
    columns: tuple[Any, ...]
    rows: tuple[tuple[Any, ...], ...]
    matrix: Any

    def entry(self, row: int, column: int, values: Mapping[Any, Node]) -> Node | None:
        """An entry of the matrix over nodes for old and new results; None where it is 0."""
        factor = self.matrix[row, column]
        return None if factor == 0 else self._filled(factor, self._with_moves(values))

    def _filled(self, factor: Any, values: Mapping[Any, Node]) -> Node:
        """The node of an entry; of a quotient as a product of quotients of single factors, each of
        a result before over what it is now, where there is one: a square of sums of small
        exponentials is 0 long before these are."""
        numerator, denominator = sympy.fraction(factor)
        above, below = _single(numerator), _single(denominator)
        if len(below) < 2:
            return filled(factor, values, self.meaning)
        before = dict(zip(self.new, self.old, strict=True))
        found: list[Node] = []
        for d in below:
            same = [n for n in above if n == before.get(d)]
            n = next(iter([*same, *(n for n in above if n.free_symbols & d.free_symbols)]), None)
            if n is not None:
                above.remove(n)
            top = number(1.0) if n is None else filled(n, values, self.meaning)
            found.append(pointwise("div", (top, filled(d, values, self.meaning))))
        rest = sympy.Mul(*above)
        return joined("mul", found if rest == 1 else [filled(rest, values, self.meaning), *found])

    def _with_moves(self, values: Mapping[Any, Node]) -> dict[Any, Node]:
        moves = zip(self.moved, self.old, self.new, strict=True)
        return {**values, **{d: pointwise("sub", (values[a], values[b])) for d, a, b in moves}}

    def start(self, choices: Sequence[Sequence[float]]) -> dict[Any, float]:
        """Values of the results before the first chunk, the first choice for each from which the
        rescale is finite.

        Raises:
            NotSeparable: there is none.
        """
        entries = _computed((*self.old, *self.new, *self.moved), tuple(self.matrix))
        for chosen in itertools.product(*choices):
            with np.errstate(all="ignore"):
                first = [np.float32(c) for c in chosen]
                ends = [
                    [np.float32(abs(x) if s.is_nonnegative else x) for s in self.old]
                    for x in _LATER
                ]
                found = [
                    entries(*first, *end, *(a - b for a, b in zip(first, end, strict=True)))
                    for end in ends
                ]
            if np.isfinite(np.asarray(found, np.float32)).all():  # as kernels compute it
                return dict(zip(self.old, chosen, strict=True))
        raise NotSeparable(str(self.matrix[0, 0]), "no start makes its rescale finite")

    @property
    def divisors(self) -> tuple[Any, ...]:
        """The symbols of the results that entries are divided by."""
        below = {s for e in self.matrix for s in sympy.fraction(e)[1].free_symbols}
        pairs = zip(self.old, self.new, strict=True)
        return tuple(old for old, new in pairs if {old, new} & below)

    @property
    def exponential(self) -> bool:
        """Whether it has exponentials, which leave the range of floats."""
        return bool(self.matrix.has(sympy.exp))

    def shown(self, names: Mapping[Node, str]) -> str:
        """The first row of the matrix, for a trail."""
        table: dict[Any, Node] = {}
        for old, new in zip(self.old, self.new, strict=True):
            name = text(self.meaning.nodes[old], names, top=False)
            table[old] = node("scalar", params=(f"{name}_old",))
            table[new] = node("scalar", params=(f"{name}_new",))
        table = self._with_moves(table)
        row = [self._filled(e, table) for e in self.matrix.row(0)]
        return ", ".join(text(n, {}) for n in row)


def _single(product: Any) -> list[Any]:
    """The factors of a product, each as often as it stands there."""
    found: list[Any] = []
    for factor in sympy.Mul.make_args(product):
        base, exponent = factor.as_base_exp()
        whole = base != sympy.E and exponent.is_Integer and exponent > 0
        found += [base] * int(exponent) if whole else [factor]
    return [f for f in found if f != 1]


@lru_cache(maxsize=256)
def _computed(symbols: tuple[Any, ...], entries: tuple[Any, ...]) -> Any:
    """A function from numbers for the symbols to the list of entries."""
    return sympy.lambdify(symbols, list(entries), [_numeric()])


def _numeric() -> dict[str, Any]:
    """What a rescale may call, in numpy, by what sympy calls it."""
    found: dict[str, Any] = {name: partial(r.evaluate, np) for name, r in COMPUTING.items()}
    two = [name for name in found if COMPUTING[name].arity == 2]
    several = {name: lambda *values, f=found[name]: reduce(f, values) for name in two}
    return {**found, **several, "sqrt": np.sqrt}


def rescaled(body: Any, meaning: Meaning) -> Rescale:
    """The rescale of the sum of `body`.

    Raises:
        NotSeparable: the body and its derivatives by r have no basis that is invertible at every
            r, or sympy cannot prove the rescale.
    """
    return Rescale(meaning, *_solved(body))


@lru_cache(maxsize=256)  # the same for every axis that a term is streamed along
def _solved(body: Any) -> tuple[Any, ...]:
    """The fields of a rescale that are expressions."""
    results = sorted(by_side(body)[1], key=lambda s: s.name)
    columns = tuple(a.as_coeff_Mul()[1] for a, _ in separate_by(body, by_side))
    spanned = _derivatives(body, results, columns)
    for chosen in itertools.combinations(spanned[1:], len(columns) - 1):
        functions, rows = zip(spanned[0], *chosen, strict=True)
        # The rescale divides by this determinant, so it must not vanish for any running result.
        if sympy.factor(_determinant(rows, results)).is_nonzero:
            new = tuple(sympy.Symbol(s.name + "_new", **s.assumptions0) for s in results)
            moved = tuple(sympy.Symbol(s.name + "_moved", real=True) for s in results)
            matrix = _between(rows, dict(zip(results, new, strict=True)))
            by = {b: a - d for a, b, d in zip(results, new, moved, strict=True)}
            entries = [_by_moves(e, by, set(results)) for e in matrix]
            matrix = sympy.ImmutableMatrix(*matrix.shape, entries)
            return tuple(results), new, moved, functions, columns, rows, matrix
    raise NotSeparable(str(body), "no basis of its derivatives is invertible for every result")


def _derivatives(
    body: Any, results: Sequence[Any], columns: Sequence[Any]
) -> list[tuple[Any, tuple[Any, ...]]]:
    """The body and its derivatives by the results, each with its coefficients on `columns`."""

    def coefficients(e: Any) -> tuple[Any, ...]:
        row = [sympy.Integer(0)] * len(columns)
        for a, b in separate_by(sympy.expand(e) if len(columns) > 1 else e, by_side):
            scale, plain = a.as_coeff_Mul()
            if plain not in columns:
                raise NotSeparable(str(body), "its derivatives leave the span of its parts")
            row[columns.index(plain)] += scale * b
        return tuple(row)

    found = [(body, coefficients(body))]
    queue = [body]
    while queue and len(found) < DERIVATIVES:
        current = queue.pop(0)
        for r in results:
            scale, further = sympy.factor_terms(sympy.diff(current, r)).as_coeff_Mul()
            if scale != 0 and all(further != e for e, _ in found):
                found.append((further, coefficients(further)))
                queue.append(further)
    return found


def _determinant(rows: Sequence[Sequence[Any]], results: Iterable[Any]) -> Any:
    """The determinant of B(r)."""
    exact = _polynomials(rows, results)
    return sympy.Matrix(rows).det() if exact is None else exact.domain.to_sympy(exact.det())


def _polynomials(rows: Sequence[Sequence[Any]], results: Iterable[Any]) -> Any:
    """A matrix of polynomials in the results, of exact coefficients; None where it is no such.

    Its determinant and inverse take moments: those of expressions are simplified at every step,
    and a minute was not enough for five rows with a decimal constant.
    """
    over = tuple(results)
    if not all(e.is_polynomial(*over) and e.free_symbols <= {*over} for row in rows for e in row):
        return None
    matrix = sympy.Matrix(rows)
    exact = {c: sympy.Rational(c) for c in matrix.atoms(sympy.Float)}
    return matrix.xreplace(exact).to_DM().to_field()


def _between(rows: Sequence[Sequence[Any]], renamed: Mapping[Any, Any]) -> Any:
    """B(new) B(old)^-1, proved to take B(old) to B(new)."""
    exact = _polynomials(rows, renamed)
    old = sympy.Matrix(rows) if exact is None else exact.to_Matrix()
    new = old.subs(renamed, simultaneous=True)
    inverse = old.inv() if exact is None else exact.inv().to_Matrix()
    matrix = (new * inverse).applyfunc(tidy)
    if not (matrix * old - new).applyfunc(tidy).is_zero_matrix:
        raise NotSeparable("sum", "sympy cannot prove the rescale")
    return matrix


def _by_moves(e: Any, by: Mapping[Any, Any], old: set[Any]) -> Any:
    """An entry with sums of more than a difference over how far results move, where these alone
    settle them, or in fewer terms: of results far from zero, 1 + r_new - r_old loses the 1, their
    squares more, and where nothing moves what is left of a fourth power is not 0. So does an
    exponent of several results: a_old + b_old loses the digits of a small one."""
    factors: list[Any] = []
    for factor in sympy.Mul.make_args(e):
        base, exponent = factor.as_base_exp()
        plain = exponent if base == sympy.E else base
        if plain.is_Add and len(plain.args) > 2:
            moved = sympy.expand(plain.subs(by, simultaneous=True))
            fewer = len(sympy.Add.make_args(moved)) < len(sympy.Add.make_args(sympy.expand(plain)))
            if fewer or not moved.free_symbols & old:
                factor = base**moved if base == sympy.E else moved**exponent
        factors.append(factor)
    return sympy.Mul(*factors)


def tidy(e: Any) -> Any:
    """A rescale's entry in the form that it is computed in: exponentials joined, the rest factored,
    so that (mu_old - mu_new)**2 does not cancel as its expansion would."""
    e = sympy.powsimp(sympy.expand(e))
    held = {power: sympy.Dummy() for power in e.atoms(sympy.exp)}
    plain = e.xreplace(held)
    if plain.is_rational_function(*plain.free_symbols):
        return sympy.factor(sympy.cancel(plain)).xreplace({d: power for power, d in held.items()})
    return sympy.factor_terms(e)


def filled(expression: Any, values: Mapping[Any, Node], meaning: Meaning) -> Node:
    """The node of an expression with nodes for some of its symbols."""
    filler = Meaning(lambda _: "x", meaning.exponent)
    filler.nodes.update(meaning.nodes)
    filler.nodes.update(values)
    return filler.node(sympy.powsimp(expression))
