"""Exponentials in the body of a sum that results so far bound, or that a maximum of their own does.

What leaves the range of floats so far never comes back, whatever scales it later.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from napkin.algebra.meaning import Meaning
from napkin.algebra.separate import additive, separate
from napkin.algebra.sides import NotSeparable, by_side
from napkin.algebra.terms import EXTREMA, JOINS, carrying, worst
from napkin.derive.folding import Folding
from napkin.ir.infer import along, pointwise
from napkin.ir.node import FLOOR, REDUCTIONS, Node, number, over


@dataclass(frozen=True)
class Body:
    """What a reduction `f` in pass `p` of a folding is of: an expression over the symbols of a
    meaning, and what bounds its exponentials."""

    folding: Folding
    f: Node
    p: int
    meaning: Meaning
    body: Any

    def shifted(self, term: Any, results: set[Any]) -> tuple[Any, Node | None]:
        """A term of a body as a body whose exponentials are at most 1 so far, and a factor of
        results: c exp(a + b) = c exp(a - max a) exp(max a + b). None where they are so already.

        Raises:
            NotSeparable: it has an exponential that is no factor of it.
        """

        def mixed(e: Any) -> bool:
            return all(by_side(e)) and bool(results & e.free_symbols)

        factors: tuple[Any, ...] = sympy.Mul.make_args(term)
        powers: list[Any] = [f for f in factors if isinstance(f, sympy.exp) and mixed(f)]
        rest: Any = sympy.Mul(*(f for f in factors if f not in powers))
        if any(map(mixed, rest.atoms(sympy.exp))):
            raise NotSeparable("sum", "an exponential that is no factor of it has no bound so far")
        if all(self._bounded(term, p.args[0]) for p in powers):
            return term, None
        a, b = additive(separate(sympy.Add(*(p.args[0] for p in powers))), by_side, "exp")
        plain, kept = self._exponents(term, a, "max")
        top = self._largest(kept)
        factor = self._factor(top, b, seen=plain is kept)
        return rest * sympy.exp(a - self.meaning.symbol(top)), factor

    def _factor(self, top: Node, b: Any, seen: bool) -> Node:
        """exp(top + b); of exponents that are all -inf 0, or what exp(b - inf) is, unless a choice
        left some out, and maybe all."""

        def factor(most: Node) -> Node:
            return self.meaning.node(sympy.exp(self.meaning.symbol(most) + b))

        some = pointwise("greater", (top, number(FLOOR)))
        if seen:
            return factor(pointwise("where", (some, top, number(-math.inf))))
        return pointwise("where", (some, factor(top), number(0.0)))

    def _largest(self, exponents: Node) -> Node:
        """The largest exponent of a body, folded in its pass."""
        top = along("max", carrying(exponents, over(self.f)), over(self.f), (FLOOR,))
        name = self.folding.names.get(self.f, self.f.op)
        self.folding.names.setdefault(top, f"{name}_top")
        return self.folding.found_for(top, self.f, self.p)

    def _bounded(self, term: Any, exponent: Any) -> bool:
        """Whether an exponent is a sum of multiples of a - max a and min a - a so far, where a term
        is not 0."""
        a, b = additive(separate(exponent), by_side, "exp")
        if not all(self.folding.streamed(self.meaning.stands_for(s).axes) for s in a.free_symbols):
            raise NotSeparable("sum", "a result so far is no bound of other positions")
        nodes = self.meaning.nodes
        parts: tuple[Any, ...] = sympy.Add.make_args(b)
        for part in parts:
            c, result = part.as_coeff_Mul()
            op, n = "max" if c.is_negative else "min", nodes.get(result)
            known = {nodes[s]: s for s in a.free_symbols if s in nodes}
            known |= dict.fromkeys(self._exponents(term, a / -c, op), a / -c)
            a += c * (self._bound_of(op, n, known) or 0) if n is not None else 0
        return a == 0

    def _bound_of(self, op: str, n: Node, bodies: Mapping[Node, Any]) -> Any:
        """The expression that a result so far is the extremum of, one of `bodies`, or joins with
        others that move one way alone: another may leave it far behind for a while, and what has
        vanished beside that never comes back. None where there is none."""
        if n.op == op:
            return bodies.get(n.args[0])
        if n.op != REDUCTIONS[op].combine or not all(map(self._grows, n.args)):
            return None
        return next((e for m in n.args if (e := self._bound_of(op, m, bodies)) is not None), None)

    def _exponents(self, term: Any, a: Any, op: str) -> tuple[Node, Node]:
        """The exponents of a term as a node, at all positions and where the term is not 0."""
        plain = self.meaning.node(a)
        return plain, self.meaning.where_kept(term, plain, worst(op))

    def _grows(self, n: Node) -> bool:
        """Whether a term so far moves one way alone: an extremum over the chunks, or of such."""
        if n.op in JOINS:
            return all(map(self._grows, n.args))
        used = self.folding.uses(n)
        return not used or (n.op in EXTREMA and used <= {n})
