"""What an exponential reads is as exact from memory as it is where it was computed."""

from __future__ import annotations

import numpy as np
import pytest

import napkin as nk
from napkin.check.verdict import TOLERANCE
from napkin.diagram.library import load
from napkin.ir.evaluate import close_to
from napkin.run.arrays import to_device
from napkin.run.interpreted import run_recipe, stored

SIZES = {"q": 48, "x": 96, "d": 64}


def steep(plain: bool) -> nk.Diagram:
    """Attention with scores as large as 80, or a sum of their rectified ones."""

    @nk.diagram("q d, x d, x d -> q d", sizes=SIZES)
    def made(Q, K, V):
        S = nk.contract(Q, K, over="d") * 2.0
        if plain:
            return nk.contract(nk.maximum(S, 0.0), V, over="x")
        return nk.contract(nk.softmax(S, over="x"), V, over="x")

    return made


def types(plan: nk.Plan) -> list[str]:
    """The types of what passes between kernels."""
    return [t.dtype for t in plan.recipe.stored if t.name in plan.materialised]


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_scores_from_memory_are_exact(dtype: str) -> None:
    diagram = steep(plain=False)
    plan = nk.derive(diagram, on="h100", sizes=SIZES, dtype=dtype, materialise=["S"])
    assert len(plan.kernels) == 2
    assert types(plan) == ["fp32"]
    assert list(plan.materialised) == ["S"]  # scaled, as it was asked for
    rng = np.random.default_rng(0)
    shapes = [[SIZES[a] for a in n.axes] for n in diagram.inputs]
    arrays = [to_device(rng.normal(size=s), dtype).to_float64() for s in shapes]
    assert close_to(plan(*arrays), diagram.evaluate(*arrays)) < TOLERANCE[dtype] / 3


def test_scores_in_the_slots_of_windows_are_exact() -> None:
    diagram = load("unfused_neighborhood_attention_2d")
    plan = nk.derive(diagram, on="h100", sizes={"q0": 8, "q1": 16, "d": 32}, dtype="bf16")
    assert [t.dtype for t in plan.recipe.stored if t.name == "C"] == ["fp32"]


def test_what_no_exponential_reads_has_the_type_of_the_plan() -> None:
    plan = nk.derive(steep(plain=True), on="h100", sizes=SIZES, materialise=["S"])
    assert types(plan) == ["bf16"]
    assert "fp32" not in str(plan.trail)


def test_a_type_that_somebody_chose_stays() -> None:
    @nk.diagram("q d, x d -> q x", sizes=SIZES)
    def made(Q, K):
        S = nk.cast(nk.contract(Q, K, over="d"), "bf16")
        return nk.softmax(S, over="x")

    plan = nk.derive(made, on="h100", dtype="fp16", materialise=["S"])
    assert types(plan) == ["bf16"]


def test_scores_that_are_an_output_have_its_type() -> None:
    @nk.diagram("q d, x d -> q x, q", sizes=SIZES)
    def made(Q, K):
        S = nk.contract(Q, K, over="d")
        return S, nk.reduce(S, "logsumexp", over="x")

    plan = nk.derive(made, on="h100")
    stored = {t.name: t.dtype for t in plan.recipe.stored}
    assert stored[plan.recipe.results[0]] == "bf16"
    plan.check(resources=False).raise_if_wrong()


@pytest.mark.parametrize("name", ["attention", "causal_attention", "cross_entropy"])
def test_one_kernel_has_no_use_for_the_cast(name: str) -> None:
    plan = nk.derive(load(name), on="h100", parts=None)
    assert len(plan.kernels) == 1
    assert "cast" not in plan.recipe.source
    assert "fp32" not in str(plan.trail)


def test_scores_with_a_softcap_and_a_length_are_exact_from_memory() -> None:
    """What is stored is the masked score, and no scaled sum."""

    @nk.diagram("q d, x d, x d, ():int -> q d", sizes=SIZES)
    def capped(Q, K, V, N, cap=30.0):
        S = nk.contract(Q, K, over="d") * 2.0
        C = nk.where(nk.index("x") < N, cap * nk.tanh(S / cap), float("-inf"))
        return nk.contract(nk.softmax(C, over="x"), V, over="x")

    plan = nk.derive(capped, on="h100", sizes=SIZES, dtype="bf16", materialise=["C"])
    assert types(plan) == ["fp32"]
    rng = np.random.default_rng(0)
    shapes = [[SIZES[a] for a in n.axes] for n in capped.inputs[:3]]
    arrays = [to_device(rng.normal(size=s), "bf16").to_float64() for s in shapes]
    wanted = capped.evaluate(*arrays, 7)
    assert np.abs(plan(*arrays, 7) - wanted).max() < 4e-3 * np.abs(wanted).max()


