"""Every shipped diagram against a plain numpy reference, at odd sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from references import REFERENCES, softcapped_attention

from napkin.diagram.library import load, names

Array = np.ndarray[Any, Any]
SIZES = {"a": 5, "b": 3, "c": 7, "d": 9, "e": 4, "f": 13, "h": 2, "k": 3, "m": 5, "n": 6}
SIZES |= {"i": 6, "j": 8, "q": 7, "r": 2, "t": 12, "v": 17, "x": 11}
SIZES |= {"q0": 9, "q1": 8, "x0": 9, "x1": 8}
OWN = {
    "bigbird": {"q": 750, "x": 750, "m": 12},
    "block_local": {"q": 301, "x": 301},
    "blockwise_fp8_linear": {"g": 3},
    "causal_attention": {"q": 11, "x": 11},
    "conv1d": {"i": 11, "w": 3, "c": 4, "o": 5},
    "conv2d": {"b": 2, "i": 9, "j": 8, "u": 3, "v": 3, "c": 4, "o": 5},
    "document_attention": {"q": 53, "x": 53, "n": 6},
    "elman_network": {"d": 4, "k": 4},
    "longformer": {"q": 702, "x": 702},
    "grouped_experts": {"t": 7, "m": 5, "b": 4, "s": 3, "e": 3, "f": 6, "n": 8, "k": 2},
    "mixture_of_experts": {"t": 7, "m": 5, "e": 4, "s": 3, "f": 6, "n": 8, "k": 2},
    "matmul_dense_and_sparse": {"b": 10, "s": 3},
    "matmul_w4a16": {"b": 4, "g": 3},
    "neighborhood_attention_1d": {"q": 301, "x": 301},
    "neighborhood_attention_2d": {"q0": 21, "q1": 24, "x0": 21, "x1": 24},
    "neighborhood_attention_3d": {"q0": 7, "q1": 13, "q2": 15, "x0": 7, "x1": 13, "x2": 15},
    "rotary_attention": {"d": 8},
    "sliding_attention": {"q": 530, "x": 530},
    "sparse_transformer_strided": {"q": 211, "x": 211},
    "state_space_dual": {"p": 3},
    "streaming_llm": {"q": 541, "x": 541},
    "triangle_multiplication": {"i": 5, "j": 5},
}


def whole_numbers(name: str, shape: list[int], rng: np.random.Generator) -> Array:
    if name == "document_attention":  # an empty document, one of one token, and tokens behind all
        return np.array([9, 0, 20, 1, 14, 4])
    if name == "bigbird":  # blocks, -1 for none
        return rng.integers(-1, shape[0], shape)
    if name in {"mixture_of_experts", "grouped_experts"}:  # of 7 tokens, 3 and more of the rest
        return rng.integers(0, 3, shape)
    if name.startswith(("matmul_w", "matmul_dense")):
        return rng.integers(-8, 8, shape)
    return rng.integers(0, SIZES["v"], shape)


def arrays_for(name: str, scale: float = 1.0) -> list[Array]:
    rng = np.random.default_rng(len(name))
    out: list[Array] = []
    sizes = SIZES | OWN.get(name, {})
    for leaf in load(name).inputs:
        shape = [sizes[a] for a in leaf.axes]
        values = rng.normal(size=shape) * scale
        out.append(whole_numbers(name, shape, rng) if leaf.kind == "int" else values)
    return out


def test_every_shipped_diagram_has_a_reference() -> None:
    assert set(REFERENCES) == set(names())


@pytest.mark.parametrize("name", names())
def test_value(name: str) -> None:
    arrays = arrays_for(name)
    wanted = REFERENCES[name](*arrays)
    found = load(name).evaluate(*arrays)
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    for f, w in pairs:
        assert f.shape == w.shape
        # atol: where a sum cancels, the last bit of its terms is more than 1e-12 of it.
        np.testing.assert_allclose(f, w, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["attention", "softmax", "logsumexp", "cross_entropy"])
def test_scores_past_the_range_of_exp(name: str) -> None:
    arrays = arrays_for(name, scale=1e3)
    found = load(name).evaluate(*arrays)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, REFERENCES[name](*arrays), rtol=1e-11, atol=1e-12)


def test_the_cap_is_a_scalar_of_the_call() -> None:
    capped, arrays = load("softcapped_attention"), arrays_for("softcapped_attention", scale=3)
    near = capped.evaluate(*arrays, cap=0.5)
    np.testing.assert_allclose(near, softcapped_attention(*arrays, cap=0.5), rtol=1e-12, atol=1e-13)
    assert not np.allclose(near, capped.evaluate(*arrays))


@pytest.mark.parametrize("name", names())
def test_page(name: str) -> None:
    page = load(name)
    assert page.name == name
    assert page.check_sizes({}).keys() == set(page.axes)  # it runs without arguments


def test_heads_are_attention_weaved() -> None:
    one = load("attention")
    assert load("multi_head_attention").roots == one.weave("b h").roots
    grouped = one.weave("r", into="Q").weave("b k")
    assert load("grouped_query_attention").roots == grouped.roots
