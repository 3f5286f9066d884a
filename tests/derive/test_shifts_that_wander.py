"""A maximum of scores that are shifted by other results so far may fall, and what vanished beside
it would be missed: such exponentials are held below a maximum of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from in_numpy import execute

import napkin as nk
from napkin.derive.prepare import prepare
from napkin.diagram.diagram import Diagram
from napkin.ir.node import postorder
from napkin.settings.labels import labellings

SIZES, TILES = {"x": 4, "q": 2}, {"x": 2, "q": 2}


@nk.diagram("x, q x -> q")
def a_shift_for_each_row(S: Any, W: Any) -> Any:
    """Shares of all scores in all rows, of which each has a shift of its own."""
    t = S - nk.contract(W, over="x")
    top = nk.reduce(t, "max", over="q x")
    return nk.reduce(nk.exp(t - top), "sum", over="x")


@nk.diagram("x, q x, q x -> q")
def two_arrays_of_which_one_is_shifted(S: Any, W: Any, T: Any) -> Any:
    t = S - nk.contract(W, over="x")
    top = nk.maximum(nk.reduce(t, "max", over="x"), nk.reduce(T, "max", over="x"))
    return nk.reduce(nk.exp(t - top), "sum", over="x")


@pytest.mark.parametrize("d", [a_shift_for_each_row, two_arrays_of_which_one_is_shifted],
                         ids=lambda d: d.name)  # fmt: skip
def test_no_exponential_is_lost_while_the_shifts_differ(d: Diagram) -> None:
    arrays = {
        "S": np.array([1.0, 2.0, 3.0, 1.5]),
        "W": np.array([[2000.0, 0.0, -2000.0, 0.0], [0.0, 1.0, 0.0, 0.0]]),
        "T": np.zeros((2, 4)),
    }
    wanted = d.evaluate(*(arrays[str(i.params[0])] for i in d.inputs))
    ready = prepare(d)
    for kernel in labellings(d.name, ready.outputs, ready.names, SIZES):
        (found,) = execute(kernel, arrays, SIZES, TILES).outputs.values()
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
    assert len(d.stream("x").kernel.stream.passes) == 1


def test_one_maximum_of_several_arrays_streams() -> None:
    @nk.diagram("q x, q x, x -> q")
    def joint(S: Any, T: Any, V: Any) -> Any:
        return nk.contract(nk.softmax([S, T], over="x")[0], V, over="x")

    assert len(joint.stream("x").kernel.stream.passes) == 1


def test_twice_a_maximum_of_nothing_yet_is_a_number() -> None:
    """Weights squared are exp(2 (s - m)), and 2 m is beyond float32 while all scores are -inf."""

    @nk.diagram("q x -> q")
    def squares(S: Any) -> Any:
        weights = nk.softmax(S, over="x")
        return nk.reduce(weights * weights, "sum", over="x")

    (step,) = squares.stream("x").kernel.stream.passes
    powers = [n for s in step.states for n in postorder([s.step, s.merge]) if n.op == "exp"]
    doubled = [n.args[0] for n in powers if n.args[0].op == "mul"]
    assert doubled
    assert all(any(a.op == "sub" for a in n.args) for n in doubled)
    assert not any(a.op == "mul" for n in powers if n.args[0].op == "sub" for a in n.args[0].args)