def test_the_position_of_the_largest_logit_is_that_of_the_logits() -> None:
    """Rounded logits are equal to a maximum of others, or to none."""

    @nk.diagram("n d, v d -> n", sizes={"n": 64, "d": 4096, "v": 1000})
    def largest(X, W):
        L = nk.contract(X, W, over="d")
        found = nk.reduce(L, "max", over="v") == L
        return nk.reduce(nk.where(found, nk.index("v"), 2**30), "min", over="v")

    plan = nk.derive(largest, on="h100", dtype="bf16")
    assert types(plan) == ["fp32"]
    plan.check(sizes={"n": 20, "d": 48, "v": 300}, resources=False).raise_if_wrong()


def test_the_sign_of_what_is_stored_survives_its_rounding() -> None:
    @nk.diagram("q d, x d -> q", sizes=SIZES)
    def positive(Q, K):
        S = nk.contract(Q, K, over="d")
        return nk.reduce(nk.where(S > 0, S, -0.5), "max", over="x")

    plan = nk.derive(positive, on="h100", dtype="bf16", materialise=["S"])
    assert types(plan) == ["bf16"]


def _quotient(how: str) -> nk.Diagram:
    @nk.diagram("b x -> b x")
    def made(X):
        if how == "softmax":
            return nk.softmax(X, over="x")
        if how == "norm":
            return X / nk.sqrt(nk.contract(X, X, over="x"))
        if how == "largest":  # of what the type does not hold
            return X * X / nk.reduce(X * X, "max", over="x")
        return X / nk.reduce(nk.cumsum(X, along="x"), "max", over="x")

    return made


def _run(plan: nk.Plan, given: np.ndarray) -> list[np.ndarray]:
    """The results of the kernels of a plan, and not of those for the sizes of what is given."""
    sizes = dict(zip("bx", given.shape, strict=True))
    ran = run_recipe(plan.recipe, {"X": to_device(given, plan.dtype)}, sizes, {})
    return [ran.tensors[plan.tensor_of[o.name]].to_float64() for o in plan.diagram.outputs]


@pytest.mark.parametrize("how", ["softmax", "norm", "largest", "cumsum"])
def test_what_the_type_does_not_hold_passes_in_float32(how: str) -> None:
    """The divisor was infinite in fp16, and each quotient 0."""
    diagram = _quotient(how)
    plan = nk.derive(diagram, on="h100", sizes={"b": 1, "x": 2**20}, dtype="fp16")
    assert len(plan.kernels) > 1
    assert set(types(plan)) == {"fp32"}
    value = {"softmax": 1.0, "norm": 64.0, "largest": 300.0, "cumsum": 16.0}[how]
    given = np.full((1, 70_001 if how == "softmax" else 5000), value)
    wanted = diagram.evaluate(given)
    assert (wanted > 0).all()
    (found,) = _run(plan, given)
    np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=2.0**-25)


def test_a_sum_that_is_an_output_too_is_infinite_there_alone() -> None:
    @nk.diagram("b x -> b x, b")
    def made(X):
        z = nk.reduce(X, "sum", over="x")
        return X / z, z

    plan = nk.derive(made, on="h100", sizes={"b": 1, "x": 2**20}, dtype="fp16")
    quotients, total = _run(plan, np.full((1, 5000), 16.0))
    assert len(plan.kernels) > 1
    assert np.isinf(total).all()
    np.testing.assert_allclose(quotients, 1 / 5000, rtol=1e-3)


def test_a_product_between_two_others_has_the_type_of_the_plan() -> None:
    @nk.diagram("a b, b c, c d -> a d")
    def chain(A, B, C):
        return nk.contract(nk.maximum(nk.contract(A, B, over="b"), 0.0), C, over="c")

    sizes = dict.fromkeys("abcd", 64)
    plan = nk.derive(chain, on="h100", sizes=sizes, dtype="fp16", materialise="every")
    assert set(types(plan)) == {"fp16"}


def test_one_number_for_each_row_is_exact_from_memory() -> None:
    """The gradient of a softmax subtracts the mean of a row's gradients, which outweighs what is
    left where values have a part in common."""
    diagram = nk.gradient(load("attention"))
    plan = nk.derive(diagram, on="h100", sizes={"q": 4096, "x": 4096, "d": 64}, dtype="bf16")
    rows = {t.name: t.dtype for t in plan.recipe.stored if t.axes == ("q",)}
    assert "total" in rows
    assert {*rows.values()} == {"fp32"}
    rng = np.random.default_rng(0)
    shapes = [[SIZES[a] for a in n.axes] for n in diagram.inputs]
    arrays = [rng.normal(size=s) + 20.0 * (i == 2) for i, s in enumerate(shapes)]
    arrays = [to_device(a, "bf16").to_float64() for a in arrays]
    found = run_recipe(plan.recipe, stored(diagram, arrays, "bf16"), SIZES, {}).tensors["dK"]
    wanted = diagram.evaluate(*arrays)[1]
    assert close_to(found.to_float64(), wanted) < TOLERANCE["bf16"]


