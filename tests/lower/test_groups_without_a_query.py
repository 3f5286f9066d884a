"""A kernel whose queries are none, and that runs as it has another output: it visits no key."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import napkin as nk
from napkin.diagram.diagram import Diagram
from napkin.plan.plan import Plan
from napkin.run.interpreted import run_recipe, stored


def _windows() -> Diagram:
    seen = nk.strided(4, queries="q", keys="x", at=nk.index("q") + 2)

    @nk.diagram("q d, x d, x v, h b, i b -> q v, i h", name="windows_beside_a_product")
    def windows(Q, K, V, S, T):
        scores = nk.contract(Q, K, over="d")
        return (
            nk.contract(nk.softmax(scores, over="x", keys=seen), V, over="x"),
            nk.contract(S, T, over="b"),
        )

    return windows


def _documents() -> Diagram:
    @nk.diagram("q k, x k, l:int, z b -> q, b", name="documents_beside_a_sum")
    def documents(V, S, lengths, T):
        seen = nk.documents(lengths, queries="q", keys="x", at=nk.index("q") - 1)
        scores = nk.contract(V, S, over="k")
        return nk.reduce(scores, "max", over="x", keys=seen), nk.reduce(T, "sum", over="z")

    return documents


@pytest.mark.parametrize("queries", [0, 3])
@pytest.mark.parametrize("diagram", [_windows(), _documents()], ids=lambda d: d.name)
def test_a_group_without_a_query_visits_no_key(
    diagram: Diagram, queries: int, forced: Callable[..., Plan]
) -> None:
    plan = forced(diagram, dict.fromkeys(diagram.axes, 16), streamed="x", group=())
    sizes = {**dict.fromkeys(diagram.axes, 5), "q": queries}
    rng = np.random.default_rng(0)
    shapes = {str(n.params[0]): [sizes[a] for a in n.axes] for n in diagram.inputs}
    given = [np.ones(s) if t == "lengths" else rng.normal(size=s) for t, s in shapes.items()]
    ran = run_recipe(plan.recipe, stored(diagram, given, "fp32"), sizes, {})
    known = {t: a.data for t, a in ran.tensors.items() if t == "lengths"}
    for k, moved in zip(plan.kernels, ran.moved, strict=True):
        found = k.bytes_at(sizes, known).items()
        predicted = {(k.binding[t], str(way)): n for (t, way), n in found}
        assert moved == {at: n for at, n in predicted.items() if n}
    for o, wanted in zip(diagram.outputs, diagram.evaluate(*given), strict=True):
        found = ran.tensors[plan.tensor_of[o.name]].to_float64()
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
