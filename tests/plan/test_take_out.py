"""Plans in which rows that positions pick are reduced first, all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

import napkin as nk


@nk.diagram("q d, x d, p d -> q d", sizes={"q": 4096, "x": 4096, "d": 64, "p": 4096})
def between_positions(Q: Any, K: Any, E: Any) -> Any:
    """Attention with scores between a query and the distance to a key."""
    far = nk.index("q") - nk.index("x") + nk.size("p") // 2
    S = nk.contract(Q, K, over="d") + nk.contract(Q, nk.take(E, p=far), over="d")
    return nk.contract(nk.softmax(S, over="x"), K, over="x")


def test_scores_of_positions_are_a_product_of_plain_arrays() -> None:
    plan = nk.derive(between_positions)
    assert any(m.rule == "refactor" and "take(" in m.note for m in plan.trail)
    assert [set(axes) for axes in plan.materialised.values()] == [{"q", "p"}]
    assert sum("tl.dot" in line for line in plan.source.splitlines()) == 3
    sizes, rng = {"q": 40, "x": 33, "d": 16, "p": 24}, np.random.default_rng(0)
    Q, K, E = (rng.normal(size=(sizes[a], 16)) for a in "qxp")
    np.testing.assert_allclose(plan(Q, K, E), between_positions.evaluate(Q, K, E), atol=0.05)
