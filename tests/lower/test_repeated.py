"""Results that are stored repeated along axes which the array lacks."""

from __future__ import annotations

from typing import Any

import numpy as np

import napkin as nk
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.diagram.interface import Output
from napkin.lower.build import build
from napkin.lower.write import write
from napkin.schedule import Schedule


def test_one_result_is_repeated_along_an_axis_that_another_lacks() -> None:
    """A kernel stores a total for every `w`, and for a later kernel shares that lack `w`."""

    @nk.diagram("q -> q, ()")
    def shares(X: Any):
        total = nk.reduce(nk.abs(X), "sum", over="q")
        return X / total, total

    ready = prepare(shares)
    share, total = (o.node for o in ready.outputs)
    outputs = [Output("share", share, ("q",)), Output("total", total, ("w",))]
    kernel = label("shares", outputs, ready.names)
    assert set(kernel.whole) == {"q", "w"}
    assert "total + w * total_stride_w" in write(build(kernel, Schedule({"q": 4, "w": 8}))).source


def test_parts_of_a_sum_are_merged_into_a_result_that_is_repeated() -> None:
    @nk.diagram("q, () -> (), ()")
    def total(X: Any, Y: Any):
        return nk.reduce(X, "sum", over="q"), nk.abs(Y)

    woven = total.weave("w", into="Y")
    plan = nk.derive(woven, sizes={"q": 2**16, "w": 3}, dtype="fp32", parts={"q": 4})
    assert [k.name for k in plan.kernels] == ["total_parts", "total_merge"]
    X = np.arange(1000.0)
    np.testing.assert_array_equal(plan(X, np.zeros(3))[0], np.full(3, X.sum()))
    plan.check(sizes={"q": 1000, "w": 3}, resources=False).raise_if_wrong()


def test_a_power_of_a_size_within_a_contraction_is_one_argument() -> None:
    @nk.diagram("q c, x c -> q x", sizes={"q": 64, "x": 64, "c": 32})
    def scaled(A, B):
        k = nk.size("c") ** -0.5
        return nk.contract(A * (k * k), nk.exp(B), over="c")

    assert nk.derive(scaled, "h100").check().ok
