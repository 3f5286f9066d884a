"""Squares and exponentials of differences keep their precision, however they are weighted, masked,
nested or joined: at means of a million deviations nothing is multiplied out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fold_law import breach

import napkin as nk
from napkin.algebra.law import folded, ranges
from napkin.derive.prepare import prepare
from napkin.diagram.diagram import Diagram
from napkin.ir.evaluate import aligned, close_to
from napkin.moves.refactor import refactorings
from napkin.settings.labels import labellings

FAR = 1e6
SIZES = {"n": 12, "a": 3, "x": 12, "d": 2}
CUTS = [(12,), (5, 7), (1, 1, 4, 6), (0, 3, 0, 9)]


def total(x: Any, over: str = "x") -> Any:
    return nk.reduce(x, "sum", over=over)


def mean(x: Any, over: str = "x") -> Any:
    return nk.reduce(x, "mean", over=over)


@nk.diagram("n x, n x -> n")
def weighted(X: Any, W: Any) -> Any:
    w = nk.abs(W)
    s = total(w)
    return total(w * (X - total(w * X) / s) ** 2) / s


@nk.diagram("n x, n x -> n")
def by_any_weights(X: Any, W: Any) -> Any:
    s = total(W)
    return total(W * (X - total(W * X) / s) ** 2) / s


@nk.diagram("n x, n x:bool -> n")
def masked(X: Any, K: Any) -> Any:
    s = total(nk.where(K, 1.0, 0.0)) + 1e-9
    m = total(nk.where(K, X, 0.0)) / s
    return total(nk.where(K, (X - m) ** 2, 0.0)) / s


@nk.diagram("n x -> n")
def in_a_window(X: Any) -> Any:
    seen = nk.sliding(5, 0, "n", "x")
    m = nk.reduce(X, "mean", over="x", keys=seen)
    return nk.reduce((X - m) ** 2, "mean", over="x", keys=seen)


@nk.diagram("n x, x d -> n d")
def by_softmax(S: Any, X: Any) -> Any:
    P = nk.softmax(S, over="x")
    return nk.contract(P, (X - nk.contract(P, X, over="x")) ** 2, over="x")


@nk.diagram("n x, n x, n x -> n")
def of_two(X: Any, Y: Any, W: Any) -> Any:
    return total(W * (X - mean(X)) * (Y - mean(Y)))


@nk.diagram("n x, n x -> n")
def beside_another(X: Any, W: Any) -> Any:
    t = X - mean(X)
    return total(W * t * t + W * t) + total(t**3)


@nk.diagram("a x -> ()")
def over_two(X: Any) -> Any:
    return mean((X - mean(X, "a x")) ** 2, "a x")


@nk.diagram("a x, a x -> ()")
def nested(X: Any, W: Any) -> Any:
    return total(total(W * (X - mean(X, "a x")) ** 2, "a"))


@nk.diagram("n x, n, n x -> n")
def about_a_given_one(X: Any, C: Any, W: Any) -> Any:
    """What is taken off is no result, but the weights are."""
    return total((X - C) ** 2 * W / total(W))


ALL = [weighted, masked, in_a_window, by_softmax, of_two, beside_another, over_two, nested]
ALL += [about_a_given_one, by_any_weights]


def far(diagram: Diagram, seed: int) -> dict[str, Any]:
    """Inputs about a million away from zero; weights, scores and conditions are not."""
    rng = np.random.default_rng(seed)
    out: dict[str, Any] = {}
    for n in diagram.inputs:
        name, shape = str(n.params[0]), [SIZES[a] for a in n.axes]
        values = rng.normal(size=shape)
        near = {"W": np.abs(values), "S": values, "K": values > 0}
        out[name] = near.get(name, FAR + values)
    return out


@pytest.mark.parametrize("diagram", ALL, ids=lambda d: d.name)
def test_every_way_to_stream(diagram: Diagram) -> None:
    ready = prepare(diagram)
    arrays = far(diagram, 0)
    wanted = diagram.evaluate(*arrays.values())
    streamed = 0
    for term in (ready, *refactorings(ready.outputs, ready.names, SIZES)):
        for kernel in labellings("k", term.outputs, term.names, SIZES):
            if not kernel.stream.axes:
                continue
            streamed += 1
            bind = {a.leaf: arrays[a.tensor] for a in kernel.reads}
            for cut in CUTS if kernel.stream.axes[0] == "x" else [(SIZES["a"],), (1, 2)]:
                _, found = folded(kernel.stream, bind, SIZES, ranges(cut))
                (o,) = kernel.outputs
                (n,) = (e.node for e in kernel.stream.tails)
                value = aligned(found[o.name], n.axes, diagram.outputs[0].axes)
                assert close_to(value, wanted) < 1e-7, (kernel.stream.axis, cut)
    assert streamed


@pytest.mark.parametrize("diagram", [weighted, masked, by_softmax, in_a_window])
def test_one_pass_is_enough(diagram: Diagram) -> None:
    kernel = diagram.stream("x").kernel
    assert any(s.held == "running" for s in kernel.stream.states)
    assert breach(kernel, far(diagram, 1), SIZES, (2, 0, 7, 3), tolerance=1e-7) is None


def test_weights_of_either_sign_take_two_passes() -> None:
    """Their sum so far may come close to 0, and what is divided by it go far from the data: squares
    of differences from that lose all digits."""
    with pytest.raises(nk.Refusal, match="div of a result so far may go far"):
        by_any_weights.stream("x", passes=1)
    kernel = by_any_weights.stream("x", passes=2).kernel
    assert len(kernel.stream.passes) == 2
    rng = np.random.default_rng(3)
    X, W = rng.normal(size=(2, SIZES["n"], SIZES["x"]))
    W[:, 3] = 1e-12 - W[:, :3].sum(axis=1)
    sizes, arrays = SIZES, {"X": X, "W": W}
    assert breach(kernel, arrays, sizes, (4, 8), tolerance=1e-9) is None


def test_exponentials_nested_over_two_axes() -> None:
    @nk.diagram("a x -> ()")
    def logsumexp(X: Any) -> Any:
        m = nk.reduce(X, "max", over="a x")
        return m + nk.log(total(total(nk.exp(X - m), "a")))

    X = np.random.default_rng(2).normal(size=(3, 12)) + 5000
    kernel = logsumexp.stream("x").kernel
    assert breach(kernel, {"X": X}, SIZES, (5, 7)) is None


def test_a_square_that_cannot_be_held_waits_for_another_pass() -> None:
    @nk.diagram("n x, n x -> n")
    def about_a_product(X: Any, Y: Any) -> Any:
        return total((X * mean(Y) - mean(X * Y)) ** 2)

    with pytest.raises(nk.Refusal, match="does not separate"):
        about_a_product.stream("x")
    kernel = about_a_product.stream("x", passes=2).kernel
    X = FAR + np.random.default_rng(3).normal(size=(12, 12))
    assert breach(kernel, {"X": X, "Y": X[::-1]}, SIZES, (5, 7), tolerance=1e-7) is None


@nk.diagram("n x, n x, n x -> n")
def shifted_by_two(X: Any, S: Any, W: Any) -> Any:
    return total(nk.exp(X - nk.reduce(X, "max", over="x") + S - nk.reduce(S, "max", over="x")) * W)


@nk.diagram("n x, n x -> n")
def shifted_by_a_level(X: Any, W: Any) -> Any:
    return total(nk.exp(X - nk.reduce(X, "logsumexp", over="x")) * W)


@pytest.mark.parametrize("diagram", [shifted_by_two, shifted_by_a_level], ids=lambda d: d.name)
def test_a_small_result_beside_a_large_one_keeps_its_digits(diagram: Diagram) -> None:
    """The sum of a large maximum and a small one, or a logarithm, is never formed."""
    rng = np.random.default_rng(4)
    X, S, W = (rng.normal(size=(12, 12)) for _ in range(3))
    arrays = {"X": 1e15 + np.round(X), "S": S, "W": W}
    arrays = {str(n.params[0]): arrays[str(n.params[0])] for n in diagram.inputs}
    kernel = diagram.stream("x").kernel
    assert breach(kernel, arrays, SIZES, (5, 7)) is None
    near = {**arrays, "X": np.round(X)}
    assert close_to(diagram.evaluate(*arrays.values()), diagram.evaluate(*near.values())) < 1e-12
