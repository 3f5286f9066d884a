"""Key sets in symbols: how many keys a query sees, and how many a group reads, away from borders.

Bounds are clamped at the borders of an axis. Which branch of a clamp holds in the interior is found
by evaluating it far inside of a long axis; what is left is affine in the query, and sums over
groups of an affine number are polynomials. Floors of a stride are exact where the stride divides
the group size or the group size the stride. Borders are for `napkin.count.visited`, which counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import Any

import sympy

from napkin.derive.kernel import Kernel
from napkin.ir.evaluate import evaluate
from napkin.ir.key_sets import Box, Interval, query_axes
from napkin.ir.node import Node, postorder
from napkin.ir.operators import POINTWISE
from napkin.ir.operators.integer import truncates
from napkin.ir.operators.meant import meant
from napkin.ir.symbols import group_symbol, size_symbol
from napkin.keys.visits import Visits

_INSIDE = 2**20
"""The query at which branches are chosen, in the interior of axes of three times the size: in the
middle a query is its own mirror image."""


class NoInterior(Exception):
    """The bounds have no form in symbols: they depend on the values of inputs, say."""


@cache
def visited_symbol(axes: tuple[str, ...]) -> Any:
    """Keys that a group visits on average, where they have no other form."""
    return sympy.Symbol(f"visited_{'_'.join(axes)}", positive=True)


@cache
def seen_symbol(axes: tuple[str, ...]) -> Any:
    """Keys that a query sees on average, where they have no other form."""
    return sympy.Symbol(f"seen_{'_'.join(axes)}", positive=True)


def read_sum(kernel: Kernel, seen: Visits) -> Any:
    """Keys read, summed over the groups of the query axes (for one group of every other axis)."""
    groups = [a for a in kernel.group if a in query_axes(seen.keys)]
    try:
        return _summed(seen.boxes, tuple(groups), _residues(seen), _reach)
    except NoInterior:
        count = sympy.prod([size_symbol(a) / group_symbol(a) for a in groups])
        return count * visited_symbol(seen.axes)


def seen_sum(seen: Visits, queries: tuple[str, ...]) -> Any:
    """Pairs of a query and a key that it sees; `queries` are the axes of the queries."""
    try:
        return _summed(seen.boxes, queries, _residues(seen), _count)
    except NoInterior:
        return sympy.prod([size_symbol(a) for a in queries]) * seen_symbol(seen.axes)


Residues = Mapping[str, int]
"""Axes of residues, with the step from one place to the next."""

_Length = Callable[[Interval, Mapping[str, Any], Residues], Any]


def _residues(seen: Visits) -> tuple[tuple[str, int], ...]:
    return tuple((s.residue, s.step) for s in seen.splits)


@lru_cache(maxsize=256)
def _summed(
    boxes: tuple[Box, ...],
    axes: tuple[str, ...],
    residues: tuple[tuple[str, int], ...],
    length: _Length,
) -> Any:
    """The sum over the tiles of `axes` of what is seen of all boxes: of every tensor that a key set
    governs the same."""
    found = sympy.Add(*(_box(b, axes, dict(residues), length) for b in boxes))
    return sympy.expand(found)


def _box(box: Box, axes: Sequence[str], residues: Residues, length: _Length) -> Any:
    """The sum over the tiles of `axes` of the product of a box's lengths."""
    iterations = {a: sympy.Symbol(f"i_{a}", integer=True, nonnegative=True) for a in axes}
    whole = length is _count
    body = sympy.expand(sympy.prod([length(i, iterations, residues) for i in box.intervals]))
    for a in axes:
        count = size_symbol(a) if whole else size_symbol(a) / group_symbol(a)
        body = _sum(body, iterations[a], count)
    return body


def _sum(body: Any, iteration: Any, count: Any) -> Any:
    """The sum of a polynomial for iteration = 0, ..., count - 1 (Faulhaber's formula)."""
    if iteration not in body.free_symbols:
        return sympy.expand(body * count)
    if body.has(sympy.Max, sympy.floor):
        raise NoInterior
    try:
        poly = sympy.Poly(body, iteration)
    except sympy.PolynomialError:
        raise NoInterior from None
    powers = [count, count * (count - 1) / 2, count * (count - 1) * (2 * count - 1) / 6]
    if poly.degree() >= len(powers):
        raise NoInterior
    return sympy.expand(sum(c * powers[m[0]] for m, c in poly.terms()))


def _reach(i: Interval, iterations: Mapping[str, Any], residues: Residues) -> Any:
    """Keys from the first that the group's first query sees to the last that its last one does."""
    if _is_empty(i, residues):
        return sympy.Integer(0)
    first = {a: (t * group_symbol(a), 0) for a, t in iterations.items()}
    last = {a: (t * group_symbol(a), group_symbol(a) - 1) for a, t in iterations.items()}
    return sympy.expand(_meaning(i.end, last, residues) - _meaning(i.first, first, residues))


def _count(i: Interval, iterations: Mapping[str, Any], residues: Residues) -> Any:
    """Keys that one query sees."""
    if _is_empty(i, residues):
        return sympy.Integer(0)
    at = {a: (t, 0) for a, t in iterations.items()}
    span = sympy.expand(_meaning(i.end, at, residues) - _meaning(i.first, at, residues))
    if i.step == 1:
        return span
    # The end is one past the last key, or wherever an axis ends: on average the same.
    exact = sympy.expand((span + i.step - 1) / i.step)
    return (
        exact if not exact.free_symbols & set(iterations.values()) else sympy.expand(span / i.step)
    )


