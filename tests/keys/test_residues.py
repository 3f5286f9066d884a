"""Dilated key sets residue by residue: the same keys, and kernels that visit no others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from dilated import LINE, PLANE, line, plane
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from in_numpy import execute
from launches import launch_of

import napkin as nk
from napkin.check.verdict import run_case
from napkin.count.shares import share
from napkin.derive.kernel import Kernel
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.ir.evaluate import aligned_to, evaluate
from napkin.ir.key_sets import spec_of
from napkin.ir.node import postorder
from napkin.machine.machines import machine
from napkin.moves.derivation import Derivation
from napkin.moves.trail import Trail
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel
from napkin.plan.samples import Case
from napkin.rewrite.split import SplitTerm, split_terms
from napkin.run.arrays import to_device
from napkin.run.interpret import run
from napkin.run.interpreted import run_recipe
from napkin.schedule import Schedule
from napkin.settings.choice import Choice
from napkin.settings.climb import best_tiles
from napkin.settings.labels import labellings
from napkin.timing.execution import Execution, Time


def ways(diagram: nk.Diagram) -> list[SplitTerm]:
    ready = prepare(diagram)
    return list(split_terms(ready.outputs, ready.names))


def split_kernel(diagram: nk.Diagram, streamed: bool = True) -> Kernel:
    """The diagram's kernel with its axes split, keys streamed or held whole."""
    ready, (way,) = prepare(diagram), ways(diagram)
    (node,) = [n for n in postorder(o.node for o in way.outputs) if n.op == "keys"]
    axes = " ".join(spec_of(node).keys)
    return label(
        diagram.name, ready.outputs, ready.names, streamed=axes if streamed else "", split=way
    )


def planned(diagram: nk.Diagram, tiles: Mapping[str, int], streamed: bool = True) -> Plan:
    """The split kernel with given tiles of the diagram's axes; 1 for axes that are not named."""
    return at_tiles(diagram, split_kernel(diagram, streamed), tiles)


def at_tiles(diagram: nk.Diagram, kernel: Kernel, tiles: Mapping[str, int]) -> Plan:
    every = kernel.sized(sizes := diagram.check_sizes({}))
    chosen = {a: tiles.get(a.split("_div_")[0], 1) for a in kernel.axes}
    chosen |= {a: max(2, 1 << (every[a] - 1).bit_length()) for a in kernel.whole}
    choice = Choice(
        kernel, Schedule(chosen, per_thread=True), every, 0, Time(0.0, "", {}), 0, Execution({}, 1)
    )
    own = {n: n for n in (*(x.tensor for x in kernel.reads), *(o.name for o in kernel.outputs))}
    place = machine("h100")
    made = PlannedKernel(choice, own, "fp32", place)
    return Plan(diagram, place, "fp32", sizes, (made,), {}, Trail())


def holds(plan: Plan, sizes: Mapping[str, int]) -> None:
    """Check values against the diagram's, and bytes against what is counted, for every tensor."""
    case = Case("as asked", plan.diagram.check_sizes({**plan.sizes, **sizes}))
    values, traffic = run_case(plan, case, np.random.default_rng(0))
    assert all(v.ok for v in values), values
    assert {t.direction for t in traffic} == {"read", "write"}
    assert all(t.ok for t in traffic), [t for t in traffic if not t.ok]


# --- the key set --------------------------------------------------------------------------------


