"""Two-level costs of attention and its relatives: facts 7 to 10, 12, 13, 21, 22 and 36."""

from __future__ import annotations

import numpy as np
import pytest
import sympy
from fold_law import assert_law
from in_numpy import execute
from sympy import sqrt

import napkin as nk
from napkin.bound.optimum import Term
from napkin.bound.symbolic_cost import Cost
from napkin.count.memory import tile
from napkin.count.traffic import ITEM_BYTES
from napkin.diagram.library import load
from napkin.ir.symbols import MEMORY as M
from napkin.ir.symbols import group_symbol, size_symbol, stream_symbol
from napkin.moves.derivation import Derivation

b, d, h, k, q, r, x = map(size_symbol, "bdhkqrx")
g_h, g_k, g_q, g_r = map(group_symbol, "hkqr")
s_x = stream_symbol("x")
attention = load("attention")


def cost() -> Cost:
    return Cost(attention.stream("x").group("q").kernel)


def same(left: sympy.Expr, right: sympy.Expr) -> bool:
    return sympy.simplify(left - right) == 0


def test_fact_07_attention_group_and_stream() -> None:
    found = cost()
    assert same(found.H.total, 2 * q * d + 2 * x * d * q / g_q)
    assert same(found.M, 2 * g_q * d + 2 * s_x * d)
    by_hand = attention.stream("x").group("q")
    assert same(by_hand.H, found.H.total)
    assert same(by_hand.M, found.M)


def test_fact_08_attention_optimum() -> None:
    finite = cost().optimum(finite=True)
    assert same(finite.tiles[g_q], M / (2 * d) - s_x)
    assert same(finite.bound, 2 * q * d + 4 * x * q * d**2 / (M - 2 * s_x * d))
    found = cost()
    assert same(found.bound, 2 * q * d + 4 * x * q * d**2 / M)
    assert str(found.bound) == "2*d*q + 4*d**2*q*x/M"
    assert found.terms == (
        Term(2 * q * d, sympy.Integer(0)),
        Term(4 * x * q * d**2, sympy.Integer(1)),
    )


def test_fact_09_attention_with_room_for_every_query() -> None:
    sizes, chunk = {"q": 100, "x": 200, "d": 16}, 32
    enough = 2 * 16 * (100 + chunk)
    found = cost().optimum(finite=True, sizes=sizes, memory=enough, chunk=chunk)
    assert found.clipped == {g_q: q}
    assert same(found.bound, 2 * q * d + 2 * x * d)
    assert found.multiplier == 0
    short = cost().optimum(finite=True, sizes=sizes, memory=enough - 1, chunk=chunk)
    assert not short.clipped


def test_fact_10_counted_attention() -> None:
    sizes, tiles = {"q": 96, "x": 128, "d": 16}, {"q": 24, "x": 32}
    rng = np.random.default_rng(10)
    Q, K, V = (rng.normal(size=(n, 16)) for n in (96, 128, 128))
    run = execute(cost().kernel, {"Q": Q, "K": K, "V": V}, sizes, tiles)
    assert run.total == 19456
    assert run.peak == 1792
    weights = np.exp(Q @ K.T / 4)
    wanted = weights / weights.sum(axis=1, keepdims=True) @ V
    np.testing.assert_allclose(run.outputs["O"], wanted, rtol=1e-12, atol=1e-12)
    numbers = {q: 96, x: 128, d: 16, g_q: 24, s_x: 32}
    assert (cost().H.total.subs(numbers), cost().M.subs(numbers)) == (19456, 1792)


def test_fact_12_heads_and_shared_keys() -> None:
    heads = attention.weave("h").stream("x").group("q", "h")
    assert same(heads.H, 2 * q * h * d + 2 * x * q * h * d / g_q)
    assert same(heads.M, 2 * g_q * g_h * d + 2 * s_x * g_h * d)
    shared = attention.weave("h", into="Q").stream("x").group("q", "h")
    assert same(shared.H, 2 * q * h * d + 2 * x * q * h * d / (g_q * g_h))
    assert same(shared.M, 2 * g_q * g_h * d + 2 * s_x * d)
    for made in (heads, shared):
        assert same(made.bound, 2 * h * q * d + 4 * h * x * q * d**2 / M)
    tiles = shared.cost.optimum().tiles
    assert same(tiles[g_q] * tiles[g_h], M / (2 * d))
    # Key heads, each shared by r query heads: the bound of h = k r heads.
    grouped = attention.weave("r", into="Q").weave("k").stream("x").group("q", "r", "k")
    assert same(grouped.H, k * (2 * q * r * d + 2 * x * d * q * r / (g_q * g_r)))
    assert same(grouped.M, g_k * (2 * g_q * g_r * d + 2 * s_x * d))
    assert same(grouped.bound, heads.bound.subs(h, k * r))


