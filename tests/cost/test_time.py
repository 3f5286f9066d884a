"""Time: groups of unequal length, and loops whose products wait for arithmetic."""

from __future__ import annotations

import pytest

import napkin as nk
from napkin.cost.machines import machine
from napkin.cost.time import HIDDEN, predict
from napkin.cost.visited import counted, longest, share


def attention(keys: nk.KeySet | None) -> nk.Diagram:
    @nk.diagram("h q d, h x d, h x d -> h q d")
    def attention(Q, K, V):
        P = nk.softmax(nk.contract(Q, K, over="d"), over="x", keys=keys)
        return nk.contract(P, V, over="x")

    return attention


@pytest.mark.parametrize(
    ("keys", "ratio"),
    [
        (nk.causal("q", "x"), 16 / 9),  # 2, 4, ... 16 chunks
        (nk.sliding(63, 0, "q", "x"), 1.0 / (23 / 24)),  # 2, then 3
        (nk.sinks(4, "q", "x"), 1.0),
    ],
)
def test_the_longest_group(keys: nk.KeySet, ratio: float) -> None:
    sizes = {"h": 1, "q": 1024, "x": 1024, "d": 64}
    kernel = nk.derive(attention(keys), sizes=sizes).kernels[0].choice.kernel
    tiles = {"h": 1, "q": 128, "x": 64, "d": 64}
    (box,) = counted(kernel, sizes, tiles)
    assert longest(kernel, sizes, tiles) == pytest.approx(ratio)
    assert longest(kernel, sizes, tiles) == pytest.approx(box.tiles.max() / box.tiles.mean())
    assert share(kernel, sizes, tiles)[0] == pytest.approx(box.tiles.mean() / 16)


def test_one_multiprocessor_works_through_the_longest_group() -> None:
    h100, work = machine("h100"), {"product": 1e12, "arithmetic": 0.0, "special": 0.0}
    even = predict(h100, "bf16", work, 0, 0, h100.sms)
    uneven = predict(h100, "bf16", work, 0, 0, h100.sms, longest=2.0)
    assert uneven.limited_by == "the longest group"
    assert uneven.seconds > 1.9 * even.seconds
    many = predict(h100, "bf16", work, 0, 0, 4 * h100.sms, longest=2.0)
    assert many.limited_by == "tensor cores"


def test_arithmetic_between_products_is_waited_for() -> None:
    h100 = machine("h100")
    work = {"product": 1e12, "arithmetic": 1e10, "special": 2e9}
    beside = predict(h100, "bf16", work, 0, 0, h100.sms)
    chained = predict(h100, "bf16", work, 0, 0, h100.sms, chained=True)
    shared = predict(h100, "bf16", work, 0, 0, 2 * h100.sms, resident=2, chained=True)
    assert beside.seconds < chained.seconds
    name = "products in turn with arithmetic"
    assert shared.pipes[name] == pytest.approx(HIDDEN[2] * chained.pipes[name])


def test_a_single_causal_head_is_cut_into_more_groups() -> None:
    """Large groups make one wave, which lasts as long as its longest."""
    sizes = {"h": 1, "q": 2**15, "x": 2**15, "d": 128}
    plans = [
        nk.derive(attention(keys), on="h100", sizes=sizes, dtype="bf16")
        for keys in (None, nk.causal("q", "x"))
    ]
    dense, causal = (p.kernels[0].choice for p in plans)
    assert causal.tiles["q"] <= 64
    assert dense.time.limited_by == "products in turn with arithmetic"
