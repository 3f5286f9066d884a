"""Lanes past the keys that a chunk of a key set has: a weight of 0 does not make an infinity 0."""

from __future__ import annotations

import numpy as np
import pytest

import napkin as nk

FORMS = {
    "quotient": lambda T, N: T / N,
    "root": lambda T, N: T * nk.rsqrt(N),
    "logarithm": lambda T, N: T * nk.log(N),
    "power": lambda T, N: T * N**-1.0,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("weights", ["softmax", "product"])
@pytest.mark.parametrize("keys", [nk.global_tokens(1), nk.causal()])
def test_lanes_past_the_last_key_add_nothing(form: str, weights: str, keys: nk.KeySet) -> None:
    keys = keys.over("q", "x")

    @nk.diagram("q b, x b, x -> q b")
    def values(V, T, N):
        R = FORMS[form](T, N)
        S = nk.contract(V, R, over="b")
        if weights == "product":
            return nk.contract(S, R, over="x", keys=keys)
        return nk.contract(nk.softmax(S, over="x", keys=keys), R, over="x")

    plan = nk.derive(values, sizes={"q": 4096, "x": 4096, "b": 128}, dtype="fp32", materialise=())
    divisors = np.linspace(1.0, 4.0, 11)
    plan.check(inputs={"N": divisors}, sizes={"q": 11, "b": 4}, resources=False).raise_if_wrong()