def test_fact_13_decoding_reads_shared_keys_once() -> None:
    heads = attention.weave("h").stream("x").group("q", "h").cost
    grouped = attention.weave("r", into="Q").weave("k").stream("x").group("q", "r", "k").cost
    sizes = {"q": 1, "r": 8, "k": 4, "x": 4096, "d": 128}
    at = grouped.optimum(sizes=sizes, memory=10**5).tiles
    assert (at[g_q], at[g_r]) == (q, r)  # one group takes every query that shares its keys
    one = {q: 1, g_q: 1, g_r: r}
    for tensor in ("K", "V"):
        mha = heads.H.per_tensor[tensor].subs({**one, h: k * r})
        gqa = grouped.H.per_tensor[tensor].subs(one)
        assert same(mha / gqa, r)
    assert same(heads.H.total.subs(one), 2 * h * d + 2 * x * h * d)
    assert same(grouped.H.total.subs(one), 2 * k * r * d + 2 * x * k * d)


@pytest.mark.parametrize("name", ["spherical_attention", "l1_attention"])
def test_fact_21_normalised_contractions_cost_what_attention_does(name: str) -> None:
    made, wanted = load(name).stream("x").group("q"), attention.stream("x").group("q")
    assert same(made.H, wanted.H)
    assert same(made.M, wanted.M)
    assert same(made.bound, wanted.bound)

    def per_row(found: Derivation) -> list[sympy.Expr]:
        made = found.kernel
        held = [tile(made, s.axes) for s in made.stream.states]
        return [size for size in held if not size.has(d)]

    assert per_row(made) == [g_q]
    assert per_row(wanted) == [g_q, g_q]
    assert_law(made.kernel, trials=10)


def test_fact_22_transfers_per_operation() -> None:
    matmul = load("matmul").stream("b").group("a", "c").cost
    assert same(matmul.bound / matmul.flops, 1 / sqrt(M) + 1 / (2 * b))
    found = cost()
    assert same(found.flops, 4 * q * x * d)
    assert same(found.H.total / found.flops, 1 / (2 * x) + 1 / (2 * g_q))


def test_fact_36_fused_against_unfused() -> None:
    @nk.diagram("q d, x d, x d -> q d", sizes={"q": 8192, "x": 8192, "d": 128})
    def stored(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        P = nk.softmax(S, over="x")
        return nk.contract(P, V, over="x")

    machine = nk.machine("h100")
    plan = nk.derive(stored, on=machine, dtype="fp16", materialise=["S", "P"])
    assert len(plan.kernels) == 3  # one per operator
    # However large the memory of each kernel: one group takes every axis whole.
    whole = {group_symbol(axis): size_symbol(axis) for axis in stored.axes}
    unfused = sympy.expand(plan.H.subs(whole))
    assert same(unfused, 2 * q * d + 2 * x * d + 4 * q * x)

    fused = cost()
    room = machine.shared_per_block // ITEM_BYTES["fp16"]
    assert machine.shared_per_block == 227 * 1024
    numbers = {q: 8192, x: 8192, d: 128, M: room, s_x: 64}
    group = fused.optimum(finite=True).tiles[g_q].subs(numbers)
    assert group == 390
    ours = fused.H.total.subs({**numbers, g_q: group})
    theirs = unfused.subs(numbers)
    assert float(theirs) == pytest.approx(2.73e8, rel=2e-3)
    assert float(ours) == pytest.approx(4.61e7, rel=2e-3)
    assert float(theirs / ours) == pytest.approx(5.9, abs=0.05)