def test_what_a_forward_keeps_of_sums_is_in_float32() -> None:
    @nk.diagram("b x -> b x")
    def made(X):
        z = nk.reduce(X * X, "sum", over="x")
        return nk.tanh(X / z)

    kept = nk.training(made, sizes={"b": 4096, "x": 4}, dtype="fp16").candidates
    assert {c.name: c.dtype for c in kept} == {"O": "fp16", "z": "fp32"}


def test_a_number_that_is_taken_from_its_row_is_stored_as_it_was_computed() -> None:
    """dP and the sum of dO O are nearly equal where one weight is nearly 1."""

    @nk.diagram("q x, x d -> q d", sizes={"q": 4096, "x": 4096, "d": 64})
    def weighted(S, V):
        return nk.contract(nk.softmax(S, over="x"), V, over="x")

    plan = nk.derive(nk.gradient(weighted), on="h100", dtype="bf16")
    assert len(plan.kernels) > 1
    rows = [t for t in plan.recipe.stored if t.name in plan.materialised and t.axes == ("q",)]
    assert rows
    assert {t.dtype for t in rows} == {"fp32"}


def recalled(left, A, B, K, V):
    """A step that corrects what a key recalls."""
    return left + B * K * (V - nk.contract(left, K, over="k"))


STEPS = {
    "added to": lambda h, A, B, K, V: A * h + B * K * V,
    "corrected": lambda h, A, B, K, V: recalled(A * h, A, B, K, V),
    "divided": lambda h, A, B, K, V: nk.tanh(h / A) + B * K * V,
}


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_gates_from_memory_are_exact(step, dtype: str) -> None:
    """What is added at each position has the type of the plan."""
    sizes = {"t": 200, "k": 8, "v": 8, "d": 8}

    @nk.diagram("t k, t k, t v, t d, d k, d v -> t v", sizes=sizes)
    def gated(Q, K, V, G, W, U):
        A = 1.0 - 0.01 * nk.sigmoid(nk.contract(G, W, over="d"))
        B = nk.contract(G, U, over="d")
        states = nk.scan(lambda h: step(h, A, B, K, V), 0.0, along="t", axes="k v")
        return nk.contract(Q, states, over="k")

    plan = nk.derive(gated, on="h100", dtype=dtype, materialise=["A", "B"])
    stored = {t.name: t.dtype for t in plan.recipe.stored}
    assert (stored["A"], stored["B"]) == ("fp32", dtype)
    rng = np.random.default_rng(0)
    shapes = [[sizes[a] for a in n.axes] for n in gated.inputs]
    arrays = [to_device(np.abs(rng.normal(size=s)) / 4, dtype).to_float64() for s in shapes]
    assert close_to(plan(*arrays), gated.evaluate(*arrays)) < TOLERANCE[dtype]


def test_factors_of_products_from_memory_are_exact() -> None:
    @nk.diagram("t d, d e -> e", sizes={"t": 600, "d": 32, "e": 32})
    def product(X, W):
        A = 1.0 - 0.01 * nk.sigmoid(nk.contract(X, W, over="d"))
        return nk.reduce(A, "prod", over="t")

    assert types(nk.derive(product, on="h100", materialise=["A"])) == ["fp32"]


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_running_sums_from_memory_are_exact(dtype: str) -> None:
    """A moving sum of four is the difference of two of them."""
    sizes = {"t": 600, "d": 8}

    @nk.diagram("t d, d -> t d", sizes={"t": 4096, "d": 64})
    def moving(X, B):
        C = nk.scan(lambda h: h + X, B, along="t")
        before = nk.take(C, t=nk.index("t") - 4)
        return nk.where(nk.index("t") < 4, 0.0, C - before)

    plan = nk.derive(moving, on="h100", dtype=dtype)
    assert {t.name: t.dtype for t in plan.recipe.stored}["C"] == "fp32"
    rng = np.random.default_rng(0)
    arrays = [np.abs(rng.normal(size=[sizes[a] for a in n.axes])) for n in moving.inputs]
    arrays = [to_device(a, dtype).to_float64() for a in arrays]
    assert close_to(plan(*arrays), moving.evaluate(*arrays)) < TOLERANCE[dtype]
