"""Kernels of warpgroups that add products up, on the GPU: beside the plain kernels, float64, and
themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import napkin as nk
from napkin.ir.storage import own_type
from napkin.plan.plan import Plan
from napkin.plan.ranked import with_choices
from napkin.settings.choice import Choice
from napkin.settings.specialised import specialised_choices

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


@nk.diagram("a b, b c -> a c")
def product(A: Any, B: Any) -> Any:
    return nk.contract(A, B, over="b")


@nk.diagram("a b, c b, c -> a c")
def linear(A: Any, B: Any, bias: Any) -> Any:
    return nk.gelu(nk.contract(A, B, over="b") + bias)


@nk.diagram("h a b, h b c, h a c -> h a c")
def residual(A: Any, B: Any, R: Any) -> Any:
    return nk.contract(A, B, over="b") + R


@nk.diagram("a b, b c, b c -> a c")
def gated(A: Any, B: Any, G: Any) -> Any:
    return nk.maximum(nk.contract(A, B, over="b"), 0.0) * nk.contract(A, G, over="b")


@nk.diagram("a g b:fp8, c g b:fp8, a g:fp32, c g:fp32 -> a c")
def scaled_fp8(X: Any, W: Any, SX: Any, SW: Any) -> Any:
    return nk.contract(nk.contract(X, W, over="b"), SX, SW, over="g")


@nk.diagram("a g b, c g b, a g, c g:fp32 -> a c")
def scaled(X: Any, W: Any, SX: Any, SW: Any) -> Any:
    return nk.contract(nk.contract(X, W, over="b"), SX, SW, over="g")


@nk.diagram("a b:fp8, c b:fp8, c -> a c")
def narrow(X: Any, W: Any, bias: Any) -> Any:
    return nk.gelu(nk.contract(X, W, over="b") + bias)


CASES = [
    (product, {"a": 4096, "b": 4096, "c": 4096}),
    (product, {"a": 4100, "b": 200, "c": 3000}),
    (product, {"a": 20000, "b": 64, "c": 264}),
    (linear, {"a": 8192, "b": 1024, "c": 8192}),
    (linear, {"a": 5001, "b": 328, "c": 1000}),
    (residual, {"h": 3, "a": 2000, "b": 1032, "c": 1000}),
    (gated, {"a": 4000, "b": 1024, "c": 1096}),
    (scaled_fp8, {"a": 4096, "g": 56, "b": 128, "c": 4096}),
    (scaled_fp8, {"a": 2000, "g": 11, "b": 64, "c": 1040}),
    (scaled, {"a": 2000, "g": 11, "b": 64, "c": 1040}),
    (narrow, {"a": 4096, "b": 4112, "c": 4096}),
    (narrow, {"a": 1001, "b": 2064, "c": 1040}),
]


@pytest.fixture(scope="module", autouse=True)
def _hopper() -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("kernels of warpgroups need a Hopper GPU")


def some(plan: Plan) -> Iterator[Choice]:
    """The best warp-specialised CTAs of every kind, two of each."""
    (k,) = plan.kernels
    found: dict[str, list[Choice]] = {}
    for part in specialised_choices(k.choice.kernel, k.choice.sizes, plan.dtype, plan.machine):
        for c in sorted(part, key=lambda c: c.rank):
            found.setdefault(c.schedule.side, []).append(c)
    for own in found.values():
        yield from own[:2]


def off(found: Any, wanted: Any) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.mark.parametrize(("diagram", "sizes"), CASES)
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_bands_beside_plain_kernels_and_float64(
    diagram: Any, sizes: dict[str, int], dtype: str
) -> None:
    from napkin.torch.run import prepared

    own = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    plan = nk.derive(diagram, on="h100", sizes=sizes, dtype=dtype)
    if len(plan.kernels) != 1:
        pytest.skip("the planner cuts it")
    types = {"": own, "fp8": torch.float8_e4m3fn, "fp32": torch.float32}
    drawn = [
        torch.randn(*(sizes[a] for a in n.axes), device="cuda").to(types[own_type(n)])
        for n in diagram.inputs
    ]
    plain = replace(plan, specialised=False)(*drawn)
    tried = 0
    for choice in some(plan):
        made = with_choices(plan, [choice])
        assert prepared(made, tuple(drawn), {}).specialised, choice.schedule.side
        found = made(*drawn)
        assert torch.equal(found, made(*drawn)), choice.schedule.side
        assert not found.isnan().any(), choice.schedule.side
        assert off(found, plain) < 5e-3, choice.schedule.side
        tried += 1
    assert tried
    if diagram is product:
        rows = slice(sizes["a"] - 300, sizes["a"])
        assert off(plain[rows], drawn[0][rows].double() @ drawn[1].double()) < 5e-3
