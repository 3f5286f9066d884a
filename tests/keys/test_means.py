"""Means over more axes than a key set has: it says which keys count, with all of the other axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk


@nk.diagram("q e, x w e -> q e", sizes={"q": 13, "x": 13, "w": 3, "e": 5})
def mean(A: Any, C: Any) -> Any:
    return nk.reduce(A * C, "mean", over="w x", keys=nk.neighborhood(5, queries="q", keys="x"))


@nk.diagram("q e, x w e -> q e", sizes={"q": 13, "x": 13, "w": 3, "e": 5})
def variance(A: Any, C: Any) -> Any:
    keys = nk.causal("q", "x")
    m = nk.reduce(A * C, "mean", over="x w", keys=keys)
    return nk.reduce((A * C - m) ** 2, "mean", over="x w", keys=keys)


def test_values() -> None:
    rng = np.random.default_rng(0)
    A, C = rng.normal(size=(13, 5)), rng.normal(size=(13, 3, 5))
    first = [min(max(q - 2, 0), 8) for q in range(13)]
    wanted = [(a * C[i : i + 5]).mean(axis=(0, 1)) for a, i in zip(A, first, strict=True)]
    np.testing.assert_allclose(mean.evaluate(A, C), wanted)
    wanted = [(a * C[: q + 1]).var(axis=(0, 1)) for q, a in enumerate(A)]
    np.testing.assert_allclose(variance.evaluate(A, C), wanted)


@pytest.mark.parametrize("diagram", [mean, variance], ids=lambda d: d.name)
def test_kernels_and_gradients(diagram: nk.Diagram) -> None:
    nk.derive(diagram, dtype="fp32").check(resources=False).raise_if_wrong()
    large = nk.derive(diagram, sizes={"q": 2048, "x": 2048, "w": 64, "e": 64}, dtype="fp32")
    large.check(sizes=diagram.sizes, resources=False).raise_if_wrong()
    plan = nk.derive(nk.gradient(diagram), dtype="fp32")
    plan.check(resources=False, gradient_of=diagram).raise_if_wrong()
