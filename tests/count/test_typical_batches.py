"""What a key set of a batch visits, where its values are not known: they are alike for each."""

from __future__ import annotations

import napkin as nk
from napkin.count.shares import share
from napkin.count.visited import read


@nk.diagram("w c d, w b d, w n:int -> w c")
def documents(X, K, B):
    S = nk.contract(X, K, over="d")
    keys = nk.documents(B, queries="c", keys="b")
    return nk.reduce(S, "max", over="b", keys=keys)


def test_a_batch_of_documents_takes_no_more_memory_than_one() -> None:
    """4096 x 4096 x 4096 comparisons of lengths and queries would be 64 GiB."""
    kernel = documents.stream("b").kernel
    sizes = {"c": 4096, "b": 4096, "d": 8, "n": 4096}
    tiles = {"w": 1, "c": 64, "b": 64, "d": 8, "n": 1}
    one, many = {**sizes, "w": 1}, {**sizes, "w": 4096}
    assert share(kernel, many, tiles) == share(kernel, one, tiles) == (1 / 64, 1 / 64)
    axes = ("w", "b", "d")
    assert read(kernel, axes, many, tiles) == 4096 * read(kernel, axes, one, tiles)


@nk.diagram("w c d, w b d, w v c:int -> w v c")
def placed(X, K, P):
    S = nk.contract(X, K, over="d") + 0 * nk.index("v")
    keys = nk.strided(4, local=False, queries="c", keys="b", at=P)
    return nk.reduce(S, "max", over="b", keys=keys)


def test_a_batch_of_places_takes_no_more_memory_than_some() -> None:
    """2048 x 2048 x 2048 places would be 64 GiB."""
    kernel = placed.stream("b").kernel
    sizes = dict.fromkeys("wvcb", 2048) | {"d": 8}
    tiles = {"w": 1, "v": 1, "c": 16, "b": 64, "d": 8}
    one, many = {**sizes, "w": 1}, sizes
    assert share(kernel, many, tiles) == share(kernel, one, tiles)
    axes = ("w", "b", "d")
    assert read(kernel, axes, many, tiles) == 2048 * read(kernel, axes, one, tiles)
