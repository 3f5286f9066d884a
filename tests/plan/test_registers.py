"""Settings whose kernels would spill registers, beside what the compiler takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.plan.fitting import can_ask, job_of
from napkin.plan.planned import PlannedKernel
from napkin.run.compile import Resources, resources_many
from napkin.settings.pricing import Pricing
from napkin.settings.tiled import Tiled


def counted(k: PlannedKernel) -> float:
    """Registers of a thread, by the planner's count."""
    c, s = k.choice, k.schedule
    of = Pricing(c.kernel, c.sizes, "bf16", k.machine).of
    taken = Tiled(of, dict(s.tiles)).taken(s.warps, s.stages)[1]
    return taken / (4 * 32 * s.warps)


@pytest.mark.parametrize(
    ("name", "tiles", "warps", "stages"),
    [
        ("attention_fp8_kv", {"q": 64, "x": 256, "d": 128}, 8, 2),
        ("document_attention", {"q": 64, "x": 256, "n": 8, "d": 64}, 4, 3),
    ],
)
def test_what_fills_the_registers_of_a_thread_is_left_out(
    name: str, tiles: dict[str, int], warps: int, stages: int
) -> None:
    """These took 255 registers and spilled (sm_90, Triton 3.6)."""
    (kernel, *_) = nk.derive(load(name), on="h100", parts={"x": 1}).kernels
    assert counted(kernel) < 255
    own = kernel.choice.under(tiles=tiles, warps=warps, stages=stages, persistent=0)
    assert counted(replace(kernel, choice=own)) > 255


@pytest.mark.parametrize("name", ["attention_fp8_kv", "document_attention", "dropout_attention"])
def test_kernels_of_plans_spill_nothing(name: str) -> None:
    for kernel in nk.derive(load(name), on="h100").kernels:
        if not can_ask(kernel.machine):
            pytest.skip("no compiler")
        (found,) = resources_many([job_of(kernel, kernel.choice.sizes, "sm_90")])
        assert isinstance(found, Resources)
        assert not found.spills


def test_operands_longer_than_a_box_are_no_boxes() -> None:
    """Tiles of 512 along an axis are loaded value by value, through registers."""
    (kernel, *_) = nk.derive(load("mttkrp"), on="h100", parts={"j": 1, "k": 1}).kernels
    c = kernel.choice
    of = Pricing(c.kernel, c.sizes, "bf16", kernel.machine).of
    tiles = {a: min(n, 256) for a, n in kernel.schedule.tiles.items()}
    assert Tiled(of, tiles).bare
    assert not Tiled(of, {**tiles, "j": 512, "k": 512}).bare


def test_warps_that_hold_the_same_scores_fill_their_registers() -> None:
    (kernel, *_) = nk.derive(load("attention"), on="h100").kernels
    c = kernel.choice
    of = Pricing(c.kernel, c.sizes, "bf16", kernel.machine).of
    tiles = Tiled(of, {"q": 64, "x": 128, "d": 128})
    assert tiles.registers(8) - tiles.registers(4) == 64 * 128 * 4


@pytest.mark.parametrize("name", ["rmsnorm_gradient", "layernorm_gradient"])
@pytest.mark.parametrize("rows", [1, 2])
def test_what_reductions_hold_is_counted(name: str, rows: int) -> None:
    """Rows are held across their sums, beside the sums over rows and the gain."""
    (kernel, *_) = nk.derive(load(name), on="h100").kernels
    if not can_ask(kernel.machine):
        pytest.skip("no compiler")
    tiles = {**kernel.schedule.tiles, "n": rows}
    kernel = replace(kernel, choice=kernel.choice.under(tiles=tiles, warps=8))
    (found,) = resources_many([job_of(kernel, kernel.choice.sizes, "sm_90")])
    assert isinstance(found, Resources)
    assert found.registers is not None
    assert 0.7 * found.registers < counted(kernel) < 1.3 * found.registers
