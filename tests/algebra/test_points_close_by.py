"""Points close by, of which a law takes what rounding does: an extremum stays one of its values."""

from __future__ import annotations

from typing import Any

import numpy as np

import napkin as nk
from napkin.algebra.law_points import points
from napkin.derive.prepare import prepare


@nk.diagram("a c, c -> a")
def largest_alone(X: Any, W: Any) -> Any:
    """The largest of some products, of which two may be equal but for rounding."""
    products = nk.contract(X, W, over="c")
    return nk.where(products == nk.reduce(products, "max", over="a"), products, 0.0)


def test_the_largest_of_sums_that_are_moved_is_one_of_them() -> None:
    root = prepare(largest_alone).outputs[0].node
    for point in points([root], {}, (), False, False):
        for near in point.moved():
            (value,) = near.values([root])
            assert np.count_nonzero(value) == 1
