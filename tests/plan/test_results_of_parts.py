"""Kernels that store results over one axis, and fold parts of that axis to results without it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from in_numpy import execute

import napkin as nk
from napkin.algebra import rule
from napkin.algebra.rule import LawError
from napkin.algebra.tracer import Considered, tracing
from napkin.bound.symbolic_cost import Cost
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.derive.rules import part as rules
from napkin.derive.rules.block import blocked
from napkin.derive.rules.part import parted
from napkin.diagram.diagram import Diagram
from napkin.diagram.library import load
from napkin.errors import Refusal
from napkin.ir.rewrite import substitute
from napkin.plan.plan import Plan
from napkin.plan.workspace import workspace

GRADIENTS = ("rmsnorm_gradient", "layernorm_gradient", "bias_gelu_gradient")


def kernel(diagram: Diagram, streamed: str):
    ready = prepare(diagram)
    return label(diagram.name, ready.outputs, ready.names, streamed=streamed)


def moved(plan: Plan) -> int:
    """Bytes that the kernels of a plan read and write."""
    return sum(n for k in plan.kernels for n in k.bytes.values())


def compulsory(plan: Plan) -> int:
    """Bytes of the inputs and outputs of a plan, in 16 bits."""
    axes = [n.axes for n in plan.diagram.inputs] + [o.axes for o in plan.diagram.outputs]
    return sum(2 * math.prod(plan.sizes[a] for a in each) for each in axes)


@pytest.mark.parametrize("number", [2, 7])
@pytest.mark.parametrize("name", GRADIENTS)
def test_parts_store_what_streams_and_move_what_is_predicted(name: str, number: int) -> None:
    diagram = load(name)
    last = diagram.axes[-1]
    plan = nk.derive(diagram, on="h100", sizes={"n": 64, last: 40}, parts={"n": number})
    assert [k.name.rsplit("_", 1)[1] for k in plan.kernels] == ["parts", "merge"]
    for sizes in ({"n": 64, last: 40}, {"n": 61, last: 37}, {"n": 3, last: 29}, {"n": 1, last: 1}):
        plan.check(sizes=sizes).raise_if_wrong()


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("empty", [0, 1])
def test_gradients_of_no_rows_or_of_empty_rows(name: str, empty: int) -> None:
    diagram = load(name)
    last = diagram.axes[-1]
    plan = nk.derive(diagram, sizes={"n": 8, last: 8}, parts={"n": 2}, dtype="fp32")
    sizes = {"n": 3, last: 5} | {("n", last)[empty]: 0}
    found = plan(*(np.ones([sizes[a] for a in n.axes]) for n in diagram.inputs))
    for o, value in zip(diagram.outputs, found, strict=True):
        assert value.shape == tuple(sizes[a] for a in o.axes)
        assert (value == 0).all()


@pytest.mark.parametrize("name", ["rmsnorm_gradient", "layernorm_gradient"])
@pytest.mark.parametrize("on", ["h100", "a100"])
def test_a_gradient_reads_its_arrays_once(name: str, on: str) -> None:
    plan = nk.derive(load(name), on=on)
    assert [k.name for k in plan.kernels] == [f"{name}_parts", f"{name}_merge"]
    assert moved(plan) < 1.2 * compulsory(plan)
    alone = nk.derive(load(name), on=on, parts={"n": 1})
    assert len(alone.kernels) == 2
    assert moved(alone) > 1.6 * compulsory(alone)
    assert plan.seconds < 0.85 * alone.seconds


def test_what_results_and_parts_cost() -> None:
    """Each part reads the gain, and stores a sum of its rows."""
    first, second = parted(kernel(load("rmsnorm_gradient"), "n"), 4)
    assert str(Cost(first).H.total) == "3*d*n + 2*d*n_part4"
    assert str(Cost(second).H.total) == "d*n_part4 + d"
    assert str(Cost(second).M) == "g_d*s_n_part4 + g_d"
    assert [o.name for o in first.outputs] == ["O1", "sum_part"]
    assert [o.name for o in second.outputs] == ["O2"]


def test_only_states_are_workspace() -> None:
    plan = nk.derive(load("layernorm_gradient"), on="h100")
    number, d = math.prod(plan.parts.values()), plan.sizes["d"]
    assert sorted(plan.materialised) == ["dG_dB_part", "dG_sum_part"]
    assert all(axes == (*plan.parts, "d") for axes in plan.materialised.values())
    assert workspace(plan) == 2 * 4 * number * d


def test_explain_says_in_how_many_parts_and_what_is_merged() -> None:
    with tracing() as tracer:
        plan = nk.derive(load("rmsnorm_gradient"), on="h100")
    number = math.prod(plan.parts.values())
    assert f"part n = {number}" in str(plan.trail)
    assert f"merge n_part{number}" in str(plan.trail)
    assert f"tile n_part{number} = {plan.kernels[1].tiles[f'n_part{number}']}" in str(plan.trail)
    weighed = [e.what for e in tracer.events if isinstance(e, Considered)]
    said = f"_parts (dY, X, G -> O1, sum_part): stream n, group n_part{number}, hold d"
    assert any(said in w for w in weighed)


@nk.diagram("n d -> n d, d, d, d, d", sizes={"n": 64, "d": 8})
def every_monoid_beside_a_result(X: Any) -> Any:
    Y = X * X - 0.5
    return Y, *(nk.reduce(Y, how, over="n") for how in ("sum", "max", "min", "mean"))


@nk.diagram("n d -> n d, d, d", sizes={"n": 64, "d": 8})
def exponentials_beside_a_result(X: Any) -> Any:
    Y = X + 1.0
    return Y, nk.reduce(Y, "logsumexp", over="n"), nk.reduce(Y, "sum", over="n")


@pytest.mark.parametrize("diagram", [every_monoid_beside_a_result, exponentials_beside_a_result])
def test_reductions_are_merged_many_parts_at_once(diagram: Diagram) -> None:
    plan = nk.derive(diagram, on="h100", parts={"n": 16})
    assert plan.kernels[1].tiles["n_part16"] > 1
    for n in (64, 37, 3):
        plan.check(sizes={"n": n, "d": 7}).raise_if_wrong()


@nk.diagram("b n d, d, b n d -> b n d, d", sizes={"b": 8, "n": 2048, "d": 1024})
def gain_gradient_of_a_batch(X: Any, G: Any, dY: Any) -> Any:
    r = nk.rsqrt(nk.reduce(X * X, "mean", over="d") + 1e-6)
    slope = nk.reduce(dY * G * X, "mean", over="d")
    return r * (dY * G - X * r * r * slope), nk.reduce(dY * X * r, "sum", over="b n")


def test_a_batch_is_summed_after_the_parts() -> None:
    plan = nk.derive(gain_gradient_of_a_batch, on="h100")
    assert next(iter(plan.parts)).startswith("n_part")
    assert moved(plan) < 1.2 * compulsory(plan)
    plan.check(sizes={"b": 3, "n": 45, "d": 20}).raise_if_wrong()


@nk.diagram("n d -> n d, d")
def running_sums_and_the_last(X: Any) -> Any:
    return nk.cumsum(X, along="n"), nk.reduce(X, "sum", over="n")


@nk.diagram("n d -> n d")
def nothing_folded(X: Any) -> Any:
    return nk.exp(X) - nk.index("n")


def test_what_is_stored_as_parts_stream_needs_no_state() -> None:
    scan = kernel(running_sums_and_the_last, "n")
    with pytest.raises(Refusal, match="output O1 needs at each n what is folded before it"):
        parted(scan, 2)
    with pytest.raises(Refusal, match="nothing is folded over n"):
        parted(kernel(nothing_folded, "n"), 2)


def test_blocks_store_states_alone() -> None:
    @nk.diagram("n d, x d -> n x, n")
    def scores_and_their_sum(X: Any, W: Any) -> Any:
        S = nk.contract(X, W, over="d")
        return S, nk.reduce(nk.exp(S), "sum", over="x")

    assert blocked(kernel(scores_and_their_sum, "x"), "d", 64) is None


def test_a_reduction_of_the_wrong_parts_breaks_its_law(monkeypatch: pytest.MonkeyPatch) -> None:
    gradient, reduced = kernel(load("bias_gelu_gradient"), "n"), rules._reduced
    monkeypatch.setattr(rule, "VERIFYING", True)
    parted(gradient, 3)
    monkeypatch.setattr(rules, "_reduced", lambda x, op, *of: reduced(x, "max", *of))
    with pytest.raises(LawError, match="rule 'merge' broke its law"):
        parted(gradient, 3)


@nk.diagram("q d, x d, x e, e -> q e", sizes={"q": 8, "x": 40, "d": 4, "e": 4})
def scored(Q: Any, K: Any, V: Any, G: Any) -> Any:
    return nk.contract(nk.softmax(nk.contract(Q, K, over="d"), over="x"), V, over="x") * G


@nk.diagram("n x -> n", sizes={"n": 8, "x": 40})
def spread(X: Any) -> Any:
    """Its merge has a term of both sides' means."""
    return nk.reduce((X - nk.reduce(X, "mean", over="x")) ** 2, "mean", over="x")


