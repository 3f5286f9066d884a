"""Settings ranked, measured and remembered; the device's part is played by numbers."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "measurements"))
from bench_dispatch import played

import napkin as nk
from napkin.diagram.library import load
from napkin.errors import InputError
from napkin.measure.timing import Sample, rounds, sample
from napkin.measure.tune import placed, tune
from napkin.plan.plan import Plan
from napkin.plan.planned import distinct
from napkin.plan.ranked import ranked, setting, setting_json, with_choices
from napkin.plan.tuned import file_of, folder, remember, remembered
from napkin.settings.best import TRIED


@pytest.fixture(scope="module")
def plan() -> Plan:
    return nk.derive(load("attention"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["attention", "softmax", "mlp", "causal_attention"])
def test_the_first_setting_is_the_planners(name: str) -> None:
    plan = nk.derive(load(name))
    kinds = distinct(plan.kernels)
    for k, runs in zip(kinds, distinct(plan.launched.kernels), strict=True):
        found = ranked(plan, k, 5)
        assert setting(found[0]) == setting(runs.choice)
        assert len({setting(c) for c in found}) == 5
        assert [c.rank for c in found[1:]] == sorted(c.rank for c in found[1:])
        assert all(0 <= c.shared <= plan.machine.shared_per_block for c in found)
    again = with_choices(plan, [ranked(plan, k, 1)[0] for k in kinds])
    assert (again.source, again.warpgroups) == (plan.source, plan.warpgroups)


def test_settings_of_a_plan_by_kernel() -> None:
    plan = nk.derive(load("mlp"))
    found = plan.ranked(2)
    assert list(found) == [k.name for k in plan.kernels]
    assert [len(choices) for choices in found.values()] == [2, 2]


def test_other_settings_are_another_plan(plan: Plan) -> None:
    (k,) = plan.kernels
    other = ranked(replace(plan, specialised=False), k, 3)[2]
    turned = with_choices(plan, [other])
    assert turned.kernels[0].tiles == other.schedule.tiles
    assert turned.kernels[0].shared_bytes == other.shared
    assert turned.seconds > plan.seconds
    assert [m for m in turned.trail if m.rule == "separate"] == [
        m for m in plan.trail if m.rule == "separate"
    ]
    assert f"tile x = {other.schedule.tiles['x']}" in str(turned.trail)
    assert str(turned.trail) != str(plan.trail)
    with pytest.raises(InputError, match="has 1 distinct kernels, but 2 settings"):
        with_choices(plan, [other, other])
    (softmax,) = nk.derive(load("softmax")).kernels
    with pytest.raises(InputError, match="is of another kernel"):
        with_choices(plan, [softmax.choice])


def test_predictions_hold_of_other_settings() -> None:
    """Values and bytes of a setting that the planner would not take."""
    plan = nk.derive(load("attention"), sizes={"q": 70, "x": 133, "d": 32})
    other = ranked(plan, plan.kernels[0], 3)[2]
    assert setting(other) != setting(plan.kernels[0].choice)
    with_choices(plan, [other]).check(sizes=plan.sizes, resources=False).raise_if_wrong()


def test_what_is_remembered_is_taken(plan: Plan, cache: Path) -> None:
    (k,) = plan.kernels
    assert remembered(plan) is plan
    other = ranked(plan, k, 4)[3]
    path = remember(plan, [other], {"device": "one"})
    assert path == cache / "tuned-h100.json" == file_of(plan)
    taken = nk.derive(load("attention"), tuned=True)
    assert setting(taken.kernels[0].choice) == setting(other)
    # Other sizes, types and diagrams are other entries.
    for diagram, settings in (
        ("attention", {"sizes": {"q": 512}}),
        ("attention", {"dtype": "fp16"}),
        ("softmax", {}),
    ):
        made = nk.derive(load(diagram), **settings)
        assert remembered(made) is made
    soft = nk.derive(load("softmax"))
    remember(soft, [ranked(soft, soft.kernels[0], 2)[1]])
    assert setting(remembered(plan).kernels[0].choice) == setting(other)
    assert len(json.loads(path.read_text())["plans"]) == 2
    assert [p.name for p in cache.iterdir() if p.is_file()] == ["tuned-h100.json"]


def test_bands_are_remembered(cache: Path) -> None:
    diagram = load("multi_head_attention")
    plan = nk.derive(diagram, on="h100")
    (k,) = plan.kernels
    for cta, groups in (True, 3), (False, 0):
        other = next(c for c in ranked(plan, k, 12)[1:] if bool(c.schedule.warpgroups) == cta)
        remember(plan, [other])
        taken = nk.derive(diagram, on="h100", tuned=True)
        (runs,) = taken.launched.kernels
        assert setting(runs.choice) == setting(other)
        assert runs.schedule.warpgroups == groups


def test_what_cannot_be_used_is_left(plan: Plan, cache: Path) -> None:
    (k,) = plan.kernels
    path = remember(plan, [ranked(plan, k, 2)[1]])
    data = json.loads(path.read_text())
    (entry,) = data["plans"].values()
    entry["kernels"][0]["tiles"]["q"] = 48  # no tile of the planner's
    path.write_text(json.dumps(data))
    assert remembered(plan) is plan
    for text in ("", "{", "[]", '{"format": 99, "plans": {}}', '{"format": 1, "plans": 3}'):
        path.write_text(text)
        assert remembered(plan) is plan
    remember(plan, [k.choice])  # over what could not be read
    assert setting(remembered(plan).kernels[0].choice) == setting(k.choice)


def test_where_it_cannot_be_written(plan: Plan, cache: Path, monkeypatch: Any) -> None:
    (cache / "file").write_text("")
    monkeypatch.setenv("NAPKIN_CACHE", str(cache / "file"))
    with pytest.raises(InputError, match="set NAPKIN_CACHE to a folder of yours"):
        remember(plan, [plan.kernels[0].choice])
    monkeypatch.delenv("NAPKIN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert folder() == Path("/somewhere/napkin")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert folder() == Path("/home/me/.cache/napkin")


def at(us: float) -> Sample:
    return Sample(us, us - 1, us + 1, 10)


def test_predicted_ranks_beside_measured_ones(plan: Plan) -> None:
    choices = ranked(plan, plan.kernels[0], 4)
    found = placed("attention", choices, {0: at(30), 1: at(20), 3: at(40)}, {2: "no launch"})
    assert [r.place for r in found.rows] == [1, 2, 3, 4]
    assert [r.measured_place for r in found.rows] == [2, 1, None, 3]
    assert found.best.choice is choices[1]
    assert found.first_over_best == 1.5
    assert found.agreement == pytest.approx(1 - 6 * 2 / (3 * 8))
    data = found.to_json()
    assert data["best_predicted_rank"] == 2
    assert data["candidates"][2]["note"] == "no launch"
    assert data["candidates"][1] == {
        **setting_json(choices[1]), "predicted_rank": 2, "measured_us": 20, "measured_low_us": 19,
        "measured_high_us": 21, "measured_rank": 1, "note": "",
    }  # fmt: skip


def test_nothing_measured_leaves_the_planners_choice(plan: Plan) -> None:
    choices = ranked(plan, plan.kernels[0], 2)
    found = placed("attention", choices, {}, {0: "no", 1: "no"})
    assert found.best.choice is choices[0]
    assert found.first_over_best is None
    assert found.agreement is None


def test_medians_and_quartiles() -> None:
    assert sample([3.0]) == Sample(3, 3, 3, 1)
    assert sample([5.0, 1.0, 2.0, 3.0, 4.0]) == Sample(3, 2, 4, 5)
    assert rounds([100.0, 300.0], 0.1) == 300  # no more than are of use
    assert rounds([50_000.0, 50_000.0], 0.1) == 10  # no fewer than a median needs
    assert rounds([1000.0, 1000.0], 0.1) == 100


def test_every_setting_can_be_found_again(plan: Plan) -> None:
    (k,) = plan.kernels
    every = ranked(plan, k, TRIED)
    remember(plan, [every[-1]])
    assert setting(remembered(plan).kernels[0].choice) == setting(every[-1])


def test_settings_of_both_kinds_are_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the stand-in for a driver: kernels are compiled, and launched on nothing."""
    launched: list[str] = []
    fastest = 1

    def timed(calls: dict[str, Any], seconds: float) -> dict[str, Sample]:
        launched.clear()
        for call in calls.values():
            call()
        return {i: at(20 if int(i) == fastest else 30) for i in calls}

    monkeypatch.setattr("napkin.measure.tensors.DEVICE", "cpu")
    monkeypatch.setattr("napkin.measure.values.errors", lambda *_: {"O": 0.0})
    same = SimpleNamespace(relative=0.0)
    monkeypatch.setattr("napkin.measure.values.Errors.add", lambda *_: same)
    monkeypatch.setattr("napkin.measure.tune.interleaved", timed)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    sizes = {"b": 1, "h": 32, "q": 1024, "x": 1024, "d": 128}
    plan = nk.derive(load("multi_head_attention"), on="h100", sizes=sizes)
    with played(lambda *given: launched.append(given[0])):
        tuned, (ranking,) = tune(plan, 4, 0)
    assert [r.note for r in ranking.rows] == [""] * 4
    groups = [r.choice.schedule.warpgroups for r in ranking.rows]
    assert 0 in groups
    assert set(groups) > {0}
    rows = [r.choice.schedule.tiles["q"] for r in ranking.rows]
    assert launched == [32 * -(-1024 // n) for n in rows]  # program instances
    assert ranking.best.place == fastest + 1
    (k,) = tuned.launched.kernels
    assert setting(k.choice) == setting(ranking.rows[fastest].choice)
