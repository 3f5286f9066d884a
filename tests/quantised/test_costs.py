"""H, M and the optimum in bytes: one number of bytes everywhere, and one for each array."""

from __future__ import annotations

import json

import pytest
import sympy
from typer.testing import CliRunner

import napkin as nk
from napkin.bound.optimum import Term
from napkin.bound.symbolic_cost import Cost
from napkin.cli import app
from napkin.diagram.library import load
from napkin.ir.symbols import MEMORY as M
from napkin.ir.symbols import group_symbol, size_symbol, stream_symbol

a, b, c, d, q, x = map(size_symbol, "abcdqx")
g_q, s_x = group_symbol("q"), stream_symbol("x")
ALIKE = {"fp32": 4, "bf16": 2, "fp8": 1}


def attention() -> Cost:
    return Cost(load("attention").stream("x").group("q").kernel)


def stored(cost: Cost, dtype: str, **own: str) -> Cost:
    kernel = cost.kernel
    names = [*(r.tensor for r in kernel.reads), *(o.name for o in kernel.outputs)]
    return cost.in_bytes({**dict.fromkeys(names, dtype), **own}, dtype)


@pytest.mark.parametrize(
    "cost",
    [
        attention(),
        Cost(load("matmul").stream("b").group("a", "c").kernel),
        Cost(load("softmax").group("n").kernel),
    ],
    ids=lambda cost: cost.kernel.name,
)
@pytest.mark.parametrize("dtype", ALIKE)
def test_a_term_in_bytes_is_q_to_the_1_plus_beta(cost: Cost, dtype: str) -> None:
    """H*(M bytes) = q H*(M / q values): alpha q**(1 + beta) M**-beta, term by term."""
    size = ALIKE[dtype]
    wanted = {t.beta: t.alpha * size ** (1 + t.beta) for t in cost.terms}
    found = {t.beta: t.alpha for t in stored(cost, dtype).terms}
    assert found.keys() == wanted.keys()
    assert all(sympy.simplify(found[beta] - wanted[beta]) == 0 for beta in wanted)


def test_halving_q_saves_4_and_2_of_attention_and_2_83_of_matmul() -> None:
    def ratios(cost: Cost) -> dict[object, object]:
        narrow = {t.beta: t.alpha for t in stored(cost, "fp8").terms}
        return {
            t.beta: sympy.simplify(t.alpha / narrow[t.beta]) for t in stored(cost, "bf16").terms
        }

    assert ratios(attention()) == {0: 2, 1: 4}
    matmul = ratios(Cost(load("matmul").stream("b").group("a", "c").kernel))
    assert matmul == {0: 2, sympy.Rational(1, 2): 2 * sympy.sqrt(2)}


def test_keys_and_values_in_fp8_are_other_coefficients() -> None:
    """M = 4 g_q d bytes for Q and O, so g_q = M / 4d, and K and V cost 2 x d q / g_q."""
    mixed = stored(attention(), "bf16", K="fp8", V="fp8")
    assert sympy.expand(mixed.H.total - (4 * q * d + 2 * x * d * q / g_q)) == 0
    assert sympy.expand(mixed.M - (4 * g_q * d + 2 * s_x * d)) == 0
    found = mixed.optimum()
    assert found.tiles[g_q] == M / (4 * d)
    assert sympy.expand(found.bound - (4 * q * d + 8 * x * q * d**2 / M)) == 0
    same = stored(attention(), "bf16")
    assert sympy.expand(same.bound - (4 * q * d + 16 * x * q * d**2 / M)) == 0


def test_packed_weights_count_half_a_byte() -> None:
    plan = nk.derive(load("matmul_w4a16"), sizes={"a": 64, "g": 4, "b": 32, "c": 64})
    kernel = plan.kernels[0]
    sizes = kernel.choice.sizes
    groups = -(-sizes["a"] // kernel.tiles["a"])
    assert kernel.bytes["W", "read"] == groups * 64 * 4 * 32 // 2
    total = kernel.byte_cost.H.total
    numbers = {size_symbol(axis): n for axis, n in sizes.items()}
    numbers |= {group_symbol(axis): kernel.tiles[axis] for axis in kernel.choice.kernel.group}
    assert total.subs(numbers) == sum(kernel.bytes.values())


def test_a_product_of_bytes_is_the_bound_of_its_own_coefficients() -> None:
    """x w y: two inputs of q_x and q_w bytes and an output of q_y meet at g_a / g_b = q_w / q_x."""
    cost = Cost(load("matmul").stream("b").group("a", "c").kernel)
    found = stored(cost, "bf16", A="fp8").optimum()
    g_a, g_c = group_symbol("a"), group_symbol("c")
    assert sympy.simplify(found.tiles[g_c] / found.tiles[g_a]) == sympy.Rational(1, 2)
    leading = 2 * a * b * c * sympy.sqrt(2 * 1 * 2) / sympy.sqrt(M)
    assert {sympy.Rational(1, 2): sympy.simplify(leading * sympy.sqrt(M))} == {
        t.beta: sympy.simplify(t.alpha) for t in found.terms if t.beta
    }


def test_the_command_shows_bytes_where_arrays_differ() -> None:
    sizes = "--sizes=q=1024,x=1024,d=64"  # x is streamed
    mixed = CliRunner().invoke(app, ["cost", "attention", sizes, "--storage", "K=fp8,V=fp8"])
    assert mixed.exit_code == 0
    assert "in bytes, with Q bf16, K fp8, V fp8, O bf16" in " ".join(mixed.output.split())
    plain = CliRunner().invoke(app, ["cost", "attention", sizes])
    assert "in bytes, with" not in plain.output
    told = ["cost", "attention", sizes, "--storage", "K=fp8,V=fp8", "--json"]
    data = json.loads(CliRunner().invoke(app, told).output)["kernels"][0]["in_bytes"]
    assert data["optimum"]["bound"] == "4*d*q + 8*d**2*q*x/M"
    assert data["at_sizes"]["H"] >= data["at_sizes"]["H_least"]


def test_the_terms_of_a_plan_stay_in_values() -> None:
    plan = nk.derive(
        load("attention").stored(K="fp8", V="fp8"), sizes={"q": 1024, "x": 1024, "d": 64}
    )
    assert str(plan.bound) == "2*d*q + 4*d**2*q*x/M"
    assert Term(2 * q * d, sympy.Integer(0)) in plan.terms
