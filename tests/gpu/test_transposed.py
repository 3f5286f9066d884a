"""Operands that a product takes transposed, on the GPU: right where a target says so, and where it
does not, the compiler is still wrong. Once it no longer is, the limit can go."""

from __future__ import annotations

from typing import Any

import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.machine.machines import machine
from napkin.plan.ranked import with_choices
from napkin.schedule import Schedule
from napkin.settings.pricing import Pricing

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
tl = triton.language
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


@triton.jit
def product(
    A, B, C, by_n, by_k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, TRANSPOSED: tl.constexpr
):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(A + m[:, None] * K + k[None, :])
    if TRANSPOSED:
        b = tl.trans(tl.load(B + n[:, None] * by_n + k[None, :] * by_k))
    else:
        b = tl.load(B + n[None, :] * by_n + k[:, None] * by_k)
    tl.store(C + m[:, None] * N + n[None, :], tl.dot(a, b))


def off(found: Any, wanted: Any) -> float:
    return float((found.double() - wanted).norm() / wanted.norm())


@pytest.fixture(autouse=True)
def _hopper() -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("warpgroups multiply on Hopper")


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("rows_of_depth", [True, False])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(64, 512, 128), (64, 512, 64), (64, 256, 128), (64, 128, 512), (64, 64, 512), (16, 512, 128)],
)
def test_a_transposed_operand(
    m: int, n: int, k: int, rows_of_depth: bool, transposed: bool
) -> None:
    """Which side lies in rows decides; the target allows neither, as strides are not known."""
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    b = b if rows_of_depth else b.T.contiguous().T
    found = torch.empty(m, n, device="cuda")
    product[1,](a, b, found, *b.stride(), m, n, k, transposed, num_warps=8)
    right = off(found, a.double() @ b.double().T) < 1e-2
    down, along = (n, k) if rows_of_depth else (k, n)
    misread = transposed and m >= 64 and down > 256 and along > 64
    assert right == (not misread)
    assert right or not machine("h100").target.transposes((n, k), 2)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_triangle_multiplication_in_the_largest_tiles_that_are_taken(dtype: str) -> None:
    diagram = load("triangle_multiplication")
    sizes = {**diagram.sizes, "i": 256, "j": 256, "k": 256}
    own = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    plan = nk.derive(diagram, on="h100", sizes=sizes, dtype=dtype)
    drawn = [
        torch.randn(*(sizes[a] for a in n.axes), device="cuda", dtype=own) / 8
        for n in diagram.inputs
    ]
    wanted = torch.as_tensor(diagram.evaluate(*(x.double().cpu().numpy() for x in drawn)))
    assert off(plan(*drawn).cpu(), wanted) < 2e-2
    first, *rest = (k.choice for k in plan.kernels)
    pricing = Pricing(first.kernel, first.sizes, dtype, plan.machine)
    for tiles in ({"c": 64, "i": 1, "k": 256}, {"c": 64, "i": 2, "k": 128}):
        every = {**first.schedule.tiles, **tiles}
        assert pricing.of.formed(every)
        made = with_choices(plan, [pricing.at(Schedule(every, 8, 1)), *rest])
        assert off(made(*drawn).cpu(), wanted) < 2e-2
    assert not pricing.of.formed({**first.schedule.tiles, "c": 64, "i": 2, "k": 256})
