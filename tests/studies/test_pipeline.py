"""Laws of pipelined algorithms, over every shipped diagram that has one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin.count.alignment import combined
from napkin.count.work import counts
from napkin.derive.kernel import Kernel, leaves, tensor_of
from napkin.diagram.library import load
from napkin.errors import InputError, Refusal
from napkin.ir.evaluate import aligned, evaluate
from napkin.ir.node import Node, in_kind
from napkin.machine.machines import machine
from napkin.studies.pipeline.looped import Block, looped
from napkin.studies.pipeline.model import Pipeline, pipeline
from napkin.studies.pipeline.overlap import Overlap
from napkin.studies.pipeline.timeline import Bar, schedule

H100 = machine("h100")
WITHOUT_KEYS = (
    "attention",
    "grouped_query_attention",
    "l1_attention",
    "layernorm_linear",
    "linear_attention",
    "matmul",
    "matmul_bias_gelu",
    "multi_head_attention",
    "rmsnorm_linear",
    "softcapped_attention",
    "spherical_attention",
)
SPARSE = ("causal_attention", "longformer", "neighborhood_attention_2d", "streaming_llm")


def made(name: str, **given: object) -> Pipeline:
    return pipeline(load(name), H100, dtype="fp16", **given)  # pyright: ignore[reportArgumentType]


# --- the pseudocode -----------------------------------------------------------------------------


def run(kernel: Kernel, arrays: dict[str, np.ndarray], sizes: dict[str, int], chunk: int) -> object:
    """The outputs of the pseudocode, executed column by column's own terms."""
    (*bodies, tail), (axis, *_) = looped(kernel), kernel.stream.axes
    known: dict[Node, np.ndarray] = {}

    def at(block: Block, part: slice) -> dict[Node, np.ndarray]:
        bind = {n: known[n] for n in block.diagram.inputs if n in known}
        for n in block.diagram.inputs:
            if n.op == "input":
                where = tuple(part if a == axis else slice(None) for a in n.axes)
                bind[n] = arrays[tensor_of(n)][where]
        return bind

    for body, p in zip(bodies, kernel.stream.passes, strict=True):
        for s in p.states:
            known[s.leaf("old")] = np.full([sizes[a] for a in s.axes], in_kind(s.init, s.kind))
        for start in range(0, sizes[axis], chunk):
            part = slice(start, min(start + chunk, sizes[axis]))
            box = {axis: range(part.start, part.stop)}
            values = evaluate(body.diagram.roots, at(body, part), sizes, {}, box)
            for s, o, value in zip(p.states, body.diagram.outputs, values, strict=False):
                known[s.leaf("old")] = known[s.leaf("new")] = aligned(value, o.node.axes, s.axes)
    (value,) = evaluate(tail.diagram.roots, at(tail, slice(None)), sizes, {})
    return aligned(value, tail.diagram.roots[0].axes, kernel.outputs[0].axes)


@pytest.mark.parametrize("name", ["attention", "l1_attention", "matmul", "spherical_attention"])
def test_pseudocode_computes_what_the_diagram_does(name: str) -> None:
    diagram, kernel = load(name), made(name).kernel
    sizes = {a: n for a, n in zip(kernel.axes, (3, 7, 5, 4), strict=False)}
    rng = np.random.default_rng(0)
    arrays = {tensor_of(n): rng.normal(size=[sizes[a] for a in n.axes]) for n in diagram.inputs}
    found = run(kernel, arrays, sizes, chunk=2)
    wanted = diagram.evaluate(*(arrays[tensor_of(n)] for n in diagram.inputs))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("name", [*WITHOUT_KEYS, *SPARSE])
def test_every_array_is_read_or_returned(name: str) -> None:
    p = made(name)
    read = {a.leaf for a in p.kernel.reads}
    for block in p.colouring.blocks:
        first, *_, last = [block.block.columns[0], *block.block.columns]
        assert {e.node for e in first if e.node.op == "input"} <= read
        assert {e.node for e in last} >= set(block.block.states)
        for column in block.block.columns:
            assert len({e.node for e in column}) == len(column.entries)
    assert read <= {n for b in p.colouring.blocks for n in leaves(b.block.diagram.roots)}


