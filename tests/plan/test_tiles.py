"""Tiles of kernels without matrix products: whole sectors of memory, enough values for a group."""

from __future__ import annotations

import itertools
import math

import pytest

import napkin as nk
from napkin.check.verdict import compiled
from napkin.count.requested import SECTOR
from napkin.count.residency import live_set
from napkin.count.shares import share, visiting
from napkin.count.traffic import Transfer
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.diagram.diagram import Diagram
from napkin.diagram.library import load
from napkin.machine.machines import machine
from napkin.settings.pricing import Pricing
from napkin.settings.tiled import Tiled
from napkin.settings.tiles import MAX_TILE, Tiles


@nk.diagram("b s d -> b d", sizes={"b": 64, "s": 512, "d": 1024})
def pooled(X):
    return nk.reduce(X, "max", over="s")


@nk.diagram("b y x c -> b p q c", sizes={"b": 8, "y": 56, "x": 56, "c": 64})
def pooling(X):
    rows = nk.slide(X, over="y", into="p u", stride=2, window=3)
    return nk.reduce(nk.slide(rows, over="x", into="q v", stride=2, window=3), "max", over="u v")


def sector(pricing: Pricing, t: Transfer, tiles: dict[str, int]) -> float:
    return Tiled(pricing.of, tiles).requests(stages=1).sector(t)


@pytest.mark.parametrize(("diagram", "least"), [(pooled, 16), (pooling, 512)])
def test_groups_take_whole_sectors(diagram: Diagram, least: int) -> None:
    (kernel,) = nk.derive(diagram, on="h100").kernels
    tiles, chosen = kernel.tiles, kernel.choice.kernel
    last = chosen.outputs[0].axes[-1]
    assert tiles[last] * 2 >= SECTOR  # bf16
    assert math.prod(tiles[a] for a in chosen.group) >= least


@pytest.mark.parametrize(
    ("tiles", "bytes_of_a_value"),
    [
        ({"b": 1, "d": 1}, 32),  # a sector for each value
        ({"b": 1, "d": 4}, 8),
        ({"b": 1, "d": 16}, 2),
        ({"b": 1, "d": 64}, 2),
        ({"b": 8, "d": 1}, 32),  # the next batch is far away
    ],
)
def test_bytes_that_cross_for_a_value(tiles: dict[str, int], bytes_of_a_value: float) -> None:
    kernel = nk.derive(pooled, on="h100").kernels[0].choice.kernel
    pricing = Pricing(kernel, pooled.sizes, "bf16", machine("h100"))
    written = next(t for t in (m.of for m in pricing.of.moved) if t.direction == "write")
    assert sector(pricing, written, tiles) == bytes_of_a_value


def test_a_short_last_axis_is_read_with_the_one_before() -> None:
    @nk.diagram("n c -> n c", sizes={"n": 2**16, "c": 4})
    def scaled(X):
        return 2.0 * X

    (kernel,) = nk.derive(scaled, on="h100").kernels
    pricing = Pricing(kernel.choice.kernel, scaled.sizes, "bf16", machine("h100"))
    part = pricing.of.moved[0].of
    assert sector(pricing, part, {"n": 1, "c": 4}) == 8  # 8 bytes of a sector
    assert sector(pricing, part, {"n": 4, "c": 4}) == 2
    assert sector(pricing, part, {"n": 4, "c": 1}) == 8  # every fourth value of a sector
    assert kernel.tiles["n"] * kernel.tiles["c"] >= 64


