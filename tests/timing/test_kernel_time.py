"""Time: groups of unequal length, and loops whose products wait for arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from visited_chunks import chunks

import napkin as nk
from napkin.count.crossing import CacheTraffic
from napkin.count.matrix_products import links, recurrent
from napkin.count.shares import longest, share
from napkin.diagram.library import load
from napkin.machine.calibration import Constants
from napkin.machine.machines import Figure, machine
from napkin.plan.plan import Plan
from napkin.schedule import Schedule
from napkin.settings.choice import Choice, in_rank
from napkin.settings.pricing import Pricing
from napkin.settings.tiled import Tiled
from napkin.timing.execution import ACCESSES, DRAM, IMBALANCE, L1, L2, LATENCY, Execution
from napkin.timing.kernel_time import ARRIVAL, CHAIN, ITERATIONS, predict


def attention(keys: nk.KeySet | None) -> nk.Diagram:
    @nk.diagram("h q d, h x d, h x d -> h q d")
    def attention(Q, K, V):
        P = nk.softmax(nk.contract(Q, K, over="d"), over="x", keys=keys)
        return nk.contract(P, V, over="x")

    return attention


@pytest.mark.parametrize(
    ("keys", "ratio"),
    [
        (nk.causal("q", "x"), 16 / 9),  # 2, 4, ... 16 chunks
        (nk.sliding(63, 0, "q", "x"), 1.0 / (23 / 24)),  # 2, then 3
        (nk.sinks(4, "q", "x"), 1.0),
    ],
)
def test_the_longest_group(keys: nk.KeySet, ratio: float) -> None:
    sizes = {"h": 1, "q": 1024, "x": 1024, "d": 64}
    kernel = nk.derive(attention(keys), sizes=sizes).kernels[0].choice.kernel
    tiles = {"h": 1, "q": 128, "x": 64, "d": 64}
    each = [len(chunks(kernel, sizes, tiles, {"h": 0, "q": i})) for i in range(8)]
    assert longest(kernel, sizes, tiles) == pytest.approx(ratio)
    assert longest(kernel, sizes, tiles) == pytest.approx(max(each) * 8 / sum(each))
    assert share(kernel, sizes, tiles)[0] == pytest.approx(sum(each) / 8 / 16)


def test_one_multiprocessor_works_through_the_longest_group() -> None:
    h100, work = machine("h100"), {"product": 1e12, "arithmetic": 0.0, "special": 0.0}
    even = predict(h100, "bf16", Execution(work, h100.sms))
    uneven = predict(h100, "bf16", Execution(work, h100.sms, longest=2.0))
    assert uneven.limited_by == IMBALANCE
    assert uneven.seconds > 1.9 * even.seconds
    many = predict(h100, "bf16", Execution(work, 4 * h100.sms, longest=2.0))
    assert many.limited_by == "tensor cores"


def test_arithmetic_between_products_is_waited_for() -> None:
    h100 = machine("h100")
    work = {"product": 1e12, "arithmetic": 1e10, "special": 2e9}
    beside = predict(h100, "bf16", Execution(work, h100.sms))
    chained = predict(h100, "bf16", Execution(work, h100.sms, chained=True))
    two = Execution(work, 2 * h100.sms, resident=2, chained=True)
    shared = predict(h100, "bf16", two)
    assert beside.seconds < chained.seconds
    assert shared.pipes[CHAIN] == pytest.approx(Constants.of(h100).hidden_2 * chained.pipes[CHAIN])


def test_products_in_a_row_wait_for_each_other() -> None:
    """Beyond two in an iteration, as many as attention has: the gated delta rule has 13."""
    h100 = machine("h100")
    work = {"product": 1e10, "arithmetic": 1e9, "special": 0.0}
    run = Execution(work, h100.sms, chunks=32, pipelined=True, chained=True, rows=32, links=2)
    two, many = (predict(h100, "bf16", replace(run, links=n)).seconds for n in (2, 13))
    c = Constants.of(h100)
    assert many - two == pytest.approx(32 * 11 * 32**2 * c.link)
    assert two == predict(h100, "bf16", replace(run, links=1)).seconds
    found = {n: links(nk.derive(load(n)).kernels[0].choice.kernel) for n in ("matmul", "attention")}
    assert found == {"matmul": 1, "attention": 2}


def test_products_that_read_a_state_wait_for_it_and_groups_hide_that() -> None:
    h100 = machine("h100")
    work = {"product": 1e10, "arithmetic": 1e9, "special": 0.0}
    run = Execution(work, h100.sms, chunks=32, pipelined=True, chained=True, rows=16)
    apart, waits = (predict(h100, "bf16", replace(run, recurrent=c)).seconds for c in (False, True))
    assert waits - apart == pytest.approx(32 * Constants.of(h100).carry, rel=0.05)
    two = replace(run, groups=2 * h100.sms, resident=2, work={k: 2 * v for k, v in work.items()})
    beside = [predict(h100, "bf16", replace(two, recurrent=c)).seconds for c in (False, True)]
    assert beside[1] - beside[0] < 0.7 * (waits - apart)
    names = "attention", "linear_attention", "elman_network", "gated_delta_rule"
    found = [recurrent(nk.derive(load(n)).kernels[-1].choice.kernel) for n in names]
    assert found == [False, False, False, True]


def test_what_a_group_does_after_its_loop_is_not_hidden_by_it() -> None:
    h100 = machine("h100")
    work = {"product": 1e12, "arithmetic": 1e10, "special": 0.0}
    inside = Execution(work, h100.sms, Schedule({}, warps=8), chunks=64, pipelined=True)
    after = replace(inside, tail={"arithmetic": 1e10})
    found = [predict(h100, "bf16", run).seconds for run in (inside, after)]
    lanes = 128 * h100.sms * h100.clock
    assert found[1] - found[0] == pytest.approx(1e10 / lanes)
    # One warp of each scheduler, whose instructions follow from each other, issues half as many.
    four = Schedule({}, warps=4)
    found = [predict(h100, "bf16", replace(x, schedule=four)).seconds for x in (inside, after)]
    assert found[1] - found[0] == pytest.approx(2e10 / lanes)


def test_every_group_of_a_multiprocessor_starts_and_ends_for_itself() -> None:
    """Beside its loop, with or without others on the same multiprocessor; a persistent instance
    starts once; its tiles leave, and what it computes after its loops is computed, in turn."""
    h100 = machine("h100")
    c, groups = Constants.of(h100), 16 * h100.sms
    work = {"product": 1e12, "arithmetic": 1e10, "special": 0.0}
    run = Execution(
        work, groups, Schedule({}, warps=8, stages=10**9), {"arithmetic": 1e10}, stored_bytes=1e8,
        chunks=16, pipelined=True,
    )  # fmt: skip
    alone = predict(h100, "bf16", run)
    arithmetic = 1e10 / (128 * h100.sms * h100.clock)
    stored = 1e8 / groups / c.streamed
    beside = alone.seconds - c.launch - alone.pipes[ITERATIONS]
    assert beside == pytest.approx(arithmetic + 16 * (c.start + stored))
    kept = predict(h100, "bf16", replace(run, schedule=replace(run.schedule, persistent=h100.sms)))
    assert alone.seconds - kept.seconds == pytest.approx(15 * c.start)
    two = predict(h100, "bf16", replace(run, resident=2))
    saved = 16 * (c.start + stored) * (1 - 0.5**0.5)
    assert alone.seconds - two.seconds == pytest.approx(saved)


@pytest.mark.parametrize(("ahead", "resident"), [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2)])
def test_chunks_arrive_no_faster_than_memory_answers(ahead: int, resident: int) -> None:
    """Each group has so many chunks under way, and turns of no work wait for them."""
    h100 = machine("h100")
    c, groups = Constants.of(h100), 8 * h100.sms
    work = {"product": 1e9, "arithmetic": 0.0, "special": 0.0}
    each = 32 * 1024
    run = Execution(
        work, groups, Schedule({}, stages=ahead + 1), inner_bytes=groups * 100 * each, chunks=100,
        pipelined=True, resident=resident,
    )  # fmt: skip
    found = predict(h100, "bf16", run)
    answer = c.arrival + each * h100.sms / (c.l2_share * h100.l2_rate)
    assert found.pipes[ARRIVAL] == pytest.approx(8 / resident * 100 * answer / ahead)
    assert (found.limited_by == ARRIVAL) == (ahead * resident < 3)
    waiting = predict(h100, "bf16", replace(run, pipelined=False))
    assert ARRIVAL not in waiting.pipes


def test_a_fourth_stage_is_for_groups_that_are_alone() -> None:
    """13184 x 1280 x 256 takes 25.6 us with 4 stages and 29.1 with 3 (H100): the 103 groups are
    alone, in one wave. Where waves follow each other 3 are enough."""
    for sizes, deep in (((13184, 1280, 256), True), ((4096, 4096, 4096), False)):
        plan = nk.derive(load("matmul"), on="h100", sizes=dict(zip("abc", sizes, strict=True)))
        (kernel,) = plan.kernels
        assert (kernel.schedule.stages == 4) == deep
        assert kernel.shared_bytes <= plan.machine.shared_per_block
        if deep:
            own = (replace(kernel.schedule, stages=n) for n in (3, 4))
            found = [pricing(plan).at(s).time for s in own]
            assert found[1].seconds < found[0].seconds
            assert found[1].pipes[ARRIVAL] == pytest.approx(2 / 3 * found[0].pipes[ARRIVAL])


def test_groups_come_in_turn_where_a_multiprocessor_takes_several() -> None:
    several, one = {"a": 8192, "b": 1024, "c": 8192}, {"a": 512, "b": 8192, "c": 8192}
    for sizes, on, lasting in ((several, "h100", True), (one, "h100", False),
                               (several, "a100", False)):  # fmt: skip
        choice = nk.derive(load("matmul"), on=on, sizes=sizes).kernels[0].choice
        assert bool(choice.schedule.persistent) == lasting
        if lasting:
            assert choice.schedule.persistent == choice.resident * machine(on).sms
    # Rows that boxes do not serve are loaded without running ahead over groups.
    odd = nk.derive(load("matmul"), on="h100", sizes={"a": 8192, "b": 1024, "c": 8191})
    assert not odd.kernels[0].schedule.persistent


def test_few_multiprocessors_do_not_take_all_that_memory_gives() -> None:
    h100, work = machine("h100"), dict.fromkeys(("product", "arithmetic", "special"), 0.0)
    c = Constants.of(h100)
    few = predict(h100, "bf16", Execution(work, 8, outer_bytes=1e9))
    assert few.pipes[DRAM] == pytest.approx(1e9 / (8 * c.streamed))
    many = predict(h100, "bf16", Execution(work, 1000, outer_bytes=1e9))
    assert many.pipes[DRAM] == pytest.approx(1e9 / (c.dram_share * h100.dram_rate))


def test_a_lone_group_takes_as_long_however_many_there_is_room_for() -> None:
    """A kernel that merges a few states is one group, on a multiprocessor that could hold 16."""
    h100, work = machine("h100"), {"product": 0.0, "arithmetic": 1e6, "special": 0.0}
    found = [
        predict(h100, "bf16", Execution(work, 1, chunks=64, resident=n, pipelined=True))
        for n in (1, 16)
    ]
    assert found[0] == found[1]
    assert found[1].limited_by == LATENCY


def test_a_machine_without_constants_takes_those_that_were_measured() -> None:
    a100 = machine("a100")
    assert not a100.calibration
    assert Constants.of(a100) == Constants.of(machine("h100"))
    own = {**machine("h100").calibration, "iteration": Figure(1e-7, "s", "a test")}
    assert Constants.of(replace(a100, calibration=own)).iteration == 1e-7


def test_a_single_causal_head_does_not_wait_for_its_longest_group() -> None:
    """Large groups make one wave, which lasts as long as its longest."""
    sizes = {"h": 1, "q": 2**15, "x": 2**15, "d": 128}
    plans = [
        nk.derive(attention(keys), on="h100", sizes=sizes, dtype="bf16")
        for keys in (None, nk.causal("q", "x"))
    ]
    dense, causal = (p.kernels[0] for p in plans)
    setting = (causal.tiles["q"], causal.tiles["x"], causal.schedule.warps)
    # 529 and 534 us measured on an H100, for 817 with the setting of the dense one.
    assert setting in {(128, 128, 8), (64, 64, 4)}
    assert dense.choice.time.limited_by in {CHAIN, LATENCY}  # and not by its longest group


# --- how wide loads are, and where rows begin ---------------------------------------------------


def pricing(plan: Plan) -> Pricing:
    """Prices settings of a plan's only kernel."""
    ((kernel, sizes),) = [(k.choice.kernel, k.choice.sizes) for k in plan.kernels]
    return Pricing(kernel, sizes, plan.dtype, plan.machine)


