"""Products whose operands both have a scale for each block of the reduced axis."""

from __future__ import annotations

from typing import Any

import pytest

import napkin as nk
from napkin.algebra.tracer import tracing

FP8 = "m g k:fp8, n g k:fp8, m g:fp32, n g:fp32 -> m n"
INT8 = "m g k:int8, n g k:int8, m g:fp32, n g:fp32 -> m n"
BLOCKS, MX = {"g": 32, "k": 128}, {"g": 128, "k": 32}
LARGE, SMALL = {"m": 4096, "n": 4096}, {"m": 37, "n": 45, "g": 3, "k": 20}


def apart(A: Any, B: Any, sa: Any, sb: Any) -> Any:
    """The exact sum of each block, scaled."""
    return nk.contract(nk.contract(A, B, over="k"), sa, sb, over="g")


def joined(A: Any, B: Any, sa: Any, sb: Any) -> Any:
    """The sum of all blocks, of scaled operands."""
    return nk.contract(A * sa, B * sb, over="g k")


@pytest.mark.parametrize("blocks", [BLOCKS, MX], ids=["128", "32"])
@pytest.mark.parametrize("signature", [FP8, INT8], ids=["fp8", "int8"])
def test_the_sum_of_a_block_is_scaled_in_registers(signature: str, blocks: dict[str, int]) -> None:
    plan = nk.derive(nk.diagram(signature)(apart), on="h100", sizes={**LARGE, **blocks})
    (k,) = plan.kernels
    assert k.choice.kernel.stream.axes == ("g",)
    assert k.tiles["g"] == 1
    body = k.written.source
    assert "tl.dot(" in body
    assert "* sa_tile[:, None] * sb_tile[None, :]" in body
    assert plan.seconds < 800e-6
    plan.check(sizes=SMALL, resources=False).raise_if_wrong()


def test_scaled_operands_are_a_matrix_product() -> None:
    """The sum of each block is scaled: every group that converted its own would take longer."""
    plan = nk.derive(nk.diagram(FP8)(joined), on="h100", sizes={**LARGE, **BLOCKS})
    one = nk.derive(plan.diagram, on="h100", sizes={**LARGE, **BLOCKS}, materialise=[])
    (k,) = plan.kernels
    assert k.choice.kernel.stream.axes == ("g",)
    assert any(m.rule == "refactor" for m in plan.trail)
    assert not any(m.rule == "refactor" for m in one.trail)
    assert plan.seconds < 250e-6 < one.seconds
    for found in (plan, one):
        assert "tl.dot(" in found.kernels[-1].written.source
        found.check(sizes=SMALL, resources=False).raise_if_wrong()


def test_a_product_of_8_bits_is_not_opened() -> None:
    """Scaled, its operands may be rounded: 448 times 1.01 has no value in bf16."""
    opened = []
    for signature in (FP8, FP8.replace(":fp8", "")):
        with tracing() as tracer:
            nk.derive(nk.diagram(signature)(apart), on="h100", sizes={**LARGE, **BLOCKS})
        opened.append([e for e in tracer.events if getattr(e, "kind", "") == "term"])
    assert [bool(terms) for terms in opened] == [False, True]
