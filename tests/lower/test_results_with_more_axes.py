"""A result that is stored along an axis that its value has not: each place is written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.plan.plan import Plan
from napkin.run.arrays import to_device
from napkin.run.interpreted import run_recipe


@nk.diagram("b e, n -> b, ()")
def two(Q: Any, S: Any) -> Any:
    """Woven over w, that lies beside b in all that is computed, and alone in the second result."""
    m = nk.reduce(S, "max", over="n")
    return nk.reduce(Q, "sum", over="e") * m, m


def test_a_result_that_is_woven_is_written_once(forced: Callable[..., Plan]) -> None:
    woven = two.weave("w", into="Q")
    sizes = {"w": 3, "b": 7, "e": 5, "n": 5}
    plan = forced(woven, sizes, group=())
    rng = np.random.default_rng(0)
    Q, S = rng.normal(size=(3, 7, 5)), rng.normal(size=5)
    tensors = {"Q": to_device(Q, "fp32"), "S": to_device(S, "fp32")}
    ran = run_recipe(plan.recipe, tensors, sizes, {})
    (k,) = plan.kernels
    predicted = {(t, str(way)): n for (t, way), n in k.bytes_at(sizes).items()}
    assert ran.moved[0] == predicted
    for o, wanted in zip(plan.diagram.outputs, woven.evaluate(Q, S), strict=True):
        np.testing.assert_allclose(ran.tensors[o.name].to_float64(), wanted, rtol=1e-5)


@nk.diagram("q d, x d, x d -> d q, x q")
def weighted(Q: Any, K: Any, V: Any) -> Any:
    """Its scores are a result, which a weave of V repeats."""
    S = nk.contract(Q, K, over="d") * 0.25
    P = nk.softmax(S, over="x", keys=nk.sliding(1, 1, queries="q", keys="x"))
    return nk.contract(P, V, over="x"), S


@pytest.mark.parametrize("many", [64, 512])
def test_no_kernel_reads_a_result_that_is_repeated(many: int) -> None:
    """Its reader would have the axes of the weave, which its own result lacks: the scores are
    stored once without them, where one kernel does not hold them."""
    woven = weighted.weave("w b", into="V")
    sizes = {"w": many, "b": 64, "q": 2048, "x": 2048, "d": 2048}
    plan = nk.derive(woven, on="a100", sizes=sizes, dtype="fp32")
    assert "w" not in {a for axes in plan.materialised.values() for a in axes}
    plan.check(sizes={"w": 3, "b": 2, "q": 9, "x": 9, "d": 5}, resources=False).raise_if_wrong()


def test_what_a_weave_repeats_is_read_whatever_its_type() -> None:
    """Truths, whole numbers and casts that are results, repeated, and read."""

    @nk.diagram("a d, d e -> a e, d, d, d")
    def made(X: Any, W: Any) -> Any:
        seen = nk.reduce(W > 2, "any", over="e")
        count = nk.reduce(nk.cast(W > 0, "int32"), "sum", over="e")
        total = nk.cast(nk.reduce(W, "sum", over="e"), "fp32")
        return nk.contract(nk.where(seen, X * count, total), W, over="d"), seen, count, total

    woven = made.weave("b", into="X")
    for size in (32, 2048):
        plan = nk.derive(woven, on="h100", sizes=dict.fromkeys(woven.axes, size))
        plan.check(sizes={"a": 5, "b": 3, "d": 17, "e": 9}, resources=False).raise_if_wrong()