def rows_of(length: int) -> Choice:
    """Softmax over rows of a length, a row in 1,024 lanes."""
    plan = nk.derive(load("softmax"), on="h100", sizes={"n": 65536, "x": length})
    (found,) = in_rank(pricing(plan).unpriced([{"n": 16, "x": 1024}]))
    return found


@pytest.mark.parametrize(
    ("length", "narrow"), [(784, False), (792, False), (790, True), (791, True)]
)
def test_loads_of_few_bytes_set_the_time(length: int, narrow: bool) -> None:
    pipes = rows_of(length).time.pipes
    assert (ACCESSES in pipes) == narrow
    assert not narrow or pipes[ACCESSES] > rows_of(784).time.pipes[L2]


def test_a_value_to_a_load_takes_twice_as_many_as_two() -> None:
    one, two = (rows_of(n).time.pipes[ACCESSES] for n in (791, 790))
    assert one == pytest.approx(2 * two, rel=0.01)
    c, h100 = Constants.of(machine("h100")), machine("h100")
    loads = 2 * 65536 * 1024 / 32  # and stores; lanes past the end are asked, too
    assert one == pytest.approx(loads * c.access / (h100.sms * h100.clock), rel=0.05)


@pytest.mark.parametrize(
    ("b", "c", "lines"),
    [
        (1344, 1472, {"A": 1.0, "B": 1.0}),  # rows of 21 and 23 lines
        (1312, 1472, {"A": 1.5, "B": 1.0}),  # of 20.5: every other one begins inside a line
        (1336, 1480, {"A": 1.875, "B": 1.875}),  # anywhere, in steps of 16 bytes
    ],
)
def test_boxes_of_rows_between_lines_take_longer(b: int, c: int, lines: dict[str, float]) -> None:
    """A piece of 128 bytes touches two lines unless it begins with one."""
    sizes = {"a": 1280, "b": b, "c": c}
    plan = nk.derive(load("matmul"), on="h100", sizes=sizes)
    priced = pricing(plan)
    (found,) = in_rank(priced.unpriced([{"a": 128, "b": 64, "c": 128}]))
    tiled = Tiled(priced.of, found.schedule.tiles)
    assert tiled.lines == lines
    requests = tiled.requests(found.schedule.stages)
    moving = CacheTraffic(requests, plan.machine, tiled.order, found.resident, found.shared)
    place, k = plan.machine, Constants.of(plan.machine)
    crossing = moving.crossing()
    touched = sum(crossing[t, "read"] * (n - 1) for t, n in lines.items())
    assert found.run.partial_bytes == pytest.approx(touched)
    plain = (sum(crossing.values()) + k.partial * touched) / (k.l2_share * place.l2_rate)
    assert found.time.pipes[L2] >= plain


