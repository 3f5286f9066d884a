"""One record of a kernel's settings: its plain data, its words, and what contradicts itself."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import napkin as nk
from napkin.diagram.library import load
from napkin.errors import InputError
from napkin.lower.build import build
from napkin.plan.ranked import same_setting, setting_json
from napkin.run.plain import made
from napkin.schedule import Schedule, specialised

TILES = st.dictionaries(
    st.text("abxq_0", min_size=1, max_size=4), st.sampled_from([1, 2, 16, 128]), min_size=1
)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Schedules of every kind."""
    tiles, few = draw(TILES), st.integers(0, 300)
    settings: dict[str, Any] = {k: draw(few) for k in ("swizzle", "described", "persistent")}
    if draw(st.booleans()):
        axis = draw(st.sampled_from(["", *tiles]))
        return specialised(
            tiles, draw(st.integers(1, 4)), axis, draw(st.integers(2, 6)), **settings
        )
    warps, stages = draw(st.integers(1, 16)), draw(st.integers(1, 6))
    return Schedule(tiles, warps, stages, per_thread=draw(st.booleans()), **settings)


@given(schedules())
def test_plain_data_say_all_of_it(schedule: Schedule) -> None:
    again = made(Schedule, json.loads(json.dumps(schedule.to_json())))
    assert again == schedule
    assert hash(again) == hash(schedule)
    assert str(again) == str(schedule)


@given(
    schedules(), st.sampled_from(["warps", "stages", "swizzle", "described", "per_thread", "tiles"])
)
def test_data_of_another_form_is_no_schedule(schedule: Schedule, name: str) -> None:
    for value in ("4", 1.5, None, []):
        with pytest.raises((TypeError, ValueError)):
            made(Schedule, {**schedule.to_json(), name: value})
    with pytest.raises(KeyError):
        made(Schedule, {k: v for k, v in schedule.to_json().items() if k != name})


@given(schedules())
def test_a_group_has_its_part_of_what_cooperative_warpgroups_hold(schedule: Schedule) -> None:
    parts = {a: n // schedule.group[a] for a, n in schedule.tiles.items()}
    shared = {schedule.axis: schedule.warpgroups} if schedule.axis else {}
    assert parts == dict.fromkeys(schedule.tiles, 1) | shared
    assert schedule.launched_warps == (4 if schedule.warpgroups else schedule.warps)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"warpgroups": 2}, "of 2 warpgroups: they have 8 warps, not 4"),
        (
            {"warpgroups": 2, "warps": 8},
            "of 2 warpgroups: a chunk's place is given back one iteration late, "
            "so write 2 stages or more",
        ),
        (
            {"warpgroups": 2, "warps": 8, "stages": 2, "per_thread": True},
            "of 2 warpgroups: their threads keep no partials, so leave per_thread out",
        ),
        (
            {"warpgroups": 3, "warps": 12, "stages": 2, "axis": "q"},
            "of 3 warpgroups: a tile of 128 along q has no equal part for each of them",
        ),
        (
            {"warpgroups": 2, "warps": 8, "stages": 2, "axis": "k"},
            "of 2 warpgroups: they lie along k, which has no tile; tiles are q, x",
        ),
        (
            {"axis": "q"},
            "has no warpgroups, but an axis q along which they lie; say how many "
            "warpgroups there are, or leave the axis out",
        ),
    ],
)
def test_kinds_that_contradict_themselves_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        Schedule({"q": 128, "x": 64}, **settings)
    assert str(caught.value) == f"a schedule {says}"


@pytest.mark.parametrize(("name", "value", "least"), [("stages", 0, 1), ("persistent", -1, 0)])
def test_too_few_are_refused(name: str, value: int, least: int) -> None:
    with pytest.raises(InputError, match=f"{name} of a schedule is {value}; write {least} or more"):
        replace(Schedule({}), **{name: value})


def test_words() -> None:
    tiles = {"q": 64, "x": 128}
    plain = Schedule(tiles, 4, 3)
    lasting = replace(plain, persistent=132, swizzle=8)
    side, iteration = specialised(tiles, 2, "q"), specialised(tiles, 2, persistent=132, swizzle=4)
    kinds = [s.kind for s in (plain, lasting, side, iteration)]
    assert kinds == ["blocks", "persistent", "cooperative", "ping-pong"]
    assert str(plain) == "q=64,x=128; 4 warps, 3 stages"
    assert lasting.words == "4 warps, 3 stages, 132 persistent programs, swizzle 8"
    assert str(side) == (
        "2 warpgroups cooperative along q; q=128,x=128; 8 warps and one load warp, 2 stages"
    )
    assert iteration.side == "2 warpgroups ping-pong"
    assert iteration.words == "8 warps and one load warp, 2 stages, swizzle 4"


def test_a_program_says_what_of_its_schedule_serves_it() -> None:
    """Softmax has lanes and no operands of products; a product has descriptors and no lanes."""
    rows = nk.derive(load("cross_entropy"), on="h100", sizes={"n": 8192, "v": 32000}).kernels[0]
    product = nk.derive(load("matmul"), on="h100").kernels[0]
    for k, wanted in ((rows, (True, 0)), (product, (False, 2))):
        asked = replace(k.schedule, per_thread=True, described=2)
        found = build(k.choice.kernel, asked).schedule
        assert (found.per_thread, found.described) == wanted
        assert k.schedule == found == k.written.entry.schedule
    plain = build(product.choice.kernel, replace(product.schedule, described=0))
    assert plain.boxes == {}


def test_a_remembered_setting_is_found_by_all_of_its_schedule() -> None:
    choice = nk.derive(load("matmul"), on="h100").kernels[0].choice
    data = json.loads(json.dumps(setting_json(choice)))
    assert same_setting(choice, data)
    for name in choice.schedule.to_json():
        assert not same_setting(choice, {k: v for k, v in data.items() if k != name})
    assert not same_setting(choice.under(swizzle=choice.schedule.swizzle + 4), data)
    assert not same_setting(choice, {**data, "stages": choice.schedule.stages + 1})
