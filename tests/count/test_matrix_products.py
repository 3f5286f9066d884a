"""Matrix products whose operands take longer to read than to multiply."""

from __future__ import annotations

import pytest

import napkin as nk
from napkin.count.matrix_products import LINKED, continued, copies, fed, operand_copies
from napkin.diagram.library import load
from napkin.machine.machines import machine
from napkin.schedule import Schedule
from napkin.settings.pricing import Pricing
from napkin.settings.tiled import Tiled


@pytest.mark.parametrize(("chunk", "times"), [(16, 2.5), (32, 1.5), (64, 1.0), (128, 1.0)])
def test_few_columns_read_their_rows_longer_than_they_multiply(chunk: int, times: float) -> None:
    """wgmma of 64 rows, N columns and 16 deep multiplies for N / 2 clocks and reads 2,048 bytes of
    queries and 32 N of keys, 128 of them in a clock; weights are in registers."""
    plan = nk.derive(load("attention"), on="h100")
    kernel = plan.kernels[0].choice.kernel
    scores, results = kernel.products
    tiles = {"q": 64, "x": chunk, "d": 128}
    h100 = machine("h100")
    assert fed(scores, h100, "bf16", tiles) == pytest.approx(times, rel=1e-3)
    assert fed(results, h100, "bf16", tiles) == 1.0
    assert fed(scores, machine("a100"), "bf16", tiles) == 1.0  # warps read registers
    assert fed(scores, h100, "bf16", {**tiles, "q": 16}) == 1.0  # mma.sync
    assert fed(results, h100, "fp32", {**tiles, "x": 16}) == 1.0
    assert fed(scores, h100, "fp32", {**tiles, "d": 16}) == 2.0  # keys lie along d
    assert fed(scores, h100, "fp32", {"q": 64, "x": 64, "d": 64}) == 4.0
    assert fed(scores, h100, "fp32", {**tiles, "d": 16}, linked=True) == 2.0 * LINKED
    sizes = {"q": 4096, "x": 4096, "d": 128}
    run = Pricing(kernel, sizes, "bf16", h100).at(Schedule(tiles, 4, 2)).run
    plain = 4.0 * sizes["q"] * sizes["x"] * sizes["d"]
    assert run.work["product"] == pytest.approx(plain * (times + 1) / 2, rel=1e-3)


def test_a_product_of_wide_tiles_is_fed() -> None:
    kernel = nk.derive(load("matmul"), on="h100").kernels[0].choice.kernel
    (product,) = kernel.products
    for a, c in ((64, 64), (128, 256), (256, 128), (64, 512)):
        assert fed(product, machine("h100"), "bf16", {"a": a, "c": c, "b": 64}) == 1.0
    assert fed(product, machine("h100"), "bf16", {"a": 128, "c": 32, "b": 64}) > 1.4


@pytest.mark.parametrize(
    ("rows", "columns", "deep", "warps", "times"),
    [
        (128, 128, 16, 4, 1.0),
        (128, 128, 32, 4, 1.1),
        (128, 128, 64, 4, 3.0),
        (128, 256, 64, 8, 3.0),
        (128, 256, 128, 8, 31.0),
        (64, 64, 128, 4, 1.1),
        (16, 16, 64, 4, 1.0),
        (16, 16, 256, 4, 3.0),
    ],
)
def test_products_in_float32_whose_instructions_no_cache_holds(
    rows: int, columns: int, deep: int, warps: int, times: float
) -> None:
    """Each multiply-add of a thread is an instruction of its own."""
    plan = nk.derive(load("matmul"), on="h100", dtype="fp32")
    (product,) = plan.kernels[0].choice.kernel.products
    tiles = {"a": rows, "c": columns, "b": deep}
    assert fed(product, machine("h200"), "fp32", tiles, warps=warps) == times


def test_a_product_in_float32_takes_few_values_of_each_sum_at_once() -> None:
    """4,096 x 4,096 x 128 took 4,073 us with 128 of them, and 139 us with 32 (H200)."""
    for b in (64, 128, 4096):
        plan = nk.derive(load("matmul"), "h200", {"a": 4096, "b": b, "c": 4096}, "fp32")
        (k,) = plan.kernels
        assert k.choice.kernel.stream.axes == ("b",)
        assert k.tiles["b"] <= 32


