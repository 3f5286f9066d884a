"""A divisor so far may be smaller than any number that has a reciprocal."""

from __future__ import annotations

from typing import Any

import numpy as np
from in_numpy import execute

import napkin as nk
from napkin.derive.prepare import prepare
from napkin.settings.labels import labellings

SIZES, TILES = {"x": 4}, {"x": 2}


@nk.diagram("x, (), x -> ()")
def spread_about_a_weighted_mean(S: Any, m: Any, W: Any) -> Any:
    """Weights of scores below a maximum that is known before."""
    weights = nk.exp(S - m)
    total = nk.reduce(weights, "sum", over="x")
    shares = weights / total
    centred = W - nk.contract(shares, W, over="x")
    return nk.contract(shares, centred * centred, over="x")


def test_a_first_chunk_whose_weights_all_but_vanish() -> None:
    d = spread_about_a_weighted_mean
    arrays = {"S": np.array([-742.0, -743.0, 0.0, -1.0]), "m": np.array(0.0)}
    arrays["W"] = np.array([2.0, -1.0, 3.0, 1.0])
    ready, wanted = prepare(d), d.evaluate(*arrays.values())
    streamed = [k for k in labellings("spread", ready.outputs, ready.names, SIZES) if k.stream.axes]
    assert any(s.held == "running" for k in streamed for p in k.stream.passes for s in p.states)
    for kernel in streamed:
        (found,) = execute(kernel, arrays, SIZES, TILES).outputs.values()
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
