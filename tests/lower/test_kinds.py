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


def test_a_test_of_one_number_joins_tests_of_many(forced: Callable[..., Plan]) -> None:
    @nk.diagram("n:bool, () -> n, n")
    def joined(B: Any, x: Any):
        low = x <= 0.5
        return low | B, nk.where(low & (nk.index("n") > 1), x, -1.0)

    for x in (0.25, 1.0):
        B = np.array([True, False, True])
        either, chosen = forced(joined, {"n": 3})(B, x)
        np.testing.assert_array_equal(either, B | (x <= 0.5))
        np.testing.assert_array_equal(chosen, [-1, -1, x if x <= 0.5 else -1])


def test_what_a_choice_asks_is_a_truth_value(forced: Callable[..., Plan]) -> None:
    """Triton's own maximum of truth values is a whole number."""

    @nk.diagram("n:bool, n:int, k -> n, (), (), ()")
    def chosen(B: Any, I: Any, X: Any):  # noqa: E741
        most, least = nk.reduce(B, "max", over="n"), nk.reduce(B, "min", over="n")
        some = nk.reduce(X, "max", over="k")
        return nk.where(I, I, 2), nk.where(most & ~least, some, -1.0), most, least

    plan = forced(chosen, {"n": 3, "k": 2})
    assert "tl.where(I_tile != 0, " in plan.source
    for B in ([1, 0, 1], [1, 1, 1], [0, 0, 0]):
        found = plan(np.array(B, bool), np.array([0, 2, -1]), np.array([3.0, 4.0]))
        np.testing.assert_array_equal(found[0], [2, 2, -1])
        np.testing.assert_array_equal(found[1], 4.0 if sum(B) == 2 else -1.0)
        assert (found[2], found[3]) == (any(B), all(B))
