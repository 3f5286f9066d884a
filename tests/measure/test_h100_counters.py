"""Predicted bytes beside what Nsight Compute counted on an H100 (80 GB SXM, Triton 3.6), at the
settings that ran: docs/measurements/2026-11-21-h100-counters.txt."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.plan.planned import PlannedKernel
from napkin.schedule import Schedule
from napkin.settings import best
from napkin.settings.labelled import described_bytes
from napkin.settings.pricing import Pricing


@dataclass(frozen=True)
class Ran:
    """One kernel that ran, and what was counted.

    Attributes:
        read, written: bytes from L2 to the multiprocessors, and back.
        from_memory: bytes from memory, from empty caches.
        spilled: bytes that a thread stores of spilled registers, as it was compiled.
        exact: whether all was predicted to the byte.
    """

    tiles: dict[str, int]
    warps: int
    stages: int
    read: int
    written: int
    from_memory: int
    spilled: int = 0
    exact: bool = True


RAN: list[tuple[str, dict[str, int], list[Ran]]] = [
    ("matmul", dict(a=4096, b=4096, c=4096),
     [Ran(dict(a=128, c=256, b=64), 8, 3, 1_610_612_736, 33_554_432, 170_931_200)]),
    ("matmul_bias_gelu", dict(a=2048, b=2048, c=2048),
     [Ran(dict(a=128, c=128, b=64), 4, 3, 268_497_152, 10_354_688, 16_860_672, 60, exact=False)]),
    ("multi_head_attention", dict(b=1, h=32, q=4096, x=4096, d=128),
     [Ran(dict(b=1, h=1, q=128, x=64, d=128), 4, 2, 2_181_038_080, 33_554_432, 104_002_560)]),
    ("causal_attention", dict(q=16384, x=16384, d=128),
     [Ran(dict(q=64, x=64, d=128), 4, 3, 1_082_130_432, 4_194_304, 12_611_072)]),
    ("grouped_query_attention", dict(b=4, k=8, r=4, q=2048, x=2048, d=128),
     [Ran(dict(b=1, k=1, r=1, q=64, x=128, d=128), 4, 1,
          4_362_076_160, 67_108_864, 100_695_040)]),
    ("neighborhood_attention_1d", dict(q=65536, x=65536, d=64),
     [Ran(dict(q=64, x=64, d=64), 4, 3, 92_209_152, 8_388_608, 25_193_984)]),
    ("neighborhood_attention_2d", dict(q0=256, q1=256, x0=256, x1=256, d=64),
     [Ran(dict(q0=8, q1=8, x0=2, x1=32, d=64), 4, 3, 238_026_752, 8_388_608, 25_198_848)]),
    ("layernorm", dict(n=32768, d=8192),
     [Ran(dict(n=2, d=8192), 8, 3, 541_196_288, 536_870_912, 536_949_248)]),
    ("softmax", dict(n=65536, x=4096),
     [Ran(dict(n=2, x=4096), 8, 3, 536_870_912, 536_870_912, 536_897_536)]),
    ("cross_entropy", dict(n=8192, v=32000),
     [Ran(dict(n=4, v=256), 4, 3, 524_353_536, 65_536, 524_336_640)]),
    ("decode_attention", dict(b=4, k=8, r=8, x=16384, d=128),
     [Ran(dict(x_part8=1, b=1, k=1, r=16, x=256, d=128), 4, 1, 269_484_032, 1_064_960, 268_523_520),
      Ran(dict(x_part8=1, b=1, k=1, r=1, d=128), 4, 3, 1_179_648, 65_536, 1_074_176)]),
]  # fmt: skip


def as_it_ran(k: PlannedKernel, ran: Ran) -> PlannedKernel:
    kernel = k.choice.kernel
    pricing = Pricing(kernel, kernel.sized(k.choice.sizes), k.dtype, k.machine)
    item = described_bytes(k.dtype, k.machine)
    choice = pricing.at(Schedule(ran.tiles, ran.warps, ran.stages, described=item, per_thread=True))
    return replace(k, choice=best.resolved(choice))


@pytest.mark.parametrize(("name", "sizes", "ran"), RAN, ids=[name for name, *_ in RAN])
def test_bytes_are_those_counted(
    name: str, sizes: dict[str, int], ran: list[Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("napkin.settings.swizzles.ROWS", ())
    parts = {"x": 8} if name == "decode_attention" else None
    plan = nk.derive(load(name), "h100", sizes, "bf16", parts=parts)
    for planned, counted in zip(plan.kernels, ran, strict=True):
        k = as_it_ran(planned, counted)
        moved = Counter[str]()
        for (_, way), n in k.crossing_at(k.choice.sizes, spilled=counted.spilled).items():
            moved[way] += n
        assert moved["write"] == counted.written
        assert moved["read"] == pytest.approx(counted.read, rel=0 if counted.exact else 1e-4)
        assert k.choice.outer["read"] == pytest.approx(counted.from_memory, rel=0.03)


def test_h_is_what_groups_ask_for() -> None:
    """H of layernorm has weights and biases once for every group; L1 has them after the first."""
    (k,) = nk.derive(load("layernorm"), "h100", dict(n=32768, d=8192), "bf16").kernels
    groups = -(-32768 // k.tiles["n"])
    crossing = k.crossing_at(k.choice.sizes)
    for weights in "GB":
        assert k.bytes[weights, "read"] == 2 * 8192 * groups
        assert crossing[weights, "read"] == 2 * 8192 * 132
    assert crossing["X", "read"] == k.bytes["X", "read"] == 2 * 32768 * 8192


def test_boxes_ask_for_a_sector_more_in_rows_that_begin_between_sectors() -> None:
    """Rows of 2,000 and 16,208 bytes; docs/measurements/2026-11-21-h100-counters-again.txt."""
    (k,) = nk.derive(load("matmul"), "h100", dict(a=8072, b=1000, c=8104), "bf16").kernels
    assert {a: k.tiles[a] for a in "abc"} == {"a": 128, "b": 64, "c": 256}
    read = sum(n for (_, way), n in k.crossing_at(k.choice.sizes).items() if way == "read")
    assert read == pytest.approx(1_811_943_424, rel=1e-5)
