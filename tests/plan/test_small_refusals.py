"""Terms that look too small, or too plain, to have a kernel, and have one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.derive.prepare import prepare
from napkin.machine.machines import machine
from napkin.settings.climb import best_tiles
from napkin.settings.labels import labellings


def test_positions_that_fill_no_tile_are_stored() -> None:
    """Nothing is read for them, so what they store says how large a tile is."""

    @nk.diagram("n -> n, n")
    def positions(X: Any):
        return nk.index("n"), X * 2

    plan = nk.derive(positions, on="h100", sizes={"n": 4096}, dtype="fp32")
    plan.check(sizes={"n": 77}, resources=False).raise_if_wrong()


def test_a_sum_over_taps_alone_is_no_matrix_product() -> None:
    """Taps are added up one by one: a matrix instruction would have a depth of 1."""

    @nk.diagram("e, a q -> q d")
    def filtered(X: Any, W: Any):
        return nk.contract(nk.slide(X, over="e", into="d a", padding=1, window=2), W, over="a")

    sizes = {"e": 2048, "a": 2, "q": 2048}
    (kernel,) = nk.derive(filtered, on="h100", sizes=sizes, dtype="fp32").kernels
    assert kernel.choice.kernel.stream.axes == ("a",)
    plan = nk.derive(filtered, on="h100", sizes={"e": 70, "a": 2, "q": 33}, dtype="fp32")
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=70), rng.normal(size=(2, 33))
    np.testing.assert_allclose(plan(X, W), filtered.evaluate(X, W), rtol=1e-4, atol=1e-5)


def test_a_sum_over_three_axes_of_several_arrays() -> None:
    """A chunk of it has as many values as three tiles together, and registers hold a few such."""

    @nk.diagram("q a k, k a q, a, a -> ()")
    def total(S: Any, T: Any, M: Any, W: Any):
        shares = nk.exp(S - M) / W
        return nk.contract(shares / (T * T + 1.0), T, T, over="q k a")

    ready = prepare(total)
    sizes = dict.fromkeys("qak", 2048)
    (kernel,) = labellings("total", ready.outputs, ready.names, sizes)
    assert len(kernel.stream.axes) == 3
    assert best_tiles(kernel, sizes, "fp32", machine("h100")) is not None


def test_what_no_group_can_hold_whole_is_refused() -> None:
    """Queries are compared with the ends of all 131,072 documents."""

    @nk.diagram("d i, e i, q:int, e a -> d a")
    def packed(Q: Any, K: Any, lengths: Any, V: Any):
        own = nk.documents(lengths, queries="d", keys="e")
        return nk.contract(nk.softmax(nk.contract(Q, K, over="i"), over="e", keys=own), V, over="e")

    batch = packed.weave("w", into="lengths V")
    with pytest.raises(nk.Refusal, match="make the axes that are held whole smaller"):
        nk.derive(batch, on="h100", sizes={**dict.fromkeys(batch.axes, 2048), "q": 2**17})
