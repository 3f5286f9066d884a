"""What a kernel may make of infinities and NaN, and that no more is allowed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from otherwise import allowed, excused, leaves_fp16
from programs import Input, Program, Ref, Step
from unsure import Wobble
from values import results

import napkin as nk
from napkin.run.arrays import to_device

A, Z = Input("A", ("x",)), Input("Z", ())


def plan(**tiles: int) -> Any:
    """What is asked of a plan with one kernel with these tiles, that streams nothing."""
    stream = SimpleNamespace(tails=(), passes=())
    choice = SimpleNamespace(kernel=SimpleNamespace(stream=stream))
    return cast(Any, SimpleNamespace(kernels=[SimpleNamespace(tiles=tiles, choice=choice)]))


def open_to(steps: list[Step], given: list[Any], inputs: tuple[Input, ...], tile: int) -> Wobble:
    """What is allowed of the last step, which has no axes."""
    program = Program(inputs, tuple(steps), ((Ref(len(inputs) + len(steps) - 1), ()),), {"x": 3})
    arrays = [np.asarray(x, float) for x in given]
    wanted = results(program, arrays, {"x": 3})
    none = [Wobble.none(w) for w in wanted]
    return allowed(program, arrays, {"x": 3}, plan(x=tile), none, wanted)[0]


@pytest.mark.parametrize(("tile", "nan"), [(4, True), (3, False)])
def test_an_infinite_factor_past_a_ragged_end_may_be_nan(tile: int, nan: bool):
    steps = [
        Step("mul", (Ref(0), Ref(1))),
        Step("tanh", (Ref(2),)),
        Step("sum", (Ref(3),), (("x",),)),
    ]
    found = open_to(steps, [[1.0, 2.0, -3.0], np.inf], (A, Z), tile)
    assert found.anything == nan


def test_a_finite_factor_past_a_ragged_end_is_sure():
    steps = [
        Step("mul", (Ref(0), Ref(1))),
        Step("tanh", (Ref(2),)),
        Step("sum", (Ref(3),), (("x",),)),
    ]
    assert not open_to(steps, [[1.0, np.nan, -3.0], 2.0], (A, Z), 4).anything


def test_a_factor_that_comes_out_of_a_sum_may_leave_an_infinity():
    """inf - inf is NaN; (1 - 2) inf is -inf, whose exponential is 0."""
    steps = [Step("contract", (Ref(0), Ref(1)), (("x",),)), Step("exp", (Ref(2),))]
    assert open_to(steps, [[1.0, -2.0, 0.5], np.inf], (A, Z), 3).anything
    assert not open_to(steps, [[1.0, np.nan, 0.5], 2.0], (A, Z), 3).anything


def test_nan_before_a_state_that_is_no_number_is_excused_in_pairs_alone():
    found, wanted = np.array([np.nan, np.nan, 1.0]), np.array([0.5, np.nan, 1.0])
    assert excused(found, wanted, plan(x=2, x_later=2), ("x",))[0] == 0.5
    assert np.isnan(excused(found, wanted, plan(x=2), ("x",))[0])
    later = np.array([0.5, 0.5, np.nan])
    assert np.isnan(excused(later, wanted, plan(x=2, x_later=2), ("x",))[2])


@nk.diagram("a k, k b, b c -> a c")
def product(A: Any, B: Any, C: Any) -> Any:
    return nk.contract(nk.contract(A, B, over="k"), C, over="b")


@pytest.mark.parametrize(
    ("large", "stored", "may"),
    [(300.0, np.inf, True), (3.0, np.inf, False), (300.0, 6e4, False), (np.inf, np.inf, False)],
)
def test_a_product_between_kernels_may_leave_fp16(large: float, stored: float, may: bool):
    """A product of 16 times 300 * 300 is more than fp16 holds; no other infinity is excused."""
    sizes = {"a": 16, "k": 16, "b": 4096, "c": 4096}
    plan = nk.derive(product, "h100", sizes, "fp16", materialise="every")
    (between,) = plan.materialised
    few = {a: min(n, 16) for a, n in sizes.items()}
    whole = {n: np.full((16, 16), large) for n in ("A", "B")} | {between: np.full((16, 16), stored)}
    tensors = {n: to_device(x, "fp16") for n, x in whole.items()}
    ran = cast(Any, SimpleNamespace(tensors=tensors))
    assert leaves_fp16(plan, ran, few) == may
