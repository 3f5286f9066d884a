"""The least transfer that a memory allows: the optimum of a two-level cost, in symbols.

Given the transfers H of an algorithm, a posynomial in 1/g_a, and its memory use M, a posynomial in
g_a and s_a, minimise H subject to M <= budget and 1 <= g_a <= a, and write the least H in the
canonical form sum_t alpha_t M^-beta_t of arXiv 2412.03317. H, M and the budget are in values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import sympy

from napkin.bound.asymptotic import solve_leading
from napkin.bound.posynomial import Coefficient, Posynomial, Solution, solve_exactly
from napkin.bound.regime import Numbers
from napkin.errors import InputError
from napkin.ir.symbols import MEMORY

Number: TypeAlias = int | float

_TOUCH = 1e-10
"""Relative distance within which the memory is full."""

_LARGE = 2.0**100
"""A memory that dwarfs the constants of the canonical regime."""


@dataclass(frozen=True)
class Term:
    """`alpha * M**(-beta)`: beta is the sensitivity of this part of the transfers to the memory."""

    alpha: sympy.Expr
    beta: sympy.Rational


@dataclass(frozen=True)
class Optimum:
    """The least transfers and the tiles that reach them.

    Attributes:
        tiles: each group size, in values along its axis, in the sizes, M, and s_a if `finite`.
        bound: H at the optimum, in values.
        terms: the bound as sum alpha M^-beta, beta rising. They are those of s -> 0, and where a
            part of the bound is no power of M (mixed memory use) it stands at its leading order.
        multiplier: lambda = -dH*/dM, the transfers that one more value of memory saves.
        clipped: the variables held at 1 or at the full size of their axis in this regime.
        arbitrary: variables at 1 only by choice, as the cost sees just their product with others.
        exact: whether this solves the program, or only its leading order for large M.
        summed: whether several things must fit that bind together, for which their sum stands in:
            the bound is then not the least.
    """

    tiles: dict[sympy.Symbol, sympy.Expr]
    bound: sympy.Expr
    terms: tuple[Term, ...]
    multiplier: sympy.Expr
    clipped: dict[sympy.Symbol, sympy.Expr]
    arbitrary: tuple[sympy.Symbol, ...] = ()
    exact: bool = True
    summed: bool = False


def optimum(
    H: sympy.Expr,
    M: sympy.Expr,
    groups: Mapping[sympy.Symbol, sympy.Expr],
    *,
    streams: Mapping[sympy.Symbol, sympy.Expr] | None = None,
    finite: bool = False,
    sizes: Mapping[sympy.Symbol, Number] | None = None,
    memory: Number | None = None,
) -> Optimum:
    """Minimise `H` subject to `M` <= MEMORY, a symbol, over 1 <= g_a <= a.

    The regime, that is, which variables sit at a clip, is the one at the numbers `sizes` and
    `memory`; without them it is the canonical one, in which axes are longer than any tile and the
    memory is larger than any constant. The formulas of the regime stay symbolic.

    Exact wherever `solve_exactly` reaches; otherwise the leading order for large M, as
    `solve_leading` says, and `Optimum.exact` is false.

    Args:
        H: the transfers in values; every power of a g_a is at most 0.
        M: the memory use in values; every power of a g_a is at least 0.
        groups: the size of the axis that each group size cuts.
        streams: the size of the axis that each stream size cuts. A stream size is dropped, s -> 0,
            as the paper does, unless H falls as it grows: then it is one more variable.
        finite: keep the stream sizes as symbols instead.
        sizes: numbers for every symbol in H and M (stream sizes only if `finite`).
        memory: the number for MEMORY.

    Raises:
        InputError: H or M is no such posynomial, a number is missing, or even the smallest tiles
            do not fit.
    """
    program = _Program.read(H, M, groups, streams or {}, finite)
    if (sizes is None) != (memory is None):
        raise InputError("the regime at given numbers needs both `sizes` and `memory`")
    canonical = sizes is None
    numbers = program.canonical_numbers() if sizes is None else sizes
    program, numeric = program.at(numbers, canonical)
    large = _LARGE if memory is None else float(memory)
    clips, solvable = Numbers(numeric.cost, numeric.use, numeric.uppers, large).regime()

    # What memory leaves beside the constant part of M: an atom while solving, so that formulas stay
    # short.
    room = sympy.Dummy("room", positive=True)
    clipped: dict[sympy.Symbol, Coefficient] = {
        v: sympy.Integer(1) if clip == "lower" else program.uppers[v]
        for v, clip in clips.items()
        if clip != "interior"
    }
    cost, use = program.cost.fixed(clipped), program.use.fixed(clipped)
    full = memory is not None and sum(numeric.use.terms.values()) >= memory * (1 - _TOUCH)
    found, exact, more = _between(cost, use, room, solvable, full)
    clipped |= more
    bound: Coefficient = sympy.expand(found.cost)
    slope: Coefficient = -sympy.diff(bound, room)
    values = {**found.tiles, **clipped}
    whole = {room: MEMORY - use.constant}
    return Optimum(
        tiles={v: sympy.expand(values[v].xreplace(whole)) for v in program.order},
        bound=bound.xreplace(whole),
        terms=_canonical_form(bound, cost, use, streams or {}, room),
        multiplier=slope.xreplace(whole),
        clipped={v: clipped[v] for v in program.order if v in clipped},
        arbitrary=found.arbitrary,
        exact=exact,
    )


def _between(
    cost: Posynomial, use: Posynomial, room: sympy.Symbol, solvable: bool, full: bool
) -> tuple[Solution, bool, dict[sympy.Symbol, Coefficient]]:
    """The solution between clips, whether it is exact, and the tiles that are at a clip in it.

    Args:
        full: whether tiles of size 1 fill the memory.
    """
    one = sympy.Integer(1)
    found = solve_exactly(cost, use.varying(), room) if solvable else None
    if found is None:
        found = solve_leading(cost, use, room)
        ones = [v for v, g in found.tiles.items() if g == 1 and v not in found.arbitrary]
        return found, False, dict.fromkeys(ones, one)
    if full and sympy.nan in found.tiles.values():
        # A tile may be 0/0 in symbols; where the memory just holds tiles of size 1 it is 1.
        found = replace(found, tiles=dict.fromkeys(found.tiles, one))
        return found, True, found.tiles
    return found, True, {}


@dataclass(frozen=True)
class _Program:
    """Minimise `cost` subject to `use`, over 1 <= v <= `uppers[v]`."""

    cost: Posynomial
    use: Posynomial
    uppers: Mapping[sympy.Symbol, Coefficient]

    @property
    def order(self) -> tuple[sympy.Symbol, ...]:
        return self.cost.variables

    @classmethod
    def read(
        cls,
        H: sympy.Expr,
        M: sympy.Expr,
        groups: Mapping[sympy.Symbol, sympy.Expr],
        streams: Mapping[sympy.Symbol, sympy.Expr],
        finite: bool,
    ) -> _Program:
        uppers = dict(groups)
        transfers: Coefficient = sympy.expand(sympy.sympify(H, strict=True))
        memory: Coefficient = sympy.expand(sympy.sympify(M, strict=True))
        if not finite:
            seen = [s for s in streams if s in transfers.free_symbols]
            shares = Posynomial.of(transfers, [*groups, *seen], "H") if seen else None
            steered = [s for s in seen if shares and any(e < 0 for e in shares.exponents_of(s))]
            uppers.update({s: streams[s] for s in steered})
            dropped = {s: sympy.Integer(0) for s in streams if s not in steered}
            transfers, memory = transfers.subs(dropped), memory.subs(dropped)
        cost, use = Posynomial.of(transfers, uppers, "H"), Posynomial.of(memory, uppers, "M")
        for v in uppers:
            if any(e > 0 for e in cost.exponents_of(v)):
                raise InputError(f"H grows with {v}: transfers can only fall as a tile grows")
            if any(e < 0 for e in use.exponents_of(v)):
                raise InputError(f"M falls as {v} grows: memory use can only grow with a tile")
        return cls(cost, use, uppers)

    def canonical_numbers(self) -> dict[sympy.Symbol, Number]:
        """Moderate and distinct numbers: in the canonical regime only exponents should matter."""
        return {s: 64 + 3 * i for i, s in enumerate(sorted(self._symbols(), key=str))}

    def _symbols(self) -> set[sympy.Symbol]:
        sums = [*self.cost.terms.values(), *self.use.terms.values(), *self.uppers.values()]
        return {s for c in sums for s in sympy.sympify(c, strict=True).free_symbols}

    def at(
        self, numbers: Mapping[sympy.Symbol, Number], canonical: bool
    ) -> tuple[_Program, _Program]:
        """This program without the terms that vanish at `numbers`, and the same in floats."""
        missing = self._symbols() - set(numbers)
        if missing:
            raise InputError(f"no number for {', '.join(sorted(map(str, missing)))} in `sizes`")
        exact = {s: sympy.sympify(n, strict=True) for s, n in numbers.items()}

        def evaluate(expr: Coefficient) -> float:
            return float(sympy.sympify(expr, strict=True).xreplace(exact))

        pairs: list[tuple[Posynomial, Posynomial]] = []
        for name, sum_ in (("H", self.cost), ("M", self.use)):
            values = {e: evaluate(c) for e, c in sum_.terms.items()}
            for e, value in values.items():
                if value < 0 and any(e):
                    raise InputError(
                        f"{name} has the negative coefficient {sum_.terms[e]} = {value:g}: "
                        "every term that holds a tile size must be positive"
                    )
            kept = {e: c for e, c in sum_.terms.items() if values[e]}
            floats = {e: values[e] for e in kept}
            pairs.append((Posynomial(self.order, kept), Posynomial(self.order, floats)))
        (cost, cost_at), (use, use_at) = pairs
        tops = {
            v: math.inf if canonical and any(use.exponents_of(v)) else evaluate(u)
            for v, u in self.uppers.items()
        }
        return _Program(cost, use, self.uppers), _Program(cost_at, use_at, tops)


def _canonical_form(
    bound: Coefficient,
    cost: Posynomial,
    use: Posynomial,
    streams: Mapping[sympy.Symbol, sympy.Expr],
    room: sympy.Symbol,
) -> tuple[Term, ...]:
    """The terms of `bound` for s -> 0, each part of it to its leading order in `room`."""
    if any(not c.free_symbols.isdisjoint(streams) for c in use.varying().terms.values()):
        still = use.without(streams)
        if all(any(still.exponents_of(v)) for v in still.variables):
            found = solve_exactly(cost, still.varying(), room) or solve_leading(cost, still, room)
            bound = sympy.expand(found.cost)
    alphas: dict[Coefficient, Coefficient] = {}
    for part in sympy.Add.make_args(bound):
        alpha, order = _leading(part, room)
        alphas[-order] = alphas.get(-order, sympy.Integer(0)) + alpha
    found = ((sympy.factor_terms(alpha), beta) for beta, alpha in alphas.items())
    return tuple(Term(alpha, beta) for alpha, beta in sorted(found, key=lambda t: t[1]) if alpha)


def _leading(expr: Coefficient, room: sympy.Symbol) -> tuple[Coefficient, Coefficient]:
    """Coefficient and exponent of the largest power of `room` in sums, products and powers."""
    if room not in expr.free_symbols:
        return expr, sympy.Integer(0)
    if expr == room:
        return sympy.Integer(1), sympy.Integer(1)
    if expr.is_Pow:
        alpha, order = _leading(expr.base, room)
        return alpha**expr.exp, order * expr.exp
    parts = [_leading(part, room) for part in expr.args]
    if expr.is_Mul:
        return sympy.Mul(*(alpha for alpha, _ in parts)), sympy.Add(*(order for _, order in parts))
    top = max(order for _, order in parts)
    return sympy.Add(*(alpha for alpha, order in parts if order == top)), top
