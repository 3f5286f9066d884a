"""What a reduction is separated into has the axes and the item type of the reduction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from in_numpy import execute

import napkin as nk
from napkin.derive.kernel import tensor_of
from napkin.derive.prepare import prepare
from napkin.diagram.diagram import Diagram
from napkin.errors import Refusal
from napkin.ir.names import with_named
from napkin.moves.refactor import refactorings
from napkin.settings.labels import labellings

SIZES = {"b": 3, "e": 2, "h": 2, "k": 4}


def largest(x: Any, axes: str) -> Any:
    return nk.reduce(x, "max", over=axes)


@nk.diagram("e b, h -> h")
def ones_on_an_axis(S: Any, X: Any) -> Any:
    """max_b exp(s - max_b s) is 1 for each e."""
    return nk.contract(X, largest(nk.exp(S - largest(S, "b")), "b"), over="e")


@nk.diagram("e b -> ()")
def ones_over_two_axes(S: Any) -> Any:
    return nk.reduce(nk.exp(S - nk.reduce(S, "min", over="b")), "min", over="e b")


@nk.diagram("e k, b k -> k e, k")
def attention_over_its_square(Q: Any, K: Any) -> Any:
    """Its square, as a sum over two keys, shares a running sum with one over a single key."""
    t = nk.contract(nk.softmax(nk.contract(Q, K, over="k"), over="b"), K, over="b")
    square = nk.reduce(t * t, "sum", over="e")
    return t / square, square


def forms(d: Diagram) -> Any:
    """The outputs, names and new axes of a diagram as it is, and refactored up to twice."""
    ready = prepare(d)
    yield ready.outputs, ready.names, {}
    for r in refactorings(ready.outputs, ready.names, SIZES):
        yield r.outputs, r.names, r.same_size
        sizes = with_named(SIZES, r.same_size)
        for again in refactorings(r.outputs, r.names, sizes):
            yield again.outputs, again.names, {**r.same_size, **again.same_size}


@pytest.mark.parametrize("d", [ones_on_an_axis, ones_over_two_axes, attention_over_its_square],
                         ids=lambda d: d.name)  # fmt: skip
def test_every_kernel_has_the_value_of_its_diagram(d: Diagram) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=[SIZES[a] for a in i.axes]) for i in d.inputs]
    wanted = d.evaluate(*arrays)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for outputs, names, same_size in forms(d):
        sizes = with_named(SIZES, same_size)
        found = list(labellings("drawn", outputs, names, sizes))
        assert found
        for kernel in found:
            tiles = {a: 2 if a in kernel.stream.axes else sizes[a] for a in kernel.axes}
            given = {tensor_of(i): x for i, x in zip(d.inputs, arrays, strict=True)}
            out = execute(kernel, given, sizes, tiles).outputs
            for o, value in zip(d.outputs, wanted, strict=True):
                np.testing.assert_allclose(out[o.name], value, rtol=1e-9)


def test_a_running_sum_has_no_axis_of_the_tail() -> None:
    """sum_b exp(s - m) w, of which the factor w comes out, is held without the axes of w."""

    @nk.diagram("b, e -> e")
    def scaled(S: Any, W: Any) -> Any:
        return nk.contract(nk.exp(S - largest(S, "b")), W, over="b")

    (step,) = scaled.stream("b").kernel.stream.passes
    assert {s.axes for s in step.states} == {()}


def test_what_is_opened_inside_another_reduction_folds() -> None:
    """The mean of softmax(max m + s) opens the maximum max m + max s, and not inside the sum."""

    @nk.diagram("x, x -> x", sizes={"x": 5})
    def deviations(M, S):
        p = nk.softmax(nk.reduce(M, "max", over="x") + S, over="x")
        return p - nk.reduce(p, "mean", over="x")

    rng = np.random.default_rng(0)
    arrays = {"M": rng.normal(size=5), "S": 3 * rng.normal(size=5)}
    ready = prepare(deviations)
    found = list(labellings("deviations", ready.outputs, ready.names, {"x": 5}))
    assert any(len(k.stream.passes) == 2 for k in found)
    for kernel in found:
        (made,) = execute(kernel, arrays, {"x": 5}, {"x": 2}).outputs.values()
        np.testing.assert_allclose(made, deviations.evaluate(*arrays.values()), rtol=1e-12)


def test_a_result_that_lacks_an_axis_of_a_joint_stream_is_not_stored_in_it() -> None:
    """It would be stored again for each chunk of x, and never where x is empty."""

    @nk.diagram("q d, d, x q -> q, ()", sizes={"q": 8, "x": 8, "d": 4})
    def both(A, B, X):
        t = nk.contract(A, B, over="d")
        return t, nk.contract(X, t, over="q x")

    with pytest.raises(Refusal, match="has no x"):
        both.stream("q x")
    plan = nk.derive(both, on="h100", dtype="fp32")
    found = plan(np.ones((8, 4)), np.ones(4), np.ones((0, 8)))
    np.testing.assert_array_equal(found[0], np.full(8, 4.0))
