"""Operands are stored once, and shared reductions computed again, where that is faster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import napkin as nk
from napkin.algebra.tracer import Considered, Dropped, tracing
from napkin.diagram.library import load
from napkin.plan.plan import Plan


def checked(plan: Plan, **sizes: int) -> None:
    """Values and bytes of the kernels of a plan at small sizes."""
    plan.check(sizes=sizes, resources=False).raise_if_wrong()


def outer(plan: Plan) -> int:
    """Bytes from and to memory."""
    return sum(sum(k.choice.outer.values()) for k in plan.kernels)


# --- operands that are stored ---------------------------------------------------------------


def test_heads_are_rotated_once() -> None:
    sizes = {"b": 1, "h": 16, "q": 4096, "x": 4096, "d": 128}
    plan = nk.derive(load("rotary_attention"), sizes=sizes)
    plain = nk.derive(load("multi_head_attention"), sizes=sizes)
    assert {*plan.materialised.values()} == {("b", "h", "q", "d"), ("b", "h", "x", "d")}
    assert plan.seconds < 1.25 * plain.seconds
    checked(plan, b=1, h=2, q=37, x=53, d=32)


def test_an_operand_is_stored_where_many_groups_compute_it() -> None:
    plan = nk.derive(load("gelu_matmul"))
    fused = nk.derive(load("gelu_matmul"), materialise=[])
    assert len(plan.kernels) == 2
    assert len(fused.kernels) == 1
    assert 1.5 * plan.seconds < fused.seconds
    checked(plan, a=40, b=72, c=24)
    checked(fused, a=40, b=72, c=24)


def test_an_operand_is_computed_where_one_group_reads_it() -> None:
    plan = nk.derive(load("gelu_matmul"), sizes={"a": 8192, "b": 4096, "c": 64})
    assert not plan.materialised


def test_a_stored_operand_is_contiguous_along_what_a_group_reads() -> None:
    """Groups take the channels of triangle multiplication one by one, and these lie last: a value
    of each sector would be read."""

    @nk.diagram("i k c, i k c, j k c -> i j c", sizes={"i": 512, "j": 512, "k": 512, "c": 128})
    def triangle(A: Any, G: Any, B: Any) -> Any:
        return nk.contract(A * nk.sigmoid(G), B, over="k")

    plan = nk.derive(triangle)
    assert list(plan.materialised.values()) == [("c", "i", "k"), ("c", "j", "k")]
    assert 40 * plan.seconds < nk.derive(triangle, materialise=[]).seconds
    checked(plan, i=18, j=20, k=17, c=5)


def test_what_an_exponential_reads_is_stored_in_float32() -> None:
    @nk.diagram("q d, x d, x, x v -> q v", sizes={"q": 64, "x": 64, "d": 16, "v": 16})
    def biased(Q: Any, K: Any, L: Any, V: Any) -> Any:
        bias = nk.sqrt(L * L + 1.0) * 40.0
        weights = nk.exp(nk.contract(Q, K, over="d") - bias)
        return nk.contract(weights, V, over="x")

    plan = nk.derive(biased, materialise=["bias"])
    assert [t.dtype for t in plan.recipe.stored if t.name == "bias"] == ["fp32"]
    checked(plan)


# --- reductions that are computed again -----------------------------------------------------


@nk.diagram("q d, x d, x v, q v, q v -> q d, x d, x v")
def gradients(Q: Any, K: Any, V: Any, Y: Any, dY: Any) -> Any:
    scale = nk.size("d") ** -0.5
    P = nk.softmax(nk.contract(Q, K, over="d") * scale, over="x")
    dP = nk.contract(dY, V, over="v") - nk.contract(Y, dY, over="v")
    dS = P * dP * scale
    dK, dV = nk.contract(dS, Q, over="q"), nk.contract(P, dY, over="q")
    return nk.contract(dS, K, over="x"), dK, dV


LARGE = {"q": 4096, "x": 4096, "d": 128, "v": 128}


def test_gradients_of_attention_compute_scores_again() -> None:
    plan = nk.derive(gradients, sizes=LARGE)
    assert plan.materialised
    assert all(axes == ("q",) for axes in plan.materialised.values())
    checked(plan, q=20, x=37, d=16, v=18)


def test_scores_that_are_narrower_than_what_they_are_computed_of_are_stored() -> None:
    plan = nk.derive(gradients, sizes={"q": 64, "x": 64, "d": 4096, "v": 4096})
    assert any(axes == ("q", "x") for axes in plan.materialised.values())


# --- results of one kernel ------------------------------------------------------------------


POINTWISE: list[tuple[str, Mapping[str, int]]] = [
    ("rmsnorm_residual", {"n": 5, "d": 40}),
    ("adamw", {"n": 1000}),
    ("swiglu_gradient", {"n": 5, "f": 70}),
]


@pytest.mark.parametrize(("name", "small"), POINTWISE)
def test_results_over_the_same_axes_are_read_for_once(name: str, small: Mapping[str, int]) -> None:
    diagram = load(name)
    plan = nk.derive(diagram)
    (kernel,) = plan.kernels
    arrays = [n.axes for n in diagram.inputs] + [o.axes for o in diagram.outputs]
    must = 0
    for axes in arrays:
        values = 1
        for a in axes:
            values *= plan.sizes[a]
        must += 2 * values
    assert outer(plan) == must
    assert len(kernel.choice.kernel.outputs) == len(diagram.outputs)
    checked(plan, **small)


def test_results_over_other_axes_have_kernels_of_their_own() -> None:
    @nk.diagram("n, m -> n, m", sizes={"n": 2**20, "m": 2**22})
    def apart(X: Any, Y: Any) -> Any:
        return nk.exp(X), nk.exp(Y)

    plan = nk.derive(apart)
    assert len(plan.kernels) == 2
    checked(plan, n=30, m=50)


# --- what is told ---------------------------------------------------------------------------


def points(diagram: nk.Diagram, sizes: Mapping[str, int]) -> list[Considered | Dropped]:
    with tracing() as tracer:
        nk.derive(diagram, sizes=sizes)
    kinds = (Considered, Dropped)
    return [e for e in tracer.events if isinstance(e, kinds) and e.kind == "points"]


def test_a_change_is_told_with_its_time_and_why_it_was_not_taken() -> None:
    large = {"a": 8192, "b": 8192, "c": 8192}
    (taken,) = points(load("gelu_matmul"), large)
    assert isinstance(taken, Considered)
    assert taken.what == "store H first"
    dropped = points(load("gelu_matmul"), {**large, "c": 64})[-1]
    assert isinstance(dropped, Dropped)
    (again,) = (e for e in points(gradients, LARGE) if "compute" in e.what)
    assert again.what == "compute Q_K, dY_V in each kernel that reads it"


def test_the_operands_that_are_tried_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("napkin.cut.changes.KINDS", 0)
    plan = nk.derive(load("gelu_matmul"))
    assert not plan.materialised
    (left,) = points(load("gelu_matmul"), {})
    assert isinstance(left, Dropped)
    assert left.what == "store mul [a b] first"
    assert left.why == "the search is bounded: 0 kinds of operands are tried"


@pytest.mark.parametrize("compared", [False, True])
def test_a_sum_that_is_compared_is_computed_once(compared: bool) -> None:
    """Two kernels may add up in two orders, and then no score is the largest."""

    @nk.diagram("q d, x d, x v, q v, q v -> x d, x v, q")
    def keyed(Q: Any, K: Any, V: Any, Y: Any, dY: Any) -> Any:
        S = nk.contract(Q, K, over="d")
        P = nk.softmax(S, over="x")
        dS = P * (nk.contract(dY, V, over="v") - nk.contract(Y, dY, over="v"))
        best = nk.argmax(S, over="x") if compared else nk.reduce(S, "max", over="x")
        return nk.contract(dS, Q, over="q"), nk.contract(P, dY, over="q"), best

    again = [e.what for e in points(keyed, LARGE) if "in each kernel" in e.what]
    assert any(text.startswith("compute S") for text in again) is not compared


# --- scans along the keys of a set ----------------------------------------------------------


@pytest.mark.parametrize(("form", "at"), [("steps", 64), ("linear", 40_000), ("sum", 40_000)])
def test_a_scan_along_keys_stores_nothing_first(form: str, at: int) -> None:
    """Its kernel goes over all chunks, and leaves none out by the key set."""

    @nk.diagram("n a, n -> n h", sizes={"n": at, "h": at, "a": 1})
    def scanned(X: Any, s: Any) -> Any:
        keys = nk.neighborhood(1, dilation=3, is_causal=True, queries="n", keys="h")
        x = nk.exp(nk.spread(X, keys, over="a"))
        step = {
            "steps": lambda h: nk.tanh(h) + x,
            "linear": lambda h: 0.5 * h + x,
            "sum": lambda h: h + x,
        }[form]
        return nk.scan(step, s, along="h", axes="n")

    plan = nk.derive(scanned)
    assert len(plan.kernels) == 1
    checked(plan, n=33, h=33, a=1)


@pytest.mark.parametrize("lengths", [2, 64])
def test_what_steps_wait_for_is_stored_where_that_is_faster(lengths: int) -> None:
    """A group holds the state along `q`; with many lengths it cannot hold the key set beside."""

    @nk.diagram("e:int, q x -> q x", sizes={"e": lengths, "q": 2048, "x": 2048})
    def scanned(n: Any, S: Any) -> Any:
        P = nk.softmax(S, over="x", keys=nk.documents(n, queries="q", keys="x"))
        return nk.scan(lambda h: nk.softmax(h, over="q") + P, 0.5, along="x", axes="q")

    plan = nk.derive(scanned, dtype="fp32")
    assert plan.materialised == {"P": ("x", "q")}
    checked(plan, e=2, q=33, x=33)


def test_what_steps_wait_for_is_stored_where_no_group_can_hold_it() -> None:
    """The weights of each length are more than the scores, and were computed again for each step:
    64 lengths and 2048 queries fitted no group, and the diagram was refused."""

    @nk.diagram("e:int, q x -> q x", sizes={"e": 64, "q": 2048, "x": 2048})
    def scanned(n: Any, S: Any) -> Any:
        P = nk.softmax(S, over="x", keys=nk.documents(n, queries="q", keys="x"))
        return nk.scan(lambda h: nk.softmax(h, over="q") + P, 0.5, along="x", axes="q")

    plan = nk.derive(scanned.weave("w", into="n").with_sizes(w=8), dtype="fp32")
    assert "P" in plan.materialised
    checked(plan, w=2, e=2, q=33, x=33)
