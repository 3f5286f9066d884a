"""What a key set of a batch visits, where its values are not known: they are alike for each."""

from __future__ import annotations

import numpy as np
import pytest

import napkin as nk
from napkin.count import shares, typical_hulls
from napkin.count.shares import share
from napkin.count.visited import hulls, read
from napkin.derive.prepare import prepare
from napkin.ir.key_sets import boxes_of
from napkin.ir.names import with_named
from napkin.ir.node import Node, node
from napkin.ir.rewrite import substitute
from napkin.keys.visits import Visits
from napkin.rewrite.sorted_places import SORTED


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


def pieces(heads: int) -> tuple[Node, dict[str, int]]:
    """What is added at the places of many heads, in the order of these; bounds are stored."""

    @nk.diagram("w h t, w h t:int, v -> w h v")
    def added(X, at, Y):
        return nk.reduce(nk.where(nk.index("v") == at, X, 0.0), "sum", over="t") * Y

    sizes = {"w": heads, "h": 2048, "t": 2048, "v": 2048}
    (found,) = SORTED.matches([o.node for o in prepare(added).outputs], sizes)
    (keys,) = (n for n in found.made.args[0].args if n.op == "keys")
    (box,) = boxes_of(keys)
    bounds = [box.intervals[0].first, box.intervals[0].end]
    stored = {
        n: node("input", params=(f"bound {i}",), axes=n.axes, kind="int")
        for i, n in enumerate(bounds)
    }
    return substitute([keys], stored)[keys], with_named(sizes, found.same_size)


def test_bounds_of_many_heads_take_no_more_memory_than_some() -> None:
    """2048 x 2048 x 2048 starts and ends would be 128 GiB. Each head has all positions."""
    seen = {}
    for heads in (1, 2048):
        keys, sizes = pieces(heads)
        visits = Visits(keys, boxes_of(keys))
        tiles = {"w": 1, "h": 1, "v": 64, "t_in_order": 64}
        ((h,),) = hulls(visits, sizes, tiles)
        assert h.first.shape == (1, 1, 32)  # one stands for all that are alike
        seen[heads] = h.end[-1, -1] - h.first[-1, -1]
    assert np.array_equal(seen[1], seen[2048])
    assert seen[1].sum() >= 2048


def test_a_search_for_each_of_many_pairs_is_done_for_some() -> None:
    """2048 x 2048 searches took 12 GB and 10 s for each setting of a kernel that does them."""

    @nk.diagram("t i, t:int, t:int, v u -> v u")
    def added(X, rows, columns, Y):
        there = nk.where(nk.index("v") == rows, X, 0.0)
        return nk.reduce(nk.where(nk.index("u") == columns, there, 0.0), "sum", over="t i") * Y

    known = dict.fromkeys("tvu", 2048) | {"i": 4}
    (found,) = SORTED.matches([o.node for o in prepare(added).outputs], known)
    (keys,) = (n for n in found.made.args[0].args if n.op == "keys")
    sizes = with_named(known, found.same_size)
    for tile in (1, 16, 64):
        tiles = {"v": tile, "u": tile, "t": 64, "t_in_order": 64}
        ((h,),) = hulls(Visits(keys, boxes_of(keys)), sizes, tiles)
        assert h.first.size <= 2048


@pytest.mark.parametrize("tile", [1, 16, 48, 64, 512])
def test_runs_of_queries_stand_for_all(tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """262,144 queries in 1,024 documents took 95 s and 4 GB to plan, and take 5 s."""

    @nk.diagram("q d, x d, i:int -> q")
    def packed(Q, K, n):
        keys = nk.documents(n, queries="q", keys="x") & nk.causal(queries="q", keys="x")
        return nk.reduce(nk.contract(Q, K, over="d"), "max", over="x", keys=keys)

    kernel = packed.stream("x").kernel
    sizes = {"q": 50_000, "x": 50_000, "d": 8, "i": 100}
    tiles = {"q": tile, "x": 64, "d": 8, "i": 100}
    found = []
    for most in (2**40, 2**19):
        monkeypatch.setattr(typical_hulls, "EVALUATED", most)
        for known in (typical_hulls.known_hull, typical_hulls._typical_hull, shares._share):
            known.cache_clear()
        seen, _ = share(kernel, sizes, tiles)
        found.append((seen, read(kernel, ("x", "d"), sizes, tiles)))
    exact, some = found
    assert some != exact
    assert some == pytest.approx(exact, rel=0.1)
