"""Products of tiles that a loop reads for something else, too, on the GPU: none is lost to the copy
of a later chunk."""

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


@nk.diagram("q n, i n -> q i, q")
def norms_too(T: Any, S: Any) -> Any:
    return nk.contract(T, S, over="n"), nk.reduce(T * T, "sum", over="n")


@pytest.mark.parametrize("n", [1004, 4100])
@pytest.mark.parametrize(("tile", "stages"), [(32, 3), (64, 3), (64, 4), (128, 3)])
def test_chunks_that_are_still_multiplied_are_kept(n: int, tile: int, stages: int) -> None:
    sizes = {"q": 8192, "n": n, "i": 128}
    plan = replace(nk.derive(norms_too, on="h100", sizes=sizes, dtype="fp16"), specialised=False)
    (k,) = plan.kernels
    pricing = Pricing(k.choice.kernel, k.choice.sizes, "fp16", plan.machine)
    schedule = Schedule({"q": 64, "n": tile, "i": 128}, 4, stages)
    made = with_choices(plan, [pricing.at(schedule)])
    T, S = (torch.randn(sizes[a], n, device="cuda", dtype=torch.float16) for a in "qi")
    wanted = T.double() @ S.double().T
    for _ in range(10):
        found, norms = made(T, S)
        assert float((found.double() - wanted).norm(dim=1).max()) < 1e-2 * float(
            wanted.norm(dim=1).max()
        )
        torch.testing.assert_close(norms.double(), T.double().square().sum(1), rtol=2e-3, atol=0)
