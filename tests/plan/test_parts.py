"""Streams folded in parts side by side, and merged: split-K and flash-decoding from the fold."""

from __future__ import annotations

import numpy as np
import pytest

import napkin as nk
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.derive.rules.part import part_axis, parted
from napkin.diagram.diagram import Diagram
from napkin.diagram.library import load
from napkin.errors import InputError, Refusal
from napkin.machine.calibration import Constants
from napkin.machine.machines import machine
from napkin.settings.choose import PAYS

DECODE = {"q": 1, "x": 65536, "d": 128, "h": 32}


def kernel(diagram: Diagram, streamed: str):
    ready = prepare(diagram)
    return label(diagram.name, ready.outputs, ready.names, streamed=streamed)


@pytest.mark.parametrize(
    ("name", "axis", "number"),
    [
        ("attention", "x", 3),
        ("spherical_attention", "x", 4),
        ("matmul", "b", 5),
        ("matmul_bias_gelu", "b", 2),
        ("variance", "x", 4),
        ("logsumexp", "v", 7),
    ],
)
def test_parts_compute_the_diagram_and_move_what_is_predicted(
    name: str, axis: str, number: int
) -> None:
    diagram = load(name)
    assert axis in diagram.axes
    small = {a: min(n, 32) for a, n in diagram.sizes.items()} | {axis: 512}
    plan = nk.derive(diagram, on="h100", sizes=small, parts={axis: number})
    assert plan.parts == {part_axis(axis, number): number}
    assert [k.name.rsplit("_", 1)[1] for k in plan.kernels] == ["parts", "merge"]
    ragged = {a: n - 3 for a, n in small.items() if a != axis and a != "d"} | {axis: 331}
    plan.check(sizes=ragged).raise_if_wrong()


@pytest.mark.parametrize("length", [1, 129, 1000])
def test_parts_past_the_end_are_empty(length: int) -> None:
    """With eight parts of at least one chunk each, some have nothing to fold."""
    plan = nk.derive(load("attention"), on="h100", sizes={"x": 4096, "q": 16}, parts={"x": 8})
    plan.check(sizes={"q": 5, "x": length, "d": 128}).raise_if_wrong()


def test_what_parts_cost() -> None:
    """The chunks cross once whatever the parts; what is held crosses, and states are, once each."""
    first, second = parted(kernel(load("attention"), "x"), 4)
    from napkin.bound.symbolic_cost import Cost

    assert str(Cost(first).H.total) == ("2*d*q*x_part4 + 2*d*q*x/g_q + 2*q*x_part4")
    assert str(Cost(second).H.total) == "d*q*x_part4 + d*q + 2*q*x_part4"
    assert str(Cost(first).flops) == str(Cost(kernel(load("attention"), "x")).flops)