def test_warps_without_rows_of_their_own_compute_the_same_scores() -> None:
    """Causal attention of 16 heads of 4,096 x 128 in tiles of 64 x 64 and 3 stages took 234 us with
    8 warps and 151 with 4 (H100): a warp has 16 rows of the scores, and two have the same ones."""
    plan, h100 = nk.derive(load("attention"), on="h100"), machine("h100")
    kernel = plan.kernels[0].choice.kernel
    scores, _ = kernel.products
    assert continued(kernel) == (scores,)
    tiles = {"q": 64, "x": 64, "d": 128}
    assert copies([scores], h100, 8, tiles) == {frozenset("qx"): 2}
    assert not copies([scores], h100, 4, tiles)
    assert not copies([scores], h100, 8, {**tiles, "q": 128})
    assert not copies([scores], h100, 8, {**tiles, "q": 32})  # mma.sync shares out columns
    assert not copies([scores], machine("a100"), 8, tiles)
    sizes = {"q": 4096, "x": 4096, "d": 128}
    pricing = Pricing(kernel, sizes, "bf16", h100)
    four, eight = (pricing.at(Schedule(tiles, warps, 3)).run.work for warps in (4, 8))
    assert eight["product"] == 1.5 * four["product"]
    assert eight["special"] > 1.9 * four["special"]


def test_attention_in_float32_stores_its_scores() -> None:
    """Products of which one waits for the other take longer than memory for their scores."""
    sizes = {"q": 4096, "x": 4096, "d": 128}
    assert len(nk.derive(load("attention"), on="h200", sizes=sizes, dtype="fp32").kernels) == 2
    assert len(nk.derive(load("attention"), on="h200", sizes=sizes, dtype="bf16").kernels) == 1


@nk.diagram("n i, n k, i j k -> n j", sizes={"n": 65536, "i": 32, "j": 32, "k": 32})
def formed(X: nk.Array, Z: nk.Array, T: nk.Array) -> nk.Array:
    """A matrix product, one side of which is a product of readings."""
    return nk.contract(X, Z, T, over="i k")


def test_warps_hold_operands_again_that_they_compute() -> None:
    """Each warp of mma.sync has its own rows, or columns, and all of the other operand: a gradient
    of a tensor train kept 9,500 bytes of each thread in memory, and took 12 times what was
    predicted (H200)."""
    kernel = formed.stream("i").group("n").kernel
    (p,) = kernel.products
    tiles = {"n": 32, "i": 32, "j": 32, "k": 32}
    left, span = [(p, 0)], frozenset("nik")
    h100 = machine("h100")
    assert operand_copies(left, h100, 8, tiles, together=True) == {span: 4}  # 8 along 2 x 16 rows
    assert operand_copies(left, h100, 8, tiles, together=False) == {span: 4}  # 2 x 4
    assert operand_copies(left, h100, 2, tiles, together=True) == {}
    assert operand_copies(left, h100, 0, tiles, together=True) == {}
    wide = {**tiles, "n": 64}
    assert operand_copies(left, h100, 4, wide, together=True) == {}  # a warpgroup multiplies
    assert operand_copies(left, machine("a100"), 8, wide, together=True) == {span: 2}


def test_only_the_registers_have_these_copies() -> None:
    """The operations of a product do not depend on them."""
    kernel = formed.stream("i").group("n").kernel
    pricing = Pricing(kernel, formed.check_sizes({}), "bf16", machine("h100"))
    tiles = {"n": 32, "i": 32, "j": 32, "k": 32}
    few, many = (pricing.at(Schedule(tiles, warps, 2)).run for warps in (2, 8))
    assert few.work["product"] == many.work["product"]
    tiled = Tiled(pricing.of, tiles)
    assert tiled.registers(8) > 1.9 * tiled.registers(2)  # four copies and two
