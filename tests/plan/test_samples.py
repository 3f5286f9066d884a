"""The sizes that a plan is checked at show what its key sets leave out."""

from __future__ import annotations

import math

import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.plan.samples import TOKENS, cases

SETS = {
    "bigbird": nk.blocked(64, 1, 1),
    "block_local": nk.blocked(128),
    "causal_attention": nk.causal(),
    "longformer": nk.sliding(256, 256) | nk.global_tokens(64),
    "neighborhood_attention_2d": nk.neighborhood((20, 20)),
    "sliding_attention": nk.sliding(511, 0),
    "sparse_transformer_strided": nk.strided(64),
}


@pytest.mark.parametrize("name", SETS)
def test_windows_leave_keys_out(name: str) -> None:
    keys = SETS[name]
    plan = nk.derive(load(name))
    primes = next(c for c in cases(plan) if c.name == "primes")
    layout = [n for a, n in primes.sizes.items() if a.startswith("x")]
    assert math.prod(layout) <= TOKENS
    mask = keys.mask(layout)
    assert 0.02 < mask.mean() < 0.75
    (kernel,) = plan.kernels
    chunk = math.prod(n for a, n in kernel.tiles.items() if a.startswith("x"))
    assert math.prod(layout) > chunk  # more than one turn of the loop


def test_a_diagram_without_inputs_has_no_batch() -> None:
    @nk.diagram("-> ()")
    def alone() -> nk.Array:
        return nk.exp(1.0)

    plan = nk.derive(alone)
    assert "batched" not in {case.name for case in cases(plan)}
    assert plan.check().ok


def test_an_axis_held_whole_stays_in_its_tile() -> None:
    @nk.diagram("t d -> t d", sizes={"t": 8, "d": 16})
    def alone(X):
        Y = X.rename(t="x")
        P = nk.softmax(nk.contract(X, Y, over="d"), over="x", keys=nk.sliding(2, 0, "t", "x"))
        return nk.contract(P, Y, over="x")

    plan = nk.derive(alone)
    (kernel,) = plan.kernels
    assert "x" in kernel.choice.kernel.whole
    assert all(case.sizes["x"] <= kernel.tiles["x"] for case in cases(plan))


@nk.diagram("b t d, b t d -> b t d", sizes={"b": 4, "t": 700, "d": 32})
def scan_of_weights(A, X):
    """One kernel holds t whole, and another takes its positions in turn."""
    weights = nk.softmax(A, over="t")
    return nk.scan(lambda h: nk.tanh(h * weights + X), 0.0, along="t")


def test_an_axis_that_is_held_whole_has_few_positions_where_they_are_taken_in_turn() -> None:
    """An interpreter takes milliseconds for each."""
    plan = nk.derive(scan_of_weights, on="h100")
    assert [k.tiles["t"] for k in plan.kernels] == [1024, 1]
    assert [case.sizes["t"] for case in cases(plan)] == [128, 127, 127, 61]


def test_sizes_grow_no_further_than_the_plan_says() -> None:
    plan = nk.derive(load("sliding_attention"), sizes={"q": 640, "x": 640})
    assert {c.sizes["x"] for c in cases(plan)} <= set(range(641))


@nk.diagram("n d:int4, d -> n d e", sizes={"n": 7, "d": 10})
def two_names(X, g):
    return X * X.rename(d="e") * g


@nk.diagram("n i, w, n p:int4 -> n p", sizes={"n": 3, "i": 11, "w": 2})
def pairs_of_windows(X, W, Y):
    return nk.contract(nk.slide(X, over="i", into="p w"), W, over="w") * Y


@nk.diagram("n i, w, n i:int4 -> n p, n i", sizes={"n": 3, "i": 12, "w": 3})
def windows_beside_pairs(X, W, Y):
    return nk.contract(nk.slide(X, over="i", into="p w"), W, over="w"), Y * X


@nk.diagram("n i, w:int4 -> n p", sizes={"n": 3, "i": 11, "w": 2})
def pairs_of_taps(X, W):
    return nk.contract(nk.slide(X, over="i", into="p w"), W, over="w")


@pytest.mark.parametrize(
    "diagram",
    [two_names, pairs_of_windows, windows_beside_pairs, pairs_of_taps],
    ids=lambda d: d.name,
)
def test_two_values_to_a_byte_keep_sizes_that_fit_each_other(diagram: nk.Diagram) -> None:
    plan = nk.derive(diagram)
    for case in cases(plan):
        woven = diagram.weave(case.weave) if case.weave else diagram
        assert woven.check_sizes(case.sizes) == case.sizes
    plan.check(resources=False).raise_if_wrong()


@nk.diagram("x -> p w, q v", sizes={"x": 32})
def two_windows(X):
    """Windows of two lengths along one axis."""
    pairs, threes = (
        nk.slide(X, over="x", into=into, window=n, stride=stride)
        for into, n, stride in (("p w", 2, 1), ("q v", 3, 3))
    )
    return pairs * 2.0, threes * 2.0


@nk.diagram("n:int -> p w, ()", sizes={"n": 3})
def windows_of_a_whole_axis(X):
    """Three positions, which a kernel holds whole in four lanes."""
    windows = nk.slide(nk.where(X > 1, X, 0), over="n", into="p w", window=3, padding=1)
    return windows, nk.argmax(X, over="n")


@nk.diagram("d n x, x -> d n, p w", sizes={"d": 5, "n": 8, "x": 16})
def windows_beside_keys(X, Y):
    keys = nk.causal(queries="d", keys="x", at=nk.index("d") * 2)
    largest = nk.topk(X, 2, over="x", keys=keys)[0][1]
    return largest, nk.slide(Y, over="x", into="p w", window=2, stride=3) * 2.0


@pytest.mark.parametrize(
    "diagram", [two_windows, windows_of_a_whole_axis, windows_beside_keys], ids=lambda d: d.name
)
def test_windows_are_as_many_as_lie_along_their_axis(diagram: nk.Diagram) -> None:
    plan = nk.derive(diagram, dtype="fp32")
    for case in cases(plan):
        woven = diagram.weave(case.weave) if case.weave else diagram
        assert woven.check_sizes(case.sizes) == case.sizes
    plan.check(resources=False).raise_if_wrong()
