"""The tensors that statements form: no plan has one that the compiler does not take."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import napkin as nk
from napkin.lower.largest import MAX_TENSOR, tensors_of
from napkin.plan.plan import Plan
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


@pytest.mark.parametrize(("diagram", "sizes"), CASES, ids=lambda x: getattr(x, "name", ""))
def test_no_tensor_is_larger_than_the_compiler_takes(
    diagram: Any, sizes: Mapping[str, int]
) -> None:
    plan = nk.derive(diagram, sizes=sizes)
    for k in plan.kernels:
        found = tensors_of(k.program)
        assert found.formed(k.program, MAX_TILE, MAX_TENSOR)


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
    found, values = tensors_of(k.program), 16 * 8 * 32
    assert found.formed(k.program, values, values - 1)
    assert not found.formed(k.program, values - 1, values - 1)


def test_the_bound_is_that_of_the_compiler() -> None:
    core = pytest.importorskip("triton.language.core")
    assert core.TRITON_MAX_TENSOR_NUMEL == MAX_TENSOR
