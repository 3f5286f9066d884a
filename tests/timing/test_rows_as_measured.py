"""The time model beside parts of gradients of norms, as timed on an H100 (docs/measurements)."""

from __future__ import annotations

import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.machine.machines import machine
from napkin.schedule import Schedule
from napkin.settings.pricing import Pricing

SIZES = {"n": 16384, "d": 4096}


def priced(name: str, parts: int, rows: int, warps: int, stages: int) -> float:
    """Microseconds of the kernel that folds parts, as it is priced."""
    kernel = nk.derive(load(name), on="h100", sizes=SIZES, parts={"n": parts}).kernels[0].choice
    tiles = {**kernel.schedule.tiles, "n": rows}
    pricing = Pricing(kernel.kernel, kernel.sizes, "bf16", machine("h100"))
    return 1e6 * pricing.at(Schedule(tiles, warps, stages, per_thread=True)).time.seconds


@pytest.mark.parametrize(
    ("name", "parts", "rows", "warps", "stages", "us"),
    [
        ("rmsnorm_gradient", 132, 1, 8, 3, 165.4),
        ("rmsnorm_gradient", 264, 1, 8, 3, 149.2),
        ("rmsnorm_gradient", 264, 1, 8, 1, 180.8),
        ("layernorm_gradient", 132, 1, 8, 3, 174.8),
        ("layernorm_gradient", 264, 1, 8, 3, 151.8),
        ("layernorm_gradient", 264, 1, 8, 1, 194.2),
    ],
)
def test_rows_that_are_loaded_ahead(
    name: str, parts: int, rows: int, warps: int, stages: int, us: float
) -> None:
    """The last groups end with a row of the others, and not with a round of theirs."""
    assert priced(name, parts, rows, warps, stages) == pytest.approx(us, rel=0.12)


@pytest.mark.parametrize("name", ["rmsnorm_gradient", "layernorm_gradient"])
def test_groups_that_load_ahead_take_less_time(name: str) -> None:
    assert priced(name, 264, 1, 8, 3) < 0.95 * priced(name, 264, 1, 8, 1)


def test_parts_fill_every_multiprocessor() -> None:
    plan = nk.derive(load("layernorm_gradient"), on="h100", sizes=SIZES)
    assert list(plan.parts.values()) == [264]
