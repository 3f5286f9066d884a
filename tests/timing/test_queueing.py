"""Groups that share stations: laws of closed queueing networks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin.timing.queueing import cycle

SECONDS = st.floats(1e-3, 1e3)
STATIONS = st.lists(SECONDS, min_size=1, max_size=4)


@given(STATIONS, SECONDS)
def test_a_group_alone_waits_for_none(stations: list[float], delay: float) -> None:
    assert cycle(1, stations, delay) == pytest.approx(delay + sum(stations))


@given(st.integers(1, 8), STATIONS, SECONDS)
def test_a_round_is_as_long_as_its_bounds_say(
    groups: int, stations: list[float], delay: float
) -> None:
    """No shorter than alone, nor than all of them take at the busiest station; no longer than if
    each waited for all others everywhere (asymptotic bounds)."""
    found, alone = cycle(groups, stations, delay), delay + sum(stations)
    close = 1 + 1e-9
    assert found * close >= max(alone, groups * max(stations))
    assert found <= (delay + groups * sum(stations)) * close


@given(st.integers(1, 7), STATIONS, SECONDS)
def test_more_groups_take_longer_each_and_do_more(
    groups: int, stations: list[float], delay: float
) -> None:
    fewer, more = (cycle(n, stations, delay) for n in (groups, groups + 1))
    assert more * (1 + 1e-9) >= fewer
    assert (groups + 1) / more * (1 + 1e-9) >= groups / fewer


@given(st.integers(1, 8), SECONDS)
def test_one_station_is_taken_in_turn(groups: int, seconds: float) -> None:
    assert cycle(groups, [seconds], 0.0) == pytest.approx(groups * seconds)


@given(st.integers(1, 8), SECONDS)
def test_what_is_shared_with_none_holds_nobody_up(groups: int, delay: float) -> None:
    assert cycle(groups, [], delay) == pytest.approx(delay)