# --- clocks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITHOUT_KEYS)
def test_clocks_count_the_work_of_the_kernel(name: str) -> None:
    """What every team does in every iteration is what `napkin.count.work` counts for the kernel."""
    p = made(name)
    (clocks,) = p.clocks
    tiles, kernel = p.setting.tiles, p.kernel
    sizes = {a: 4 * n for a, n in tiles.items()}
    sizes |= {a: tiles[a] for a in kernel.whole}
    rows = clocks.rows * math.prod(sizes[a] // n for a, n in tiles.items())
    for pipe, kind in (("tensor", "product"), ("special", "special")):
        mine = sum(w.ops + w.once for w in clocks.on(pipe)) * rows
        own = [c for c in counts(kernel) if c.pipe == kind]
        looped = [c for c in own if c.chunked or kernel.stream.carried(c.axes)]
        assert mine == pytest.approx(sum(c.number(sizes, tiles) for c in looped))


@pytest.mark.parametrize("name", [*WITHOUT_KEYS, *SPARSE])
def test_loads_keep_up_at_the_least_group(name: str) -> None:
    p = made(name)
    for clocks in p.clocks:
        for i, b in enumerate(clocks.bandwidth(p.fit.group)):
            if math.isfinite(b.least) and b.least > 0:
                exact = clocks.bandwidth(b.least)[i]  # pyright: ignore[reportArgumentType]
                assert exact.compute == pytest.approx(exact.transfer)


@pytest.mark.parametrize("d", [64, 128, 256])
def test_the_least_group_of_attention_is_one_for_all_types(d: int) -> None:
    least = [
        pipeline(
            load("attention"), H100, {"d": d}, dtype=dtype, computed="fp16", storage=storage,
            tiles={"q": 64},
        ).clocks[0].bandwidth(64)[0].least
        for dtype, storage in (("fp16", {}), ("fp8", {}), ("fp16", {"Q": "fp8", "K": "fp8"}))
    ]  # fmt: skip
    assert least == pytest.approx([least[0]] * 3)


# --- the configuration --------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*WITHOUT_KEYS, *SPARSE])
def test_what_is_held_fits_and_one_more_team_does_not(name: str) -> None:
    fit = made(name).fit
    assert fit.teams >= 1
    for h in fit.held:
        assert h.block_bytes + fit.teams * h.team_bytes <= h.capacity
    more = fit.teams + 1
    assert more > fit.limit or any(
        h.block_bytes + more * h.team_bytes > h.capacity for h in fit.held
    )


@pytest.mark.parametrize("name", [*WITHOUT_KEYS, *SPARSE])
def test_registers_hold_no_more_than_all_arrays_and_no_less_than_any(name: str) -> None:
    p = made(name)
    registers = p.fit.held[-1]
    body = p.colouring.bodies[-1]
    sizes = [v.bytes for v in body.every if v.level != "shared"]
    states = sum(
        v.bytes for v in body.variables.values() if v.role == "state" and v.node.op == "state"
    )
    assert max(sizes) <= registers.team_bytes <= sum(sizes)
    assert registers.team_bytes >= states


def test_pieces_of_what_is_handed_over_hold_less() -> None:
    plain = made("attention", tiles={"q": 64})
    for d in (64, 32, 16, 8):
        cut = made("attention", tiles={"q": 64}, cuts={("O_x", "d"): d, ("O", "d"): 8})
        assert cut.fit.held[-1].team_bytes < plain.fit.held[-1].team_bytes
        assert cut.clocks[0].pipes == plain.clocks[0].pipes
        plain = cut


def test_inner_chunks_hold_less_and_load_the_same() -> None:
    whole = made("attention", tiles={"q": 64, "x": 64})
    inner = made("attention", tiles={"q": 64, "x": 64}, inner={"x": 32})
    assert inner.fit.held[-1].team_bytes < whole.fit.held[-1].team_bytes
    assert inner.fit.held[0].block_bytes == whole.fit.held[0].block_bytes
    assert inner.clocks[0].clocks("tensor") == whole.clocks[0].clocks("tensor") / 2
    least = [p.clocks[0].bandwidth(64)[0].least for p in (inner, whole)]
    assert least[0] == pytest.approx(least[1])


def transit(p: Pipeline) -> dict[str, int]:
    """Bytes of the places in shared memory between tensor cores and registers, by the way."""
    shared = p.fit.held[0].team
    return {x.what.split(":")[0]: x.bytes for x in shared if x.what.startswith("from")}


@pytest.mark.parametrize("name", ["attention", "l1_attention"])
def test_splitting_a_reduction_shrinks_what_is_handed_to_it(name: str) -> None:
    whole = made(name, tiles={"q": 64}, computed="fp16")
    split = made(name, tiles={"q": 64}, computed="fp16", cuts={("O_x", "x"): 16})
    to, back = "from registers to tensor cores", "from tensor cores to registers"
    assert transit(split)[to] == transit(whole)[to] / 4
    assert transit(split)[back] == transit(whole)[back]
    assert split.fit.held[1].team_bytes == whole.fit.held[1].team_bytes


def test_what_products_only_add_to_stays_where_they_add() -> None:
    (body,) = made("matmul").colouring.bodies
    levels = {v.name: v.level for v in body.variables.values() if v.role == "state"}
    assert set(levels.values()) == {"tensor"}
    assert not any(v.crossing for v in body.every)
    (body,) = made("attention").colouring.bodies
    levels = {v.name: v.level for v in body.variables.values() if v.role == "state"}
    assert set(levels.values()) == {"registers"}


def test_thirteen_warps_of_an_ampere() -> None:
    """The paper's footprint, a quarter of it for a warp: 13 warps by their registers."""
    p = pipeline(
        load("attention"), machine("a100"), {"d": 128}, dtype="fp16", computed="fp16",
        tiles={"q": 32, "x": 64}, cuts={("O_x", "d"): 32, ("O", "d"): 8},
    )  # fmt: skip
    assert int(p.fit.held[-1].most) == 13


# --- overlap ------------------------------------------------------------------------------------

TIMES = st.floats(0.125, 64)


@given(TIMES, TIMES, TIMES, st.floats(0, 8))
def test_overlap(first: float, second: float, arithmetic: float, overhead: float) -> None:
    iteration = Overlap(first, second, arithmetic, "special")
    assert iteration.clocks("inter", overhead) <= iteration.clocks("intra", overhead)
    assert iteration.clocks("intra", overhead) <= iteration.tensor + arithmetic * (1 + overhead)
    for how in ("inter", "intra"):
        assert 0 < iteration.utilisation(how, overhead) <= 1
        assert iteration.idle(how, overhead) >= -1e-12
        room = iteration.absorbed(how)
        if room >= 0:
            assert iteration.utilisation(how, room) == pytest.approx(iteration.utilisation(how, 0))
            assert iteration.clocks(how, 2 * room + 1) > iteration.clocks(how, room)


# --- what is refused ----------------------------------------------------------------------------


def refused(name: str, **given: object) -> str:
    with pytest.raises((InputError, Refusal)) as caught:
        made(name, **given).fit  # noqa: B018
    return str(caught.value)


def test_refusals() -> None:
    assert "it has no matrix product" in refused("softmax")
    assert "no axis of it streams" in refused("unfused_neighborhood_attention_2d")
    said = refused("attention", tiles={"q": 96})
    assert "q=96 is not a multiple of 128" in said
    assert "matrix instructions take rows by 64" in said
    assert said.endswith("write q=128")
    assert "no 'd' to set" in refused("attention", tiles={"d": 64})
    assert "does not divide the chunk" in refused("attention", inner={"x": 48})
    assert "computes no array of that name" in refused("attention", cuts={("Z", "d"): 8})
    assert "O_x has no axis 'k'" in refused("attention", cuts={("O_x", "k"): 8})
    assert "does not divide d=128" in refused("attention", cuts={("O_x", "d"): 48})
    assert "needs the whole of x" in refused("attention", cuts={("Q_K", "x"): 32})
    assert "no 'W' to set" in refused("attention", storage={"W": "fp8"})
    assert "no type 'fp7'" in refused("attention", storage={"Q": "fp7"})
    assert "has no compute pipe 'tensor_fp32'" in refused_clocks("fp32")
    said = refused("attention", tiles={"q": 512})
    assert "a thread needs" in said or "a warpgroup needs" in said
    assert "Q w_q d is 131,072 B" in said or "O w_q d is 131,072 B" in said


def refused_clocks(dtype: str) -> str:
    p = pipeline(load("attention"), H100, {"d": 64}, dtype=dtype)
    with pytest.raises(InputError) as caught:
        p.clocks[0].work  # noqa: B018
    return str(caught.value)


def test_marks_of_broken_wholes_are_reported() -> None:
    p = made("attention", sizes={"d": 40})
    assert p.setting.tiles["d"] == 40
    assert combined(p.alignments)["d"] == 64


def test_types_of_one_design_do_not_touch_another() -> None:
    p = made("attention", storage={"Q": "fp8", "K": "fp8"})
    assert p.stored("fp16").setting == replace(p.setting, storage={}, dtype="fp16")
    assert p.setting.storage == {"Q": "fp8", "K": "fp8"}


# --- the schedule -------------------------------------------------------------------------------


def period(bars: Sequence[Bar], rows: int = 1) -> float:
    """Clocks for one row and one iteration of a team, where the pipeline is full: over the
    iterations of the middle half."""
    last, teams = max(b.iteration for b in bars), len({b.team for b in bars})
    low, high = last // 4, last - last // 4
    done = {i: max(b.end for b in bars if b.iteration == i) for i in (low, high)}
    return (done[high] - done[low]) / ((high - low) * teams * rows)


@given(TIMES, TIMES, TIMES, st.floats(0, 2))
def test_one_team_alone_takes_the_intra_time(a: float, b: float, c: float, e: float) -> None:
    iteration = Overlap(a, b, c, "special")
    bars = schedule(iteration, "intra", teams=1, iterations=8, overhead=e)
    assert period(bars) == pytest.approx(iteration.clocks("intra", e))


@given(TIMES, TIMES, TIMES, st.integers(1, 4), st.sampled_from(["inter", "intra"]))
def test_schedules(a: float, b: float, c: float, teams: int, how: str) -> None:
    iteration, iterations = Overlap(a, b, c, "special"), 6
    bars = schedule(iteration, how, teams=teams, iterations=iterations)
    assert len(bars) == 3 * teams * iterations
    for pipe in ("tensor", "special"):  # serves one at a time
        own = sorted((x for x in bars if x.pipe == pipe), key=lambda x: x.start)
        assert all(x.end <= y.start + 1e-9 for x, y in itertools.pairwise(own))
    at = {(x.team, x.iteration, x.what): x for x in bars}
    for (team, i, _), bar in at.items():  # what waits, waits
        if bar.what == "second":
            assert bar.start >= at[team, i, "arithmetic"].end - 1e-9
        if bar.what == "arithmetic":
            assert bar.start >= at[team, i, "first"].end - 1e-9
    # No schedule is faster than its busiest pipe.
    assert max(x.end for x in bars) >= teams * iterations * max(a + b, c) - 1e-9


def test_three_warpgroups_take_the_inter_time() -> None:
    storages = ({}, {"Q": "fp8", "K": "fp8"}, dict.fromkeys("QKV", "fp8"))
    for storage in storages:
        (iteration,) = made("attention", tiles={"q": 64}, storage=storage).overlaps()
        for overhead in (0.0, 0.4, 2 / 3):
            bars = schedule(iteration, "inter", teams=3, iterations=80, rows=64, overhead=overhead)
            wanted = iteration.clocks("inter", overhead)
            assert period(bars, rows=64) == pytest.approx(wanted, rel=0.01)