@st.composite
def dilated_sets(draw: st.DrawFn) -> tuple[nk.KeySet, int]:
    """A key set that can be split, and the size of its axis."""
    step, size = draw(st.integers(2, 6)), draw(st.integers(1, 40))
    kind = draw(st.sampled_from(["dilated", "neighborhood", "strided", "both"]))
    if kind == "strided":
        return nk.strided(step, **LINE, local=False), size
    if kind == "neighborhood":
        assume(size >= step)
        k = draw(st.integers(1, size // step))
        s, causal = draw(st.integers(1, k)), draw(st.booleans())
        return nk.neighborhood(k, s, step, causal, clip=draw(st.booleans()), **LINE), size
    left, right = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    found = nk.dilated(left, right, step, **LINE)
    if kind == "both":
        others = [nk.causal(**LINE), nk.sliding(11, 3, **LINE), nk.blocked(8, 1, **LINE)]
        found &= draw(st.sampled_from(others))
    return found, size


@settings(max_examples=300)
@given(dilated_sets())
def test_every_residue_has_its_own_keys_and_no_others(made: tuple[nk.KeySet, int]) -> None:
    keys, size = made
    (way,) = ways(line(keys, size))
    (q, x), mask = way.pairs[0], keys.mask(size)
    (split,) = [n for n in postorder(o.node for o in way.outputs) if n.op == "keys"]
    sizes = {"q": size, "x": size, q.place: -(-size // q.step), x.place: -(-size // q.step)}
    sizes[q.residue] = q.step
    (value,) = evaluate([split], {}, sizes)
    held = {a: range(n) for a, n in sizes.items()}
    grid = aligned_to(value, split.axes, (q.residue, q.place, x.place), held)
    for r, length in enumerate(q.lengths(size)):
        assert np.array_equal(grid[r, :length, :length], mask[r :: q.step, r :: q.step])
        assert not grid[r, :length, length:].any()
        mask[r :: q.step, r :: q.step] = False
    assert not mask.any()


def test_a_window_is_one_without_gaps() -> None:
    (way,) = ways(line(nk.dilated(5, 3, 3, **LINE), 64))
    (split,) = [n for n in postorder(o.node for o in way.outputs) if n.op == "keys"]
    plain = nk.sliding(5, 3, queries="q_div_3", keys="x_div_3").node
    # The same bounds but for the length of the axis, which is the residue's.
    assert split.args[0] is plain.args[0]
    assert split.args[1].args[0] is plain.args[1].args[0]
    assert split.args[1].args[1] is way.pairs[0][1].length
    (way,) = ways(line(nk.strided(4, **LINE, local=False), 64))
    (split,) = [n for n in postorder(o.node for o in way.outputs) if n.op == "keys"]
    assert split.args == nk.causal(queries="q_div_4", keys="x_div_4").node.args


def test_what_keys_of_other_residues_count_in_is_not_split() -> None:
    assert not ways(line(nk.strided(4, **LINE), 64))
    assert not ways(line(nk.sliding(4, **LINE), 64))
    assert not ways(line(nk.dilated(4, 0, 2, **LINE) | nk.dilated(4, 0, 3, **LINE), 64))
    assert ways(line(nk.dilated(4, 0, 2, **LINE) | nk.dilated(0, 9, 2, **LINE), 64))
    last = nk.index("q") + nk.size("x") - nk.size("q")
    assert not ways(line(nk.dilated(4, 0, 2, at=last, **LINE), 64))

    @nk.diagram("q d, x d, x d -> q d, d")
    def also_dense(Q, K, V):
        P = nk.softmax(nk.contract(Q, K, over="d"), over="x", keys=nk.dilated(4, 0, 2, **LINE))
        return nk.contract(P, V, over="x"), nk.reduce(V, "sum", over="x")

    @nk.diagram("q d, x d, x d -> q d, q")
    def second_sum(Q, K, V):
        S = nk.contract(Q, K, over="d")
        P = nk.softmax(S, over="x", keys=nk.dilated(4, 0, 2, **LINE))
        return nk.contract(P, V, over="x"), nk.reduce(S, "sum", over="x")

    @nk.diagram("q d, x d, x d -> d")
    def over_queries(Q, K, V):
        P = nk.softmax(nk.contract(Q, K, over="d"), over="x", keys=nk.dilated(4, 0, 2, **LINE))
        return nk.reduce(nk.contract(P, V, over="x"), "sum", over="q")

    assert not ways(also_dense)
    assert not ways(second_sum)
    assert not ways(over_queries)


# --- kernels ------------------------------------------------------------------------------------


@nk.diagram(
    "b g r q d, b g x d, b g x d, g r -> b g r q d, b g r q",
    sizes={"b": 1, "g": 2, "r": 2, "q": 4096, "x": 4096, "d": 16},
)
def grouped(Q, K, V, W):
    """Grouped heads, a bias by distance, and a second result."""
    far = W * (nk.index("q") - nk.index("x")) * 0.01
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5 - far
    keys = nk.dilated(31, 0, 4, **LINE)
    P = nk.softmax(S, over="x", keys=keys)
    return nk.contract(P, V, over="x"), nk.reduce(S, "logsumexp", over="x", keys=keys)


@nk.diagram("h q d, h x d, h x d, h q x -> h q d", sizes={"h": 2, "q": 4096, "x": 4096, "d": 16})
def with_matrix(Q, K, V, B):
    """A bias that is read along the diagonal of its residues."""
    S = nk.contract(Q, K, over="d") + B
    P = nk.softmax(S, over="x", keys=nk.neighborhood(32, dilation=3, **LINE))
    return nk.contract(P, V, over="x")


@nk.diagram(
    "h q d, h x d, h x d, h p -> h q d",
    sizes={"h": 2, "q": 4096, "x": 4096, "d": 16, "p": 201},
)
def with_table(Q, K, V, B):
    """A bias that is looked up by distance."""
    S = nk.contract(Q, K, over="d") + nk.take(B, p=nk.index("x") - nk.index("q") + 100)
    P = nk.softmax(S, over="x", keys=nk.neighborhood(32, dilation=3, **LINE))
    return nk.contract(P, V, over="x")


@nk.diagram("h t d -> h t d", sizes={"h": 2, "t": 4096, "d": 16})
def itself(X):
    """One tensor for queries, keys and values, and a causal test beside the key set."""
    Y = nk.rename(X, t="x")
    S = nk.where(nk.index("x") <= nk.index("t"), nk.contract(X, Y, over="d"), -1.0)
    P = nk.softmax(S, over="x", keys=nk.neighborhood(32, dilation=3, queries="t", keys="x"))
    return nk.contract(P, Y, over="x")


PLANNED = [
    (line(nk.dilated(60, 30, 3, **LINE), 8192), {}),
    (line(nk.neighborhood(65, 5, 3, True, **LINE), 8192), {}),
    (line(nk.strided(4, **LINE, local=False), 8192), {}),
    (grouped, {}),
    (with_matrix, {}),
    (with_table, {"p": 201}),
    (itself, {}),
]


@pytest.mark.parametrize(
    ("diagram", "more"),
    PLANNED,
    ids=["window", "causal", "strided", *(d.name for d, _ in PLANNED[3:])],
)
def test_planned_kernels(diagram: nk.Diagram, more: Mapping[str, int]) -> None:
    """Long axes are split; at sizes that the step divides, and at others."""
    plan = nk.derive(diagram, dtype="fp32")
    assert [m.rule for m in plan.trail].count("split") == 1
    q = "t" if "t" in diagram.axes else "q"
    for size in (240, 251):
        holds(plan, {"x": size, q: size} | more)


@pytest.mark.parametrize(
    "keys",
    [
        nk.neighborhood((5, 5), dilation=(2, 3), **PLANE),
        nk.neighborhood((5, 7), (1, 3), (1, 3), (True, False), **PLANE),
        nk.neighborhood((5, 5), (2, 5), (3, 2), (False, True), **PLANE),
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", [(12, 24), (17, 22)])
def test_two_axes(keys: nk.KeySet, layout: tuple[int, int]) -> None:
    a, b = layout
    diagram = plane(keys, *(max(n, 15) for n in layout))
    plan = planned(diagram, {"a": 4, "b": 4, "x": 4, "y": 4})
    holds(plan, {"a": max(a, 15), "x": max(a, 15), "b": b, "y": b})


@pytest.mark.parametrize(
    ("keys", "size", "tiles"),
    [
        # The residues from 1 on have no query in the last group.
        (nk.neighborhood(12, 12, 5, **LINE), 81, {"q": 16, "x": 16}),
        (nk.dilated(3, 1, 4, **LINE), 33, {"q": 1, "x": 1}),
        (nk.dilated(3, 1, 4, **LINE) & nk.blocked(8, 1, **LINE), 33, {"q": 8, "x": 4}),
        (nk.dilated(3, 1, 5, **LINE), 3, {"q": 2, "x": 4}),
        (nk.strided(3, **LINE, local=False), 49, {"q": 16, "x": 16}),
        # A prefix, and keys behind it.
        (nk.strided(3, **LINE, local=False) | nk.dilated(0, 4, 3, **LINE), 25, {"q": 4, "x": 4}),
    ],
    ids=str,
)
@pytest.mark.parametrize("streamed", [True, False])
def test_last_groups_and_tiles_of_one(
    keys: nk.KeySet, size: int, tiles: Mapping[str, int], streamed: bool
) -> None:
    diagram = line(keys, size)
    plan = planned(diagram, tiles, streamed)
    sizes = {"h": 2, "q": size, "x": size, "d": 16}
    holds(plan, sizes)
    rng = np.random.default_rng(0)
    arrays = {t: rng.normal(size=(2, size, 16)) for t in "QKV"}
    kernel = plan.kernels[0].choice.kernel
    ran = execute(kernel, arrays, sizes, plan.kernels[0].tiles)
    assert np.allclose(ran.outputs["O"], diagram.evaluate(*arrays.values()), rtol=1e-12)
    assert {key: 4 * n for key, n in ran.moved.items()} == plan.kernels[0].bytes


def test_places_that_a_group_holds_whole_see_no_keys_where_their_residue_lacks_one() -> None:
    keys = nk.neighborhood(10, 10, 3, True, clip=True, **LINE, at=[nk.index("q") + 0])
    written = nk.diagram("q x, x d -> q d", sizes={"q": 64, "x": 70, "d": 16})
    ahead = written(lambda S, V: nk.contract(nk.erf(S), V, over="x", keys=keys))
    ready, (way,) = prepare(ahead), ways(ahead)
    how = {"streamed": "x_div_3", "group": ["q_mod_3", "d"], "split": way}
    kernel = label("ahead", ready.outputs, ready.names, **how)
    holds(at_tiles(ahead, kernel, {"q": 32, "x": 16, "d": 16}), {})


def test_boxes_are_read_by_address() -> None:
    """A tensor descriptor would read past the end of the shorter residues."""
    plan = nk.derive(line(nk.dilated(60, 30, 3, **LINE), 8192))
    assert plan.kernels[0].choice.kernel.splits
    assert not plan.kernels[0].program.boxes


def test_offsets_of_64_bits() -> None:
    """Places and residues far apart in memory: the same values from wide addresses."""
    size = 33
    diagram = line(nk.dilated(3, 1, 4, **LINE), size)
    plan = planned(diagram, {"q": 4, "x": 4})
    (kernel,) = plan.kernels
    rng, sizes = np.random.default_rng(0), plan.diagram.check_sizes({})
    given = {t: to_device(rng.normal(size=(2, size, 16)), "fp32") for t in "QKV"}
    wanted = run_recipe(plan.recipe, given, sizes, {}).tensors["O"].to_float64()
    given["O"] = to_device(np.zeros((2, size, 16)), "fp32")
    strides = {t: a.strides for t, a in given.items()}
    call = launch_of(kernel, sizes, {}, strides)
    assert not call.constexprs["WIDE"]
    # Tiles of 4 hold 12 places, 4 rows apart, of 4 residues.
    far = 2**31 // (12 * 4 + 4)
    for step, wide in ((far - 64, False), (far + 64, True)):
        moved = {**strides, "K": (16, step, 1)}
        assert launch_of(kernel, sizes, {}, moved).constexprs["WIDE"] is wide
    args = [given[call.tensors[a]] if a in call.tensors else call.scalars[a] for a in call.order]
    run(plan.source, kernel.name, (call.grid,), args, {**call.constexprs, "WIDE": True})
    assert np.array_equal(given["O"].to_float64(), wanted)


# --- what it saves ------------------------------------------------------------------------------


def test_kernels_visit_the_tiles_of_the_simulator() -> None:
    for k, s, d, causal, size in [(9, 1, 3, False, 70), (8, 4, 4, False, 67), (7, 3, 5, True, 64)]:
        plan = planned(line(nk.neighborhood(k, s, d, causal, **LINE), size), {"q": 4, "x": 4})
        check = nk.simulate(
            size, kernel_size=k, stride=s, dilation=d, is_causal=causal, q_tile=4, kv_tile=4,
            kv_tiling="dynamic",
        )  # fmt: skip
        agrees(plan, check)
    keys = nk.neighborhood((5, 4), (2, 1), (2, 3), (False, True), **PLANE)
    plan = planned(plane(keys, 21, 23), {"a": 4, "b": 2, "x": 2, "y": 4})
    check = nk.simulate(
        (21, 23), kernel_size=(5, 4), stride=(2, 1), dilation=(2, 3), is_causal=(False, True),
        q_tile=(4, 2), kv_tile=(2, 4), kv_tiling="dynamic",
    )  # fmt: skip
    agrees(plan, check)


def agrees(plan: Plan, check: Any) -> None:
    choice = plan.kernels[0].choice
    kernel, sizes, tiles = choice.kernel, choice.sizes, choice.schedule.tiles
    axes = [a for a in kernel.axes if a not in {"h", "d"}]
    every = math.prod(-(-sizes[a] // tiles[a]) for a in axes)
    found = [every * part for part in share(kernel, sizes, tiles)]
    assert found == pytest.approx([check.visited, check.visited - check.full])


def test_a_split_kernel_reads_a_fraction() -> None:
    """H away from borders: the hull of a window has the gaps, too."""
    keys = nk.dilated(5, 3, 3, **LINE)
    start = Derivation.start(line(keys, 8192))
    whole = start.stream("x").group("h", "q")
    split = start.split().stream("x_div_3").group("h", "q_div_3", "q_mod_3")
    assert str(whole.H) == "4*d*h*q + 48*d*h*q/g_q"
    assert str(split.H) == "4*d*h*q + 16*d*h*q/g_q_div_3"
    assert str(split.M) == "2*d*g_h*g_q_div_3 + 2*d*g_h*s_x_div_3"
    assert split.cost.flops == start.stream("x").group("h", "q").cost.flops


@pytest.mark.parametrize(("size", "step"), [(128, 2), (256, 5), (8192, 3)])
def test_the_faster_way_is_taken(size: int, step: int) -> None:
    diagram, place = line(nk.dilated(20, 20, step, **LINE), size), machine("h100")
    ready, sizes = prepare(diagram), diagram.check_sizes({})
    found: dict[bool, set[float]] = {False: set(), True: set()}
    for kernel in labellings("attention", ready.outputs, ready.names, sizes):
        choice = best_tiles(kernel, sizes, "bf16", place)
        if choice is not None:
            found[bool(kernel.splits)].add(choice.time.seconds)
    plan = nk.derive(diagram)
    split = bool(plan.kernels[0].choice.kernel.splits)
    assert plan.seconds == min(found[split]) < min(found[not split])
    assert split or size < 8192


def test_values_that_lie_apart_cost_their_sectors() -> None:
    """Keys that are stored with their positions last: residues share sectors."""
    keys = nk.dilated(60, 30, 4, **LINE)

    @nk.diagram("h q d, h d x, h x d -> h q d", sizes={"h": 8, "q": 2**15, "x": 2**15, "d": 16})
    def last(Q, K, V):
        P = nk.softmax(nk.contract(Q, K, over="d"), over="x", keys=keys)
        return nk.contract(P, V, over="x")

    @nk.diagram("h q d, h x d, h x d -> h q d", sizes={"h": 8, "q": 2**15, "x": 2**15, "d": 16})
    def first(Q, K, V):
        P = nk.softmax(nk.contract(Q, K, over="d"), over="x", keys=keys)
        return nk.contract(P, V, over="x")

    found = [nk.derive(d, dtype="bf16").kernels[0].choice for d in (last, first)]
    assert all(c.kernel.splits for c in found)
    # Of 2 bytes wanted 8 cross, of the keys; queries, values and results cross alone.
    seconds = [c.time.pipes["L2 bandwidth"] / c.bytes for c in found]
    assert 1.5 < seconds[0] / seconds[1] < 3
