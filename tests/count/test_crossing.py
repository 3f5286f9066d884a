"""What passes between the levels of a machine: launch order against an enumeration, L1, sectors."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

import napkin as nk
from napkin.count import starting_order
from napkin.count.crossing import CacheTraffic
from napkin.count.requested import Requests, _sectors
from napkin.count.starting_order import MOST, Order, fetched, seen
from napkin.count.traffic import transfers
from napkin.diagram.library import load
from napkin.lower.box_loops import rising
from napkin.lower.group_order import Launching
from napkin.machine.machines import machine


def orders(seed: int) -> tuple[Order, frozenset[int]]:
    r = random.Random(seed)
    axes = r.randint(1, 4)
    digits = [(i, r.randint(1, 6)) for i in range(axes)]
    if r.random() < 0.3:  # an axis in sections
        digits.append((r.randrange(axes), r.randint(1, 4)))
    return Order(tuple(digits)), frozenset(i for i in range(axes) if r.random() < 0.5)


def tiles(order: Order, carried: frozenset[int]) -> list[tuple[int, ...]]:
    """The tile that each group reads, from its number."""
    places = np.unravel_index(np.arange(order.groups), [n for _, n in order.digits])
    of = [p for p, (axis, _) in zip(places, order.digits, strict=True) if axis in carried]
    return [tuple(int(p[i]) for p in of) for i in range(order.groups)]


@pytest.mark.parametrize("seed", range(0, 300))
def test_fetched_is_what_an_enumeration_fetches(seed: int) -> None:
    order, carried = orders(seed)
    r = random.Random(-seed)
    wave, kept = r.randint(1, 20), r.randint(0, 4)
    last: dict[tuple[int, ...], int] = {}
    wanted = 0
    for i, tile in enumerate(tiles(order, carried)):
        wanted += tile not in last or i // wave - last[tile] > kept
        last[tile] = i // wave
    assert fetched(order, carried, wave, kept) == wanted
    first = r.randint(0, order.groups)
    assert seen(order, carried)(first) == len(set(tiles(order, carried)[:first]))


def test_groups_are_numbered_past_what_numpy_holds() -> None:
    """A stored array of 2^88 values was priced, and dropped: its groups overflowed."""
    small, large = (Order(((0, n), (1, 4), (2, 2))) for n in (2**10, 2**80))
    few, many = (fetched(o, frozenset({0, 2}), 3, 1) for o in (small, large))
    assert many == pytest.approx(few * 2**70, rel=0.01)
    small, large = (Order(((0, n), (1, 7), (2, 2)), 4) for n in (2**10, 2**80))
    few, many = (fetched(o, frozenset({1}), 3, 0) for o in (small, large))
    assert many == pytest.approx(few * 2**70, rel=0.01)
    assert seen(large, frozenset({0, 1}))(2**80) == pytest.approx(2**79, rel=1e-9)


def in_rows(digits: list[tuple[int, int]], rows: int) -> list[tuple[int, ...]]:
    """Places of groups in blocks of rows, as loops write them."""
    *before, (_, many), (_, columns) = digits
    out: list[tuple[int, ...]] = []
    for place in np.ndindex(*[n for _, n in before]):
        for first in range(0, many, rows):
            for c in range(columns):
                out += [(*place, r, c) for r in range(first, min(first + rows, many))]
    return out


@pytest.mark.parametrize("seed", range(0, 200))
def test_blocks_of_rows_are_what_an_enumeration_fetches(seed: int) -> None:
    """Whether or not blocks divide the axis, and with axes before the two."""
    r = random.Random(seed)
    digits = [(i, r.randint(1, 9)) for i in range(r.randint(2, 4))]
    rows, wave, kept = r.randint(1, 5), r.randint(1, 20), r.randint(0, 3)
    carried = frozenset(i for i, _ in digits if r.random() < 0.5)
    order = Order(tuple(digits)).blocked(rows)
    read = [tuple(p[i] for i in sorted(carried)) for p in in_rows(digits, rows)]
    last: dict[tuple[int, ...], int] = {}
    wanted = 0
    for i, tile in enumerate(read):
        wanted += tile not in last or i // wave - last[tile] > kept
        last[tile] = i // wave
    assert (order.groups, order.tiles(carried)) == (len(read), len(set(read)))
    assert fetched(order, carried, wave, kept) == wanted
    first = r.randint(0, order.groups)
    assert seen(order, carried)(first) == len(set(read[:first]))
    together = next((i for i, tile in enumerate(read) if tile != read[0]), len(read))
    assert order.together(carried) == together


@pytest.mark.parametrize("carried", [set(), {0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}])
def test_few_blocks_of_rows_stand_for_very_many(carried: set[int], monkeypatch) -> None:
    """Of some 10^9 groups no array is made; some waves of them tell as much."""
    own = frozenset(carried)
    huge = Order(((0, 2048), (1, 22539), (2, 32)), 8)
    assert fetched(huge, own, 132, 2) >= huge.tiles(own)
    assert 0 < seen(huge, own)(huge.groups // 2) <= huge.tiles(own)
    order = Order(((0, 50), (1, 201), (2, 12)), 8)
    every = fetched(order, own, 16, 2)
    fetched.cache_clear()
    monkeypatch.setattr(starting_order, "LOOKED", 2**14)
    few = fetched(order, own, 16, 2)
    fetched.cache_clear()
    assert abs(few - every) <= 0.1 * every


def test_blocks_of_rows_are_taken_where_less_comes_from_memory() -> None:
    """4096^3 reads its columns again in every wave, and fewer of them in blocks; where memory
    gives each array once anyway, groups stay in their order. A batch of products is in blocks of
    its own."""
    few = nk.derive(load("matmul"), "h100", dict(a=2048, b=2048, c=2048), "bf16").kernels[0]
    assert not few.schedule.swizzle
    sizes = dict(a=6400, b=1792, c=12032)
    for diagram, more in ((load("matmul"), {}), (load("matmul").weave("h"), {"h": 2})):
        (k,) = nk.derive(diagram, "h100", sizes | more, "bf16").kernels
        assert k.schedule.swizzle
        own = Launching(k.choice.kernel, 2)
        plain, rows = (own.order(k.choice.sizes, k.tiles, n) for n in (0, k.schedule.swizzle))
        row, column = own.in_blocks(k.tiles) or ("", "")
        group = k.choice.kernel.group
        read = [
            sum(fetched(o, frozenset(group.index(a) for a in (axis, *more)), 132, 0) * k.tiles[axis]
                for axis in (row, column))
            for o in (plain, rows)
        ]  # fmt: skip
        assert read[1] < 0.5 * read[0]


def test_many_waves_are_as_the_first() -> None:
    """Past `MOST` waves the number is carried on: within 1 % of the exact one."""
    order, wave = Order(((0, 4000), (1, 24))), 132
    assert order.groups > MOST * wave
    ids = np.arange(order.groups) % 24
    exact = sum(len(np.unique(ids[i : i + wave])) for i in range(0, order.groups, wave))
    assert fetched(order, frozenset({1}), wave, 0) == pytest.approx(exact, rel=0.01)


def test_groups_that_see_more_start_first_in_sections() -> None:
    """16 heads of 4096 keys stream 33 MB, which is two sections of 8 heads: in each, the groups of
    all heads for one tile of queries follow each other."""
    causal = load("causal_attention").weave("h")
    (k,) = nk.derive(causal, "h100", dict(h=16, q=4096, x=4096, d=128), "bf16").kernels
    kernel = k.choice.kernel
    assert rising(kernel) == ("q",)
    h, q = kernel.group.index("h"), kernel.group.index("q")
    order = Launching(kernel, 2).order(k.choice.sizes, k.tiles)
    iterations = -(-4096 // k.tiles["q"])
    assert order.digits == ((h, 2), (q, iterations), (h, 8))


def test_a_product_reads_its_columns_again_in_every_wave() -> None:
    """8192^3: the columns (134 MB) pass L2, so each wave in the plain order reads all of them; a
    wave's rows, and those of the groups where one wave ends and the next begins, are read with
    them. In blocks of rows it is about half."""
    (k,) = nk.derive(load("matmul"), "h100", dict(a=8192, b=8192, c=8192), "bf16").kernels
    a, c = (8192 // k.tiles[n] for n in "ac")
    waves = -(-a * c // (132 * k.choice.resident))
    whole = 2 * 8192 * 8192
    sizes, kernel = k.choice.sizes, k.choice.kernel
    plain = Launching(kernel, 2).order(sizes, k.tiles)
    moved = [(t, t.values(sizes, k.tiles)) for t in transfers(kernel)]
    dtypes, operands = dict.fromkeys("ABC", "bf16"), frozenset("AB")
    requests = Requests(moved, sizes, k.tiles, dtypes, kernel.group, operands, operands)
    moving = CacheTraffic(requests, machine("h100"), plain, k.choice.resident, k.choice.shared)
    read = moving.outer()["read"]
    assert k.schedule.swizzle
    assert k.choice.outer["read"] < 0.6 * read
    assert waves * whole < read <= (waves + 1) * whole + waves * 2 * 8192 * k.tiles["a"]
    small = nk.derive(load("matmul"), "h100", dict(a=2048, b=2048, c=2048), "bf16").kernels[0]
    assert small.choice.outer["read"] == 2 * 2 * 2048 * 2048


def row_kernel(
    n: int, d: int, tiles: dict[str, int], resident: int, shared: int = 0
) -> CacheTraffic:
    """layernorm with its rows streamed in two passes, at given tiles."""
    sizes = dict(n=n, d=d)
    kernel = load("layernorm").stream("d", passes=2).group("n").kernel
    moved = [(t, t.values(sizes, tiles)) for t in transfers(kernel, tap_by_tap=True)]
    dtypes = {t.tensor: "bf16" for t, _ in moved}
    order = Launching(kernel, 2).order(sizes, tiles)
    requests = Requests(moved, sizes, tiles, dtypes, kernel.group)
    return CacheTraffic(requests, machine("h100"), order, resident, shared)


def test_a_second_pass_comes_from_l1_where_it_fits() -> None:
    rows = 2 * 132 * 100 * 8192
    once, each = 2 * 8192 * 132, 2 * 8192 * 132 * 100
    fits = row_kernel(132 * 100, 8192, dict(n=1, d=1024), resident=3)
    assert fits.requests.own_bytes == 3 * 2 * 8192
    assert fits.crossing()["X", "read"] == rows
    assert fits.crossing()["G", "read"] == once
    # One group more than L1 has room for: 5 x 48 KB of 0.9 x 256.
    full = row_kernel(132 * 100, 8192, dict(n=1, d=1024), resident=5)
    assert full.crossing()["X", "read"] == 2 * rows
    assert full.crossing()["G", "read"] == each
    # Shared memory takes its part.
    less = row_kernel(132 * 100, 8192, dict(n=1, d=1024), resident=4, shared=20 * 1024)
    assert less.crossing()["X", "read"] == 2 * rows
    assert fits.from_l1() == rows + 2 * (each - once)


def test_a_second_pass_comes_from_memory_where_l2_holds_no_wave() -> None:
    assert row_kernel(4096, 8192, dict(n=1, d=1024), resident=6).outer()["read"] == (
        2 * 4096 * 8192 + 2 * 2 * 8192
    )
    large = row_kernel(1024, 65536, dict(n=1, d=1024), resident=8)  # 134 MB at once
    assert large.outer()["read"] == 2 * (2 * 1024 * 65536) + 2 * 2 * 65536


@pytest.mark.parametrize(("length", "start"), [(64, 16), (32, 32), (130, 2), (4, 4), (16, 32)])
def test_sectors_of_runs_that_begin_anywhere(length: int, start: int) -> None:
    begins = range(0, 32 * start, start)
    touched = [math.ceil((b + length) / 32) - b // 32 for b in begins]
    assert _sectors(length, start) == pytest.approx(sum(touched) / len(touched))


def test_boxes_count_past_the_end() -> None:
    """A box is the tile: of the last rows of a product it has some that the tensor has not."""
    (k,) = nk.derive(load("matmul"), "h100", dict(a=1000, b=1024, c=1000), "bf16").kernels
    assert k.program.boxes
    over = {n: -(-1000 // k.tiles[n]) * k.tiles[n] for n in "ac"}
    crossing = k.crossing_at(k.choice.sizes)
    assert crossing["A", "read"] == 2 * over["a"] * 1024 * (over["c"] // k.tiles["c"])
    assert crossing["A", "read"] > k.bytes["A", "read"]


def test_keys_that_no_query_sees_cross_no_level() -> None:
    """Position 0 lies before every query by then: L2 was asked how many waves of 0 bytes fit."""

    @nk.diagram("q x, x d -> q d")
    def nothing(S, V):
        later = nk.index("q") + 1
        keys = nk.global_tokens(1, queries="q", keys="x", at=later)
        keys &= nk.neighborhood(1, dilation=2, is_causal=True, queries="q", keys="x", at=[later])
        return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")

    plan = nk.derive(nothing, "h100", dict(q=4096, x=4096, d=4096), "fp32")
    assert plan.check(sizes=dict(q=33, x=17, d=16), resources=False).ok
