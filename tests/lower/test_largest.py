"""The tensors that statements form: no plan has one that the compiler does not take."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import napkin as nk
from napkin.count.traffic import ITEM_BYTES
from napkin.lower.largest import MAX_TENSOR, tensors_of
from napkin.machine.machines import machine
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel
from napkin.settings.labelled import Labelled
from napkin.settings.tiles import MAX_TILE


@nk.diagram("c t h d, c t h v, t -> c h d v")
def chunks(K: Any, V: Any, w: Any) -> Any:
    return nk.contract(K, V, w, over="t")


@nk.diagram("a r, r b s, s c u, u d -> a b c d")
def train(A: Any, B: Any, C: Any, E: Any) -> Any:
    return nk.contract(A, B, C, E, over="r s u")


CASES: list[tuple[Any, Mapping[str, int]]] = [
    (chunks, {"c": 64, "t": 64, "h": 8, "d": 64, "v": 64}),
    (train, {"a": 32, "r": 4, "b": 32, "s": 4, "c": 32, "u": 4, "d": 32}),
]


def taken(k: PlannedKernel, plan: Plan, tile: int, tensor: int) -> bool:
    """Whether the compiler takes every tensor of a kernel."""
    item = ITEM_BYTES[plan.dtype]
    return tensors_of(k.program).formed(k.program, tile, tensor, plan.machine.target, item)


@pytest.mark.parametrize(("diagram", "sizes"), CASES, ids=lambda x: getattr(x, "name", ""))
def test_no_tensor_is_larger_than_the_compiler_takes(
    diagram: Any, sizes: Mapping[str, int]
) -> None:
    plan = nk.derive(diagram, sizes=sizes)
    for k in plan.kernels:
        assert taken(k, plan, MAX_TILE, MAX_TENSOR)


def test_an_axis_that_a_weight_lacks_is_still_one_product_for_each_position() -> None:
    """Both sides of the product carry h: a tile of it would be multiplied out."""
    (k,) = nk.derive(chunks, sizes=CASES[0][1]).kernels
    assert k.tiles["h"] == k.tiles["c"] == 1
    assert "tl.dot(" in k.written.source


def test_what_is_multiplied_out_is_counted(forced: Callable[..., Plan]) -> None:
    """With 8 rows, no matrix product: all three axes stand in one tensor."""
    sizes = {"c": 1, "t": 16, "h": 1, "d": 8, "v": 32}
    plan = forced(chunks, sizes, tiles={"c": 1, "h": 1, "d": 8, "v": 32, "t": 16})
    (k,) = plan.kernels
    values = 16 * 8 * 32
    assert taken(k, plan, values, values - 1)
    assert not taken(k, plan, values - 1, values - 1)


def test_the_bound_is_that_of_the_compiler() -> None:
    core = pytest.importorskip("triton.language.core")
    assert core.TRITON_MAX_TENSOR_NUMEL == MAX_TENSOR


@nk.diagram("i k d, d c -> c i k")
def columns(X: Any, H: Any) -> Any:
    return nk.contract(X, H, over="d")


@pytest.mark.parametrize(("on", "right"), [("a100", True), ("h100", False)])
def test_an_operand_of_many_boxes_is_not_transposed(
    forced: Callable[..., Plan], on: str, right: bool
) -> None:
    """512 rows of 256 bytes, of a product that takes them as columns: triangle multiplication at
    these tiles was wrong on an H100, in every value."""
    sizes = {"i": 64, "k": 1024, "d": 128, "c": 128}
    plan = forced(columns, sizes, tiles={"c": 64, "i": 2, "k": 256, "d": 128})
    (k,) = plan.kernels
    assert "tl.trans(X_tile)" in k.written.source
    tensors, target = tensors_of(k.program), machine(on).target
    assert tensors.formed(k.program, MAX_TENSOR, MAX_TENSOR, target, 2) == right
    labelled = Labelled(k.choice.kernel, sizes, "bf16", machine(on))
    assert labelled.formed(k.tiles) == right
    assert labelled.formed({**k.tiles, "k": 128})
    assert labelled.formed({**k.tiles, "c": 32})  # no warpgroup multiplies so few rows
    assert Labelled(k.choice.kernel, sizes, "fp32", machine(on)).formed(k.tiles)


def test_no_shipped_plan_has_a_tensor_that_the_compiler_does_not_take(shipped: nk.Plan) -> None:
    """Neither groups by themselves nor warpgroups."""
    for k in (*shipped.kernels, *shipped.launched.kernels):
        assert taken(k, shipped, MAX_TILE, MAX_TENSOR)


SIDES = st.sampled_from([64, 100, 128, 200, 256, 512, 1000, 4096, 65536])


@settings(max_examples=6)
@given(n=SIDES, m=SIDES, d=st.sampled_from([48, 64, 128, 200, 256, 512, 600]), on=st.booleans())
def test_no_plan_of_large_products_transposes_many_boxes(n: int, m: int, d: int, on: bool) -> None:
    """Whichever of three products of one operand takes it as it lies."""
    plan = nk.derive(three if on else gated, sizes={"n": n, "m": m, "d": d}, on="h100")
    for k in plan.kernels:
        assert taken(k, plan, MAX_TILE, MAX_TENSOR)


@nk.diagram("n d, m d, m d -> m n")
def gated(X: Any, G: Any, P: Any) -> Any:
    return nk.sigmoid(nk.contract(X, G, over="d")) * nk.contract(X, P, over="d")


@nk.diagram("n d, m d, n d -> n m, n d")
def three(X: Any, Y: Any, Z: Any) -> Any:
    weights = nk.contract(X, Y, over="d")
    return weights, nk.contract(nk.exp(weights), Y, over="m") * Z
