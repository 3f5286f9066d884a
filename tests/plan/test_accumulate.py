"""Groups that add their sums to one array in memory: what they compute, cost and promise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.algebra import rule
from napkin.algebra.rule import LawError
from napkin.bound.symbolic_cost import Cost
from napkin.derive.kernel import Kernel
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.derive.rules import accumulate as rules
from napkin.derive.rules.accumulate import ACCUMULATED, adding_parts
from napkin.diagram.diagram import Diagram
from napkin.diagram.library import load
from napkin.gradient.gradient import backward
from napkin.gradient.training_pair import backward_with
from napkin.ir.infer import pointwise
from napkin.ir.storage import storage_type
from napkin.lower.build import build
from napkin.machine.machines import Machine, machine
from napkin.plan.derive import memo_of
from napkin.plan.keeping import Pairs
from napkin.plan.plan import Plan
from napkin.plan.standalone import standalone
from napkin.run.recipe import recipe_of
from napkin.schedule import specialised
from napkin.settings.labelled import least_seconds
from napkin.timing.execution import ADDITIONS, Execution
from napkin.timing.kernel_time import predict


def adding(rate: float) -> Machine:
    """An H100 that adds in memory at this share of the rate of L2."""
    h100 = machine("h100")
    known = h100.calibration
    figures = {n: replace(known[n], value=rate) for n in ("l2_adds", "l2_bulk_adds")}
    return replace(h100, calibration={**known, **figures})


FREE = adding(100.0)


def attention_of(keys: Any = None) -> Diagram:
    @nk.diagram("q d, x d, x d -> q d")
    def attention(Q: Any, K: Any, V: Any) -> Any:
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")

    return attention


def backward_of(f: Diagram, sizes: Mapping[str, int]) -> Diagram:
    """The backward pass that reads the output, and the maximum and the sum of each row."""
    pairs = Pairs(f, backward(f), sizes, memo_of("h100", "bf16"), "fastest")
    kept = tuple(k for k in pairs.keepable if k.name in {"O", "m", "z"})
    return backward_with(pairs.back, kept)


def one_kernel(f: Diagram, sizes: Mapping[str, int], on: Machine = FREE) -> Plan:
    """The plan in which all results come from one pass."""
    return nk.derive(backward_of(f, sizes), on, sizes, "bf16", materialise=[], deterministic=False)


SIZES = {"q": 384, "x": 384, "d": 64}

SUM = "dQ_z2_sum"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return one_kernel(attention_of(), {**SIZES, "q": 256})


def accumulated(f: Diagram, axis: str, stream: str) -> tuple[Kernel, Kernel]:
    ready = prepare(backward_of(f, SIZES))
    (found,) = ACCUMULATED.matches("k", ready.outputs, ready.names, axis, stream)
    return ACCUMULATED.apply(found)


# --- what is derived ------------------------------------------------------------------------


def test_attention_s_backward_pass_is_one_kernel_of_five_products() -> None:
    first, second = accumulated(attention_of(), "x", "q")
    assert first.added == ("z2_sum",)
    assert [o.name for o in first.outputs] == ["dK", "dV", "z2_sum"]
    assert [o.name for o in second.outputs] == ["dQ"]
    assert str(Cost(first).flops) == "10*d*q*x"
    found = Cost(first).H.per_tensor
    assert str(found["z2_sum"]) == "d*q + d*q*x/g_x"
    assert str(found["dK"]) == "d*x"
    assert str(Cost(second).H.total) == "2*d*q"


def test_the_other_axis_adds_two_results() -> None:
    first, second = accumulated(attention_of(), "q", "x")
    assert first.added == ("z3_sum", "dV_sum")
    assert [o.name for o in second.outputs] == ["dK", "dV"]


def test_warpgroups_that_take_turns_have_no_sum_over_the_rows_of_all() -> None:
    """Beside a product of two arrays, one of a computed array is summed over the rows of a tile."""

    @nk.diagram("i n, n, i c, n c -> n c, i c", name="weighted")
    def weighted(A: Any, k: Any, X: Any, Y: Any) -> Any:
        return nk.contract(A, X, over="i"), nk.contract(A * k, Y, over="n")

    ready = prepare(weighted)
    (found,) = ACCUMULATED.matches("k", ready.outputs, ready.names, "n", "i")
    first, _ = ACCUMULATED.apply(found)
    assert first.added == ("O2_sum",)
    tiles = {"c": 16, "n": 256, "i": 64}
    assert not build(first, specialised(tiles, 2)).adds


def test_a_key_set_says_what_is_added() -> None:
    first, _ = accumulated(attention_of(nk.causal("q", "x")), "x", "q")
    assert first.visits is not None
    plain = replace(first, added=())  # what is stored has to be stored everywhere
    assert plain.visits is None


@nk.diagram("q x -> q, x, x")
def a_maximum_beside_a_sum(X: Any) -> Any:
    top = nk.reduce(X, "max", over="x")
    return top, nk.reduce(X, "sum", over="q"), nk.reduce(X, "max", over="q")


@nk.diagram("q x -> x, q x")
def a_sum_that_others_need(X: Any) -> Any:
    total = nk.reduce(X, "sum", over="q")
    return total, X / total


@nk.diagram("q x -> x, q")
def a_sum_that_is_sorted(X: Any) -> Any:
    return nk.cumsum(nk.reduce(X, "sum", over="q"), along="x"), nk.reduce(X, "sum", over="x")


@pytest.mark.parametrize(
    "diagram", [a_maximum_beside_a_sum, a_sum_that_others_need, a_sum_that_is_sorted]
)
def test_only_sums_that_nothing_waits_for_are_added(diagram: Diagram) -> None:
    ready = prepare(diagram)
    for stream in ("", "x"):
        assert not list(ACCUMULATED.matches("k", ready.outputs, ready.names, "q", stream))


@pytest.mark.parametrize(("name", "axis"), [("attention", "x"), ("logsumexp", "v")])
def test_parts_add_only_where_states_are_sums(name: str, axis: str) -> None:
    ready = prepare(load(name))
    kernel = label(name, ready.outputs, ready.names, streamed=axis)
    assert not list(adding_parts(kernel, 4))


@nk.diagram("q e, e x -> q x")
def an_average(W: Any, V: Any) -> Any:
    return nk.contract(W, V, over="e") / nk.reduce(W, "sum", over="e")


def test_what_several_groups_have_is_not_added() -> None:
    """Groups along x all have the sum of the weights, and would each add it."""
    ready = prepare(an_average)
    both = label("k", ready.outputs, ready.names, streamed="e")
    assert not list(adding_parts(both, 4))
    assert list(adding_parts(label("k", ready.outputs, ready.names, streamed="e", group="q"), 4))


def test_parts_of_a_product_add() -> None:
    ready = prepare(load("matmul_bias_gelu"))
    kernel = label("k", ready.outputs, ready.names, streamed="b")
    ((first, second),) = adding_parts(kernel, 4)
    (added,) = first.added
    assert str(Cost(first).H.per_tensor[added]) == "a*b_part4*c + a*c"
    assert not second.stream.axes
    assert str(Cost(first).flops) == str(Cost(kernel).flops)


def test_a_sum_that_is_a_result_is_stored_in_the_type_of_the_plan() -> None:
    """What groups add to is float32. A result, and what a later kernel reads of it, is not."""
    ready = prepare(load("matmul"))
    kernel = label("k", ready.outputs, ready.names, streamed="b")
    ((first, second),) = adding_parts(kernel, 4)
    assert [storage_type(o.node, "bf16") for o in first.outputs] == ["fp32"]
    assert [storage_type(o.node, "bf16") for o in second.outputs] == ["bf16"]


# --- their law ------------------------------------------------------------------------------


def test_rows_at_positions_that_a_sum_says_are_read_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The law reads the table at positions of the sum of all groups."""
    monkeypatch.setattr(rule, "VERIFYING", True)

    @nk.diagram("q x, n c -> q x, x c", sizes={"q": 2**16, "x": 64, "n": 5, "c": 3})
    def f(X: Any, N: Any) -> Any:
        return X * 2.0, nk.take(N, n=nk.cast(nk.reduce(X, "sum", over="q"), "int32"))

    plan = nk.derive(f, dtype="fp32", deterministic=False)
    assert plan.accumulates
    rng = np.random.default_rng(0)
    X, N = rng.uniform(0, 0.015, (300, 7)), rng.standard_normal((5, 3))
    found, wanted = plan(X, N), f.evaluate(X, N)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-6)


