"""A running maximum that starts at -inf: chunks without a finite score must not poison the rest."""

from __future__ import annotations

import numpy as np
import pytest

import napkin as nk
from napkin.derive.law import folded


@nk.diagram("q x, x d -> q d")
def by_hand(S, V):
    m = nk.reduce(S, "max", over="x")
    e = nk.exp(S - m)
    return nk.contract(e / nk.reduce(e, "sum", over="x"), V, over="x")


@pytest.mark.parametrize("cut", [1, 4, 7])
def test_a_first_chunk_of_masked_scores(cut):
    rng = np.random.default_rng(0)
    S, V = rng.normal(size=(3, 8)), rng.normal(size=(8, 2))
    S[0, :4] = -np.inf
    S[1, 2:5] = -np.inf
    kernel = by_hand.stream("x").kernel
    bind = {a.leaf: {"S": S, "V": V}[a.tensor] for a in kernel.reads}
    sizes = {"q": 3, "x": 8, "d": 2}
    _, found = folded(kernel.stream, bind, sizes, [range(cut), range(cut, 8)])
    np.testing.assert_allclose(found["O"], by_hand.evaluate(S, V), rtol=1e-12)