@pytest.mark.parametrize("stride", [(1, 1), (2, 3)])
@pytest.mark.parametrize("dilation", [1, 2])  # of residues, whose keys are no product over axes
def test_what_boxes_visit_is_found_for_many_at_once(stride: tuple[int, int], dilation: int) -> None:
    keys = nk.neighborhood((5, 6), stride, dilation, queries="q0 q1", keys="x0 x1")

    @nk.diagram("q0 q1 d, x0 x1 d, x0 x1 d -> q0 q1 d")
    def attention(Q, K, V):
        P = nk.softmax(nk.contract(Q, K, over="d"), over="x0 x1", keys=keys)
        return nk.contract(P, V, over="x0 x1")

    sizes = {"q0": 30, "q1": 21, "x0": 30, "x1": 21, "d": 64}
    (planned,) = nk.derive(attention, on="h100", sizes=sizes).kernels
    kernel, known = planned.choice.kernel, planned.choice.sizes
    queries = [a for a in planned.tiles if a in kernel.group and a not in kernel.residues][:2]
    lengths = list(itertools.product((1, 2, 8), (1, 4, 16)))
    groups = [dict(zip(queries, n, strict=True)) for n in lengths]
    chunks = [dict(zip(kernel.stream.axes, n, strict=True)) for n in lengths]
    assert bool(kernel.residues) == (dilation > 1)
    found = visiting(kernel, known, groups, chunks)
    ones = dict.fromkeys(kernel.axes, 1)
    for row, g in zip(found, groups, strict=True):
        assert row.tolist() == [share(kernel, known, ones | g | c)[0] for c in chunks]


def test_no_array_of_a_chunk_is_too_large() -> None:
    for name in ("attention", "neighborhood_attention_2d", "layernorm_linear", "conv2d"):
        for planned in nk.derive(load(name), on="h100").kernels:
            kernel, known = planned.choice.kernel, planned.choice.sizes
            tiles = Tiles(kernel, known)
            settings = list(tiles.settings())
            assert dict(planned.tiles) in settings
            values = [
                math.prod(t[a] for a in axes) for t in settings for axes in live_set(kernel).chunk
            ]
            assert max(values) <= MAX_TILE


def test_two_short_axes_of_a_product_are_deep_enough_together() -> None:
    """Rotary embeddings (arXiv 2104.09864) inside attention: heads are two halves of d values, and
    neither half's axis of 2 is padded to the depth of a matrix instruction."""

    @nk.diagram(
        "q c d, x c d, x v, q d, q d, x d, x d -> q v", sizes=dict(q=1024, x=1024, c=2, d=32, v=64)
    )
    def rotated(Q, K, V, cos_q, sin_q, cos_x, sin_x):
        def turned(X, cos, sin):
            other = nk.take(X, c=1 - nk.index("c"))
            return X * cos + nk.where(nk.index("c") == 0, -other, other) * sin

        S = nk.contract(turned(Q, cos_q, sin_q), turned(K, cos_x, sin_x), over="c d")
        return nk.contract(nk.softmax(S * 0.125, over="x"), V, over="x")

    plan = nk.derive(rotated, on="h100")
    (kernel,) = plan.kernels
    assert (kernel.tiles["c"], kernel.tiles["d"]) == (2, 32)
    assert kernel.choice.kernel.stream.axis == "x"
    ragged = dict(q=37, x=53, c=2, d=30, v=50)
    plan.check(sizes=ragged, resources=False).raise_if_wrong()


@pytest.mark.parametrize("batch", [1, 2, 16])
def test_a_batch_of_one_is_not_padded_to_the_depth_of_a_product(batch: int) -> None:
    """Weights' gradients are sums over the batch and positions: one of them is deep enough. With a
    batch of 1, padded to 16, a kernel took 9.5 ms, and takes 0.23 ms (H200)."""

    @nk.diagram("b x c, b x d -> c d", sizes=dict(b=batch, x=4096, c=512, d=4096))
    def weights(X, G):
        return nk.contract(X, G, over="b x")

    (kernel,) = nk.derive(weights, on="h200").kernels
    work = 2 * batch * 4096 * 512 * 4096
    assert kernel.tiles["b"] == 1
    assert kernel.choice.run.work["product"] == work


@pytest.mark.parametrize("name", ["conv1d", "conv2d"])
@pytest.mark.parametrize("channels", [1, 3, 8])
@pytest.mark.parametrize("on", ["h100", "a100"])
def test_few_channels_are_padded_where_taps_are_taken_one_by_one(
    name: str, channels: int, on: str
) -> None:
    """Channels and taps make up the depth of a product, and a chunk has one tap."""
    plan = nk.derive(load(name), on=on, sizes={"c": channels})
    held = [k for k in plan.kernels if k.choice.kernel.products]
    assert held
    assert all(k.tiles["c"] >= 16 for k in held)