def test_what_follows_other_sums_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule, "VERIFYING", True)
    accumulated(attention_of(), "x", "q")
    found = rules._cut

    def twice(*terms: Any) -> Any:
        made = found(*terms)
        ends = [replace(o, node=pointwise("add", (o.node, o.node))) for o in made.ends]
        return replace(made, ends=ends)

    monkeypatch.setattr(rules, "_cut", twice)
    with pytest.raises(LawError, match="rule 'accumulate' broke its law"):
        accumulated(attention_of(), "x", "q")


# --- what kernels compute and move ----------------------------------------------------------


def test_values_and_bytes_hold_at_any_sizes(plan: Plan) -> None:
    assert plan.accumulates == (SUM,)
    assert "tl.atomic_add(" in plan.source
    plan.check(resources=False, ranges={"z": (0.5, 2.0)}).raise_if_wrong()


@pytest.mark.parametrize("empty", ["q", "x"])
def test_nothing_is_added_along_an_empty_axis(plan: Plan, empty: str) -> None:
    """Zeros are there even where the kernel that adds is not launched."""
    diagram = plan.diagram
    sizes = {"q": 5, "x": 3, "d": 64, empty: 0}
    arrays = [np.ones([sizes[a] for a in n.axes]) for n in diagram.inputs]
    for o, value in zip(diagram.outputs, plan(*arrays), strict=True):
        assert value.shape == tuple(sizes[a] for a in o.axes)
        assert not value.any()


