"""Rescales of bodies that are polynomials of a high degree are found in moments."""

import time

import sympy

from napkin.algebra.meaning import Meaning
from napkin.algebra.rescale import rescaled
from napkin.rewrite.together import write_exponent


def test_a_fourth_power_of_two_results_and_a_decimal_is_repaired_in_moments() -> None:
    x, r1, r2 = (sympy.Symbol(name, real=True) for name in ("x0", "r1", "r2"))
    begun = time.process_time()
    found = rescaled(((x - r1 - r2) ** 2 + 0.1) ** 2, Meaning(lambda _: "x", write_exponent))
    assert time.process_time() - begun < 15
    old, new = {r1: 0.5, r2: -2.0}, {r1: 3.0, r2: 0.25}
    later = dict(zip(found.old, found.new, strict=True))
    moves = {d: old[r] - new[r] for r, d in zip(found.old, found.moved, strict=True)}
    matrix = found.matrix.subs({**old, **moves, **{later[r]: value for r, value in new.items()}})
    moved = matrix * sympy.Matrix([f.subs(old) for f in found.basis])
    for row, f in zip(moved, found.basis, strict=True):
        off = sympy.Poly(sympy.expand(row - f.subs(new)), x)
        assert max(abs(c) for c in off.all_coeffs()) < 1e-9
