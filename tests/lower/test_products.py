"""Matrix products as kernels write them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

import napkin as nk
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.ir.rewrite import substitute
from napkin.lower.build import build
from napkin.lower.write import write
from napkin.plan.fitting import job_of
from napkin.plan.ranked import with_choices
from napkin.run.compile import Resources, resources_many
from napkin.schedule import Schedule


def test_a_factor_beside_the_operands_scales_the_product_alone() -> None:
    """0.5 is a factor of the streamed product, but not of the accumulator it adds to."""

    @nk.diagram("n d, d f, f e -> n e", sizes={"n": 2048, "d": 64, "f": 4096, "e": 64})
    def network(X, U, W):
        Y = nk.contract(X, U, over="d")
        return nk.contract(0.5 * Y * (1.0 + nk.erf(Y)), W, over="f")

    plan = nk.derive(network, on="h100", dtype="bf16", materialise=())
    (kernel,) = plan.kernels
    assert kernel.choice.kernel.stream.axes == ("f",)
    assert kernel.tiles["f"] < 512  # the accumulator is scaled more than once, if it is
    plan.check(sizes={"n": 24, "d": 40, "f": 300, "e": 56}).raise_if_wrong()


def test_an_accumulator_with_more_dimensions_than_a_product_is_added_to() -> None:
    """A state may carry an axis that only its other terms have; `tl.dot` adds to its own shape."""

    @nk.diagram("i x, x j, y -> i j y", sizes={"i": 16, "j": 16, "x": 64, "y": 16})
    def scaled(A: Any, B: Any, C: Any):
        return nk.contract(A, B, over="x") * C

    ready = prepare(scaled)
    kernel = label("scaled", ready.outputs, ready.names, streamed="x")
    (state,) = kernel.stream.states
    wide = replace(state, axes=(*state.axes, "y"))
    known = {state.leaf(side): wide.leaf(side) for side in ("old", "new")}
    roots = (state.step, kernel.stream.tails[0].node)
    step, tail = (substitute(roots, known)[n] for n in roots)
    loop = replace(kernel.stream.passes[0], states=(replace(wide, step=step),))
    tails = (replace(kernel.stream.tails[0], node=tail),)
    made = replace(kernel, stream=replace(kernel.stream, passes=(loop,), tails=tails))
    source = write(build(made, Schedule(dict.fromkeys(kernel.axes, 16)))).source
    assert "A_B_2 = tl.dot(A_tile, B_tile, input_precision='ieee')" in source
    assert "A_B = A_B + A_B_2[:, :, None]" in source


@nk.diagram("e i, i c:int4, c -> c e")
def of_four_bits(A, B, scale):
    return nk.contract(A, B * scale, over="i")


@nk.diagram("e i, i c, i c:bool -> c e")
def of_a_mask(A, B, M):
    return nk.contract(A, nk.where(M, B, 0.0), over="i")


@nk.diagram("e i, i c -> c e")
def of_sixteen_bits(A, B):
    return nk.contract(A, B, over="i")


@pytest.mark.parametrize(
    ("diagram", "least"), [(of_four_bits, 32), (of_a_mask, 32), (of_sixteen_bits, 16)]
)
def test_what_is_read_in_8_bits_is_multiplied_over_a_depth_of_32(diagram, least) -> None:
    """Of 16 the sums on a GPU are twice as large."""
    plan = nk.derive(diagram, on="h100", sizes={"e": 16, "i": 4, "c": 16}, dtype="bf16")
    assert plan.source.count("tl.dot(") == 1
    assert [k.tiles["i"] for k in plan.kernels] == [least]


@nk.diagram("q e, x d e, x -> q d", sizes={"q": 4096, "e": 64, "x": 16, "d": 4})
def largest_of_shifted(W: Any, B: Any, m: Any) -> Any:
    return nk.reduce(nk.contract(W, B, over="e") + m, "max", over="x")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_a_right_operand_of_three_dimensions_compiles(arch: str) -> None:
    """Triton refuses one whose depth comes first before it is flattened."""
    plan = nk.derive(largest_of_shifted, on="h100", dtype="bf16", materialise=())
    (kernel,) = plan.kernels
    plan = with_choices(plan, [kernel.choice.under(tiles={**kernel.tiles, "d": 4})])
    assert re.search(r"tl\.trans\(\s*tl\.reshape\(", plan.source)
    (kernel,) = plan.kernels
    jobs = [job_of(kernel, kernel.choice.sizes, arch, served) for served in (True, False)]
    assert all(isinstance(found, Resources) for found in resources_many(jobs))
    plan.check(sizes={"q": 40, "e": 64, "x": 13, "d": 6}, resources=False).raise_if_wrong()


@nk.diagram("q a x, x, a x e -> q e", sizes={"q": 128, "a": 8, "x": 4, "e": 16})
def over_short_rows(W: Any, m: Any, B: Any) -> Any:
    """What is added along one axis of the depth keeps the two apart."""
    return nk.contract(W + m, B, over="a x")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("x", [4, 8])
def test_a_depth_of_two_dimensions_that_ends_with_a_short_one_compiles(arch: str, x: int) -> None:
    """Triton 3.6 refuses an operand in shared memory whose innermost dimension is 4 long."""
    sizes = {**over_short_rows.sizes, "x": x}
    plan = nk.derive(over_short_rows, on="h100", sizes=sizes, dtype="bf16", materialise=())
    (kernel,) = plan.kernels
    plan = with_choices(plan, [kernel.choice.under(tiles={a: sizes[a] for a in kernel.tiles})])
    (kernel,) = plan.kernels
    right = re.search(r"tl\.trans\(\s*tl\.reshape\(\s*tl\.permute\(B_tile", plan.source)
    assert plan.source.count("tl.dot(") == 1
    assert (right is not None) == (x >= 8)
    (found,) = resources_many([job_of(kernel, sizes, arch)])
    assert isinstance(found, Resources), found
    plan.check(resources=False).raise_if_wrong()


@nk.diagram("q x:int4, x d:int4 -> q d", sizes={"q": 4096, "x": 4096, "d": 4096})
def packed_along_columns(X: Any, Y: Any) -> Any:
    return nk.contract(X, Y, over="x") * 0.01


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_a_right_operand_of_8_bits_that_is_packed_along_its_columns_compiles(arch: str) -> None:
    """Triton fails on sm_90 where the two halves of a byte are its innermost dimension."""
    plan = nk.derive(packed_along_columns, on="a100", dtype="bf16")
    (kernel,) = plan.kernels
    plan = with_choices(plan, [kernel.choice.under(tiles={"q": 128, "d": 64, "x": 128})])
    assert "out_dtype=tl.int32" in plan.source
    (kernel,) = plan.kernels
    (found,) = resources_many([job_of(kernel, kernel.choice.sizes, arch)])
    assert isinstance(found, Resources), found
    plan.check(sizes={"q": 38, "x": 270, "d": 22}, resources=False).raise_if_wrong()


@nk.diagram("q x, x d -> ()", sizes={"q": 64, "x": 256, "d": 64})
def whole_sum(X: Any, Y: Any) -> Any:
    return nk.reduce(nk.contract(X, Y, over="x"), "sum", over="q d")


@nk.diagram("q x, x d -> ()", sizes={"q": 64, "x": 256, "d": 64})
def sum_of_largest(X: Any, Y: Any) -> Any:
    return nk.reduce(nk.reduce(nk.contract(X, Y, over="x"), "max", over="d"), "sum", over="q")


@pytest.mark.parametrize("diagram", [whole_sum, sum_of_largest])
def test_a_product_that_is_reduced_to_one_value_compiles(diagram: Any) -> None:
    """Triton 3.6 refuses a reduction along the last dimension that is left of one for sm_100."""
    plan = nk.derive(diagram, on="b200", dtype="bf16", materialise=())
    (kernel,) = plan.kernels
    tiles = {**kernel.tiles, "q": 64, "x": 256, "d": 64}
    plan = with_choices(plan, [kernel.choice.under(tiles=tiles)])
    (kernel,) = plan.kernels
    assert "axis=None)" in plan.source
    (found,) = resources_many([job_of(kernel, kernel.choice.sizes, "sm_100")])
    assert isinstance(found, Resources), found
    plan.check(sizes={"q": 40, "x": 70, "d": 50}, resources=False).raise_if_wrong()


@nk.diagram("n f, n f, n e -> f e", sizes={"n": 4096, "f": 4096, "e": 4096})
def gated(X: Any, G: Any, D: Any) -> Any:
    return nk.contract(nk.sigmoid(X) * G, D, over="n")


def gated_in(**tiles: int) -> Any:
    plan = nk.derive(gated, on="h100", materialise=())
    (kernel,) = plan.kernels
    known = dict.fromkeys(kernel.tiles, 1) | tiles
    schedule = Schedule(known, 4, 2, described=kernel.schedule.described)
    return with_choices(plan, [replace(kernel.choice, schedule=schedule)])


def test_rows_that_are_computed_from_tiles_of_the_other_order_are_multiplied_as_columns() -> None:
    """A warpgroup takes computed rows from registers, to which these are brought in pieces."""
    plan = gated_in(n=64, f=64, e=64)
    source = " ".join(plan.recipe.source.split())
    assert "O_acc = tl.trans( tl.dot( tl.trans(D_tile), (tl.sigmoid(" in source
    assert "tl.trans(O_acc)" in source
    plan.check(sizes={"n": 70, "f": 72, "e": 80}).raise_if_wrong()


def test_columns_too_few_for_rows_of_a_warpgroup_stay_columns() -> None:
    assert "tl.trans(O_acc)" not in gated_in(n=64, f=64, e=32).recipe.source


def test_a_product_of_reals_starts_from_no_whole_numbers() -> None:
    @nk.diagram("c k, k d, c d:int, a c d -> c d, c d")
    def counted(A: Any, B: Any, N: Any, C: Any) -> Any:
        product = nk.contract(A, B, over="k")
        return product + N * N, product + nk.reduce(C > 0, "sum", over="a")

    sizes = {"a": 16, "c": 64, "d": 64, "k": 64}
    made = nk.derive(counted, "h100", sizes)
    assert "tl.dot(" in made.source
    made.check(sizes={"a": 5, "c": 33, "d": 17, "k": 40}, resources=False).raise_if_wrong()
