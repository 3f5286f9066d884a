"""Axes that are held whole have tiles that hold them, whatever else chooses tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.count.residency import live_set
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.diagram.library import load
from napkin.errors import InputError
from napkin.run.arrays import to_device
from napkin.run.interpreted import run_recipe
from napkin.settings.tiles import Tiles


def test_queries_that_another_result_lacks_are_held_whole() -> None:
    """The boxes of keys and queries that are tried leave such queries alone."""

    @nk.diagram("x d, i q, n -> x d z w, n", sizes={"x": 12, "d": 9, "i": 12, "q": 9, "n": 5})
    def windows(A: Any, B: Any, C: Any):
        keys = nk.neighborhood((1, 5), dilation=(3, 1), queries="x d", keys="i q")
        return nk.compress(A * B, keys, into="z w"), C * C

    ready = prepare(windows)
    kernel = label("windows", ready.outputs, ready.names, streamed="i q")
    assert {"x", "d"} <= set(kernel.whole)
    found = list(Tiles(kernel, {**windows.sizes, "z": 1, "w": 5}).settings())
    assert found
    assert {(t["x"], t["d"]) for t in found} == {(16, 16)}


def test_a_longer_axis_than_the_tile_that_holds_it_is_refused() -> None:
    plan = nk.derive(load("softmax"), sizes={"n": 4, "x": 16}, dtype="fp32")
    assert any("x" in k.choice.kernel.whole for k in plan.kernels)
    given = {"X": to_device(np.zeros((4, 17)), "fp32")}
    with pytest.raises(InputError, match="holds x whole in 16 lanes, but x=17"):
        run_recipe(plan.recipe, given, {"n": 4, "x": 17}, {})


def test_an_axis_that_one_factor_alone_has_is_no_part_of_the_product() -> None:
    """x is summed over beside e, and only T has it: each position of it is a product."""

    @nk.diagram("e l x, e h -> h l")
    def beside(T: Any, B: Any):
        return nk.contract(T, B, over="e x")

    sizes = dict.fromkeys(beside.axes, 2048)
    plan = nk.derive(beside, sizes=sizes, dtype="fp32", materialise=[])
    (kernel,) = plan.kernels
    assert kernel.choice.kernel.stream.axes == ("e", "x")
    assert kernel.tiles["x"] == 1
    assert "tl.dot" in plan.source
    plan.check(sizes={"e": 70, "l": 3, "x": 2, "h": 5}, resources=False).raise_if_wrong()


def test_an_operand_that_several_factors_make_is_held() -> None:
    """One side of the second product is X T [n c e]: wider than X and than T."""

    @nk.diagram("n c, n e, e c b, e -> n b")
    def twice(X: Any, V: Any, Z: Any, s: Any):
        T = nk.contract(X, V, over="n")
        return nk.contract(T, Z, s, X, over="c e")

    ready = prepare(twice)
    kernel = label("twice", ready.outputs, ready.names, streamed="e")
    assert {"n", "c", "e"} in map(set, live_set(kernel).chunk)
