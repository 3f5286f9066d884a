"""What groups visit of unions of key sets over several axes, without an array of all groups: the
same as with one."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping

import numpy as np
import pytest
from visited_chunks import chunks

import napkin as nk
from napkin.count.factors import MARKED, most, summed, summed_outside
from napkin.count.shares import longest, positions, share, visiting
from napkin.count.visited import hulls, members, read
from napkin.derive.kernel import Kernel
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.ir.evaluate import aligned_to
from napkin.keys.hulls import census

CUBE = {"queries": "a b c", "keys": "x y z"}
BOTH = [
    nk.neighborhood((4, 3, 2), stride=(3, 2, 2), is_causal=(True, False, False), clip=True, **CUBE)
    | nk.neighborhood((1, 5, 1), stride=(1, 4, 1), **CUBE),
    nk.neighborhood((2, 2, 2), **CUBE) | nk.neighborhood((3, 1, 4), **CUBE)
    | nk.neighborhood((1, 4, 4), is_causal=True, **CUBE),
    nk.neighborhood((2, 2, 2), is_causal=True, **CUBE) | nk.neighborhood((2, 2, 2), **CUBE),
]  # fmt: skip


def cube(keys: nk.KeySet) -> Kernel:
    @nk.diagram("a b c d, x y z d -> a b c")
    def largest(Q, K):
        return nk.reduce(nk.contract(Q, K, over="d"), "max", over="x y z", keys=keys)

    ready = prepare(largest)
    return label("largest", ready.outputs, ready.names, streamed="x y z")


def cubed(n: int) -> dict[str, int]:
    return {**dict.fromkeys("abcxyz", n), "d": 4}


def by_hand(
    kernel: Kernel, sizes: Mapping[str, int], tiles: Mapping[str, int]
) -> tuple[float, float, float]:
    """Shares of chunks that are visited and tested, and the most that a group visits over the mean,
    from arrays of all groups."""
    seen, axes = kernel.visits, ("a", "b", "c")
    assert seen is not None
    held = {a: range(-(-sizes[a] // tiles[a])) for a in axes}
    every = math.prod(-(-sizes[a] // tiles[a]) for a in seen.axes)
    visited = np.zeros([len(held[a]) for a in axes])
    whole, found = visited.copy(), hulls(seen, sizes, tiles)
    for i, hs in enumerate(found):
        counts = [census(h, tiles[a]) for h, a in zip(hs, seen.axes, strict=True)]
        visited += math.prod(
            aligned_to(c.visited, h.axes, axes, held) for c, h in zip(counts, hs, strict=True)
        )
        own = math.prod(
            aligned_to(c.full, h.axes, axes, held) for c, h in zip(counts, hs, strict=True)
        )
        for earlier in found[:i]:
            apart = np.zeros(own.shape, bool)
            for x, y in zip(hs, earlier, strict=True):
                for p, q in ((x, y), (y, x)):
                    apart |= aligned_to(p.end, p.axes, axes, held) <= aligned_to(
                        q.first, q.axes, axes, held
                    )
            own = np.where(apart, own, 0)
        whole += own
    shared = visited.mean() / every
    return shared, shared - whole.mean() / every, visited.max() / visited.mean()


@pytest.mark.parametrize("which", range(len(BOTH)))
def test_shares_of_unions_are_those_of_all_groups(which: int) -> None:
    kernel, rng = cube(BOTH[which]), np.random.default_rng(which)
    assert kernel.visits is not None
    assert len(kernel.visits.boxes) > 1
    for n in (5, 9, 14):
        sizes = cubed(n)
        for _ in range(4):
            tiles = {a: int(rng.choice((1, 2, 4))) for a in "abcxyz"} | {"d": 4}
            visited, tested, busiest = by_hand(kernel, sizes, tiles)
            assert share(kernel, sizes, tiles) == pytest.approx((visited, tested))
            assert longest(kernel, sizes, tiles) == pytest.approx(busiest)


def test_groups_of_a_union_visit_the_chunks_of_their_loops() -> None:
    kernel, sizes = cube(BOTH[0]), cubed(7)
    tiles = {"a": 2, "b": 3, "c": 1, "x": 2, "y": 1, "z": 4, "d": 4}
    cuts = [range(-(-7 // tiles[a])) for a in "abc"]
    found = [
        chunks(kernel, sizes, tiles, dict(zip("abc", at, strict=True)))
        for at in itertools.product(*cuts)
    ]
    every = math.prod(-(-7 // tiles[a]) for a in "xyz") * len(found)
    assert share(kernel, sizes, tiles)[0] == pytest.approx(sum(map(len, found)) / every)
    keys = sum(math.prod(len(part[a]) for a in "xyz") for f in found for _, part in f)
    assert read(kernel, ("x", "y", "z"), sizes, tiles) == keys
    groups, pieces = ({a: tiles[a] for a in part} for part in ("abc", "xyz"))
    assert visiting(kernel, sizes, [groups], [pieces]).item() == share(kernel, sizes, tiles)[0]


def test_seed_8500232_no_array_of_all_groups() -> None:
    """Three key axes of 2,048 with tiles of 1 are 8.6 billion groups."""
    kernel, sizes = cube(BOTH[0]), cubed(2048)
    tiles = {**dict.fromkeys("abcxyz", 1), "d": 4}
    start = time.process_time()
    visited, tested = share(kernel, sizes, tiles)
    assert 0 < tested <= visited < 1e-6
    assert 1 <= longest(kernel, sizes, tiles) < 2
    few, small = cubed(48), {**tiles, "a": 1}
    # Away from the borders groups visit as many keys, whatever the size; and exactly so many.
    rest = read(kernel, ("x", "y", "z"), few, small) / 48**3
    assert read(kernel, ("x", "y", "z"), sizes, tiles) / 2048**3 == pytest.approx(rest, rel=0.1)
    assert read(kernel, ("a", "b", "c", "x", "y", "z"), sizes, tiles) == read(
        kernel, ("x", "y", "z"), sizes, tiles
    )
    assert time.process_time() - start < 5


def test_members_of_a_cube_are_counted_along_each_axis() -> None:
    keys = nk.neighborhood((3, 2, 4), clip=True, **CUBE).node
    axes = ("a", "b", "c")
    assert members(keys, axes, cubed(5)) == int(
        nk.neighborhood((3, 2, 4), clip=True, **CUBE).mask((5, 5, 5)).sum()
    )
    assert members(keys, axes, cubed(4096)) > 4096**3


def test_a_plan_of_a_union_over_three_axes_takes_seconds() -> None:
    @nk.diagram("a b c d, x y z d -> a b c", sizes=cubed(2048))
    def largest(Q, K):
        return nk.reduce(nk.contract(Q, K, over="d"), "max", over="x y z", keys=BOTH[0])

    start = time.process_time()
    plan = nk.derive(largest, on="h100")
    assert time.process_time() - start < 10
    assert all(n > 0 for k in plan.kernels for n in k.bytes.values())


def test_a_plan_of_bounds_that_two_axes_share_takes_seconds() -> None:
    """Arrays that count visited chunks have 8 million positions: few settings are priced."""
    sizes = {"b": 2048, "q": 4096, "x": 4096, "d": 16}
    keys = nk.key_set("a window", lambda q, _: [(q - nk.index("b"), q + 1)], "q", "x")

    @nk.diagram("b q d, x d -> b q", sizes=sizes)
    def largest(Q, K):
        return nk.reduce(nk.contract(Q, K, over="d"), "max", over="x", keys=keys)

    ready = prepare(largest)
    kernel = label("largest", ready.outputs, ready.names, streamed="x")
    assert positions(cube(BOTH[0]), cubed(2048)) == 2048
    assert positions(kernel, sizes) == 2048 * 4096
    start = time.process_time()
    nk.derive(largest, on="h100")
    assert time.process_time() - start < 10


# --- products of few axes -----------------------------------------------------------------------


def test_sums_and_maxima_of_products_by_parts() -> None:
    rng = np.random.default_rng(0)
    over = {"p": 3, "q": 4, "r": 5, "s": 2}

    def factor(axes: str, most: int) -> tuple[tuple[str, ...], np.ndarray]:
        return tuple(axes), rng.integers(0, most, [over[a] for a in axes])

    def dense(factors) -> np.ndarray:
        held = {a: range(n) for a, n in over.items()}
        return math.prod(aligned_to(v, axes, tuple(over), held) for axes, v in factors)

    shapes = ("p", "pq", "r", "qr", "", "rs", "s")
    for _ in range(60):
        some = [factor(a, 4) for a in rng.choice(shapes, 3)]
        others = [
            [(a, v > 0) for a, v in (factor(x, 3) for x in rng.choice(shapes, rng.integers(1, 4)))]
            for _ in range(rng.integers(0, 4))
        ]
        outside = np.ones(list(over.values()), bool)
        for other in others:
            outside &= ~dense(other).astype(bool)
        every = np.broadcast_to(dense(some), outside.shape)
        assert summed(some, over) == every.sum()
        assert summed_outside(some, others, over) == every[outside].sum()
        more = [factor(a, 4) for a in rng.choice(shapes, 2)]
        top = (every + dense(more)).max()
        assert most([some, more], 10**6) == top
        assert most([some, more], 1) >= top


@pytest.mark.parametrize("largest", [3, 2**9, 2**14, 2**24])
def test_the_most_of_a_sum_of_arrays(largest: int) -> None:
    """However large numbers are: few that there may be are marked, others are sorted."""
    rng = np.random.default_rng(0)
    assert 2**9 * 2**9 < MARKED < 2**14 * 2**14
    some, more = rng.integers(0, largest, (2, 50, 60))
    found = most([[(("p", "q"), some)], [(("p", "q"), more)]], 10**6)
    assert found == (some + more).max()


def test_the_most_of_many_groups_takes_moments() -> None:
    rng = np.random.default_rng(0)
    some, more = rng.integers(0, 40, (2, 1000, 1000))
    start = time.process_time()
    most([[(("p", "q"), some)], [(("p", "q"), more)]], 10**6)
    assert time.process_time() - start < 1  # 5 s where columns are sorted
