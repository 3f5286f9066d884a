"""Products that a term is added to which a loop finds as it was, on the GPU: wgmma starts from no
registers that others share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import napkin as nk
from napkin.plan.ranked import with_choices
from napkin.schedule import Schedule
from napkin.settings.pricing import Pricing

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


@nk.diagram("q d, x l d, x -> q")
def columns(Q: Any, K: Any, B: Any) -> Any:
    return nk.reduce(nk.contract(Q, K, over="d") + B, "max", over="x l")


@nk.diagram("q d, x l d, q x -> q")
def tiles(Q: Any, K: Any, B: Any) -> Any:
    return nk.reduce(nk.contract(Q, K, over="d") + B, "max", over="x l")


@pytest.mark.parametrize("diagram", [columns, tiles], ids=lambda d: d.name)
@pytest.mark.parametrize("held", [64, 256])
@pytest.mark.parametrize("warps", [4, 8])
def test_each_product_starts_from_the_term(diagram: nk.Diagram, held: int, warps: int) -> None:
    sizes = {"q": 512, "x": 32, "l": 16, "d": 16}
    plan = nk.derive(diagram, on="h100", sizes=sizes, dtype="bf16", materialise=[])
    (k,) = replace(plan, specialised=False).kernels
    pricing = Pricing(k.choice.kernel, k.choice.sizes, "bf16", plan.machine)
    schedule = Schedule({"q": held, "x": 32, "l": 1, "d": 16}, warps, 3)
    made = with_choices(replace(plan, specialised=False), [pricing.at(schedule)])
    shapes = ([sizes[str(a)] for a in n.axes] for n in diagram.inputs)
    arrays = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes]
    Q, K, B = (a.double() for a in arrays)
    scores = torch.einsum("qd,xld->qxl", Q, K) + B[..., None]
    wanted = scores.amax(dim=(1, 2))
    torch.testing.assert_close(made(*arrays).double(), wanted, rtol=1e-2, atol=5e-2)
