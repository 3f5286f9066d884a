"""What kernels may end with: reductions, results, arrays that are read at computed addresses."""

from __future__ import annotations

import itertools
from typing import Any

import napkin as nk
from napkin.cut.frontier import Frontier
from napkin.cut.points import points_of
from napkin.derive.prepare import exact, prepare
from napkin.ir.node import postorder
from napkin.ir.storage import unstored, widens

SIZES = {"n": 64, "m": 32}
SQUARE = {"n": 64, "x": 64}


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


def test_bounds_of_a_key_set_are_no_points_though_positions_are_read_elsewhere() -> None:
    """Bounds were stored where scores read the position of the query, too, and the plan then took
    them for places that lie anywhere, and so counted a fifth of the keys."""

    @nk.diagram("q x, q x, n:int -> q", sizes={"q": 1024, "x": 1024, "n": 8})
    def distances(S: Any, V: Any, L: Any) -> Any:
        scores = S - (nk.index("q") - nk.index("x")) - nk.take(L, n=0)
        keys = nk.documents(L, "q", "x")
        return nk.contract(nk.softmax(scores, over="x", keys=keys), V, over="x")

    assert found(distances) == {"m2", "z", "O"}
    assert len(nk.derive(distances).kernels) == 1


def test_a_table_that_is_computed_of_a_renamed_point_is_a_point() -> None:
    """No kernel stores the sum and the table, which reads the sum under another name: normed keys
    that are turned then had no plan."""

    @nk.diagram("q d, q d -> q d", sizes={"q": 64, "d": 16})
    def turned(Q: Any, K: Any) -> Any:
        normed = K * nk.rsqrt(nk.reduce(K * K, "mean", over="d"))
        other = nk.take(normed, d=(nk.index("d") + nk.size("d") // 2) % nk.size("d"))
        keys = (normed * 0.8 + other * 0.6).rename(q="x")
        weights = nk.softmax(nk.contract(Q, keys, over="d"), over="x")
        return nk.contract(weights, K.rename(q="x"), over="x")

    assert nk.derive(turned).check(sizes={"q": 7, "d": 4}, resources=False).ok


def test_a_cast_that_is_stored_has_what_it_casts_computed() -> None:
    """A kernel read a maximum that none stored, for the difference was to be read in its place."""

    @nk.diagram("n x -> n x", sizes=SQUARE)
    def weights(X: Any) -> Any:
        return nk.softmax(X * nk.gelu(X), over="x")

    ready = exact(prepare(weights), "bf16", SQUARE)
    order = list(postorder(o.node for o in ready.outputs))
    casts = {n for n in order if widens(n)}
    points = points_of(ready.outputs, SQUARE) | casts | {unstored(n) for n in casts}
    assert casts
    frontier = Frontier(ready.outputs, SQUARE, points=points)
    last = len(frontier.points) - 1
    for i, end in itertools.combinations(range(last + 1), 2):
        read = frontier.stored(frontier.wanted(i + 1, end), i)
        assert read is not None
        assert set(read) <= set(frontier.wanted(0, i))


def test_nothing_is_stored_otherwise_than_the_cast_that_is_a_point() -> None:
    """The values among which an index is looked for were stored in bf16, and the value in float32:
    no two were the same."""

    @nk.diagram("n x -> n", sizes=SQUARE)
    def second(X: Any) -> Any:
        return nk.topk(X - nk.reduce(X, "mean", over="x"), 2, over="x")[1][1]

    ready = exact(prepare(second), "bf16", SQUARE)
    order = list(postorder(o.node for o in ready.outputs))
    casts = {n for n in order if widens(n) and unstored(n).op in {"sub", "where"}}
    assert len(casts) == 2
    frontier = Frontier(ready.outputs, SQUARE, points=points_of(ready.outputs, SQUARE) | casts)
    last = len(frontier.points) - 1
    read = [frontier.stored(frontier.wanted(i + 1, last), i) for i in range(last)]
    assert any(casts.intersection(found or ()) for found in read)
    assert {unstored(n) for n in casts}.isdisjoint(n for found in read for n in found or ())


def test_a_position_is_found_and_read_at_in_one_kernel() -> None:
    """Each operator behind the take was a kernel of its own: 10 kernels, where 2 are enough."""

    @nk.diagram("b, b k -> b")
    def at_the_largest(X: Any, A: Any) -> Any:
        Y = nk.take(nk.cumsum(A, along="k"), k=nk.argmax(A, over="k")) * X
        for _ in range(4):
            Y = Y * X + 1
        return Y

    plan = nk.derive(at_the_largest, "h100", dict(b=262144, k=8), "fp32")
    assert len(plan.kernels) == 2
    assert plan.check(sizes=dict(b=5, k=7), resources=False).ok
