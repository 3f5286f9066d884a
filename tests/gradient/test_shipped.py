"""B12: the gradient of every shipped diagram beside torch's autograd, in float64.

torch differentiates the diagram as it is evaluated: nothing of `napkin.gradient` has a part in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.check.gradient_slopes import real_results
from napkin.diagram.library import load, names
from napkin.torch.autograd import autograd

SIZES = {"a": 5, "b": 3, "c": 4, "d": 6, "e": 4, "f": 7, "g": 3, "h": 2, "i": 6, "j": 8, "k": 3,
         "m": 5, "n": 6, "o": 5, "p": 2, "q": 7, "r": 2, "s": 3, "t": 8, "u": 3, "v": 3, "w": 3,
         "x": 11}  # fmt: skip
OWN = {
    "bigbird": {"q": 300, "x": 300, "m": 5},
    "conv1d": {"i": 11},
    "decode_attention": {"q": 1},
    "matmul_dense_and_sparse": {"b": 10},
    "matmul_w4a16": {"b": 4},
    "triangle_multiplication": {"i": 5, "j": 5},
    "neighborhood_attention_1d": {"q": 270, "x": 270},
    "neighborhood_attention_2d": {"q0": 21, "q1": 24, "x0": 21, "x1": 24},
    "neighborhood_attention_3d": {"q0": 7, "q1": 13, "q2": 15, "x0": 7, "x1": 13, "x2": 15},
    "unfused_neighborhood_attention_2d": {"q0": 21, "q1": 24, "x0": 21, "x1": 24},
}
WITHOUT = {"greedy_token", "sample_token"}
"""Diagrams whose results are positions."""

OF_SQUARES = {"adamw"}
"""Diagrams that take the root of an input."""


def sizes_of(f: nk.Diagram) -> dict[str, int]:
    own = OWN.get(f.name, {})
    given = {a: own.get(a, SIZES.get(a, f.sizes.get(a, 4))) for n in f.inputs for a in n.axes}
    made = {s.out for s in f.slides} | set(f.counted)
    same = f.same_size
    for a in given:
        given[a] = given.get(same.get(a, a), given[a]) if a not in own else given[a]
    return f.check_sizes({a: n for a, n in given.items() if a not in made})


def arrays_of(f: nk.Diagram, sizes: dict[str, int]) -> list[Any]:
    rng = np.random.default_rng(11)
    shapes = [[sizes[a] for a in n.axes] for n in f.inputs]
    return [
        (np.abs if f.name in OF_SQUARES else np.asarray)(rng.normal(size=shape))
        if n.kind == "real" else rng.integers(0, 3, size=shape)
        for n, shape in zip(f.inputs, shapes, strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(names()) - WITHOUT))
def test_b12_the_gradient_of_a_shipped_diagram_is_torchs(name: str) -> None:
    f = load(name)
    sizes = sizes_of(f)
    arrays = arrays_of(f, sizes)
    rng = np.random.default_rng(5)
    cotangents = [rng.normal(size=v.shape) for v in real_results(f, arrays)]
    wanted = autograd(f, arrays, cotangents)
    found = nk.gradient(f).evaluate(*arrays, *cotangents)
    each = found if isinstance(found, tuple) else (found,)
    for got, expected in zip(each, wanted, strict=True):
        assert np.linalg.norm(got - expected) <= 1e-10 * (1e-6 + np.linalg.norm(expected))


@pytest.mark.parametrize("name", sorted(WITHOUT))
def test_positions_have_no_gradient(name: str) -> None:
    with pytest.raises(nk.Refusal, match="no output holds real numbers"):
        nk.gradient(load(name))
