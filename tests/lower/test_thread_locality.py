"""Reductions that Triton's pass OptimizeThreadLocality takes wrongly are written otherwise."""

from collections.abc import Callable

import numpy as np
import pytest

import napkin as nk
from napkin.check.verdict import compiled, run_case
from napkin.diagram.diagram import Diagram
from napkin.lower.thread_locality import mishandled
from napkin.plan.plan import Plan
from napkin.plan.samples import Case

APART = "tl.trans(X_tile.to(tl.float32)), axis=0)"


@nk.diagram("q x, x d -> q d")
def normalised(X, V):
    """Its sum of weights is read twice after the loop."""
    total = nk.reduce(X, "sum", over="x")
    return nk.contract(X, V, over="x") / (1.0 + total * total)


@nk.diagram("q t x -> q")
def largest_sum(X):
    return nk.reduce(nk.reduce(X, "sum", over="x"), "max", over="t")


@nk.diagram("q x -> q")
def mean(X):
    return nk.reduce(X, "sum", over="x") / nk.size("x")


@pytest.mark.parametrize(
    ("diagram", "streamed", "tiles"),
    [
        (normalised, "x", {"q": 16, "x": 32, "d": 16}),
        (largest_sum, "t", {"q": 16, "t": 1, "x": 32}),
    ],
    ids=lambda x: getattr(x, "name", None),
)
def test_what_the_pass_takes_wrongly_is_written_along_the_first_dimension(
    forced: Callable[..., Plan], diagram: Diagram, streamed: str, tiles: dict[str, int]
) -> None:
    sizes = dict.fromkeys(diagram.axes, 32)
    plan = forced(diagram, sizes, streamed, tiles=tiles)
    assert APART in plan.source
    for n in (32, 21):
        case = Case("", dict.fromkeys(diagram.axes, n))
        rows, _ = run_case(plan, case, np.random.default_rng(0))
        assert all(r.ok for r in rows)
    assert all(row.ok for row in compiled(plan))


def test_rows_of_which_a_thread_may_have_several_are_written_along_the_first_dimension(
    forced: Callable[..., Plan],
) -> None:
    """Where threads go along rows, Triton 3.6 gives each row values of others."""
    sizes = {"q": 256, "x": 256}
    few, many = (forced(mean, sizes, "x", tiles={"q": q, "x": 32}) for q in (32, 64))
    assert "tl.sum(X_tile.to(tl.float32), axis=2)" in few.source
    assert "tl.sum(tl.permute(X_tile.to(tl.float32), [2, 0, 1]), axis=0)" in many.source


def test_what_the_pass_takes_rightly_is_left_to_it(forced: Callable[..., Plan]) -> None:
    plan = forced(mean, {"q": 64, "x": 256}, "x", tiles={"q": 16, "x": 32})
    (k,) = plan.kernels
    assert not any(mishandled(k.program, loop) for loop in k.program.loops)
    assert "tl.trans" not in plan.source
