"""Gradients of compressed windows beside arrays that are the same for all queries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk

RNG = np.random.default_rng(5)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape)


@pytest.mark.parametrize("queries", ["", "q "])
def test_a_weight_for_each_slot_of_a_window(gradients_agree: Any, queries: str) -> None:
    def weighted(Q: Any, K: Any, W: Any) -> Any:
        scores = nk.contract(Q, K, over="d")
        return nk.compress(scores, nk.sliding(2, 1, "q", "x"), into="w", fill=-1.5) * W

    f = nk.diagram(f"q d, x d, {queries}w -> q w", name="weighted_slots")(weighted)
    gradients_agree(f, normal(6, 2), normal(6, 2), normal(*([6] if queries else []), 4))


@pytest.mark.parametrize("axes", ["v w", "w", "i w", "i j v w"])
def test_a_weight_for_each_slot_along_two_axes(gradients_agree: Any, axes: str) -> None:
    def weighted(X: Any, Y: Any, W: Any) -> Any:
        keys = nk.neighborhood((3, 2), queries="i j", keys="x y")
        return nk.compress(nk.contract(X, Y, over="d"), keys, into="v w", fill=0.5) * W

    f = nk.diagram(f"i j d, x y d, {axes} -> i j v w", name="weighted_boxes")(weighted)
    sizes = dict(i=4, j=3, v=3, w=2)
    given = normal(4, 3, 2), normal(4, 3, 2), normal(*(sizes[a] for a in axes.split()))
    gradients_agree(f, *given)


def test_the_kernels_of_a_weight_for_each_slot() -> None:
    @nk.diagram("q d, x d, w -> q w", sizes=dict(q=48, x=48, d=16))
    def weighted(Q: Any, K: Any, W: Any) -> Any:
        scores = nk.contract(Q, K, over="d")
        return nk.compress(scores, nk.sliding(2, 1, "q", "x"), into="w", fill=0.0) * W

    verdict = nk.derive(nk.gradient(weighted), dtype="fp32").check(resources=False)
    assert verdict.ok, verdict
