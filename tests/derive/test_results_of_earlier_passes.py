"""What an earlier pass has found is known: no sum is held at it, and no state carries it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fold_law import breach

import napkin as nk


@nk.diagram("q x -> q")
def logsumexp_of_a_norm(X: Any) -> Any:
    away = X - nk.reduce(X, "mean", over="x")
    scaled = away * nk.rsqrt(nk.reduce(away**2, "mean", over="x") + 1e-5)
    return nk.reduce(scaled, "logsumexp", over="x")


def test_a_maximum_that_an_earlier_pass_has_found() -> None:
    """Its exponentials are summed as they are. A state for it had the lanes of a chunk, of which
    the maximum has none, and the kernel did not compile."""
    backward = nk.gradient(logsumexp_of_a_norm)
    kernel = backward.stream("x", passes=3).kernel
    second = kernel.stream.passes[1]
    assert [s.held for s in second.states] == ["fold"] * len(second.states)
    X = np.random.default_rng(0).normal(size=(2, 12))
    sizes = {"q": 2, "x": 12}
    assert breach(kernel, {"X": X, "dO": np.ones(2)}, sizes, (5, 0, 4, 3)) is None


def test_its_plan_compiles() -> None:
    backward = nk.gradient(logsumexp_of_a_norm)
    plan = nk.derive(backward, sizes={"q": 8192, "x": 65536}, dtype="bf16")
    assert [len(k.choice.kernel.stream.passes) for k in plan.kernels] == [3]


@nk.diagram("n h, h -> h")
def weighted_twice(X: Any, W: Any) -> Any:
    Y = X * nk.reduce(X, "max", over="n")
    outer = nk.contract(Y, nk.reduce(Y, "max", over="n"), over="h n")
    return outer * nk.reduce(Y * W, "sum", over="n")


@nk.diagram("n h -> h")
def summed_twice(X: Any) -> Any:
    Y = X * nk.reduce(X, "max", over="n")
    return nk.contract(Y, nk.reduce(Y, "max", over="n"), over="h n") * nk.reduce(Y, "sum", over="n")


@pytest.mark.parametrize("diagram", [weighted_twice, summed_twice])
def test_a_sum_that_a_later_pass_has_folded_already(diagram: nk.Diagram) -> None:
    """The sum of Y, into which a later pass separates another sum, is not folded by the pass before
    at the maximum so far."""
    rng = np.random.default_rng(0)
    data = {"X": rng.normal(size=(12, 3)) - 1.0, "W": rng.normal(size=3)}
    kernel = diagram.stream("n", passes=2).kernel
    read = {a.tensor for a in kernel.reads}
    inputs = {name: x for name, x in data.items() if name in read}
    assert breach(kernel, inputs, {"n": 12, "h": 3}, (5, 0, 4, 3)) is None


@nk.diagram("n h, n h -> h")
def summed_before(X: Any, Z: Any) -> Any:
    m = nk.reduce(X, "max", over="n")
    late = nk.reduce(Z * nk.reduce(X * m, "max", over="n"), "sum", over="n")
    early = nk.reduce(Z * m, "sum", over="n")
    return late + nk.reduce(nk.sigmoid(X * early), "sum", over="n")


def test_a_sum_that_a_later_pass_has_folded_is_folded_before_where_it_is_final_there() -> None:
    """The second pass has folded the sum of Z. The sum that it takes as final needs it, too."""
    rng = np.random.default_rng(0)
    data = {"X": rng.normal(size=(12, 3)), "Z": rng.normal(size=(12, 3))}
    kernel = summed_before.stream("n", passes=2).kernel
    assert breach(kernel, data, {"n": 12, "h": 3}, (5, 0, 4, 3)) is None