def _is_empty(i: Interval, residues: Residues) -> bool:
    """Whether queries far inside see none of these keys: of the first ones of an axis, say,
    where they see what is near them."""
    return _probe(i.end, residues) <= _probe(i.first, residues)


def _meaning(n: Node, at: Mapping[str, tuple[Any, Any]], residues: Residues) -> Any:
    """A bound for the query at `start + behind` along each axis, in the interior; of the first
    residue, which stands for all."""
    return _Bound({**at, **{a: (sympy.Integer(0), 0) for a in residues}}, residues).of(n)


class _Bound:
    """Terms in symbols, at places `start + behind` along axes.

    Attributes:
        done: what each term is.
        floors: symbols for floors, with what each is the floor of.
    """

    def __init__(self, at: Mapping[str, tuple[Any, Any]], residues: Residues) -> None:
        self.at, self.residues = at, residues
        self.done: dict[Node, Any] = {}
        self.floors: dict[Any, tuple[Any, int]] = {}

    def of(self, n: Node) -> Any:
        """A term without symbols for floors."""
        for m in postorder([n]):
            self.done[m] = self._one(m)
        out = sympy.expand(self.done[n])
        while left := [f for f in self.floors if out.has(f)]:
            # Outer floors first: they may hold inner ones.
            f = max(left, key=lambda s: len(str(s)))
            out = sympy.expand(out.subs(f, _floor(*self.floors[f], self.at)))
        return out

    def _one(self, n: Node) -> Any:
        if n.op == "number" and float(str(n.params[0])).is_integer():
            return sympy.Integer(int(float(str(n.params[0]))))
        if n.op == "size":
            return size_symbol(str(n.params[0]))
        if n.op == "index" and n.axes[0] in self.at:
            return sum(self.at[n.axes[0]])
        if n.op == "where":
            return self.done[n.args[1 if _probe(n.args[0], self.residues) else 2]]
        if n.kind == "bool":
            return None  # a test, which `where` alone reads
        args, record = [self.done[a] for a in n.args], POINTWISE.get(n.op)
        truncated = n.op == "cast" and truncates(n)
        if record is None or record.meaning is None or truncated or None in args:
            raise NoInterior
        value, symbols = meant(record)
        given = dict(zip(symbols, args, strict=True))
        whole = {f: self._quotient(f, given) for f in value.atoms(sympy.floor)}
        return _branch(value, n, symbols, self.residues).xreplace(whole | given)

    def _quotient(self, f: Any, given: Mapping[Any, Any]) -> Any:
        """A symbol for a floor in an operator's meaning."""
        above, below = (e.xreplace(given) for e in f.args[0].as_numer_denom())
        if not (below.is_Integer and below.is_positive):
            raise NoInterior
        step, body = int(below), sympy.expand(above)
        if self.residues and any(abs(body.coeff(s)) > 1 for s, _ in self.at.values() if s != 0):
            raise NoInterior  # blocks of positions, of which a residue has now more, now fewer
        made = sympy.Symbol(f"floor({body})/{step}", integer=True)
        self.floors[made] = body, step
        return made


def _branch(value: Any, n: Node, symbols: Sequence[Any], residues: Residues) -> Any:
    """An operator's meaning, with the argument that holds inside for each extremum in it."""
    if not value.has(sympy.Max, sympy.Min):
        return value
    probed = {s: _probe(a, residues) for s, a in zip(symbols, n.args, strict=True)}

    def taken(*choices: Any, most: Any) -> Any:
        ordered = sorted(choices, key=sympy.default_sort_key)
        return most(ordered, key=lambda e: float(e.xreplace(probed)))

    value = value.replace(sympy.Max, partial(taken, most=max))
    return value.replace(sympy.Min, partial(taken, most=min))


def _floor(body: Any, step: int, at: Mapping[str, tuple[Any, Any]]) -> Any:
    """floor(body / step), where the step divides the group size or the group size the step."""
    behind = sympy.Add(*(b for _, b in at.values() if b != 0 and body.has(*b.free_symbols)))
    start = sympy.expand(body - behind)
    constant, rest = start.as_coeff_Add()
    whole = rest / step + sympy.floor(constant / sympy.Integer(step))
    if behind == 0:
        return whole
    # From the first query of a group to its last: g / step - 1 steps, or none.
    return whole + sympy.Max(0, (behind + 1) / sympy.Integer(step) - 1)


def _probe(n: Node, residues: Residues) -> float:
    """The value of a bound far inside of a long axis: of the first residue, where axes are
    split."""
    if any(m.op not in {"index", "size", "number", *POINTWISE} for m in postorder([n])):
        raise NoInterior
    axes = {str(m.params[0]) for m in postorder([n]) if m.op in {"index", "size"}}
    sizes = dict.fromkeys(axes, 3 * _INSIDE * math.prod(residues.values()))
    box = {a: range(_INSIDE, _INSIDE + 1) for a in axes - residues.keys()}
    box |= dict.fromkeys(residues, range(1))
    return float(evaluate([n], {}, sizes, box=box)[0].reshape(-1)[0])
