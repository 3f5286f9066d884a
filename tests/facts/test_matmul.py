"""Two-level costs of a matrix product: facts 3, 4, 5, 6 and 11."""

from __future__ import annotations

import numpy as np
import sympy
from in_numpy import execute
from sympy import Rational, sqrt

from napkin.bound.optimum import Term
from napkin.bound.symbolic_cost import Cost
from napkin.diagram.library import load
from napkin.ir.symbols import MEMORY as M
from napkin.ir.symbols import group_symbol, size_symbol, stream_symbol

a, b, c = map(size_symbol, "abc")
g_a, g_c = map(group_symbol, "ac")
s_b = stream_symbol("b")
matmul = load("matmul")


def cost() -> Cost:
    return Cost(matmul.stream("b").group("a", "c").kernel)


def same(left: sympy.Expr, right: sympy.Expr) -> bool:
    return sympy.simplify(left - right) == 0


def test_fact_03_matmul_group_and_stream() -> None:
    found = cost()
    assert same(found.H.total, a * b * c * (1 / g_a + 1 / g_c) + a * c)
    assert same(found.M, g_a * g_c + g_a * s_b + s_b * g_c)
    assert same(found.H.per_group, b * g_c + b * g_a + g_a * g_c)
    by_hand = matmul.stream("b").group("a", "c")
    assert same(by_hand.H, found.H.total)
    assert same(by_hand.M, found.M)


def test_fact_04_matmul_optimum() -> None:
    found = cost().optimum()
    assert found.tiles == {g_a: sqrt(M), g_c: sqrt(M)}
    assert same(found.bound, 2 * a * b * c / sqrt(M) + a * c)
    terms = (Term(a * c, sympy.Integer(0)), Term(2 * a * b * c, Rational(1, 2)))
    assert found.terms == terms
    by_hand = matmul.stream("b").group("a", "c")
    assert (by_hand.bound, by_hand.terms) == (found.bound, terms)


def test_fact_05_matmul_with_finite_chunks() -> None:
    found = cost().optimum(finite=True)
    side = sqrt(M + s_b**2) - s_b
    assert same(found.tiles[g_a], side)
    assert same(found.tiles[g_c], side)
    assert same(found.bound, 2 * a * b * c / side + a * c)
    assert same(cost().M.subs(found.tiles), M)  # the tiles fill the memory
    assert same(sympy.limit(found.multiplier, s_b, 0), a * b * c * M ** Rational(-3, 2))


def test_fact_06_skinny_matmul_changes_the_exponent() -> None:
    sizes = {"a": 64, "b": 4096, "c": 4096}
    skinny = cost().optimum(sizes=sizes, memory=65**2)
    assert skinny.clipped == {g_a: a}
    assert skinny.tiles == {g_a: a, g_c: M / a}
    assert same(skinny.bound, a**2 * b * c / M + b * c + a * c)
    assert [t.beta for t in skinny.terms] == [0, 1]
    wide = cost().optimum(sizes=sizes, memory=63**2)
    assert wide.tiles == {g_a: sqrt(M), g_c: sqrt(M)}
    assert [t.beta for t in wide.terms] == [0, Rational(1, 2)]


def test_fact_11_counted_matmul() -> None:
    sizes, tiles = {"a": 64, "b": 48, "c": 80}, {"a": 16, "c": 20, "b": 8}
    rng = np.random.default_rng(11)
    A, B = rng.normal(size=(64, 48)), rng.normal(size=(48, 80))
    run = execute(cost().kernel, {"A": A, "B": B}, sizes, tiles)
    assert run.total == 32768
    assert run.peak == 608
    np.testing.assert_allclose(run.outputs["C"], A @ B)
    numbers = {size_symbol(axis): n for axis, n in sizes.items()}
    numbers |= {g_a: 16, g_c: 20, s_b: 8}
    assert (cost().H.total.subs(numbers), cost().M.subs(numbers)) == (32768, 608)
    # Ragged tiles: counted as predicted, and no group holds more than M.
    ragged = {"a": 15, "c": 17, "b": 7}
    run = execute(cost().kernel, {"A": A, "B": B}, sizes, ragged)
    assert run.total == cost().H.values(sizes, ragged)
    assert run.peak == 15 * 17 + 15 * 7 + 7 * 17
