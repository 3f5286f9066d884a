"""What an earlier pass has found is known: no sum is held at it, and no state carries it."""

from __future__ import annotations

from typing import Any

import numpy as np
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
