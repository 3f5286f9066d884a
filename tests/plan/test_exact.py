"""What an exponential reads is as exact from memory as it is where it was computed."""

from __future__ import annotations

import numpy as np
import pytest

import napkin as nk
from napkin.check.verdict import TOLERANCE
from napkin.diagram.library import load
from napkin.ir.evaluate import close_to
from napkin.run.arrays import to_device

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
