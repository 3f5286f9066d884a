"""What rounding may move, and that nothing else is excused."""

from __future__ import annotations

import numpy as np
from programs import Input, Program, Ref, Step
from unsure import excess, wobbles
from values import results

HALF = 2.0**-24
X = Input("X", ("x",))


def moved(steps: list[Step], axes: tuple[str, ...], given: list[float]):
    """The value of a program of one input along x, and how far it moves."""
    program = Program((X,), tuple(steps), ((Ref(len(steps)), axes),), {"x": len(given)})
    arrays, sizes = [np.asarray(given)], {"x": len(given)}
    wanted = results(program, arrays, sizes)
    return wanted[0], wobbles(program, arrays, sizes, wanted, HALF)[0]


def reduced(op: str, of: int) -> Step:
    return Step(op, (Ref(of),), (("x",),))


def test_a_comparison_is_unsure_where_its_sides_are_equal_to_rounding():
    steps = [Step("exp", (Ref(0),)), reduced("max", 1), Step("equal", (Ref(1), Ref(2)))]
    wanted, wobble = moved(steps, ("x",), [0.5, 2.0, 1.0])
    assert wanted.tolist() == [0, 1, 0]
    assert wobble.tolist() == [0, 1, 0]


def test_a_comparison_of_inputs_is_sure():
    steps = [reduced("max", 0), Step("equal", (Ref(0), Ref(1)))]
    assert not moved(steps, ("x",), [0.5, 2.0, 1.0])[1].any()


def test_a_whole_number_is_unsure_where_the_real_one_is_nearly_the_next():
    steps = [
        Step("exp", (Ref(0),)),
        Step("cast", (Ref(1),), (), (("dtype", "int32"), ("kind", "int"))),
    ]
    _, wobble = moved(steps, ("x",), [np.log(3.0), 0.7])
    assert wobble.tolist() == [1, 0]


def test_what_cancels_moves_by_the_rounding_of_what_it_was():
    """A deviation from the mean is 0 where there is one value, to a rounding of 1000."""
    steps = [reduced("mean", 0), Step("sub", (Ref(0), Ref(1)))]
    wanted, wobble = moved(steps, ("x",), [1000.0])
    assert wanted == 0
    assert 100 * HALF < wobble < 2e4 * HALF
    assert excess(np.array([1e-5]), wanted, wobble) == 0
    assert excess(np.array([1.0]), wanted, wobble) > 0.4


def test_what_overflows_may_be_anything():
    _, wobble = moved([Step("exp", (Ref(0),)), Step("sub", (Ref(1), Ref(1)))], ("x",), [100.0, 1.0])
    assert np.isinf(wobble[0])
    assert wobble[1] < 1e-4


def test_an_infinity_of_an_input_is_sure():
    _, wobble = moved([Step("exp", (Ref(0),))], ("x",), [-np.inf, np.inf])
    assert not wobble.any()


def test_an_error_beside_what_is_unsure_is_seen():
    wanted, wobble = np.array([1.0, 2.0]), np.array([np.inf, 1e-7])
    assert excess(np.array([np.nan, 2.0]), wanted, wobble) == 0
    assert excess(np.array([np.nan, 2.1]), wanted, wobble) > 0.01
    assert excess(np.array([1.0, np.nan]), wanted, wobble) == np.inf


def test_a_power_of_0_by_0_may_be_anything():
    """A sigmoid that float32 rounds to 0, to a power that it rounds to 0, too."""
    steps = [Step("sigmoid", (Ref(0),)), Step("pow", (Ref(1), Ref(1)))]
    wobble = moved(steps, ("x",), [-300.0, 1.0])[1]
    assert np.isinf(wobble[0])
    assert wobble[1] < 1e-4
