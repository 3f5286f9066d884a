"""Folds that lanes keep by themselves: which loops, and that they compute the same."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

import napkin as nk
from napkin.diagram.diagram import Diagram
from napkin.plan.plan import Plan

JOIN = "# join what lanes have folded"


def streamed(
    diagram: Diagram, tiles: Mapping[str, int], warps: int = 4, dtype: str = "bf16"
) -> Plan:
    """A plan of one kernel that streams rows too long to hold, at these tiles."""
    axes = {a for n in diagram.inputs for a in n.axes}
    sizes = {a: 4096 if a == "n" else 2**18 for a in axes}
    plan = nk.derive(diagram, on="h100", sizes=sizes, dtype="bf16")
    (kernel,) = plan.kernels
    assert kernel.choice.kernel.stream.axis == "x"
    choice = replace(kernel.choice, tiles=dict(kernel.choice.tiles) | tiles, warps=warps)
    return replace(plan, kernels=(replace(kernel, choice=choice),))


@nk.diagram("n x -> n")
def total(X):
    return nk.reduce(X, "sum", over="x")


@nk.diagram("n x -> n")
def largest(X):
    return nk.reduce(X, "max", over="x")


@nk.diagram("n x -> n")
def smallest(X):
    return nk.reduce(X * X, "min", over="x")


@nk.diagram("n x -> n")
def scaled_softmax_mean(X):
    """Held in base 2: a positive constant scales the scores."""
    p = nk.softmax(X * 0.125, over="x")
    return nk.reduce(p * X, "sum", over="x")


@nk.diagram("n x, x -> n")
def matvec(A, v):
    return nk.contract(A, v, over="x")


ROWS = [total, largest, smallest, scaled_softmax_mean, matvec]


@pytest.mark.parametrize("diagram", ROWS, ids=lambda d: d.name)
@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("length", [3, 1024, 2500])
def test_lanes_compute_the_same(diagram: Diagram, n: int, length: int) -> None:
    plan = streamed(diagram, {"n": n, "x": 1024})
    assert JOIN in plan.source
    sizes = {"n": 3, "x": length}
    verdict = plan.check(sizes=sizes)
    assert verdict.ok, str(verdict)


def test_a_turn_reduces_only_what_one_thread_has() -> None:
    """All reductions in the loop go along a lane's own values."""
    source = streamed(scaled_softmax_mean, {"n": 2, "x": 1024}).source
    loop = source[source.index("for x_start") : source.index(JOIN)]
    assert "axis=2" in loop
    assert "axis=1" not in loop
    assert "tl.exp2" in source[source.index(JOIN) :]


def test_a_maximum_keeps_a_nan() -> None:
    """Joined by the same function as in the loop: `tl.max` alone would lose it."""
    source = streamed(largest, {"n": 1, "x": 1024}).source
    assert "tl.reduce(X_all" not in source
    assert source[source.index(JOIN) :].count("largest") == 1


@nk.diagram("x n -> n")
def columns(X):
    return nk.reduce(X, "sum", over="x")


@nk.diagram("n x, x m -> n m")
def product(A, B):
    return nk.contract(A, B, over="x")


@nk.diagram("n x -> n")
def variance(X):
    """Counts what it has seen, which lies where no load put it."""
    mean = nk.reduce(X, "sum", over="x") / nk.size("x")
    return nk.reduce((X - mean) * (X - mean), "sum", over="x")


@pytest.mark.parametrize(
    ("diagram", "tiles", "warps"),
    [
        (columns, {"n": 4, "x": 1024}, 4),
        (variance, {"n": 4, "x": 1024}, 4),
        (total, {"n": 1, "x": 512}, 4),
        (total, {"n": 1, "x": 1024}, 8),
    ],
)
def test_where_they_do_not(diagram: Diagram, tiles: dict[str, int], warps: int) -> None:
    """Not along memory, a count, and fewer lanes than threads."""
    assert JOIN not in streamed(diagram, tiles, warps).source


def test_products_keep_their_states_whole() -> None:
    plan = nk.derive(product, on="h100", sizes={"n": 64, "x": 4096, "m": 64}, dtype="bf16")
    assert all(JOIN not in k.written.source for k in plan.kernels)
