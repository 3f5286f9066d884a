"""Threads of a tile where nothing is multiplied."""

from __future__ import annotations

from napkin.count.spread import JOINING, Spread


def test_threads_go_along_the_last_axis_first() -> None:
    """The layouts that Triton 3.6 gives tiles of a selective scan."""
    tiles = {"t": 256, "d": 4, "n": 16}
    found = Spread.of("tdn", tiles, 8, False)
    assert found.lanes == {"t": 1, "d": 2, "n": 16}
    assert found.warps == {"t": 4, "d": 2, "n": 1}
    wide = Spread.of("tdn", {"t": 64, "d": 16, "n": 16}, 8, False)
    assert (wide.lanes["t"], wide.warps["t"]) == (1, 1)


def test_what_lacks_an_axis_is_computed_by_every_thread_along_it() -> None:
    tiles = {"t": 256, "d": 4, "n": 16}
    found = Spread.of("tdn", tiles, 8, False)
    assert found.copies("td") == 16
    assert found.copies("tdn") == 1
    assert Spread.of("tdn", tiles, 8, True).copies("td") == 1  # counted with what rows share


def test_a_scan_is_joined_over_the_threads_along_it() -> None:
    tiles = {"t": 256, "d": 4, "n": 16}
    assert Spread.of("tdn", tiles, 8, False).joining("t") == 4 * JOINING
    assert Spread.of("tdn", {**tiles, "d": 16}, 8, False).joining("t") == 0
    row = Spread.of("x", {"x": 4096}, 4, True)
    assert row.joining("x") == JOINING * (5 + 4) / 8


def test_lanes_take_values_from_each_other_for_each_result_of_a_thread() -> None:
    tiles = {"v": 16, "k": 64}
    assert Spread.of("vk", tiles, 1, False).reducing("k") == 5 * 16
    assert Spread.of("vk", tiles, 4, False).reducing("k") == 5 * 8  # two warps along k
    assert Spread.of("k", tiles, 1, False).reducing("k") == 5
