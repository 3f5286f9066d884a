"""Refactored terms have the values that they had, however often a factor stands in a product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.derive.kernel import leaves
from napkin.derive.prepare import prepare
from napkin.ir.evaluate import aligned, evaluate
from napkin.moves.refactor import refactorings

SIZES = {"q": 3, "x": 4, "d": 2, "v": 5, "a": 3, "b": 4}


def scores(Q: Any, K: Any) -> Any:
    return nk.contract(Q, K, over="d")


def squared(Q: Any, K: Any, V: Any) -> Any:
    return nk.contract(scores(Q, K) ** 2, V, over="x")


def cubed(Q: Any, K: Any, V: Any) -> Any:
    S = scores(Q, K)
    return nk.contract(S, V, S, S, over="x")


def twice_inside(Q: Any, K: Any, V: Any) -> Any:
    return nk.contract(nk.contract(Q, Q, K, over="d"), V, V, over="x")


def with_itself(Q: Any, K: Any, V: Any) -> Any:
    S = scores(Q, K)
    return nk.contract(S, S, over="x") * nk.reduce(V, "max", over="x")


def of_the_same_name(Q: Any, K: Any, V: Any) -> Any:
    """The axis d is bound twice, and a factor outside carries it."""
    return nk.contract(scores(Q, K), scores(Q, K), K, V, over="x")


REPEATED = [squared, cubed, twice_inside, with_itself, of_the_same_name]


@pytest.mark.parametrize("body", REPEATED, ids=lambda f: f.__name__)
def test_a_repeated_factor_is_taken_out_once(body: Any) -> None:
    result = "q v d" if body is of_the_same_name else "q v"
    d = nk.diagram(f"q d, x d, x v -> {result}")(body)
    ready = prepare(d)
    rng = np.random.default_rng(0)
    arrays = {str(n.params[0]): rng.normal(size=[SIZES[a] for a in n.axes]) for n in d.inputs}
    ways = list(refactorings(ready.outputs, ready.names, SIZES))
    assert ways
    for way in ways:
        sizes = {**SIZES, **{new: SIZES[old] for new, old in way.same_size.items()}}
        for before, after in zip(ready.outputs, way.outputs, strict=True):
            read = leaves([before.node, after.node])
            bind = {n: arrays[str(n.params[0])] for n in read}
            wanted, found = evaluate([before.node, after.node], bind, sizes)
            found = aligned(found, after.node.axes, before.node.axes)
            np.testing.assert_allclose(found, wanted, rtol=1e-12)
