"""Attention whose keys may be dilated, over one axis and over two."""

from __future__ import annotations

from typing import Any

import napkin as nk

LINE: Any = {"queries": "q", "keys": "x"}
PLANE: Any = {"queries": "a b", "keys": "x y"}


def line(keys: nk.KeySet, size: int) -> nk.Diagram:
    """Attention of two heads over one axis."""

    @nk.diagram("h q d, h x d, h x d -> h q d", sizes={"h": 2, "q": size, "x": size, "d": 16})
    def attention(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")

    return attention


def plane(keys: nk.KeySet, a: int, b: int) -> nk.Diagram:
    """Attention of two heads over two axes."""

    @nk.diagram(
        "h a b d, h x y d, h x y d -> h a b d",
        sizes={"h": 2, "a": a, "b": b, "x": a, "y": b, "d": 16},
    )
    def attention(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        return nk.contract(nk.softmax(S, over="x y", keys=keys), V, over="x y")

    return attention