def test_decode_is_cut_in_parts_by_itself() -> None:
    diagram = load("multi_head_attention")
    plan = nk.derive(
        diagram, on="h100", sizes={**diagram.sizes, "b": 1, "h": 32, "q": 1, "x": 65536}
    )
    assert [k.name for k in plan.kernels] == [f"{diagram.name}_parts", f"{diagram.name}_merge"]
    groups = np.prod([-(-plan.kernels[0].choice.sizes[a] // plan.kernels[0].tiles[a])
                      for a in plan.kernels[0].choice.kernel.group])  # fmt: skip
    assert groups >= 64
    alone = nk.derive(diagram, on="h100", sizes=plan.sizes, parts={"x": 1})
    assert plan.seconds < alone.seconds
    assert "part x = " in str(plan.trail)
    assert "merge x_part" in str(plan.trail)


def test_enough_groups_are_left_alone() -> None:
    for name in ("attention", "matmul", "multi_head_attention", "grouped_query_attention"):
        assert not nk.derive(load(name), on="h100").parts


@pytest.mark.parametrize(
    ("a", "b", "c", "number"),
    [(1536, 14080, 256, 4), (1344, 11584, 2048, 1), (13184, 1280, 256, 1)],
)
def test_products_are_cut_where_two_kernels_are_clearly_faster(
    a: int, b: int, c: int, number: int
) -> None:
    """As measured (H100): 42.8 us in 4 parts and 65.1 whole; 119.6 in 2 parts and 116.9 whole."""
    plan = nk.derive(load("matmul"), on="h100", sizes={"a": a, "b": b, "c": c})
    assert plan.parts == ({part_axis("b", number): number} if number > 1 else {})
    if number > 1:
        whole = nk.derive(load("matmul"), on="h100", sizes=plan.sizes, parts={"b": 1})
        assert plan.seconds < PAYS["products"] * whole.seconds


def test_the_second_launch_is_paid_for() -> None:
    """A merge takes at least a launch, and what it reads and writes."""
    h100 = machine("h100")
    c = Constants.of(h100)
    for number in (2, 8):
        sizes = {"a": 1536, "b": 14080, "c": 256}
        plan = nk.derive(load("matmul"), on="h100", sizes=sizes, parts={"b": number})
        merge = plan.kernels[1].choice
        moved = 1536 * 256 * (4 * number + 2)
        assert merge.time.seconds >= c.launch + moved / h100.dram_rate
        assert plan.seconds == pytest.approx(sum(k.choice.time.seconds for k in plan.kernels))


def test_what_cannot_be_cut_is_refused() -> None:
    with pytest.raises(Refusal, match="nothing is streamed"):
        parted(kernel(load("attention"), ""), 2)
    with pytest.raises(Refusal, match="a key set says which chunks of x each group visits"):
        parted(kernel(load("causal_attention"), "x"), 2)
    ready = prepare(load("softmax"))
    with pytest.raises(Refusal, match="is read in 2 passes"):
        parted(label("softmax", ready.outputs, ready.names, streamed="x", passes=2), 2)


def test_messages() -> None:
    with pytest.raises(InputError, match="parts: no axis 'y'; "):
        nk.derive(load("attention"), on="h100", parts={"y": 2})
    with pytest.raises(InputError, match="parts: x=0 is not a whole number from 1"):
        nk.derive(load("attention"), on="h100", parts={"x": 0})
    with pytest.raises(InputError, match="parts: x=65, but x has 64 values, and at most as many"):
        nk.derive(load("attention"), on="h100", sizes={"x": 64}, parts={"x": 65})


@pytest.mark.parametrize(
    ("name", "axis", "size", "reason"),
    [
        ("attention", "q", 64, r"no kernel streams q; instead, split a streamed axis \(x\)"),
        ("softmax", "x", 64, "no kernel streams x; instead, leave the parts out"),
        ("causal_attention", "x", 512, "a key set says which chunks of x each group visits"),
    ],
)
def test_parts_that_no_kernel_has_are_refused(name: str, axis: str, size: int, reason: str) -> None:
    with pytest.raises(Refusal, match=f"4 parts of {axis} is refused at {name}: {reason}"):
        nk.derive(load(name), on="h100", sizes={axis: size}, parts={axis: 4})
    nk.derive(load(name), on="h100", sizes={axis: size}, parts={axis: 1})  # asks for nothing


def test_a_recipe_keeps_the_number_of_parts() -> None:
    from napkin.run.recipe import recipe_of

    plan = nk.derive(load("attention"), on="h100", sizes={"q": 16}, parts={"x": 8})
    again = recipe_of(plan.recipe.to_json())
    assert again.full({"q": 5})["x_part8"] == 8


def test_a_whole_array_summed_to_one_value() -> None:
    """Nothing is grouped but the parts: each state is a single value, with a formula all the
    same."""

    @nk.diagram("x, x -> ()", sizes={"x": 2**20})
    def dot(X, Y):
        return nk.contract(X, Y, over="x")

    plan = nk.derive(dot, on="h100")
    first, second = plan.to_json()["kernels"]
    assert first["M_levels"]["registers"] == "s_x + 1"
    assert second["H"]["per_tensor"]["O"] == "1"
    plan.check(sizes={"x": 5001}, resources=False).raise_if_wrong()
