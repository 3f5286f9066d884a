"""Positions of extrema, and what is summed at them, in the pass that finds the extremum."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fold_law import breach
from hypothesis import given, settings
from hypothesis import strategies as st

import napkin as nk
from napkin.algebra import rule
from napkin.derive.kernel import Kernel
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.derive.rules import stream
from napkin.ir.node import node, over, postorder
from napkin.ir.rewrite import substitute
from napkin.moves.refactor import refactorings

HARD = st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan])
ROWS = st.lists(HARD, min_size=1, max_size=12)


def streamed(d: nk.Diagram) -> Kernel:
    ready = prepare(d)
    return label("k", ready.outputs, ready.names, streamed="x")


@nk.diagram("x -> (), ()")
def places(X: Any) -> Any:
    return nk.argmax(X, over="x"), nk.argmin(X, over="x")


@nk.diagram("x, x -> (), ()")
def at_the_top(X: Any, V: Any) -> Any:
    top = nk.reduce(X, "max", over="x")
    hit = nk.where(top == X, V, 0.0)
    return nk.reduce(hit, "sum", over="x"), nk.reduce(nk.where(top == X, 1, 0), "sum", over="x")


@given(ROWS)
def test_the_first_of_equal_ones_and_the_first_nan(row: list[float]) -> None:
    high, low = places.evaluate(np.array(row))
    assert (high, low) == (np.argmax(row), np.argmin(row))


@settings(deadline=None)
@given(ROWS, st.lists(st.integers(0, 4), min_size=1, max_size=5))
def test_chunks_and_parts_find_what_the_row_has(row: list[float], cuts: list[int]) -> None:
    lengths = [*cuts, max(0, len(row) - sum(cuts))]
    row = (row * 30)[: sum(lengths)] or [0.0]
    sizes, lengths = {"x": len(row)}, lengths if sum(lengths) else [1]
    assert breach(streamed(places), {"X": np.array(row)}, sizes, lengths) is None
    values = {"X": np.array(row), "V": np.arange(len(row)) + 1.0}
    assert breach(streamed(at_the_top), values, sizes, lengths) is None


def test_whole_numbers() -> None:
    d = nk.diagram("x:int -> ()")(lambda X: nk.argmax(X, over="x"))
    row = np.array([3, -(2**31), 7, 7, 0])
    assert breach(streamed(d), {"X": row}, {"x": 5}, [1, 2, 2]) is None
    assert d.evaluate(row) == 2


def test_one_pass_says_how() -> None:
    told = str(places.stream("x"))
    assert "running m (rescale where (m_old == m_new) | (m_old != m_old))" in told


def test_values_that_use_another_result_need_another_pass() -> None:
    @nk.diagram("x -> ()")
    def above(X: Any) -> Any:
        top, total = nk.reduce(X, "max", over="x"), nk.reduce(X, "sum", over="x")
        return nk.reduce(nk.where(top == X, X * X - nk.exp(total), 0.0), "sum", over="x")

    with pytest.raises(nk.Refusal, match=r"does not separate from .*; instead, read x once more"):
        streamed(above)


def test_what_is_not_left_out_elsewhere_needs_another_pass() -> None:
    @nk.diagram("x -> ()")
    def low(X: Any) -> Any:
        top = nk.reduce(X, "max", over="x")
        return nk.reduce(nk.where(top == X, nk.index("x"), -1), "min", over="x")

    with pytest.raises(nk.Refusal, match="does not separate from top"):
        streamed(low)


def top(k: int, signature: str = "x") -> nk.Diagram:
    """The k largest values, and their positions."""
    kept = " ".join(a for a in signature.partition(":")[0].split() if a != "x") or "()"

    def largest(X: Any) -> Any:
        values, positions = nk.topk(X, k, over="x")
        return (*values, *positions)

    return nk.diagram(f"{signature} -> {', '.join([kept] * (2 * k))}")(largest)


def sorted_down(row: list[float], k: int) -> tuple[list[float], list[int]]:
    """The k largest and their positions by sorting; past the last, the maximum of nothing."""
    order = sorted(range(len(row)), key=lambda i: (not math.isnan(row[i]), -row[i], i))[:k]
    missing = k - len(order)
    return [row[i] for i in order] + [-math.inf] * missing, order + [2**31 - 1] * missing


@given(ROWS, st.integers(1, 4))
def test_the_largest_are_those_of_the_sorted_row(row: list[float], k: int) -> None:
    found = top(k).evaluate(np.array(row))
    values, places = sorted_down([x if math.isnan(x) else x + 0.0 for x in row], k)
    assert np.array_equal(found[:k], values, equal_nan=True)
    assert list(found[k:]) == places


@settings(deadline=None)
@given(ROWS, st.integers(2, 4), st.lists(st.integers(0, 4), max_size=5))
def test_the_largest_of_chunks_and_of_parts(row: list[float], k: int, cuts: list[int]) -> None:
    lengths = [*cuts, len(row)]
    row = (row * 30)[: sum(lengths)]
    assert breach(streamed(top(k)), {"X": np.array(row)}, {"x": len(row)}, lengths) is None


def test_a_ranking_is_one_pass_and_says_so() -> None:
    kernel = streamed(top(3))
    assert len(kernel.stream.passes) == 1
    assert len(kernel.stream.states) == 6
    assert "(rescale the best of those kept)" in str(top(3).stream("x"))


def test_a_ranking_that_passes_over_another_position_needs_another_pass() -> None:
    @nk.diagram("x -> ()")
    def second(X: Any) -> Any:
        low = nk.argmin(X, over="x")
        return nk.reduce(nk.where(nk.index("x") != low, X, -math.inf), "max", over="x")

    with pytest.raises(nk.Refusal, match=r"does not separate from .*; instead, read x once more"):
        streamed(second)


def test_equal_values_have_no_rank() -> None:
    """A position beside the first of values that are equal along the axis."""

    @nk.diagram("q, x -> q")
    def beside(A: Any, X: Any) -> Any:
        low = nk.argmin(X, over="x")
        return nk.reduce(nk.where(nk.index("x") != low, A, math.inf), "min", over="x")

    with pytest.raises(nk.Refusal, match="does not separate from"):
        streamed(beside)


def test_values_that_the_extremum_does_not_see_need_another_pass() -> None:
    """One may be at an extremum that is found after it."""

    @nk.diagram("x, x:bool -> ()")
    def hidden(X: Any, C: Any) -> Any:
        top = nk.reduce(nk.where(C, X, -math.inf), "max", over="x")
        return nk.reduce(nk.where(top == X, 1.0, 0.0), "sum", over="x")

    with pytest.raises(nk.Refusal, match="does not separate from top"):
        streamed(hidden)


@pytest.mark.parametrize("row", [[True], [False], [False, True, True], [False, False, True, False]])
def test_tests_are_ranked_and_past_the_last_none_holds(row: list[bool]) -> None:
    found = top(3, "x:bool").evaluate(np.array(row))
    values, places = sorted_down([float(x) for x in row], 3)
    assert [v.dtype.kind for v in found[:3]] == ["b"] * 3
    assert [bool(v) for v in found[:3]] == [v > 0 for v in values]
    assert list(found[3:]) == places
    kernel, lengths = streamed(top(3, "x:bool")), [1, 2, len(row) - 1]
    more = np.array((row * 3)[: sum(lengths)])
    assert breach(kernel, {"X": more}, {"x": len(more)}, lengths) is None


@pytest.mark.parametrize("k", [0, 17, 2.0, True])
def test_few_are_found(k: Any) -> None:
    with pytest.raises(nk.InputError, match="k is a whole number from 1 to 16; of more, take"):
        nk.diagram("x -> ()")(lambda X: nk.topk(X, k, over="x")[0][0])


@pytest.mark.parametrize(("q", "x"), [(3, 300), (3, 20_001), (2, 300_000)])
def test_kernels_of_the_largest(q: int, x: int) -> None:
    X = np.random.default_rng(0).integers(-4, 4, (q, x)).astype(float)
    X[0] = np.where(np.arange(x) % 100 == 7, 1.0, -math.inf)
    X[1, [50, 250]] = math.nan
    found = nk.derive(top(3, "q x"), sizes={"q": q, "x": x}, dtype="fp32")(X)
    wanted = [sorted_down(list(row), 3) for row in X]
    for r in range(3):
        assert np.array_equal(found[r], [v[r] for v, _ in wanted], equal_nan=True)
        assert found[3 + r].tolist() == [p[r] for _, p in wanted]


@pytest.mark.parametrize("how", [nk.argmax, nk.argmin])
def test_kernels_in_lanes_in_parts_and_on_ragged_rows(how: Any) -> None:
    d = nk.diagram("q x -> q")(lambda X: how(X, over="x"))
    rng = np.random.default_rng(0)
    for q, x in ((3, 70_001), (2, 300_000)):
        plan = nk.derive(d, sizes={"q": q, "x": x}, dtype="fp32")
        X = rng.integers(-3, 3, (q, x)).astype(float)
        X[0, :] = -math.inf
        X[1, 5000] = X[1, 60_000] = math.nan
        wanted = (np.argmax if how is nk.argmax else np.argmin)(X, axis=1)
        assert np.array_equal(plan(X), wanted)


def test_keys_that_are_not_seen_are_not_chosen() -> None:
    d = nk.diagram("q x -> q")(lambda S: nk.argmax(S, over="x", keys=nk.causal("q", "x")))
    S = np.full((4, 4), -math.inf)
    S[:, 3], S[3, 2] = 9.0, 9.0
    assert d.evaluate(S).tolist() == [0, 0, 0, 2]
    plan = nk.derive(d, sizes={"q": 64, "x": 64}, dtype="fp32")
    plan.check().raise_if_wrong()


def test_a_position_is_along_one_axis() -> None:
    with pytest.raises(nk.InputError, match="argmax over 'q x': a position is one along an axis"):
        nk.diagram("q x -> ()")(lambda X: nk.argmax(X, over="q x"))


def test_the_best_of_products_without_storing_them() -> None:
    """Greedy decoding from hidden states: blocks of the vocabulary merge, and no logits lie in
    memory."""
    d = nk.diagram("n d, v d -> n")(lambda X, W: nk.argmax(nk.contract(X, W, over="d"), over="v"))
    plan = nk.derive(d, sizes={"n": 8192, "d": 4096, "v": 128256})
    assert len(plan.kernels) == 2
    assert "block v" in str(plan)


@nk.diagram("x, x, n x -> n, x")
def read_where_it_is_found(X: Any, T: Any, U: Any) -> Any:
    place = nk.argmax(X, over="x")
    return nk.take(U, x=place), X * nk.take(T, x=place)


def test_the_law_is_run_where_a_pass_finds_the_position_of_a_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rule, "VERIFYING", True)
    ready = prepare(read_where_it_is_found)
    kernel = label("k", ready.outputs, ready.names, streamed="x", passes=2)
    assert len(kernel.stream.passes) == 2
    assert kernel.stream.tails
    assert kernel.stream.passes[1].emits
    assert stream.streamed(kernel) is kernel


@nk.diagram("p x -> p")
def least_off_the_mean(X: Any) -> Any:
    return nk.argmin(X - nk.reduce(X, "mean", over="p x"), over="x")


def test_a_mean_beside_the_extremum_is_over_all_positions_in_each_chunk() -> None:
    """Its sum is read, and its count was that of the chunks so far."""
    ready = prepare(least_off_the_mean)
    (nested,) = refactorings(ready.outputs, ready.names, {"p": 3, "x": 7})
    (inner,) = (n for n in postorder([nested.made]) if n.op == "sum" and over(n) == ("x",))
    read = node("input", params=("T",), axes=("p",), kind="real")
    (o,) = nested.outputs
    found = replace(o, node=substitute([o.node], {inner: read})[o.node])
    kernel = label("k", [found], {}, streamed="x", passes=2)
    X = np.random.default_rng(0).normal(size=(3, 7))
    assert breach(kernel, {"X": X, "T": X.sum(1)}, {"p": 3, "x": 7}, [3, 0, 4]) is None


def test_a_test_of_values_that_use_another_result_needs_another_pass() -> None:
    """What is left when the largest is taken away changes where a larger one is found."""

    @nk.diagram("x -> ()")
    def at_the_second(X: Any) -> Any:
        rest = nk.where(nk.index("x") != nk.argmax(X, over="x"), X, -math.inf)
        return nk.reduce(nk.where(rest == nk.reduce(rest, "max", over="x"), 1, 0), "sum", over="x")

    with pytest.raises(nk.Refusal, match="does not separate"):
        streamed(at_the_second)
    kernel = at_the_second.stream("x", passes=2).kernel
    assert breach(kernel, {"X": np.array([0.6, 1.1])}, {"x": 2}, (1, 1)) is None


@nk.diagram("q x -> q")
def top_two(X: Any) -> Any:
    (one, two), _ = nk.topk(X, 2, over="x")
    return one + two


def test_values_of_ranks_whose_last_position_nobody_asks_for() -> None:
    """The last value is compared with nothing, as the others are with those that they rank."""
    kernel = top_two.stream("x").kernel
    X = np.random.default_rng(0).normal(size=(2, 12))
    assert breach(kernel, {"X": X}, {"q": 2, "x": 12}, (5, 0, 4, 3)) is None
