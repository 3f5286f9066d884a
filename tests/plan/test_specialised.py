"""Which kernels of a plan run as warpgroups that share what they stream, and what that says."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import cast

import pytest

import napkin as nk
from napkin.check.verdict import check
from napkin.diagram.diagram import Diagram
from napkin.diagram.library import load
from napkin.gradient.gradient import backward
from napkin.gradient.training_pair import backward_with
from napkin.lower.warpgroups.resources import register_budget, registers_of
from napkin.machine.machines import Machine
from napkin.plan.derive import memo_of
from napkin.plan.fitting import job_of
from napkin.plan.keeping import Pairs
from napkin.plan.plan import Plan
from napkin.plan.ranked import ranked, setting, with_choices
from napkin.plan.text import plan_text
from napkin.run.compile import Resources, allocations, resources_many
from napkin.run.recipe import recipe_of
from napkin.settings.specialised import best_specialised, cta_of, every_specialised, that_run

SIZES = {"b": 1, "h": 32, "q": 4096, "x": 4096, "d": 128}


def planned(on: str = "h100", dtype: str = "bf16", sizes: Mapping[str, int] = SIZES) -> Plan:
    return _planned(on, dtype, tuple(sizes.items()))


@cache
def _planned(on: str, dtype: str, sizes: tuple[tuple[str, int], ...]) -> Plan:
    """The plan, which several tests need."""
    return nk.derive(load("multi_head_attention"), on=on, sizes=dict(sizes), dtype=dtype)


def test_two_groups_share_keys_and_values() -> None:
    plan = planned()
    (k,), (plain,) = plan.launched.kernels, plan.kernels
    assert (k.schedule.axis, k.schedule.warpgroups) == ("q", 2)
    assert (k.tiles["q"], k.tiles["x"], plain.schedule.kind) == (128, 128, "blocks")
    groups = SIZES["q"] // k.tiles["q"]
    streamed = 2 * SIZES["h"] * groups * SIZES["x"] * SIZES["d"] * 2
    once = 2 * SIZES["h"] * SIZES["q"] * SIZES["d"] * 2
    assert sum(k.bytes.values()) == streamed + once
    assert sum(k.crossing_at(SIZES).values()) == streamed + once


def test_a_band_is_taken_where_it_is_predicted_to_be_faster() -> None:
    plan = planned()
    assert plan.seconds == plan.launched.kernels[0].choice.time.seconds
    assert plan.seconds < plan.kernels[0].choice.time.seconds
    few = planned(
        sizes={**SIZES, "h": 1, "q": 4096}
    )  # 32 warp-specialised CTAs for 132 multiprocessors
    assert few.launched is few


@pytest.mark.parametrize("settings", [{"on": "a100"}, {"dtype": "fp32"}, {"on": "b200"}])
def test_only_hopper_and_16_bits_have_bands(settings: dict[str, str]) -> None:
    plan = planned(**settings)
    assert plan.launched is plan
    assert plan.warpgroups == ""
    assert all(s.specialised is None for s in plan.recipe.steps)


def test_settings_that_are_asked_for_run_as_they_are() -> None:
    plan = planned()
    again = with_choices(plan, ranked(replace(plan, specialised=False), plan.kernels[0], 1))
    assert again.launched is again
    assert replace(again, specialised=True).launched.kernels[0].schedule.axis == "q"


def test_bands_are_among_the_settings() -> None:
    plan = planned()
    (k,), (own,) = plan.kernels, plan.launched.kernels
    first, *others = ranked(plan, k, 12)
    assert setting(first) == setting(own.choice)
    assert first.shared == own.shared_bytes
    assert [c.rank for c in others] == sorted(c.rank for c in others)
    alone = [setting(c) for c in others if not c.schedule.warpgroups]
    blocks = replace(plan, specialised=False)
    assert alone == [setting(c) for c in ranked(blocks, k, len(alone))]
    specialised = [c for c in others if c.schedule.warpgroups]
    assert specialised
    for cta in specialised[:2]:
        made = with_choices(plan, [cta])
        assert [k.choice for k in made.launched.kernels] == [cta]
        assert made.kernels[0].choice is k.choice
        assert made.recipe.warpgroups != plan.recipe.warpgroups
        assert made.without_descriptors().launched.kernels[0].schedule.kind == "blocks"


def test_sums_are_tuned_over_blocks_of_rows() -> None:
    plan = nk.derive(load("matmul"), on="h100", sizes={"a": 8192, "b": 1024, "c": 8192})
    first, *others = ranked(plan, plan.kernels[0], 4)
    assert setting(first) == setting(plan.launched.kernels[0].choice)
    assert {c.schedule.swizzle for c in (first, *others)} == {0, 4, 8, 16}
    own = first.schedule
    assert all(replace(c.schedule, swizzle=own.swizzle) == own for c in others)
    assert all(c.time == first.time for c in others)
    taken = with_choices(plan, [others[-1]]).launched.kernels[0]
    assert f"swizzle {others[-1].schedule.swizzle}" in taken.schedule.words


def test_a_band_that_is_asked_for_is_checked() -> None:
    plan = planned(sizes={"b": 1, "h": 2, "q": 200, "x": 1000, "d": 64})
    assert plan.launched is plan
    cta = next(c for c in ranked(plan, plan.kernels[0], 60) if c.schedule.warpgroups == 3)
    verdict = with_choices(plan, [cta]).check(sizes=plan.sizes, resources=False)
    verdict.raise_if_wrong()
    assert "warpgroups" in str(verdict)


def test_three_groups_where_registers_allow() -> None:
    plan = planned(sizes={**SIZES, "h": 128, "d": 64})
    (k,) = plan.launched.kernels
    assert k.schedule.warpgroups == 3
    assert k.tiles["q"] == 192


def test_values_of_256_take_chunks_of_64() -> None:
    (k,) = planned(sizes={**SIZES, "d": 256}).launched.kernels
    assert (k.schedule.warpgroups, k.tiles["x"]) == (2, 64)


def test_the_files_of_a_recipe_are_those_of_the_plan_without_the_derivation() -> None:
    plan = planned()
    for file, kept in (
        (plan.source, plan.recipe.source),
        (plan.warpgroups, plan.recipe.warpgroups),
    ):
        (title, _), (same, _) = ((f.split("\n\n", 1)) for f in (file, kept))
        assert title == same
        assert file[file.index("\nimport ") :] == kept[kept.index("\nimport ") :]
        assert "H = " in file
        assert "H = " not in kept


def test_a_recipe_with_bands_is_what_was_written() -> None:
    recipe = planned().recipe
    again = recipe_of(json.loads(json.dumps(recipe.to_json())))
    assert again.warpgroups == recipe.warpgroups != ""
    (step,), (same,) = recipe.steps, again.steps
    strides = {t: (SIZES["h"] * 4096 * 128, 4096 * 128, 128, 1) for t in step.binding.values()}
    call = step.launch_specialised(SIZES, {}, strides)
    assert call is not None
    assert call == same.launch_specialised(SIZES, {}, strides)
    assert call.grid == 32 * 32


def test_tensors_that_descriptors_do_not_serve_take_the_plain_kernel() -> None:
    (step,) = planned().recipe.steps
    odd = {t: (SIZES["h"] * 4096 * 129, 4096 * 129, 129, 1) for t in step.binding.values()}
    assert step.launch_specialised(SIZES, {}, odd) is None


def test_tensors_beyond_32_bits_of_offsets_have_no_bands() -> None:
    """No descriptor serves them, and a plan says what runs."""
    assert not planned(sizes={**SIZES, "b": 1024, "h": 64}).of_warpgroups
    assert planned(sizes={**SIZES, "b": 8}).of_warpgroups


def test_plans_say_their_bands() -> None:
    plan = planned()
    text = plan_text(plan)
    assert "kernel multi_head_attention, 2 warpgroups cooperative along q" in text
    assert "8 warps and one load warp, 2 stages" in text
    (data,) = plan.to_json()["warpgroups"]
    assert (data["axis"], data["warpgroups"]) == ("q", 2)
    assert "warpgroups" not in planned(on="a100").to_json()
    assert plan.warpgroups.count("@gluon.jit") == 3


def test_a_check_holds_both_kernels_to_their_predictions() -> None:
    verdict = check(planned(), sizes={"b": 1, "h": 1, "q": 200, "x": 264, "d": 128})
    assert verdict.ok
    mine = [r for r in verdict.traffic if "warpgroups" in r.kernel]
    assert {(r.tensor, r.direction) for r in mine} == {
        ("Q", "read"), ("K", "read"), ("V", "read"), ("O", "write"),
    }  # fmt: skip
    (row,) = [r for r in verdict.resources if "warpgroups" in r.kernel]
    assert row.operands < row.allocated
    assert row.spills == 0


def test_shared_memory_of_causal_kernels_is_at_most_as_estimated() -> None:
    sizes = {"q": 65536, "x": 65536, "d": 128}
    plan = nk.derive(load("causal_attention"), on="h100", sizes=sizes, dtype="bf16")
    (k,) = plan.launched.kernels
    (taken,) = allocations([job_of(k, sizes, "sm_90")])
    assert isinstance(taken, int)
    assert k.operand_bytes < taken <= k.shared_bytes < k.operand_bytes + 512


@nk.diagram("h q d, h x d, h x e -> h q e, h q, h q, h q")
def summed_up(Q, K, V):
    """Results of one value a row leave in boxes smaller than what warps pass each other."""
    S = nk.contract(Q, K, over="d") * 0.2
    sums = (nk.reduce(x, "sum", over="x") for x in (S * S, nk.tanh(S)))
    return nk.contract(nk.softmax(S, over="x"), V, over="x"), nk.reduce(S, "max", over="x"), *sums


@pytest.mark.parametrize(
    "diagram", [nk.gradient(load("causal_attention").weave("h")), summed_up], ids=lambda d: d.name
)
def test_shared_memory_of_what_warps_pass_each_other_is_counted(diagram: Diagram) -> None:
    """Of many tensors and barriers, that is more than attention passes."""
    sizes = dict.fromkeys(diagram.axes, 64) | {"q": 4096, "x": 4096}
    plan = nk.derive(diagram, on="h100", sizes=sizes, dtype="bf16")
    every = [
        replace(k, choice=c)
        for k in plan.kernels
        for c in every_specialised(k.choice, plan.dtype, plan.machine)
    ]
    assert every
    for k in every:
        (taken,) = allocations([job_of(k, sizes, "sm_90")])
        assert isinstance(taken, int)
        assert taken <= k.shared_bytes <= taken + 64


@nk.diagram("h q d, h x d, h x d, q x:bool -> h q d")
def masked(Q, K, V, M):
    S = nk.where(M, nk.contract(Q, K, over="d") * 0.2, -1e30)
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


@nk.diagram("h q d, h x d, h x d, h q x -> h q d")
def biased(Q, K, V, B):
    return nk.contract(nk.softmax(nk.contract(Q, K, over="d") * 0.2 + B, over="x"), V, over="x")


@pytest.mark.parametrize("diagram", [masked, biased], ids=lambda d: d.name)
def test_a_value_that_is_read_for_each_score_takes_registers(diagram: Diagram) -> None:
    sizes = {"h": 64, "q": 4096, "x": 4096, "d": 64}
    plan = nk.derive(diagram, on="h100", sizes=sizes, dtype="bf16")
    (k,) = plan.kernels
    every = [*every_specialised(k.choice, plan.dtype, plan.machine)]
    assert {c.schedule.warpgroups for c in every} == {2, 3}
    found = resources_many([job_of(replace(k, choice=c), sizes, "sm_90") for c in every])
    assert [r.spills for r in found if isinstance(r, Resources)] == [0] * len(every)


def test_a_choice_without_room_for_what_its_warps_pass_is_not_taken() -> None:
    found = best_specialised(planned().kernels[0].choice, "bf16", planned().machine)
    assert found is not None

    for room in (found.shared, found.shared - 1):
        kept = that_run([found], cast(Machine, SimpleNamespace(shared_per_block=room)))
        assert [c.shared for c in kept] == [found.shared] * (room == found.shared)


def test_a_choice_has_the_tiles_of_all_its_groups() -> None:
    plan = planned()
    found = best_specialised(plan.kernels[0].choice, "bf16", plan.machine)
    assert found is not None
    cta = cta_of(found)
    assert cta.program.tiles["q"] * cta.groups == found.schedule.tiles["q"]
    assert found.shared <= plan.machine.shared_per_block


@pytest.mark.parametrize("name", ["multi_head_attention", "causal_attention"])
def test_gradients_of_attention_run_as_warpgroups(name: str) -> None:
    f = load(name) if name[0] == "m" else load(name).weave("b h")
    back, sizes = backward(f), {"b": 4, "h": 16, "q": 4096, "x": 4096, "d": 128}
    pairs = Pairs(f, back, sizes, memo_of("h100", "bf16"), "fastest")
    kept = tuple(k for k in pairs.keepable if k.name in {"O", "m", "z"})
    plan = nk.derive(backward_with(back, kept), on="h100", sizes=sizes, dtype="bf16")
    along = {k.schedule.axis: k for k in plan.launched.kernels}
    assert set(along) == {"q", "x"}
    for k in along.values():
        cta = cta_of(k.choice)
        assert cta.at_once
        assert registers_of(cta) <= register_budget(cta)
        assert k.schedule.warpgroups * 64 == k.tiles[k.schedule.axis]