def test_boxes_of_half_a_line_take_longer() -> None:
    """Chunks 32 deep have rows of 64 bytes: 8512 x 14464 x 704 in tiles of 256 x 64 took 483 us
    with them, and 370 with rows of 128 (H100)."""
    plan = nk.derive(load("matmul"), on="h100", sizes={"a": 8512, "b": 14464, "c": 704})
    priced = pricing(plan)
    short, long = (Tiled(priced.of, {"a": 256, "b": b, "c": 64}) for b in (32, 64))
    assert short.lines == {"A": 2.0, "B": 1.0}
    assert long.lines == {"A": 1.0, "B": 1.0}
    assert plan.kernels[0].tiles["b"] == 64


def test_groups_of_different_lengths_share_no_reading_of_l2() -> None:
    """Where all read one chunk at once L2 answers many of them with one reading: causal attention
    with 256 values a head was 1.25 times as long an iteration as without a mask (H100)."""
    h100 = machine("h100")
    c = Constants.of(h100)
    sizes = {"h": 66, "q": 5632, "x": 5632, "d": 256}
    tiles = {"h": 1, "q": 64, "x": 128, "d": 256}
    for keys in (None, nk.causal("q", "x")):
        plan = nk.derive(attention(keys), on="h100", sizes=sizes)
        run = pricing(plan).at(Schedule(tiles, 4, 1)).run
        assert run.staggered == (keys is not None)
        found = predict(h100, "bf16", run)
        same = predict(h100, "bf16", replace(run, staggered=False))
        times = c.l2_share / c.l2_apart if keys else 1.0
        assert found.pipes[L2] == pytest.approx(times * same.pipes[L2])


