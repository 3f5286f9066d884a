"""Kernels of which a few program instances take all groups in turn."""

from __future__ import annotations

from typing import Any

import pytest

import napkin as nk
from napkin.check.verdict import compiled
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.diagram.library import load
from napkin.lower.build import build
from napkin.lower.descriptors import may_persist
from napkin.machine.machines import machine
from napkin.plan.plan import Plan
from napkin.plan.ranked import with_choices
from napkin.run.recipe import recipe_of
from napkin.schedule import Schedule
from napkin.settings.climb import best_tiles


def persistent(name: str, sizes: dict[str, int], programs: int, **changes: Any) -> Plan:
    """The plan of one kernel on an H100, as so many program instances."""
    plan = nk.derive(load(name), on="h100", sizes=sizes)
    (kernel,) = plan.kernels
    choice = kernel.choice.under(persistent=programs, **changes)
    return with_choices(plan, [choice])


@pytest.mark.parametrize("name", ["matmul", "matmul_bias_gelu", "causal_attention"])
def test_instances_take_every_group_once(name: str) -> None:
    """More groups than instances, and no multiple of them: values and bytes are those predicted."""
    planned = dict.fromkeys(load(name).sizes, 1024) | ({"d": 64} if "attention" in name else {})
    small = dict.fromkeys(planned, 40)
    (kernel,) = persistent(name, planned, 3).kernels
    cut = {*kernel.choice.kernel.group, *kernel.choice.kernel.stream.axes}
    tiles = {a: min(n, 16) if a in cut else n for a, n in kernel.tiles.items()}
    plan = persistent(name, planned, 3, tiles=tiles)
    (kernel,) = plan.kernels
    assert kernel.choice.kernel.stream.axes
    assert kernel.program.boxes
    assert plan.recipe.steps[0].entry.schedule.persistent == 3
    assert "tl.range(tl.program_id(0), groups, tl.num_programs(0)" in plan.source
    plan.check(sizes=small, resources=False).raise_if_wrong()


@pytest.mark.parametrize("programs", [0, 3])
@pytest.mark.parametrize("rows", [2, 4])
@pytest.mark.parametrize("batch", [False, True])
def test_groups_in_blocks_of_rows(programs: int, rows: int, batch: bool) -> None:
    """Five groups along a and three along c, which no block divides: every one is computed once,
    and moves what is predicted."""
    diagram = load("matmul").weave("h") if batch else load("matmul")
    planned = {"a": 2048, "b": 2048, "c": 2048} | ({"h": 4} if batch else {})
    plan = nk.derive(diagram, on="h100", sizes=planned)
    (kernel,) = plan.kernels
    tiles = {a: 16 for a in "abc"} | ({"h": 1} if batch else {})
    choice = kernel.choice.under(persistent=programs, swizzle=rows, tiles=tiles)
    plan = with_choices(plan, [choice])
    assert f"in blocks of {rows} along a, times all along c" in plan.source
    small = {"a": 72, "b": 40, "c": 40} | ({"h": 3} if batch else {})
    plan.check(sizes=small, resources=False).raise_if_wrong()


def test_the_recipe_keeps_how_many_instances_there_are() -> None:
    plan = persistent("matmul", {"a": 512, "b": 128, "c": 512}, 7)
    again = recipe_of(plan.recipe.to_json())
    strides = {"A": (128, 1), "B": (512, 1), "C": (512, 1)}
    sizes = {"a": 512, "b": 128, "c": 512}
    assert again.steps[0].launch(sizes, {}, strides).grid == 7
    few = {"a": 16, "b": 128, "c": 16}
    assert again.steps[0].launch(few, {}, strides).grid == 1


@pytest.mark.parametrize("name", ["matmul", "matmul_bias_gelu"])
@pytest.mark.parametrize("size", [1024, 1000])
def test_shared_memory_is_what_is_compiled(name: str, size: int) -> None:
    """The next group's chunks arrive while this one's tile leaves: nothing makes room for it."""
    tiles = {"a": 128, "b": 64, "c": 128}
    sizes = dict.fromkeys("abc", size)
    plan = persistent(name, sizes, 264, tiles=tiles, warps=4, stages=2, described=2)
    found = {r.arch: r for r in compiled(plan)}
    assert found["sm_90"].ok


def test_results_of_one_shape_leave_from_one_place() -> None:
    @nk.diagram("x c, c n, c v -> x n, x v")
    def both(X, U, W):
        return nk.contract(X, U, over="c"), nk.contract(X, W, over="c")

    plan = nk.derive(both, on="h100", sizes={"x": 65536, "c": 512, "n": 128, "v": 128})
    (kernel,) = plan.kernels
    assert kernel.schedule.persistent
    assert len(kernel.program.stores) == 2
    found = {r.arch: r for r in compiled(plan)}
    assert found["sm_90"].ok


def test_one_group_alone_has_no_persistent_instances() -> None:
    """No axis is grouped where two results share none: there is nothing to take in turn."""

    @nk.diagram("e k, b a, h a -> k, h b", sizes={"e": 4, "k": 4, "b": 16, "h": 16, "a": 32})
    def nothing_shared(V: Any, T: Any, B: Any) -> Any:
        return nk.reduce(V, "max", over="e"), nk.contract(T, B, over="a")

    ready = prepare(nothing_shared)
    kernel = label("nothing_shared", ready.outputs, ready.names, group=())
    tiles = {"e": 4, "k": 4, "b": 16, "h": 16, "a": 32}
    plain, lasting = Schedule(tiles, 4, 2), Schedule(tiles, 4, 2, persistent=3)
    for schedule, stays in ((plain, True), (lasting, False)):
        assert (not schedule.persistent or may_persist(build(kernel, schedule))) == stays


def test_persistent_instances_read_in_boxes() -> None:
    """They load ahead what descriptors serve: where no tensor lies along what is streamed, nothing
    is loaded ahead."""

    @nk.diagram("q, x -> q, ()", sizes={"q": 64, "x": 64})
    def nowhere(A: Any, B: Any) -> Any:
        return nk.contract(nk.sin(nk.index("x") * A), over="x"), nk.reduce(B, "max", over="x")

    ready = prepare(nowhere)
    kernel = label("nowhere", ready.outputs[:1], ready.names, streamed="x", group=("q",))
    for programs, stays in ((0, True), (3, False)):
        schedule = Schedule({"q": 16, "x": 16}, 4, 2, described=2, persistent=programs)
        assert (not programs or may_persist(build(kernel, schedule))) == stays


def test_where_no_instances_may_persist_others_are_taken() -> None:
    """Of tiles whose groups begin with "c", weights that lie along "d c" come in no boxes."""

    @nk.diagram("i k d, d c -> c i k", sizes={"i": 512, "k": 512, "d": 128, "c": 128})
    def columns_first(X: Any, W: Any) -> Any:
        return nk.contract(X, W, over="d")

    ready = prepare(columns_first)
    kernel = label("columns_first", ready.outputs, ready.names, streamed="d", group=("c", "i", "k"))
    best = best_tiles(kernel, columns_first.sizes, "bf16", machine("h100"))
    assert best is not None
    assert not best.schedule.persistent