@nk.diagram("c i d, e f d, h a -> c i u v, h")
def windows_beside_a_sum(Q, K, X):
    keys = nk.neighborhood((3, 3), queries="c i", keys="e f")
    C = nk.compress(nk.contract(Q, K, over="d"), keys, over="e f", into="u v")
    return C, nk.reduce(X, "sum", over="a")


def test_queries_that_are_held_whole_are_not_cut() -> None:
    """Outputs without a common axis: no axis is grouped, that of queries neither."""
    ready = prepare(windows_beside_a_sum)
    kernel = label("whole", ready.outputs, ready.names, streamed="e f")
    sizes = {"c": 7, "i": 7, "e": 7, "f": 7, "d": 4, "u": 3, "v": 3, "h": 2, "a": 3}
    found = list(Tiles(kernel, kernel.sized(sizes)).settings())
    assert found
    assert {"c", "i"} <= set(kernel.whole)
    assert all(tiles[a] >= sizes[a] for tiles in found for a in kernel.whole)


def test_a_single_number_beside_an_array_leaves_its_tiles_as_they_are() -> None:
    @nk.diagram("n, n -> n", sizes={"n": 2**26})
    def times_array(X, S):
        return X * S

    @nk.diagram("n, () -> n", sizes={"n": 2**26})
    def times_number(X, S):
        return X * S

    one, other = (nk.derive(d).kernels[0] for d in (times_array, times_number))
    assert dict(one.tiles) == dict(other.tiles)


@pytest.mark.parametrize(("kind", "fewest"), [("", 8), (":bool", 16)])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_scans_of_few_positions(n: int, kind: str, fewest: int) -> None:
    """Triton 3.6 compiles no scan along fewer positions than a thread loads side by side."""

    @nk.diagram(f"r k, r x, r x{kind} -> r k")
    def scanned(A, X, K):
        rows = nk.reduce(nk.where(K > 0, X, 0.0), "sum", over="x")
        return nk.cumsum(A * nk.exp(rows), along="k")

    (kernel,) = nk.derive(scanned, "h100", {"r": 4096, "x": 16, "k": n}).kernels
    assert kernel.tiles["k"] >= fewest


def test_scans_whose_tile_a_sum_folds_along_few_positions() -> None:
    """Nor one of a tile with fewer along another axis, where a store gives it its layout."""

    @nk.diagram("q, i c d, c, i c d, i c k, a q:int -> c i k q a")
    def folded(S, old, K, T, X, Q):
        state = nk.scan(lambda h: nk.sigmoid(K) * h + T * X, 0.0, along="c")
        values = nk.contract(old, state, over="d")
        return nk.where(nk.index("a") + Q == 16, values * S, 0.0)

    sizes = {"i": 64, "c": 31, "d": 1, "k": 64, "q": 1, "a": 32}
    plan = nk.derive(folded, "h100", sizes, "fp16")
    assert {k.tiles["d"] for k in plan.kernels if "d" in k.tiles} == {8}
    assert all(row.allocated is not None for row in compiled(plan, registers=False))


@pytest.mark.parametrize("stored", ["c b a", "c a b", "a c b", "b a c", "d c b a", "b a"])
@pytest.mark.parametrize("size", [256, 200])
def test_transposes_are_predicted_to_take_as_long_as_copies(stored: str, size: int) -> None:
    """Each axis that ends an array is the last of a tile dimension of its own, and long. In one
    dimension 256 x 256 x 256 values took 268 us, and 23 in two (H200)."""
    read = " ".join(sorted(stored.split()))
    sizes = dict.fromkeys(read.split(), size if len(read) < 6 else 64)
    turned, copied = (
        nk.derive(nk.diagram(f"{read} -> {to}", sizes=sizes)(lambda X: X * 2.0))
        for to in (stored, read)
    )
    assert turned.seconds < 1.1 * copied.seconds
    last = {axes[-1] for k in turned.kernels for axes in k.program.dims}
    assert {read[-1], stored[-1]} <= last