def test_groups_that_wait_in_every_turn_queue() -> None:
    """One waits for its loads while others compute; each meets the others at what computes."""
    h100 = machine("h100")
    c, groups = Constants.of(h100), 12 * h100.sms
    run = Execution(
        {"product": 1e12, "arithmetic": 1e9, "special": 0.0}, groups, chunks=16, chained=True,
        loads=2,
    )  # fmt: skip
    assert run.waits
    found = [predict(h100, "bf16", replace(run, resident=n)).pipes[LATENCY] for n in (1, 2, 3)]
    assert found[0] > found[1] > found[2]
    computing = found[0] - 12 * 16 * 2 * c.wait
    assert found[2] > predict(h100, "bf16", run).pipes["tensor cores"]
    assert computing == pytest.approx(predict(h100, "bf16", run).pipes[CHAIN])


def test_groups_that_wait_are_ended_like_others() -> None:
    """The longest pipe may be latency or a product that takes as long: what ends a group comes
    after either."""
    h100, work = machine("h100"), {"product": 1e9, "arithmetic": 0.0, "special": 0.0}
    run = Execution(work, h100.sms, inner_bytes=1e6, stored_bytes=1e7, chunks=64, resident=2)
    late = predict(h100, "bf16", run)
    assert late.limited_by == LATENCY
    none = predict(h100, "bf16", replace(run, stored_bytes=0.0))
    assert late.seconds - none.seconds == pytest.approx(
        1e7 / h100.sms / Constants.of(h100).streamed
    )


