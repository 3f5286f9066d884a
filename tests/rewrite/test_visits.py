"""When loops may visit a key once for each box that it lies in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import napkin as nk
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.diagram.diagram import Diagram
from napkin.ir.node import postorder
from napkin.ir.rewrite import substitute
from napkin.ir.storage import leaf


def weights(S: Any, *, boxes: int) -> Any:
    keys = nk.sliding(0, 0, queries="h", keys="k")
    if boxes > 1:
        keys = keys | nk.strided(3, local=False, queries="h", keys="k")
    return nk.softmax(S, over="k", keys=keys)


@nk.diagram("h k, h b -> ()")
def a_square_of_what_queries_sum(S: Any, A: Any) -> Any:
    t = nk.contract(weights(S, boxes=2), A, over="h")
    return nk.contract(t, t, over="k b")


@nk.diagram("h k, h b -> ()")
def a_square_over_one_box(S: Any, A: Any) -> Any:
    t = nk.contract(weights(S, boxes=1), A, over="h")
    return nk.contract(t, t, over="k b")


@nk.diagram("h k -> ()")
def a_sum_of_what_queries_add(S: Any) -> Any:
    return nk.reduce(nk.reduce(weights(S, boxes=2), "sum", over="h"), "sum", over="k")


@nk.diagram("h k, k -> ()")
def a_weighted_sum_of_what_queries_add(S: Any, V: Any) -> Any:
    return nk.contract(nk.reduce(weights(S, boxes=2), "sum", over="h"), V, over="k")


@nk.diagram("h k -> ()")
def a_sum_of_the_largest(S: Any) -> Any:
    return nk.reduce(nk.reduce(weights(S, boxes=2), "max", over="h"), "sum", over="k")


@nk.diagram("h k, k d -> h d")
def attention(S: Any, V: Any) -> Any:
    return nk.contract(weights(S, boxes=2), V, over="k")


@pytest.mark.parametrize(
    ("diagram", "visited"),
    [
        (a_square_of_what_queries_sum, False),
        (a_square_over_one_box, True),
        (a_sum_of_what_queries_add, True),
        (a_weighted_sum_of_what_queries_add, True),
        (a_sum_of_the_largest, False),
        (attention, True),
    ],
)
def test_a_key_is_visited_again_only_where_visits_add_up(diagram: Diagram, visited: bool) -> None:
    ready = prepare(diagram)
    kernel = label("k", ready.outputs, ready.names, streamed="k", passes=3)
    assert (kernel.visits is not None) == visited


def test_weights_divided_by_an_array_along_the_keys_are_not_left_to_the_test_of_a_visit() -> None:
    # Past the keys of a visit the array holds 0 in a kernel, and 0 / 0 is no number.
    def visits(join: Any) -> Any:
        def body(S: Any, R: Any, V: Any) -> Any:
            P = nk.softmax(S, over="x", keys=nk.sliding(9, 3, "q", "x"))
            return nk.contract(join(P, R), V, over="x")

        ready = prepare(nk.diagram("q x, x, x d -> q d", name="shares_of_weights")(body))
        return label("shares", ready.outputs, ready.names, streamed="x").visits

    assert visits(lambda P, R: P * R) is not None
    assert visits(lambda P, R: P / R) is None


WINDOW = nk.neighborhood((5, 3), queries="q y", keys="x z")


@pytest.mark.parametrize(
    ("queries", "keys", "how"),
    [("q", "x", nk.causal("q", "x")), ("q", "x", nk.sliding(9, 0, queries="q", keys="x")),
     ("q y", "x z", WINDOW)],
)  # fmt: skip
def test_queries_of_several_heads_are_visited_where_they_see_a_key(
    queries: str, keys: str, how: Any
) -> None:
    """Keys have fewer heads: their gradients are summed over heads and queries together."""

    @nk.diagram(f"g r {queries} d, g {keys} d, g {keys} e -> g r {queries} e")
    def grouped(Q: Any, K: Any, V: Any) -> Any:
        S = nk.contract(Q, K, over="d") * 0.2
        return nk.contract(nk.sigmoid(S), V, over=keys, keys=how)

    back = nk.gradient(grouped, wrt=("K", "V"))
    long = 4096 if keys == "x" else 64
    sizes = {**dict.fromkeys(back.axes, long), "g": 2, "r": 4, "d": 64, "e": 64}
    plan = nk.derive(back, sizes=sizes)
    (visits,) = {k.choice.kernel.visits for k in plan.kernels}
    assert visits is not None
    assert {*visits.axes} == {"r", *queries.split()}
    assert {*visits.key_axes} == {*queries.split()}
    odd = {**dict.fromkeys(back.axes, 37 if keys == "x" else 7), "g": 2, "r": 3, "d": 16, "e": 16}
    plan.check(sizes=odd, resources=False).raise_if_wrong()


@pytest.mark.parametrize(
    "keys", [nk.causal("q", "x"), nk.sinks(2, queries="q", keys="x") | nk.sliding(5, 0, "q", "x")]
)
def test_keys_are_visited_beside_an_axis_that_their_set_does_not_name(keys: nk.KeySet) -> None:
    """The law is verified as the rule is applied, of one box and of two."""

    @nk.diagram("q x y, x y e -> q e", sizes={"q": 2048, "x": 2048, "y": 8, "e": 64})
    def gated(S: Any, V: Any) -> Any:
        return nk.contract(nk.sigmoid(S), V, over="x y", keys=keys)

    ready = prepare(gated)
    visits = label("gated", ready.outputs, ready.names, streamed="x y").visits
    assert visits is not None
    assert (visits.axes, visits.key_axes) == (("y", "x"), ("x",))
    plan = nk.derive(gated, dtype="fp32")
    plan.check(sizes={"q": 37, "x": 37, "y": 3, "e": 16}, resources=False).raise_if_wrong()


def test_queries_that_are_streamed_bound_no_visits() -> None:
    """A group knows none of them before its loop: the kernel named a query above it."""

    @nk.diagram("q x, x e -> e", sizes={"q": 16, "x": 16, "e": 16})
    def summed(S: Any, V: Any) -> Any:
        return nk.contract(nk.softmax(S, over="x", keys=nk.sliding(3, 0, "q", "x")), V, over="q x")

    ready = prepare(summed)
    (out,) = ready.outputs
    rows = {n: leaf(n.op, n.axes, n.kind) for n in postorder([out.node]) if n.axes == ("q",)}
    stored = [replace(out, node=substitute([out.node], rows)[out.node])]
    for streamed, seen in (("q x", False), ("x", True)):
        kernel = label("summed", stored, ready.names, streamed=streamed)
        assert (kernel.visits is not None) == seen
