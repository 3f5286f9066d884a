"""Item types of tiles: what stands for a real is a float, whatever it is read from."""

from collections.abc import Callable
from typing import Any

import numpy as np

import napkin as nk
from napkin.errors import Refusal
from napkin.plan.plan import Plan

SIZES = {"n": 3, "b": 5}


def test_a_whole_number_times_one_point_zero_is_a_float(forced: Callable[..., Plan]) -> None:
    @nk.diagram("n b:int -> n")
    def real(X: Any) -> Any:
        return nk.reduce(nk.tanh(X * 1.0), "sum", over="b")

    plan = forced(real, SIZES)
    plan.check(sizes=SIZES, resources=False).raise_if_wrong()
    X = np.full((3, 5), 2)
    np.testing.assert_allclose(plan(X), real.evaluate(X), rtol=1e-5)


def test_a_boolean_times_one_is_a_whole_number(forced: Callable[..., Plan]) -> None:
    @nk.diagram("n b -> n, n")
    def counted(X: Any) -> Any:
        return nk.reduce((X > 0) * 1, "sum", over="b"), nk.reduce((X > 0) * 1.0, "sum", over="b")

    forced(counted, SIZES).check(sizes=SIZES, resources=False).raise_if_wrong()


def test_a_state_whose_repair_carries_a_summed_axis_is_refused(
    forced: Callable[..., Plan],
) -> None:
    """The planner then takes another labelling; the kernel would not compile."""

    @nk.diagram("b n c, c n -> b")
    def weighted(Y: Any, X: Any) -> Any:
        return nk.reduce(nk.softmax(X, over="c") * Y, "sum", over="c n")

    sizes = {"n": 5, "b": 5, "c": 3}
    try:
        plan = forced(weighted, sizes, "c", {"c": 1})
    except Refusal:
        plan = nk.derive(weighted, sizes=sizes, dtype="fp32")
    plan.check(sizes=sizes, resources=False).raise_if_wrong()