@pytest.mark.parametrize(
    "keys",
    [
        nk.causal("q", "x"),
        nk.causal("q", "x") & nk.sliding(100, 0),
        nk.causal("q", "x") & (nk.sinks(4) | nk.sliding(100, 0)),
    ],
    ids=["causal", "sliding", "sinks"],
)
def test_key_sets(keys: Any) -> None:
    found = one_kernel(attention_of(keys), SIZES)
    assert found.accumulates
    assert found.kernels[0].choice.kernel.visits is not None
    found.check(resources=False, ranges={"z": (0.5, 2.0)}).raise_if_wrong()


@pytest.mark.parametrize("name", ["rmsnorm_gradient", "layernorm_gradient", "bias_gelu_gradient"])
def test_parameters_of_norms_and_biases(name: str) -> None:
    """Parts of rows take about as long, even where additions take no time."""
    found = nk.derive(load(name), FREE, deterministic=False, parts={"n": 1})
    assert found.accumulates
    last = found.diagram.axes[-1]
    found.check(sizes={"n": 45, last: 37}, resources=False).raise_if_wrong()


def test_a_plan_that_accumulates_says_so(plan: Plan) -> None:
    assert f"accumulated in memory: {SUM}" in str(plan)
    assert plan.to_json()["accumulates"] == [SUM]
    verdict = plan.check(sizes={"q": 20, "x": 17, "d": 64}, resources=False)
    assert any(SUM in note for note in verdict.notes)
    assert "accumulate z2_sum" in str(plan.trail)
    other = nk.derive(plan.diagram, FREE, plan.sizes)
    assert not other.accumulates
    assert "accumulated" not in str(other)
    assert not other.check(sizes={"q": 20, "x": 17, "d": 64}, resources=False).notes


