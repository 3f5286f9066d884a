"""A result so far never counts as part of the chunk: its sum is rescaled, deferred, or refused."""

from __future__ import annotations

import numpy as np
import pytest
from in_numpy import execute

import napkin as nk
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.errors import Refusal

SIZES = {"q": 3, "x": 7, "h": 2, "a": 3}


@nk.diagram("q x -> q")
def extreme_of_extreme(X):
    """The second maximum is the first, so that separating it gives a reduction."""
    u = nk.maximum(X, nk.reduce(X, "max", over="x"))
    return nk.reduce(u * nk.reduce(u, "max", over="x"), "sum", over="x")


@nk.diagram("q x -> q")
def least_of_least(X):
    u = nk.maximum(X, nk.reduce(X, "min", over="x"))
    return nk.reduce(nk.exp(u - nk.reduce(u, "min", over="x")), "sum", over="x")


@nk.diagram("q a x, x h -> q")
def sum_of_a_product_of_results(X, Y):
    """The sum over h is of two results, and carries the axis a that a later sum removes."""
    s = nk.contract(Y, nk.contract(X, Y, over="x"), over="h")
    return nk.reduce(nk.abs(nk.contract(X, s, over="x") * X), "sum", over="a x")


@pytest.mark.parametrize("passes", [1, 2, 3])
@pytest.mark.parametrize(
    "d", [extreme_of_extreme, least_of_least, sum_of_a_product_of_results], ids=lambda d: d.name
)
def test_a_separated_result_stays_a_result(d, passes):
    ready = prepare(d)
    rng = np.random.default_rng(0)
    arrays = {str(n.params[0]): rng.normal(size=[SIZES[a] for a in n.axes]) for n in d.inputs}
    try:
        kernel = label("k", ready.outputs, ready.names, streamed="x", passes=passes)
    except Refusal:
        assert passes == 1
        return
    tiles = dict.fromkeys(SIZES, 1) | {"x": 2}
    (found,) = execute(kernel, arrays, SIZES, tiles, {}).outputs.values()
    np.testing.assert_allclose(found, d.evaluate(*arrays.values()), rtol=1e-9)
