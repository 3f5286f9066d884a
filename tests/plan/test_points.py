"""What kernels may end with: reductions, results, arrays that are read at computed addresses."""

from __future__ import annotations

from typing import Any

import napkin as nk
from napkin.derive.prepare import prepare
from napkin.plan.points import points_of

SIZES = {"n": 64, "m": 32}


def found(diagram: nk.Diagram) -> set[str]:
    """The names of the points of a diagram."""
    ready = prepare(diagram)
    return {ready.names[n] for n in points_of(ready.outputs, diagram.sizes)}


def test_reductions_and_pointwise_results_are_points() -> None:
    @nk.diagram("n m, n m -> n m, n", sizes=SIZES)
    def made(X: Any, Y: Any) -> Any:
        total = nk.reduce(X * 2, "sum", over="m")
        return X * Y, nk.exp(total)

    # The exponential is computed of a point, and comes with it.
    assert found(made) == {"O1", "total"}


def test_a_result_that_is_wider_than_what_it_is_computed_of_is_no_point() -> None:
    """Whoever needs it reads less to compute it again."""

    @nk.diagram("n, m -> n m, n", sizes=SIZES)
    def made(X: Any, Y: Any) -> Any:
        sums = X + Y
        return sums, nk.reduce(nk.exp(sums), "sum", over="m")

    assert found(made) == {"O2"}


def test_what_is_computed_and_read_at_computed_addresses_is_a_point() -> None:
    @nk.diagram("n, n:int -> n", sizes={"n": 64})
    def made(X: Any, J: Any) -> Any:
        table = nk.exp(X * 2)
        return nk.take(table + X, n=J) + X

    assert len(found(made)) == 1


def test_results_that_no_kernel_computes_are_no_points() -> None:
    @nk.diagram("n m -> n m, m, n", sizes=SIZES)
    def made(X: Any) -> Any:
        return X, nk.index("m") * 2, nk.reduce(X, "sum", over="m")

    assert found(made) == {"O3"}