def test_recipes_and_files_keep_what_is_zeroed(plan: Plan) -> None:
    again = recipe_of(plan.recipe.to_json())
    assert [s.added for s in again.steps] == [(SUM,), ()]
    lines = standalone(plan)["kernel.py"].splitlines()
    zero = next(i for i, line in enumerate(lines) if line.strip() == f"{SUM}.zero_()")
    launch = next(i for i, line in enumerate(lines) if "_adds[GRID](" in line)
    assert zero < launch


# --- what they are predicted to take --------------------------------------------------------


def test_additions_are_a_pipe_and_zeros_a_launch() -> None:
    h100 = machine("h100")
    work = {"product": 0.0, "arithmetic": 1e6, "special": 0.0}
    plain = Execution(work, 1024, inner_bytes=1e6, outer_bytes=1e6)
    adds = replace(plain, added_bytes=1e9)
    found = predict(h100, "bf16", adds)
    rate = h100.calibration["l2_adds"].value * h100.l2_rate
    assert found.limited_by == ADDITIONS
    assert found.pipes[ADDITIONS] == pytest.approx(1e9 / rate, rel=0.1)
    zeroed = predict(h100, "bf16", replace(adds, zeroed_bytes=1e6))
    launch = h100.calibration["launch"].value
    assert zeroed.seconds - found.seconds == pytest.approx(launch + 1e6 / (0.9 * 3.35e12))


def test_the_planner_takes_it_where_memory_adds_fast_enough() -> None:
    """By the time model alone: five products for seven, if additions leave the time."""
    sizes = {"q": 2048, "x": 2048, "d": 128, "b": 1, "h": 16}
    f = backward_of(attention_of().weave("b h"), sizes)
    slow = nk.derive(f, adding(0.01), sizes, deterministic=False)
    fast = nk.derive(f, adding(1.0), sizes, deterministic=False)
    assert not slow.accumulates
    assert fast.accumulates
    assert fast.seconds < slow.seconds
    assert not nk.derive(f, adding(1.0), sizes).accumulates


def test_no_plan_takes_less_than_its_least() -> None:
    found = one_kernel(attention_of(), SIZES, adding(1.0))
    for k in found.kernels:
        choice = k.choice
        assert least_seconds(choice.kernel, choice.sizes, "bf16", k.machine) <= choice.time.seconds


def test_other_settings_of_both_kernels_are_of_the_same_terms() -> None:
    """What follows the sums is computed of them, whatever its tiles."""
    found = nk.derive(load("layernorm_gradient"), FREE, deterministic=False, parts={"n": 1})
    for k in found.kernels:
        for choice in found.ranked(3)[k.name]:
            assert set(choice.kernel.tensors) == set(k.choice.kernel.tensors)
            assert choice.kernel.added == k.choice.kernel.added


@pytest.mark.parametrize("kind", ["int", "bool"])
def test_a_reading_beside_the_sums_keeps_its_type(kind: str) -> None:
    """Whole numbers went through the type of the plan: 257 and 256 are one in bf16."""

    @nk.diagram(f"q x, q x, r:{kind}, q:int -> q, q")
    def beside(A: Any, B: Any, P: Any, at: Any) -> Any:
        return nk.contract(A, B, over="x"), nk.take(P, r=at)

    ready = prepare(beside)
    kernel = label("k", ready.outputs, ready.names, streamed="x")
    ((_, ends),) = adding_parts(kernel, 3)
    types = {o.name: storage_type(o.node, "bf16") for o in ends.outputs}
    (own,) = (o.name for o in ready.outputs if o.node.kind == kind)
    assert types[own] == ("int32" if kind == "int" else "bool")
    assert "bf16" in types.values()


def test_kernels_that_differ_about_the_type_of_a_tensor_make_no_plan() -> None:
    plan = nk.derive(attention_of(), "h100", {"q": 128, "x": 128, "d": 64}, materialise="every")
    first, *others = plan.kernels
    (stored,) = (o.name for o in first.choice.origin)
    wrong = replace(first)
    wrong.__dict__["dtypes"] = {**first.dtypes, stored: "bool"}
    with pytest.raises(AssertionError, match=r"is bool, and attention.* has it as"):
        _ = replace(plan, kernels=(wrong, *others)).recipe
