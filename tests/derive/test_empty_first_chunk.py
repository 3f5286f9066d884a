"""A first chunk whose scores are all masked, or none, leaves no NaN in what is carried."""

from __future__ import annotations

import numpy as np
import pytest
from in_numpy import execute

import napkin as nk
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.errors import Refusal
from napkin.ir.names import with_named
from napkin.moves.refactor import refactorings

SIZES = {"q": 3, "x": 6, "v": 2}


def centred(X):
    return X - nk.reduce(X, "mean", over="x")


@nk.diagram("q x -> q")
def spread_of_weights(S):
    """The mean of the weights so far is 0 while all scores are masked."""
    t = centred(nk.softmax(S, over="x"))
    return nk.reduce(t * t, "mean", over="x")


@nk.diagram("q x, x -> q")
def covariance(S, W):
    return nk.reduce(centred(nk.softmax(S, over="x")) * centred(W), "mean", over="x")


@nk.diagram("q x, x -> q")
def scaled_by_an_exponential(X, W):
    """What it is divided by is exp(-inf) = 0 before the first chunk."""
    t = X / nk.exp(nk.reduce(X, "max", over="x") * 0.3)
    return nk.reduce(centred(t) * centred(W), "mean", over="x")


@nk.diagram("q x, x v -> q")
def squared_attention(S, V):
    """Refactored twice, exponentials of all positions stand beside the maximum so far."""
    t = nk.contract(nk.softmax(S, over="x"), V, over="x")
    return nk.contract(t, t, over="v")


def forms(d):
    """The outputs, names and new axes of a diagram as it is, and refactored up to twice."""
    ready = prepare(d)
    yield ready.outputs, ready.names, {}
    for r in refactorings(ready.outputs, ready.names, SIZES):
        yield r.outputs, r.names, r.same_size
        sizes = with_named(SIZES, r.same_size)
        for again in refactorings(r.outputs, r.names, sizes):
            yield again.outputs, again.names, {**r.same_size, **again.same_size}


def kernels(d):
    for outputs, names, same_size in forms(d):
        sizes = with_named(SIZES, same_size)
        for passes in (1, 2, 3):
            try:
                yield label("k", outputs, names, streamed="x", passes=passes), sizes
            except Refusal:
                continue


MASKED = [spread_of_weights, covariance, squared_attention]


@pytest.mark.parametrize("d", [*MASKED, scaled_by_an_exponential], ids=lambda d: d.name)
def test_every_form_has_its_value(d):
    rng = np.random.default_rng(0)
    arrays = {str(n.params[0]): rng.normal(size=[SIZES[a] for a in n.axes]) for n in d.inputs}
    if d in MASKED:
        arrays["S"][0, :2] = -np.inf
    found = list(kernels(d))
    assert found
    for kernel, sizes in found:
        tiles = dict.fromkeys(sizes, 1) | {"v": 2}
        (value,) = execute(kernel, arrays, sizes, tiles, {}).outputs.values()
        np.testing.assert_allclose(value, d.evaluate(*arrays.values()), rtol=1e-9)
