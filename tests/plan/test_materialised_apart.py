"""Outputs that have nothing in common may be of kernels of their own, whatever is stored."""

from __future__ import annotations

from typing import Any

import napkin as nk


@nk.diagram("a c, c e, t d, u d -> a e, t u")
def products(A: Any, B: Any, D: Any, E: Any) -> Any:
    return nk.contract(A, B, over="c"), nk.contract(D, E, over="d")


@nk.diagram("q d, x d, x d, t e, u e -> q d, t u")
def beside_attention(Q: Any, K: Any, V: Any, A: Any, B: Any) -> Any:
    S = nk.contract(Q, K, over="d")
    return nk.contract(nk.softmax(S, over="x"), V, over="x"), nk.contract(A, B, over="e")


def test_nothing_is_stored() -> None:
    plan = nk.derive(products, on="h100", sizes=dict.fromkeys(products.axes, 256), materialise=[])
    assert len(plan.kernels) == 2
    assert not plan.materialised


def test_what_the_planner_stores_may_be_named() -> None:
    sizes = dict.fromkeys(beside_attention.axes, 1024)
    free = nk.derive(beside_attention, on="h100", sizes=sizes)
    plan = nk.derive(beside_attention, on="h100", sizes=sizes, materialise=list(free.materialised))
    assert plan.materialised == free.materialised == {"S": ("q", "x")}
    assert len(plan.kernels) == len(free.kernels)
