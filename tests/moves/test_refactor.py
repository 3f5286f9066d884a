"""Refactored terms have the values that they had, however often a factor stands in a product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import napkin as nk
from napkin.derive.kernel import leaves
from napkin.derive.prepare import prepare
from napkin.ir.evaluate import aligned, evaluate
from napkin.ir.names import with_named
from napkin.moves.refactor import Refactored, everywhere, refactorings

SIZES = {"q": 3, "x": 4, "d": 2, "v": 5, "a": 3, "b": 4}


def scores(Q: Any, K: Any) -> Any:
    return nk.contract(Q, K, over="d")


def squared(Q: Any, K: Any, V: Any) -> Any:
    return nk.contract(scores(Q, K) ** 2, V, over="x")


def cubed(Q: Any, K: Any, V: Any) -> Any:
    S = scores(Q, K)
    return nk.contract(S, V, S, S, over="x")


def twice_inside(Q: Any, K: Any, V: Any) -> Any:
    return nk.contract(nk.contract(Q, Q, K, over="d"), V, V, over="x")


def with_itself(Q: Any, K: Any, V: Any) -> Any:
    S = scores(Q, K)
    return nk.contract(S, S, over="x") * nk.reduce(V, "max", over="x")


def of_the_same_name(Q: Any, K: Any, V: Any) -> Any:
    """The axis d is bound twice, and a factor outside carries it."""
    return nk.contract(scores(Q, K), scores(Q, K), K, V, over="x")


REPEATED = [squared, cubed, twice_inside, with_itself, of_the_same_name]


@pytest.mark.parametrize("body", REPEATED, ids=lambda f: f.__name__)
def test_a_repeated_factor_is_taken_out_once(body: Any) -> None:
    result = "q v d" if body is of_the_same_name else "q v"
    d = nk.diagram(f"q d, x d, x v -> {result}")(body)
    ready = prepare(d)
    ways = list(refactorings(ready.outputs, ready.names, SIZES))
    assert ways
    for way in ways:
        has_the_values(d, [way])


def has_the_values(d: nk.Diagram, ways: list[Refactored]) -> None:
    """Hold the last of some rewrites of a diagram, one after another, to the diagram's values."""
    ready, sizes, rng = prepare(d), dict(SIZES), np.random.default_rng(0)
    arrays = {str(n.params[0]): rng.normal(size=[SIZES[a] for a in n.axes]) for n in d.inputs}
    for way in ways:
        sizes = with_named(sizes, way.same_size)
    for before, after in zip(ready.outputs, ways[-1].outputs, strict=True):
        read = leaves([before.node, after.node])
        bind = {n: arrays[str(n.params[0])] for n in read}
        wanted, found = evaluate([before.node, after.node], bind, sizes)
        found = aligned(found, after.node.axes, before.node.axes)
        np.testing.assert_allclose(found, wanted, rtol=1e-11)


def form(X: Any, *W: Any) -> Any:
    return nk.contract(X, W[0], W[1], over="d a")


def form_of_a_square(X: Any, *W: Any) -> Any:
    return nk.contract(X, X, W[0], W[1], over="d a")


def form_below_a_row(X: Any, *W: Any) -> Any:
    """What it sums over is bound in its factor, too."""
    return nk.contract(nk.reduce(X * X, "max", over="d"), X, W[0], W[1], over="d a")


def two_sums(X: Any, *W: Any) -> Any:
    return nk.reduce(nk.maximum(X, W[0]), "mean", over="d a") * nk.reduce(X, "max", over="d")


LAYERS = [form, form_of_a_square, form_below_a_row, two_sums]


@given(
    layers=st.lists(st.sampled_from(LAYERS), min_size=2, max_size=6),
    shared=st.booleans(),
    chained=st.lists(st.booleans(), min_size=6, max_size=6),
    left=st.integers(0, 3),
)
def test_rewrites_of_a_kind_keep_the_values_together(
    layers: list[Any], shared: bool, chained: list[bool], left: int
) -> None:
    """Layers read what the ones before give or do not, and may have the same weights; some nodes
    are left as they are."""

    def stack(X: Any, *W: Any) -> Any:
        results, last = [], X
        for i, (layer, chain) in enumerate(zip(layers, chained, strict=False)):
            own = W[:2] if shared else W[2 * i : 2 * i + 2]
            results.append(layer(last, *own))
            last = nk.maximum(X, results[-1]) if chain else X + float(i)
        # An input that no layer reads would be refused.
        return sum(results[1:], results[0]) + sum(nk.reduce(w, "max", over="a") for w in W[1::2])

    pairs = 1 if shared else len(layers)
    d = nk.diagram(f"q d{', d a, q a' * pairs} -> q")(stack)
    ready = prepare(d)
    each = list(refactorings(ready.outputs, ready.names, SIZES))
    done = {r.at for r in each[:left]}
    for first in each:
        if first.at not in done:
            every = everywhere(first, ready.outputs, SIZES, done)
            assert not done & {r.at for r in every}
            assert {r.kind for r in every} == {first.kind}
            has_the_values(d, every)


def test_additions_at_places_are_sorted_together_under_one_name() -> None:
    """Each named axes of its own, so that no two kernels could be alike."""

    @nk.diagram("s d, n:int, n:int, n, n -> n d")
    def looked_up(V: Any, I: Any, J: Any, a: Any, b: Any) -> Any:  # noqa: E741
        return a * nk.take(V, s=I) + b * nk.take(V, s=J)

    sizes = {"n": 4096, "s": 65536, "d": 128}
    plan = nk.derive(nk.gradient(looked_up, wrt="V"), on="h100", sizes=sizes, dtype="fp32")
    axes = {a for k in plan.kernels for a in k.choice.kernel.group}
    assert "n_in_order" in axes
    assert not axes & {"n_in_order2", "n_in_order_2"}
    assert plan.check(sizes={"n": 9, "s": 5, "d": 3}, resources=False).ok
