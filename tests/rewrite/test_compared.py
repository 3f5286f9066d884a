"""What positions are compared with is computed as it is written: x == max_x x of the largest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from in_numpy import execute

import napkin as nk
from napkin.derive.prepare import prepare
from napkin.diagram.diagram import Diagram
from napkin.settings.labels import labellings

SIZES, TILES = {"b": 50, "x": 7}, {"b": 50, "x": 3}


def normed(X: Any) -> Any:
    return X / (nk.reduce(nk.abs(X), "sum", over="x") + 0.1) * 0.7


@nk.diagram("b x -> b x")
def the_largest(X: Any) -> Any:
    t = normed(X)
    return nk.where(t == nk.reduce(t, "max", over="x"), 1.0, 0.0)


@nk.diagram("b x -> b")
def how_many_are_less(X: Any) -> Any:
    t = normed(X)
    return nk.reduce(nk.where(t < nk.reduce(t, "min", over="x"), 1.0, 0.0), "sum", over="x")


@pytest.mark.parametrize("d", [the_largest, how_many_are_less], ids=lambda d: d.name)
def test_an_extremum_is_equal_to_the_position_that_has_it(d: Diagram) -> None:
    X = np.random.default_rng(0).normal(size=(50, 7))
    ready, wanted = prepare(d), d.evaluate(X)
    streamed = [k for k in labellings("d", ready.outputs, ready.names, SIZES) if k.stream.axes]
    assert any(k.stream.axes == ("x",) for k in streamed)
    for kernel in streamed:
        (found,) = execute(kernel, {"X": X}, SIZES, TILES).outputs.values()
        np.testing.assert_array_equal(found, wanted)


def test_an_extremum_that_nothing_is_compared_with_is_separated() -> None:
    @nk.diagram("b x -> b")
    def largest(X: Any) -> Any:
        return nk.reduce(normed(X), "max", over="x")

    assert len(largest.stream("x").kernel.stream.passes) == 1


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("d", [the_largest, how_many_are_less], ids=lambda d: d.name)
def test_an_extremum_that_is_stored_is_not_rounded(d: Diagram, dtype: str) -> None:
    """With materialise="every", too, which else stores results of reductions in the plan's type."""
    X = np.random.default_rng(0).integers(-8, 8, size=(50, 7)) / 8
    plan = nk.derive(d, on="h100", sizes=SIZES, dtype=dtype, materialise="every")
    np.testing.assert_array_equal(plan(X), d.evaluate(X))
