"""Threads of a tile where nothing is multiplied."""

from __future__ import annotations

import math

import pytest

from napkin.count.spread import JOINING, Spread


def test_threads_go_along_the_last_axis_first() -> None:
    """The layouts that Triton 3.6 gives tiles of a selective scan."""
    tiles = {"t": 256, "d": 4, "n": 16}
    found = Spread.of("tdn", tiles, 8)
    assert found.lanes == {"t": 1, "d": 2, "n": 16}
    assert found.warps == {"t": 4, "d": 2, "n": 1}
    wide = Spread.of("tdn", {"t": 64, "d": 16, "n": 16}, 8)
    assert (wide.lanes["t"], wide.warps["t"]) == (1, 1)


def test_what_lacks_an_axis_is_computed_by_every_thread_along_it() -> None:
    tiles = {"t": 256, "d": 4, "n": 16}
    found = Spread.of("tdn", tiles, 8)
    assert found.copies("td") == 16
    assert found.copies("tdn") == 1
    assert Spread.of("tdn", tiles, 8, "n").copies("td") == 1  # counted with what rows share


def test_a_scan_is_joined_over_the_threads_along_it() -> None:
    tiles = {"t": 256, "d": 4, "n": 16}
    assert Spread.of("tdn", tiles, 8).joining("t") == 4 * JOINING
    assert Spread.of("tdn", {**tiles, "d": 16}, 8).joining("t") == 0
    row = Spread.of("x", {"x": 4096}, 4, "x")
    assert row.joining("x") == JOINING * (5 + 4) / 8


def test_lanes_take_values_from_each_other_for_each_result_of_a_thread() -> None:
    tiles = {"v": 16, "k": 64}
    assert Spread.of("vk", tiles, 1).reducing("k") == 5 * 16
    assert Spread.of("vk", tiles, 4).reducing("k") == 5 * 8  # two warps along k
    assert Spread.of("k", tiles, 1).reducing("k") == 5


@pytest.mark.parametrize(
    ("axes", "read", "lanes", "warps"),
    [
        ({"t": 32, "d": 16, "n": 16}, "n", (16, 1, 2), (2, 4, 1)),
        ({"f": 64, "m": 8, "b": 8}, "m", (32, 1, 1), (2, 1, 2)),
        ({"v": 32, "k": 128}, "k", (2, 16), (4, 1)),
    ],
)
def test_threads_of_what_is_read_go_along_its_rows_and_then_from_the_first_axis(
    axes: dict[str, int], read: str, lanes: tuple[int, ...], warps: tuple[int, ...]
) -> None:
    """The layouts that Triton 3.6 gives loads of three gradients (`selective_scan`,
    `grouped_experts`, `gated_delta_rule`)."""
    found = Spread.of([*axes], axes, math.prod(warps), read)
    assert tuple(found.lanes[a] for a in axes) == lanes
    assert tuple(found.warps[a] for a in axes) == warps


def test_results_cross_from_warp_to_warp_where_several_have_a_part_of_each() -> None:
    """Lanes lie along d. A thread's 8 results have 8 places each, so all lanes meet in a bank."""
    tiles = {"n": 8, "m": 64, "d": 32}
    assert Spread.of("nmd", tiles, 8).crossing("m") == 2 * 8 * 8 * 32
    assert Spread.of("nmd", tiles, 4).crossing("m") == 2 * 4 * 8 * 32
    assert Spread.of("nmd", {"n": 4, "m": 128, "d": 32}, 4).crossing("m") == 2 * 4 * 4 * 16
    assert Spread.of("mnd", tiles, 8).crossing("m") == 0
    assert Spread.of("nmd", tiles, 8).crossing("d") == 0


def test_axes_are_reduced_one_after_another_from_the_last() -> None:
    """Sixteen lanes have a part of each of 64 values of a thread; then two of each of a few."""
    found = Spread.of("acs", {"a": 16, "c": 64, "s": 16}, 8)
    assert found.reducing("cs") == 4 * 64 + 1 * 16 == found.reducing("s") + 16


@pytest.mark.parametrize(
    ("n", "d", "each", "lanes", "warps"),
    [(1, 128, 1, 32, 4), (4, 64, 2, 32, 1), (8, 64, 4, 16, 1), (64, 64, 8, 8, 1)],
)
def test_threads_read_no_more_at_once_than_there_are_values_for_all(
    n: int, d: int, each: int, lanes: int, warps: int
) -> None:
    """The layouts that Triton gives loads of 16 bits with 4 warps."""
    found = Spread.of("nd", {"n": n, "d": d}, 4, "d")
    assert (found.each["d"], found.lanes["d"], found.warps["d"]) == (each, lanes, warps)
