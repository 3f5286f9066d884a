"""Sections 5 and 6 of arXiv 2412.03317, from a diagram to a Hopper algorithm: facts 30 to 34.

Everything is derived from the attention diagram and the figures of the machine file; the sizes are
those of the paper's Table 2.
"""

from __future__ import annotations

import math

import pytest

from napkin.count.alignment import combined
from napkin.diagram.library import load
from napkin.machine.machines import machine
from napkin.studies.pipeline.model import Pipeline, pipeline

H100 = machine("h100")
MIXED = {"Q": "fp8", "K": "fp8", "V": "fp16", "O": "fp16"}
KIB = 1024


def design(**storage: str) -> Pipeline:
    """w_q = 128, s_x = u_x = 64, d = 128, d' = 32, d'' = 8, and FP16 in registers."""
    return pipeline(
        load("attention"),
        H100,
        {"q": 8192, "x": 8192, "d": 128},
        tiles={"q": 128, "x": 64},
        inner={"x": 64},
        cuts={("O_x", "d"): 32, ("O", "d"): 8},
        storage=storage,
        dtype="fp16",
        computed="fp16",
    )


mixed = design(**MIXED)


def test_fact_30_marks_combine_by_lcm() -> None:
    along = {m.multiple for m in mixed.alignments if m.axis == "d"}
    # Lines of fp8 and of fp16, the depth of a product in fp8, the columns of one.
    assert along == {128, 64, 32, 8}
    assert combined(mixed.alignments) == {"d": math.lcm(*along), "q": 128, "x": 16}
    assert combined(design().alignments)["d"] == 64


def test_fact_31_configuration() -> None:
    shared, registers = mixed.fit.held
    assert (shared.level, registers.level) == ("shared", "registers")
    assert shared.block_bytes == 48 * KIB
    assert shared.team_bytes == 48 * KIB
    assert registers.team_bytes == 74.75 * KIB
    assert registers.team_bytes / mixed.fit.threads == 598
    assert shared.most == pytest.approx(3.73, abs=0.005)
    assert registers.most == pytest.approx(3.42, abs=0.005)
    assert mixed.fit.teams == 3
    assert mixed.fit.group == 384
    per_thread = [p.bytes / mixed.fit.threads for p in registers.team]
    assert sorted(per_thread) == [2, 2, 2, 16, 64, 128, 128, 256]


def test_fact_32_clocks() -> None:
    (clocks,) = mixed.clocks
    of = {(w.what, w.pipe): w for w in clocks.work}
    assert (of["Q_K", "tensor_fp8"].ops, of["Q_K", "tensor_fp8"].clocks) == (16384, 2)
    assert (of["O_x", "tensor_fp16"].ops, of["O_x", "tensor_fp16"].clocks) == (16384, 4)
    assert sum(w.ops + w.once for w in clocks.on("special")) == 65
    assert clocks.clocks("special") == pytest.approx(4.06, abs=0.005)
    assert (of["O", "fma_fp16"].once, of["O", "fma_fp16"].clocks) == (256, 0.5)
    assert clocks.clocks("tensor") == 6
    assert clocks.ideal == pytest.approx(1.32e15, rel=0.001)


def test_fact_33_group_for_which_loads_keep_up() -> None:
    (clocks,) = mixed.clocks
    dram, _ = clocks.bandwidth(mixed.fit.group)
    assert dram.block == 64 * 128 * (1 + 2)
    assert round(dram.least) == 295
    assert dram.compute == pytest.approx(1.26e-6, rel=0.002)
    assert dram.transfer == pytest.approx(0.97e-6, rel=0.002)
    assert dram.compute > dram.transfer
    for dtype in ("fp16", "fp8"):
        (other,) = design(**dict.fromkeys(MIXED, dtype)).clocks
        assert other.bandwidth(384)[0].least == pytest.approx(dram.least)
        assert other.bandwidth(384)[0].block != dram.block


def test_fact_34_overlap() -> None:
    e = 2 / 3
    # Published kernels take long chunks, in which a turn's one exponential beside the scores' is
    # nothing; the design takes chunks of 64.
    (fp16,) = design().overlaps(long=True)
    (fp8,) = design(**dict.fromkeys(MIXED, "fp8")).overlaps(long=True)
    (own,) = mixed.overlaps()
    assert (fp16.first, fp16.second, fp16.arithmetic) == (4, 4, 4)
    assert (fp8.first, fp8.second, fp8.arithmetic) == (2, 2, 4)
    assert (own.first, own.second, own.arithmetic) == (2, 4, 65 / 16)
    assert fp16.utilisation("intra", e) == pytest.approx(0.75)
    assert fp8.utilisation("inter", e) == pytest.approx(0.60)
    assert fp16.absorbed("inter") == pytest.approx(1.0)
    assert fp8.idle("intra") == pytest.approx(1 / 3)
    assert own.absorbed("inter") == pytest.approx(0.48, abs=0.005)
    # One overhead fits both of FlashAttention-3's published figures: two figures, one fit.
    assert fp16.utilisation("intra", e) == pytest.approx(740 / 989, abs=0.005)
    assert fp8.utilisation("inter", e) == pytest.approx(1.2 / 1.98, abs=0.01)
