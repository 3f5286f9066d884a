"""Kernels whose key sets read inputs: packed sequences and listed blocks.

Values against float64, and bytes, which depend on the numbers in the lists, against the prediction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.check.inputs import whole_numbers
from napkin.run.arrays import to_device
from napkin.run.interpreted import run_recipe

LONG = {"q": 4096, "x": 4096, "d": 64}
SHORT = {"q": 150, "x": 150, "d": 16}


def attention(Q: Any, K: Any, V: Any, keys: nk.KeySet) -> Any:
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")


@nk.diagram("q d, x d, x d, n:int -> q d", sizes=LONG | {"n": 6})
def packed(Q, K, V, N):
    """Packed sequences."""
    return attention(Q, K, V, nk.documents(N, "q", "x"))


@nk.diagram("b h q d, b h x d, b h x d, b n:int -> b h q d", sizes=LONG | {"b": 2, "h": 2, "n": 6})
def causal_rows(Q, K, V, N):
    """Packed sequences in every row of a batch, each causal."""
    return attention(Q, K, V, nk.documents(N, "q", "x") & nk.causal("q", "x"))


GROUPED = LONG | {"b": 2, "g": 2, "r": 4, "n": 6}


@nk.diagram("b g r q d, b g x d, b g x d, b n:int -> b g r q d", sizes=GROUPED)
def grouped_rows(Q, K, V, N):
    """Packed sequences with grouped queries."""
    return attention(Q, K, V, nk.documents(N, "q", "x"))


@nk.diagram("h q d, h x d, h x d, m:int, m:int -> h q d", sizes=LONG | {"h": 2, "m": 256})
def bird(Q, K, V, M, N):
    """BigBird with two random blocks, the same for all heads."""
    return attention(Q, K, V, nk.bigbird(16, 1, 1, [M, N], "q", "x"))


@nk.diagram("h q d, h x d, h x d, h m:int -> h q d", sizes=LONG | {"h": 2, "m": 256})
def bird_of_heads(Q, K, V, M):
    """One listed block, another for every head, and nothing else but the query's own."""
    return attention(Q, K, V, nk.bigbird(16, 0, 0, [M], "q", "x"))


@nk.diagram("g r q d, g x d, g x d, g m:int -> g r q d", sizes=LONG | {"g": 2, "r": 4, "m": 128})
def grouped_bird(Q, K, V, M):
    """BigBird with grouped queries."""
    return attention(Q, K, V, nk.bigbird(32, 1, 1, [M], "q", "x"))


CASES: list[tuple[nk.Diagram, Mapping[str, int]]] = [
    (packed, SHORT),
    (packed, SHORT | {"n": 1}),
    (causal_rows, SHORT | {"b": 3, "n": 5}),
    (grouped_rows, SHORT | {"q": 77, "x": 77}),
    (bird, {"q": 256, "x": 256, "d": 16, "m": 16}),
    (bird, {"q": 250, "x": 250, "d": 16, "m": 12, "h": 3}),
    (bird_of_heads, {"q": 250, "x": 250, "d": 16, "m": 16}),
    (grouped_bird, {"q": 200, "x": 200, "d": 16, "m": 7}),
]


@pytest.mark.parametrize(
    ("diagram", "sizes", "dtype"),
    [(*case, dtype) for case, dtype in zip(CASES, ["fp32", "bf16"] * 4, strict=True)],
    ids=lambda c: getattr(c, "name", "at"),
)
def test_values_and_bytes(diagram: nk.Diagram, sizes: Mapping[str, int], dtype: str) -> None:
    plan = nk.derive(diagram, dtype=dtype)
    (k,) = plan.kernels  # where a set begins and ends is computed beside the loops it governs
    assert k.choice.kernel.stream.axes == ("x",)
    assert k.choice.kernel.visits is not None
    plan.check(sizes=sizes, resources=False).raise_if_wrong()


@pytest.mark.parametrize("diagram", [causal_rows, bird], ids=lambda d: d.name)
def test_the_sizes_of_a_check(diagram: nk.Diagram) -> None:
    """Sizes that divide the tiles, primes, an input transposed in memory and a batch axis."""
    nk.derive(diagram, dtype="bf16").check(resources=False).raise_if_wrong()


@pytest.mark.parametrize("lengths", [[150], [0, 0, 150], [1] * 6, [149, 1], [40, 0, 70, 90], [0]])
def test_bytes_follow_the_lengths(lengths: list[int]) -> None:
    """Each group reads the keys of its queries' documents, and no others."""
    sizes = SHORT | {"n": len(lengths)}
    plan = nk.derive(packed, dtype="fp32")
    (k,) = plan.kernels
    Q, K, V = np.random.default_rng(0).normal(size=(3, 150, 16))
    arrays = {"Q": to_device(Q, "fp32"), "K": to_device(K, "fp32"), "V": to_device(V, "fp32")}
    arrays["N"] = to_device(np.array(lengths), "i32")
    ran = run_recipe(plan.recipe, arrays, sizes, {})
    own = np.searchsorted(np.cumsum(lengths), np.arange(150), side="right")
    tile, keys = k.tiles["q"], 0
    for first in range(0, 150, tile):
        (seen,) = np.nonzero(np.isin(own, own[first : first + tile]))
        keys += seen[-1] - seen[0] + 1
    assert ran.moved[0]["K", "read"] == keys * 16 * 4
    assert k.bytes_at(sizes, {"N": np.array(lengths)})["K", "read"] == keys * 16 * 4
    found = ran.tensors["O"].to_float64()
    wanted = packed.evaluate(*(arrays[t].to_float64() for t in "QKV"), np.array(lengths))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_chunk_reaches_past_a_prefix() -> None:
    """Lanes past the first box hold keys that other boxes see: they count there, and only there."""
    seen = nk.global_tokens(16, "q", "x") | nk.sliding(32, 32, "q", "x")

    @nk.diagram("g r q d, g x d, g x d -> g r q d", sizes={"g": 2, "r": 4, "d": 32})
    def made(Q, K, V):
        return attention(Q, K, V, seen)

    plan = nk.derive(made, dtype="fp32", sizes={"q": 512, "x": 512})
    assert plan.kernels[0].tiles["x"] > 16
    plan.check(sizes={"q": 200, "x": 200, "d": 16}, resources=False).raise_if_wrong()


def test_random_lists_make_sense() -> None:
    rng, sizes = np.random.default_rng(0), causal_rows.sizes
    lengths = whole_numbers(causal_rows, causal_rows.inputs[3], (5, 6), sizes, rng)
    assert (lengths >= 0).all()
    assert (lengths.sum(axis=1) <= sizes["x"]).all()
    blocks = whole_numbers(bird, bird.inputs[3], (256,), bird.sizes, rng)
    assert 0 <= blocks.min() < blocks.max() < 4096 // 16