@pytest.mark.parametrize(("diagram", "many"), [(scored, True), (spread, False)])
def test_sums_that_follow_a_maximum_are_merged_many_at_once(
    diagram: Diagram, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule, "VERIFYING", True)
    _, second = parted(kernel(diagram, "x"), 5)
    assert (second.merges not in second.single) == many
    plan = nk.derive(diagram, on="h100", parts={"x": 5})
    (axis,) = plan.parts
    assert (plan.kernels[1].tiles[axis] > 1) == many
    plan.check().raise_if_wrong()
    plan.check(sizes={**diagram.sizes, "x": 3}).raise_if_wrong()  # fewer than parts


def test_a_sum_that_is_not_brought_to_the_maximum_breaks_its_law(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = kernel(scored, "x")
    states = made.stream.states
    (top,) = (x for x in states if rules.reduction_of(x))
    wrong = [x.merge and substitute([x.merge], {top.leaf("new"): top.leaf("left")})[x.merge]
             for x in states]  # fmt: skip
    each = zip(states, wrong, strict=True)
    passes = (replace(made.stream.passes[0], states=tuple(replace(x, merge=m) for x, m in each)),)
    monkeypatch.setattr(rule, "VERIFYING", True)
    with pytest.raises(LawError, match="rule 'merge' broke its law"):
        parted(replace(made, stream=replace(made.stream, passes=passes)), 3)


@nk.diagram("x h, k h -> x n, k", sizes={"x": 7, "h": 5, "k": 7, "n": 3})
def slotted(Q: Any, K: Any) -> Any:
    """Scores in slots, which are stored as their queries stream, and a sum over these."""
    S = nk.contract(Q, K, over="h")
    seen = nk.neighborhood(3, queries="x", keys="k")
    return nk.compress(S, seen, into="n"), nk.reduce(S, "sum", over="x")


@pytest.mark.parametrize("axis", ["x", "h"])
def test_parts_store_scores_in_slots(axis: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The law of both kernels is held to the scores, which lie in slots in memory alone."""
    monkeypatch.setattr(rule, "VERIFYING", True)
    first, second = parted(kernel(slotted, axis), 3)
    assert first.outputs
    assert second.merges


def test_scores_in_slots_are_stored_as_their_queries_stream() -> None:
    """Its key set says in which slot a key lies: it is not seen from the keys."""
    made, rng = kernel(slotted, "x"), np.random.default_rng(0)
    assert [e.node.op for p in made.stream.passes for e in p.emits] == ["scatter"]
    data = {"Q": rng.normal(size=(7, 5)), "K": rng.normal(size=(7, 5))}
    ran = execute(made, data, slotted.sizes, {**slotted.sizes, "x": 3})
    wanted = slotted.evaluate(*data.values())
    for o, value in zip(slotted.outputs, wanted, strict=True):
        np.testing.assert_allclose(ran.outputs[o.name], value)
