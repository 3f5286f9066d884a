"""Folds that lanes keep by themselves: which loops, and that they compute the same."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import napkin as nk
from napkin.check.inputs import given
from napkin.check.verdict import run_case
from napkin.derive.prepare import prepare
from napkin.diagram.diagram import Diagram
from napkin.ir.node import over, postorder
from napkin.lower.build import build
from napkin.lower.per_thread import _where_loaded as where_loaded
from napkin.plan.plan import Plan
from napkin.plan.samples import Case
from napkin.schedule import Schedule
from napkin.settings.labels import labellings

JOIN = "# join what lanes have folded"


def streamed(
    diagram: Diagram, tiles: Mapping[str, int], warps: int = 4, dtype: str = "bf16"
) -> Plan:
    """A plan of one kernel that streams rows too long to hold, at these tiles."""
    plan = long_rows(diagram)
    (kernel,) = plan.kernels
    assert kernel.choice.kernel.stream.axis == "x"
    choice = kernel.choice.under(tiles={**kernel.tiles, **tiles}, warps=warps, per_thread=True)
    return replace(plan, kernels=(replace(kernel, choice=choice),))


@cache
def long_rows(diagram: Diagram) -> Plan:
    """The plan of a diagram with rows too long to hold, which several tests need."""
    axes = {a for n in diagram.inputs for a in n.axes}
    sizes = {a: 4096 if a == "n" else 2**18 for a in axes}
    return nk.derive(diagram, on="h100", sizes=sizes, dtype="bf16")


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


@nk.diagram("b c, b x, c, x -> b", sizes={"b": 2, "c": 3, "x": 1500})
def over_two_axes(Y, W, T, K):
    """The scores over c are held, and their tile reaches past it."""
    P = nk.softmax([Y, W], over=["c", "x"])
    return nk.contract(P[0], T, over="c") + nk.contract(P[1], K, over="x")


def test_lanes_leave_padding_out_of_what_is_held(forced: Callable[..., Plan]) -> None:
    """All scores are far below 0, which padding holds."""
    plan = forced(over_two_axes, over_two_axes.sizes, "x", {"b": 1, "x": 1024}, passes=1)
    assert JOIN in plan.source
    ranges = {"Y": (-400.0, -300.0), "W": (-400.0, -300.0)}
    case = Case("far", dict(over_two_axes.sizes))
    said = given(over_two_axes, None, ranges, case.sizes)
    (row,), _ = run_case(plan, case, np.random.default_rng(0), said=said)
    assert row.ok, str(row)


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


def test_what_lanes_may_keep_is_found_once_at_any_lengths_of_tiles() -> None:
    before = where_loaded.cache_info()
    nk.derive(scaled_softmax_mean, on="h100", sizes={"n": 4096, "x": 2**18})
    after = where_loaded.cache_info()
    assert after.hits - before.hits > 5 * (after.misses - before.misses)


@nk.diagram("n m x, n k, x, k -> n m")
def beside_extra_scores(S, T, V, U):
    """Lanes join under a maximum over T, which is whole and shorter than its tile."""
    first, second = nk.softmax([S, T], over=["x", "k"])
    return nk.contract(first, V, over="x") + nk.contract(second, U, over="k")


def test_lanes_join_without_the_padding_of_what_is_whole() -> None:
    ready, sizes = prepare(beside_extra_scores), dict.fromkeys("nmxk", 2048)
    (kernel,) = (
        k
        for k in labellings("joined", ready.outputs, ready.names, sizes)
        if k.stream.axes == ("x",) and k.group == ("n", "m") and len(k.stream.passes) == 1
    )
    tiles = {"n": 1, "m": 16, "x": 512, "k": 2048}
    (loop,) = build(kernel, Schedule(tiles, per_thread=True)).loops
    maxima = [n for j in loop.joins.values() for n in postorder([j.of]) if over(n) == ("k",)]
    assert maxima
    assert all(n.op == "max" and n.args[0].op == "mask" for n in maxima)


def test_lanes_join_with_the_reduction_that_folds() -> None:
    """Of two reductions that combine values alike, another was looked for in the loop."""
    upper = nk.operator(
        "upper", 2, evaluate=lambda xp, a, b: xp.maximum(a, b), triton="tl.maximum(a, b)", kind=None
    )
    nk.reduction("uppermost", combine=upper, identity=-np.inf)
    outermost = nk.reduction("outermost", combine=upper, identity=-np.inf)

    @nk.diagram("n x -> n")
    def extremes(X):
        return outermost(X, over="x")

    plan = streamed(extremes, {"n": 1, "x": 1024}, dtype="fp32")
    assert JOIN in plan.source
    plan.check(sizes={"n": 2, "x": 3000}, resources=False).raise_if_wrong()
