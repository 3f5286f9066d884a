"""Kernels on quantised tensors: values against float64, bytes as counted, shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.algebra.contraction import EXACT_SUM
from napkin.check.verdict import compiled
from napkin.count.residency import live_set, register_bytes
from napkin.diagram.diagram import Diagram
from napkin.diagram.library import load
from napkin.plan.plan import Plan

GROUPS = {"a": 64, "g": 4, "b": 64, "c": 128}
SQUARE = {"a": 64, "b": 128, "c": 128}
LONG = {"a": 2048, "b": 2048, "c": 2048}


@nk.diagram("a b, c b:int8, c -> a c", sizes=SQUARE)
def weights_in_8_bits(X: Any, W: Any, scale: Any) -> Any:
    return nk.contract(X, W, over="b") * scale


@nk.diagram("a b:fp8, c b:fp8, a:fp32, c:fp32 -> a c", sizes=SQUARE)
def both_in_fp8(X: Any, W: Any, X_scale: Any, W_scale: Any) -> Any:
    return nk.contract(X, W, over="b") * X_scale * W_scale


@nk.diagram("a b:int8, c b:int4, c -> a c", sizes=SQUARE)
def activations_8_weights_4(X: Any, W: Any, scale: Any) -> Any:
    return nk.contract(X, W, over="b") * scale


@nk.diagram("a g b, c g b:uint4, g c:uint4, g c -> a c", sizes=GROUPS)
def with_zero_points(X: Any, W: Any, zero: Any, scale: Any) -> Any:
    return nk.contract(X, (W - zero) * scale, over="g b")


@nk.diagram("a b, b c:int4, c -> a c", sizes=SQUARE)
def packed_along_columns(X: Any, W: Any, scale: Any) -> Any:
    return nk.contract(X, W * scale, over="b")


@nk.diagram("b c:int4, c -> b c", sizes={"b": 48, "c": 96})
def dequantised(W: Any, scale: Any) -> Any:
    return W * scale


@nk.diagram("q d, x d:int4, x d:int4, x, x -> q d", sizes={"q": 64, "x": 128, "d": 64})
def attention_int4(Q: Any, K: Any, V: Any, k_scale: Any, v_scale: Any) -> Any:
    S = nk.contract(Q, K, over="d") * k_scale * nk.size("d") ** -0.5
    return nk.contract(nk.softmax(S, over="x") * v_scale, V, over="x")


@nk.diagram("a b, b c -> a c", sizes=SQUARE)
def into_fp8(A: Any, B: Any) -> Any:
    return nk.cast(nk.contract(A, B, over="b"), "fp8")


@nk.diagram("a b:fp32, c b -> a b, a c", sizes=SQUARE)
def into_the_type_of_the_plan(A: Any, B: Any) -> Any:
    rounded = nk.cast(A, "bf16")
    return rounded, nk.contract(rounded, B, over="b")


@nk.diagram("n d, m d -> n d", sizes={"n": 24, "m": 24, "d": 40})
def far_apart(X: Any, Y: Any) -> Any:
    return nk.cast(X * nk.reduce(Y, "sum", over="m"), "fp8")


@nk.diagram("n d:uint4 -> n d", sizes={"n": 24, "d": 16})
def weights_near_0(X: Any) -> Any:
    return nk.cast(nk.softmax(X * 0.1, over="d") * 0.1, "fp8")


EVERY = [
    weights_in_8_bits, both_in_fp8, activations_8_weights_4, with_zero_points,
    packed_along_columns, dequantised, attention_int4, weights_near_0,
]  # fmt: skip
SHIPPED = {
    "attention_fp8_kv": {"q": 64, "x": 128, "d": 64},
    "matmul_w8a8": SQUARE,
    "matmul_w4a16": GROUPS,
}


@pytest.mark.parametrize("diagram", EVERY, ids=lambda d: d.name)
def test_values_and_bytes(diagram: Diagram) -> None:
    nk.derive(diagram).check(resources=False).raise_if_wrong()


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped(name: str) -> None:
    nk.derive(load(name), sizes=SHIPPED[name]).check().raise_if_wrong()


@pytest.mark.parametrize("name", ["matmul_w8a8", "matmul_w4a16"])
def test_shipped_for_ampere(name: str) -> None:
    nk.derive(load(name), "a100", SHIPPED[name]).check(resources=False).raise_if_wrong()


@pytest.mark.parametrize(
    "diagram", [weights_in_8_bits, both_in_fp8, activations_8_weights_4], ids=lambda d: d.name
)
def test_shared_memory(diagram: Diagram) -> None:
    rows = [r for r in compiled(nk.derive(diagram, sizes=LONG)) if r.arch != "sm_100"]
    assert rows
    assert all(r.ok for r in rows), rows


def test_fp8_is_not_compiled_for_what_lacks_it() -> None:
    assert [r.arch for r in compiled(nk.derive(both_in_fp8))] == ["sm_90", "sm_100"]


def test_products_of_bytes_take_them_as_they_are() -> None:
    """int8 into int32, fp8 in parts of 128 products, which one that begins from nothing is by
    itself if it is so short, and 16 bits where one side has them."""
    whole = nk.derive(load("matmul_w8a8"), sizes=LONG).source
    assert "tl.zeros([BLOCK_A, BLOCK_C], tl.int32)" in whole
    dot = "tl.dot(X_tile, tl.trans(W_tile), C, input_precision='ieee', out_dtype=tl.int32)"
    assert dot in " ".join(whole.split()).replace("( ", "(")
    eight = nk.derive(both_in_fp8, sizes=LONG).source
    assert f"max_num_imprecise_acc=BLOCK_B if BLOCK_B < {EXACT_SUM} else {EXACT_SUM}" in eight
    alone = nk.derive(load("blockwise_fp8_linear")).source
    assert f"max_num_imprecise_acc={EXACT_SUM} if {EXACT_SUM} < BLOCK_B else None" in alone
    mixed = nk.derive(weights_in_8_bits, sizes=LONG).source
    assert "tl.trans(W_tile.to(scale.dtype.element_ty))" in mixed
    assert "max_num_imprecise_acc" not in mixed


@pytest.mark.parametrize(("depth", "kept"), [(EXACT_SUM, 0), (2 * EXACT_SUM, 1)])
def test_a_short_product_of_fp8_has_accumulators_once(depth: int, kept: int) -> None:
    """A sum of blocks keeps the product of one, its sum, and parts of the product if it is long."""
    (k,) = nk.derive(load("blockwise_fp8_linear")).kernels
    live, tiles = live_set(k.choice.kernel), {"a": 64, "c": 64, "g": 1, "b": depth}
    scales = 4 * 64 // 2
    assert register_bytes(live, tiles) == 4 * 64 * 64 * (2 + kept) + scales


def test_whole_numbers_are_summed_exactly() -> None:
    """Sums beyond 2**24, which float32 would round."""

    @nk.diagram("a b:int8, c b:int8 -> a c", sizes={"a": 16, "b": 2048, "c": 16})
    def sums(X: Any, W: Any) -> Any:
        return nk.contract(X, W, over="b")

    rng = np.random.default_rng(0)
    X, W = rng.integers(100, 128, size=(16, 2048)), rng.integers(100, 128, size=(16, 2048))
    found = nk.derive(sums)(X.astype(np.int8), W.astype(np.int8))
    np.testing.assert_array_equal(found, X @ W.T)
    assert (X @ W.T).min() > 2**24


def plan_on(diagram: Diagram, *arrays: np.ndarray) -> Any:
    plan: Plan = nk.derive(diagram)
    return plan(*arrays)


def test_a_call_takes_packed_bytes_or_values() -> None:
    rng = np.random.default_rng(1)
    W, scale = rng.integers(-8, 8, size=(48, 96)), np.full(96, 0.5)
    wanted = W * scale
    for given in (W, nk.pack(W), nk.pack(W).view(np.int8), W.astype(float)):
        np.testing.assert_array_equal(plan_on(dequantised, given, scale), wanted)
        np.testing.assert_array_equal(dequantised.evaluate(given, scale), wanted)


@pytest.mark.parametrize("diagram", [into_fp8, far_apart], ids=lambda d: d.name)
def test_outputs_in_fp8_saturate(diagram: Diagram) -> None:
    rng = np.random.default_rng(2)
    shapes = [tuple(diagram.sizes[a] for a in n.axes) for n in diagram.inputs]
    arrays = [np.round(rng.normal(size=s) * 64) for s in shapes]
    found, wanted = plan_on(diagram, *arrays), diagram.evaluate(*arrays)
    assert np.abs(wanted).max() > 480
    assert np.abs(found).max() == 448
    np.testing.assert_allclose(found, np.clip(wanted, -448, 448), rtol=2**-4, atol=2**-7)


def test_an_output_in_fp8_is_held_to_fp8() -> None:
    found = nk.derive(into_fp8).check(resources=False)
    found.raise_if_wrong()
    assert 2**-7 < found.relative_error < 2**-4
    written = [r for r in found.traffic if (r.case, r.tensor) == ("divides", "O")]
    assert [r.counted for r in written] == [r.predicted for r in written]


def test_a_nan_stays_one_in_fp8() -> None:
    arrays = [np.ones((64, 128)), np.ones((128, 128))]
    arrays[0][3, 5] = np.nan
    found = plan_on(into_fp8, *arrays)
    assert np.isnan(found[3]).all()
    assert not np.isnan(np.delete(found, 3, 0)).any()


Made = Callable[[], Any]


def test_the_pipe_is_that_of_the_product() -> None:
    """Twice the rate in 8 bits, and that of 16 bits where the other side has them."""
    big = {"a": 8192, "b": 8192, "c": 8192}
    seconds = {
        d.name: nk.derive(d, "h100", big).kernels[0].choice.time.pipes["tensor cores"]
        for d in (load("matmul"), weights_in_8_bits, load("matmul_w8a8"), both_in_fp8)
    }
    assert seconds["matmul_w8a8"] < 0.65 * seconds["matmul"]
    assert seconds["both_in_fp8"] < 0.65 * seconds["matmul"]
    assert seconds["weights_in_8_bits"] > 0.9 * seconds["matmul"]


@pytest.mark.parametrize("storage", ["uint4", "int4", "int8", "uint8"])
def test_numbers_of_few_bits_are_not_added_two_at_once(storage: str) -> None:
    """The assembler of CUDA 12.9 adds 0 for 1 where it takes such an addition apart; a zero that it
    does not know keeps 32 bits. What is multiplied alone needs none."""

    @nk.diagram("b q:int -> q, q")
    def counted(V: Any) -> Any:
        return nk.reduce(V * V + V, "sum", over="b"), nk.reduce(V * V, "sum", over="b")

    plan = nk.derive(counted.stored(V=storage), "h100", sizes={"b": 64, "q": 16})
    assert "_tile.to(tl.int32) + tl.program_id(1)" in plan.source
    plan.check().raise_if_wrong()

    @nk.diagram("b q:int -> q")
    def squared(V: Any) -> Any:
        return nk.reduce(V * V, "sum", over="b")

    plan = nk.derive(squared.stored(V=storage), "h100", sizes={"b": 64, "q": 16})
    assert "program_id(1)" not in plan.source


@nk.diagram("i a:uint4 -> p a", sizes={"i": 18, "a": 4})
def windows_of_pairs(X: Any) -> Any:
    windows = nk.slide(X, over="i", into="p w", stride=2, padding=1, window=4)
    return nk.reduce(windows, "max", over="w")


def test_a_tile_of_one_pair_is_0_in_the_padding() -> None:
    plan = nk.derive(windows_of_pairs, dtype="fp32")
    assert plan.tiles == {"p": 1, "a": 2, "w": 1}
    plan.check(resources=False).raise_if_wrong()


@nk.diagram("q w c:int4, x -> q c", sizes={"q": 12, "x": 12, "c": 18})
def slots_of_pairs(W: Any, V: Any) -> Any:
    return nk.contract(nk.spread(W, nk.sliding(3, 2, "q", "x"), "w"), V, over="x")


def test_slots_may_hold_pairs_along_another_axis() -> None:
    nk.derive(slots_of_pairs, dtype="fp32").check(resources=False).raise_if_wrong()


@pytest.mark.parametrize("stored", [None, ["rounded"]])
def test_a_cast_of_a_wider_input_to_the_type_of_the_plan(stored: list[str] | None) -> None:
    plan = nk.derive(into_the_type_of_the_plan, dtype="bf16", materialise=stored)
    assert plan.kernels[0].bytes["rounded", "write"] == 2 * 64 * 128
    plan.check(resources=False).raise_if_wrong()
