"""Products beside what was measured of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

import napkin as nk
from napkin.derive.kernel import Kernel
from napkin.diagram.library import load
from napkin.machine.machines import machine
from napkin.schedule import Schedule
from napkin.settings.pricing import Pricing

LESS_EXACT = {(8192, 1024, 8192, 3), (1536, 14080, 256, 4), (12800, 1120, 3248, 2)}
"""Sizes and stages of products of 128 x 128 x 64 that are priced 15.2 to 16.7 % above what was
timed, as a launch takes 1.6 us more than when the other constants were fitted to them."""


@cache
def product(name: str) -> Kernel:
    """The kernel of a product, whose labels are the same at any sizes."""
    (kernel,) = nk.derive(load(name), on="h100", parts={"b": 1}).kernels
    return kernel.choice.kernel


@pytest.mark.parametrize(
    ("name", "a", "b", "c", "tiles", "warps", "stages", "microseconds"),
    [
        ("matmul", 8192, 1024, 8192, (128, 128, 64), 4, 3, 228.8),
        ("matmul", 4096, 4096, 4096, (128, 128, 64), 4, 3, 207.3),
        ("matmul", 1536, 14080, 256, (128, 128, 64), 4, 2, 193.6),
        ("matmul", 1536, 14080, 256, (128, 128, 64), 4, 3, 107.6),
        ("matmul", 1536, 14080, 256, (128, 128, 64), 4, 4, 79.3),
        ("matmul", 1536, 14080, 256, (64, 64, 128), 4, 3, 65.1),
        ("matmul", 8192, 1024, 8192, (256, 128, 64), 8, 3, 228.7),
        ("matmul", 8192, 1024, 8192, (128, 128, 64), 4, 2, 236.2),
        ("matmul", 5376, 896, 15104, (128, 128, 64), 4, 2, 292.9),
        ("matmul", 12800, 1120, 3248, (128, 128, 64), 4, 2, 180.8),
        ("matmul", 6400, 1792, 12032, (128, 128, 64), 4, 2, 462.9),
        ("matmul", 768, 1280, 4096, (64, 128, 64), 4, 3, 23.0),
        ("matmul", 4096, 4096, 4096, (128, 256, 64), 8, 3, 188.8),
    ],
)
def test_products_of_low_depth_as_measured(
    name: str, a: int, b: int, c: int, tiles: tuple[int, int, int], warps: int, stages: int,
    microseconds: float,
) -> None:  # fmt: skip
    """On one H100, cold L2 (docs/measurements/bench_model.py new and tiles)."""
    sizes = {"a": a, "b": b, "c": c}
    kernel = product(name)
    pricing = Pricing(kernel, sizes, "bf16", machine("h100"))
    found = pricing.at(Schedule(dict(zip("acb", tiles, strict=True)), warps, stages))
    known = tiles == (128, 128, 64) and (a, b, c, stages) in LESS_EXACT
    within = 0.17 if known else 0.15
    assert found.time.seconds * 1e6 == pytest.approx(microseconds, rel=within)


@pytest.mark.parametrize(
    ("name", "a", "b", "c", "tiles", "warps", "stages", "each", "microseconds"),
    [
        ("matmul", 8192, 1024, 8192, (128, 256, 64), 8, 3, 1, 212.7),
        ("matmul", 8192, 1024, 8192, (128, 128, 64), 4, 3, 1, 279.7),
        ("matmul", 8192, 1024, 8192, (128, 128, 64), 4, 2, 2, 268.2),
        ("matmul", 4096, 4096, 4096, (128, 256, 64), 8, 3, 1, 186.0),
        ("matmul", 4096, 4096, 4096, (128, 128, 64), 4, 3, 1, 269.2),
        ("matmul", 4096, 4096, 4096, (128, 128, 64), 4, 2, 2, 245.6),
        ("matmul_bias_gelu", 8192, 1024, 8192, (128, 256, 64), 8, 3, 1, 258.3),
        ("matmul_bias_gelu", 8192, 1024, 8192, (128, 128, 64), 4, 3, 1, 350.8),
        ("matmul_bias_gelu", 9216, 768, 1536, (128, 256, 64), 8, 3, 1, 56.3),
        ("matmul_bias_gelu", 9216, 768, 1536, (128, 128, 64), 4, 3, 1, 73.5),
    ],
)
def test_persistent_products_as_measured(
    name: str, a: int, b: int, c: int, tiles: tuple[int, int, int], warps: int, stages: int,
    each: int, microseconds: float,
) -> None:  # fmt: skip
    """On one H100, cold L2: they gain where a chunk takes long enough to load the next two."""
    sizes = {"a": a, "b": b, "c": c}
    kernel = product(name)
    pricing = Pricing(kernel, sizes, "bf16", machine("h100"))
    at = dict(zip("acb", tiles, strict=True))
    without = Schedule(at, warps, stages)
    kept = pricing.at(replace(without, persistent=each * machine("h100").sms))
    assert kept.time.seconds * 1e6 == pytest.approx(microseconds, rel=0.1)
    without = pricing.at(without)
    assert (kept.time.seconds < without.time.seconds) == (warps == 8)


def test_persistent_instances_are_taken_where_they_pay() -> None:
    """gelu of tiles of 128 x 128 and 4 warps took 30.0 and 73.5 us in persistent instances, and
    25.2 and 56.5 without (H100)."""
    for a, b, c in ((8192, 512, 768), (9216, 768, 1536)):
        plan = nk.derive(load("matmul_bias_gelu"), on="h100", sizes={"a": a, "b": b, "c": c})
        (kernel,) = plan.kernels
        assert not kernel.schedule.persistent or kernel.schedule.warps == 8
