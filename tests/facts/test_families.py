"""Two-level costs of causal attention, convolutions and mixtures of experts: facts 37 to 39."""

from __future__ import annotations

import pytest
import sympy
from sympy import sqrt

import napkin as nk
from napkin.bound.optimum import Term
from napkin.bound.symbolic_cost import Cost
from napkin.count.traffic import Traffic
from napkin.diagram.library import load
from napkin.ir.symbols import MEMORY as M
from napkin.ir.symbols import group_symbol, size_symbol, stream_symbol

c, d, e, f, m, o, p, q, s, w = map(size_symbol, "cdefmopqsw")
g_e, g_f, g_o, g_p, g_q, g_s = map(group_symbol, "efopqs")
s_c = stream_symbol("c")
HALF, ONE, ZERO = sympy.Rational(1, 2), sympy.Integer(1), sympy.Integer(0)


def same(left: sympy.Expr, right: sympy.Expr) -> bool:
    return sympy.simplify(left - right) == 0


def test_fact_37_causal_attention() -> None:
    """Half of K and V, and one query's worth of keys more at the diagonal of each group."""
    found = load("causal_attention").stream("x").group("q").cost
    assert same(found.H.total, 3 * q * d + q**2 * d / g_q)
    for queries, group in ((4096, 64), (4096, 128), (65536, 128)):
        sizes = {"q": queries, "x": queries, "d": 64}
        exact = found.H.values(sizes, {"q": group, "x": 32})
        assert exact == found.H.total.subs({q: queries, d: 64, g_q: group})
    assert found.terms == (Term(3 * q * d, ZERO), Term(2 * q**2 * d**2, ONE))


def convolution(streamed: str) -> Cost:
    return load("conv1d").stream(streamed).group("p", "o").cost


def test_fact_38_convolution() -> None:
    """With the taps of a window held together, what windows share crosses once."""
    found = convolution("c")
    H = p * o * c * ((g_p + w - 1) / (g_p * g_o) + w / g_p) + p * o
    assert same(found.H.total, H)
    assert same(found.M, g_p * g_o + s_c * (g_p + w - 1 + w * g_o))
    optimum = found.optimum()
    assert optimum.exact
    assert same(optimum.tiles[g_p], sqrt(w * M))
    assert same(optimum.tiles[g_o], sqrt(M / w))
    leading = 2 * p * o * c * sqrt(w) / sqrt(M)
    assert same(optimum.bound, leading + p * o * c * (w - 1) / M + p * o)
    assert [t.beta for t in optimum.terms] == [ZERO, HALF, ONE]
    # It is a minimum of H: no step away from it within the same memory is better.
    numbers = {p: 2**20, o: 2**20, c: 512, w: 9, M: 2**14}
    at = {v: float(t.subs(numbers)) for v, t in optimum.tiles.items()}
    best = float(H.subs(numbers).subs(at))
    assert best == pytest.approx(float(optimum.bound.subs(numbers)))
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert float(H.subs(numbers).subs({g_p: at[g_p] * factor, g_o: at[g_o] / factor})) > best


def test_fact_38_one_tap_at_a_time_is_im2col() -> None:
    """Streamed with the channels, taps are reduced like them: a product with k c rows, which is
    what the kernel runs."""
    found = convolution("c w")
    assert same(found.H.total, p * o * c * w * (1 / g_o + 1 / g_p) + p * o)
    assert same(found.H.total, Traffic(found.kernel, tap_by_tap=True).total)
    assert found.terms == (Term(o * p, ZERO), Term(2 * c * o * p * w, HALF))
    held = convolution("c").terms
    assert same(found.terms[1].alpha / held[1].alpha, sqrt(w))
    # Whatever a kernel of the other labelling holds, its loads are tap by tap.
    assert same(Traffic(convolution("c").kernel, tap_by_tap=True).total, found.H.total)
    assert same(found.sharing.H.total, convolution("c").H.total)
    assert nk.derive(load("conv1d")).kernels[0].cost.sharing.terms == convolution("c").terms


def experts() -> Cost:
    @nk.diagram("e s m, e m f -> e s f")
    def expert_products(X, U):
        return nk.contract(X, U, over="m")

    return expert_products.stream("m").group("e", "s", "f").cost


def test_fact_39_mixture_of_experts() -> None:
    """An expert's T_e = k T / E tokens (here s, and e s = k T) fill a square tile, or do not."""
    found, memory = experts(), 128**2
    sizes = {"e": 8, "m": 4096, "f": 4096}
    full = found.optimum(sizes={**sizes, "s": 129}, memory=memory)
    few = found.optimum(sizes={**sizes, "s": 127}, memory=memory)
    tokens = e * s
    assert same(full.bound, 2 * tokens * m * f / sqrt(M) + tokens * f)
    assert (full.tiles[g_s], full.tiles[g_f]) == (sqrt(M), sqrt(M))
    assert same(few.bound, e * m * f + tokens**2 * m * f / (e * M) + tokens * f)
    assert few.clipped[g_s] == s
    # The two meet, with the same slope, where an expert has sqrt(M) tokens.
    gap = full.bound - few.bound
    assert same(gap.subs(s, sqrt(M)), ZERO)
    assert same(sympy.diff(gap, s).subs(s, sqrt(M)), ZERO)
    # Tokens that are gathered cost what they would side by side, and their places beside.
    gathered = load("mixture_of_experts")
    first = Cost(nk.derive(gathered).kernels[0].choice.kernel)
    assert same(first.H.total, found.H.total + e * s * f / g_f)
