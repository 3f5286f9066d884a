"""Slots without a key are stored after the loops, so their rows are not streamed."""

import numpy as np
import pytest

import napkin as nk

KEYS = nk.dilated(0, 0, 2, queries="n", keys="k")
SIZES = {"x": 7, "n": 40, "k": 40, "h": 4}


@nk.diagram("x, n h, k h -> n s, ()")
def beside_a_maximum(T, Q, S):
    """The two results share no axis, so no group is of both; one of them streams n."""
    scores = nk.compress(nk.contract(Q, S, over="h"), KEYS, over="k", into="s")
    return nk.softmax(scores, over="s"), nk.reduce(T, "max", over="x")


@nk.diagram("x, n h, k h -> n s, ()")
def scores_beside_a_maximum(T, Q, S):
    made = nk.contract(Q, S, over="h")
    return nk.compress(made, KEYS, over="k", into="s"), nk.reduce(T, "max", over="x")


def test_rows_with_slots_that_have_no_key_are_not_streamed() -> None:
    with pytest.raises(nk.Refusal) as caught:
        scores_beside_a_maximum.stream("n")
    assert str(caught.value) == (
        "stream n is refused at O1: slots without a key are stored after the loop, where n has no "
        "position; instead, hold n whole"
    )


@pytest.mark.parametrize("diagram", [beside_a_maximum, scores_beside_a_maximum])
@pytest.mark.parametrize("sizes", [SIZES, dict.fromkeys("xnkh", 2048)])
def test_beside_a_result_that_shares_no_axis(diagram, sizes) -> None:
    plan = nk.derive(diagram, sizes=sizes, dtype="fp32")
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=[SIZES[a] for a in n.axes]) for n in diagram.inputs]
    for found, wanted in zip(plan(*arrays), diagram.evaluate(*arrays), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