def rows_run(groups: int, **more: Any) -> Execution:
    """Groups that compute the same, one after another."""
    work = {"product": 0.0, "arithmetic": 4e6 * groups, "special": 0.0}
    return Execution(work, groups, inner_bytes=1e3 * groups, outer_bytes=1e3 * groups, **more)


def test_fewer_groups_than_multiprocessors_are_no_faster() -> None:
    h100 = machine("h100")
    times = [predict(h100, "bf16", rows_run(n)).seconds for n in (1, 4, 66, 132)]
    assert times == pytest.approx([times[-1]] * 4, rel=0.02)


def test_rows_take_as_long_as_the_longest_group_and_as_l1() -> None:
    h100 = machine("h100")
    plain = predict(h100, "bf16", rows_run(1320))
    late = predict(h100, "bf16", rows_run(1320, longest=100.0))
    assert late.limited_by == IMBALANCE
    assert late.seconds > 5 * plain.seconds
    cached = predict(h100, "bf16", rows_run(1320, cached_bytes=1e11))
    assert cached.seconds > 1e11 / h100.register_rate
    assert cached.limited_by == L1


@pytest.mark.parametrize("out", ["o p", "p o"])
def test_a_convolution_of_channels_first_is_priced(out: str) -> None:
    """Its last axis is read through a slide, and has no tile of its own."""

    @nk.diagram(f"c i, w c o -> {out}", sizes={"i": 4096, "c": 256, "w": 3, "o": 256})
    def convolution(X, W):
        return nk.contract(nk.slide(X, over="i", into="p w", padding=1), W, over="w c")

    assert nk.derive(convolution, on="h100").seconds > 0
