"""Axes that are held whole have tiles that hold them, whatever else chooses tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.count.residency import held
from napkin.derive.kernel import label
from napkin.derive.prepare import prepare
from napkin.diagram.library import load
from napkin.errors import InputError
from napkin.plan.tiles import Tiles
from napkin.run.arrays import to_device
from napkin.run.interpreted import run_recipe


def test_queries_that_another_result_lacks_are_held_whole() -> None:
    """The boxes of keys and queries that are tried leave such queries alone."""

    @nk.diagram("x d, i q, n -> x d z w, n", sizes={"x": 12, "d": 9, "i": 12, "q": 9, "n": 5})
    def windows(A: Any, B: Any, C: Any):
        keys = nk.neighborhood((1, 5), dilation=(3, 1), queries="x d", keys="i q")
        return nk.compress(A * B, keys, into="z w"), C * C

    ready = prepare(windows)
    kernel = label("windows", ready.outputs, ready.names, streamed="i q")
    assert {"x", "d"} <= set(kernel.whole)
    found = list(Tiles(kernel, {**windows.sizes, "z": 1, "w": 5}, held(kernel)).settings())
    assert found
    assert {(t["x"], t["d"]) for t in found} == {(16, 16)}


def test_a_longer_axis_than_the_tile_that_holds_it_is_refused() -> None:
    plan = nk.derive(load("softmax"), sizes={"n": 4, "x": 16}, dtype="fp32")
    assert any("x" in k.choice.kernel.whole for k in plan.kernels)
    given = {"X": to_device(np.zeros((4, 17)), "fp32")}
    with pytest.raises(InputError, match="holds x whole in 16 lanes, but x=17"):
        run_recipe(plan.recipe, given, {"n": 4, "x": 17}, {})
