"""Whole quotients and remainders of what may be negative, on the GPU: threads there hold several
positions in a row, which Triton may take for one."""

from __future__ import annotations

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


@nk.diagram("x -> x, x")
def by_blocks(X: Any) -> Any:
    away = nk.index("x") - 8
    return X + away // 4 * 4, X + away % 4


def test_quotients_and_remainders_round_down() -> None:
    x = torch.randn(4096, device="cuda")
    plan = nk.derive(by_blocks, on="h100", sizes={"x": 4096}, dtype="fp32")
    (k,) = plan.kernels
    pricing = Pricing(k.choice.kernel, k.choice.sizes, "fp32", plan.machine)
    plan = with_choices(plan, [pricing.at(Schedule({"x": 1024}, 4, 3))])
    away = torch.arange(4096, device="cuda") - 8
    rounded = torch.div(away, 4, rounding_mode="floor") * 4
    for found, wanted in zip(plan(x), (x + rounded, x + away % 4), strict=True):
        torch.testing.assert_close(found, wanted)
