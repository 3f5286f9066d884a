"""What generations of GPUs offer, as their machine files name them."""

from __future__ import annotations

import pytest

from napkin.machine.machines import machine
from napkin.target import target_of


@pytest.mark.parametrize(
    ("name", "descriptors", "warpgroups", "fp8", "slots"),
    [
        ("mi300x", False, False, False, 2),
        ("a100", False, False, False, 2),
        ("l40s", False, False, True, 2),
        ("h100", True, True, True, 3),
        ("b200", True, False, True, 3),
        ("rtx5090", True, False, True, 3),
    ],
)
def test_a_machine_offers_what_its_generation_does(
    name: str, descriptors: bool, warpgroups: bool, fp8: bool, slots: int
) -> None:
    found = machine(name).target
    assert (found.has_descriptors, found.has_warpgroups) == (descriptors, warpgroups)
    assert (found.flattens, found.has_fp8, found.slots(3)) == (warpgroups, fp8, slots)
    assert found.slots(1) == 1


def test_an_architecture_is_a_capability_with_or_without_a_letter() -> None:
    assert target_of("sm_90a") == target_of("sm_90") != target_of("sm_89")
    assert target_of("gfx942").capability == 0


@pytest.mark.parametrize(
    ("tile", "item", "right"),
    [
        ((512, 128), 2, False),
        ((128, 512), 2, False),
        ((512, 64), 2, True),
        ((256, 256), 2, True),
        ((512, 128), 1, True),
        ((512, 256), 1, False),
    ],
)
def test_tiles_of_several_boxes_both_ways_are_not_transposed(
    tile: tuple[int, int], item: int, right: bool
) -> None:
    assert machine("h100").target.transposes(tile, item) == right
    assert machine("b200").target.transposes(tile, item) == right
    assert machine("a100").target.transposes(tile, item)
