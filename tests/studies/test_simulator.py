"""The simulator: the figures of the specification of key sets, and counts by brute force."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import napkin as nk
import napkin.studies.sweep as sweep_module
from napkin.studies.simulator import Simulation
from napkin.studies.sweep import strides_of, sweep, tiles_of

VIDEO: dict[str, Any] = {"layout": (30, 48, 80), "kernel_size": (18, 24, 24)}
IMAGE: dict[str, Any] = {"layout": (256, 256), "kernel_size": (80, 80)}
TEXT: dict[str, Any] = {"layout": 32768, "kernel_size": 2048, "q_tile": 128, "kv_tile": 128}


def digits(value: float) -> str:
    return f"{value:.2f}"


# --- the table of bounds --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stride", "bound"),
    [
        ((1, 1, 1), "3.27"),
        ((2, 1, 1), "3.60"),
        ((1, 1, 8), "5.45"),
        ((1, 8, 8), "9.09"),
        ((2, 8, 8), "10.00"),
        ((16, 8, 8), "11.11"),
        ((18, 24, 24), "6.67"),
    ],
)
def test_bounds_on_three_axes(stride: tuple[int, ...], bound: str) -> None:
    found = nk.simulate(**VIDEO, stride=stride, q_tile=(4, 8, 8), kv_tile=(2, 8, 8))
    assert digits(found.speedup_bound) == bound
    assert digits(found.speedup_flops) == "11.11"
    assert found.tiles_dense == 15 * 6 * 10


@pytest.mark.parametrize(
    ("stride", "bound"), [((1, 1), "6.10"), ((16, 1), "8.53"), ((16, 16), "10.24")]
)
def test_bounds_on_two_axes(stride: tuple[int, ...], bound: str) -> None:
    found = nk.simulate(**IMAGE, stride=stride, q_tile=(16, 16), kv_tile=(16, 8))
    assert digits(found.speedup_bound) == bound
    assert digits(found.speedup_flops) == "10.24"


@pytest.mark.parametrize(
    ("stride", "tiles", "bound"),
    [(1, 17, "15.06"), (2, 17, "15.06"), (128, 17, "15.06"), (256, 16, "16.00")],
)
def test_bounds_on_one_axis(stride: int, tiles: int, bound: str) -> None:
    found = nk.simulate(**TEXT, stride=stride)
    assert (found.tiles_worst, digits(found.speedup_bound)) == (tiles, bound)


# --- the shares of full tiles ---------------------------------------------------------------------


def test_full_share_on_one_axis() -> None:
    assert f"{nk.simulate(**TEXT | {'layout': 8192}).full_share:.0%}" == "91%"
    # Of the longer layout less lies at the borders, where windows do not move: 15 of 17 inside.
    assert f"{nk.simulate(**TEXT).full_share:.1%}" == "88.9%"


def test_full_share_on_two_axes() -> None:
    found = nk.simulate(**IMAGE, q_tile=(16, 8), kv_tile=(16, 8))
    assert f"{found.full_share:.0%}" == "50%"


def test_full_share_on_three_axes() -> None:
    tile = {"q_tile": (2, 8, 8), "kv_tile": (2, 8, 8)}
    assert f"{nk.simulate(**VIDEO, **tile).full_share:.0%}" == "17%"
    # Along the first axis 9 tiles of queries see 9 full tiles, and 6 see 8 full ones of 10.
    found = nk.simulate(**VIDEO, **tile, stride=(1, 8, 8))
    assert found.full_share == 129 / 141
    assert np.mean([1.0] * 9 + [0.8] * 6) == pytest.approx(0.92)  # the mean of the tiles' shares


def test_a_tile_is_a_box_in_the_layout() -> None:
    flat, box = (
        nk.simulate((256, 256), kernel_size=9, q_tile=tile, kv_tile=tile)
        for tile in ((1, 64), (8, 8))
    )
    assert (flat.tiles_worst, box.tiles_worst) == (27, 9)


# --- counts by brute force ------------------------------------------------------------------------


def tiles(seen: np.ndarray, q: int, kv: int, dynamic: bool) -> list[list[str]]:
    """What each tile of queries of one axis visits: the kind of every key tile."""
    size = len(seen)
    out: list[list[str]] = []
    for q0 in range(0, size, q):
        rows = seen[q0 : q0 + q]
        keys = np.flatnonzero(rows.any(0))
        start = keys[0] if dynamic else keys[0] // kv * kv
        kinds: list[str] = []
        for x0 in range(start, keys[-1] + 1, kv):
            part = rows[:, x0 : x0 + kv]
            whole = bool(part.all())
            kinds.append("partial" if not whole else "full" if x0 + kv <= size else "padding")
        out.append(kinds)
    return out


def counted(layout: tuple[int, ...], params: Any, q: Any, kv: Any, dynamic: bool) -> dict[str, Any]:
    """All counts of a problem, tile by tile over every dilation group."""
    per_axis = []
    for size, (k, s, d, causal), tq, tk in zip(layout, params, q, kv, strict=True):
        mask = nk.neighborhood(k, s, d, causal).mask(size)
        per_axis.append([t for g in range(d) for t in tiles(mask[g::d, g::d], tq, tk, dynamic)])
    kinds = {"full": 0, "partial": 0, "padding": 0}
    worst = 0
    for rows in itertools.product(*per_axis):
        pairs = list(itertools.product(*rows))
        worst = max(worst, len(pairs))
        for pair in pairs:
            kind = next((x for x in ("partial", "padding") if x in pair), "full")
            kinds[kind] += 1
    return kinds | {"tiles_worst": worst, "visited": sum(kinds.values())}


@settings(max_examples=150)
@given(st.integers(0, 10**9))
def test_counts_are_those_of_the_mask(seed: int) -> None:
    rng = random.Random(seed)
    dims = rng.randint(1, 3)
    layout = tuple(rng.randint(1, (40, 14, 8)[dims - 1]) for _ in range(dims))
    params = []
    for size in layout:
        d = rng.randint(1, min(3, size))
        k = rng.randint(1, size // d)
        params.append((k, rng.randint(1, k), d, rng.random() < 0.3))
    k, s, d, causal = zip(*params, strict=True)
    q, kv = (tuple(rng.randint(1, 6) for _ in layout) for _ in range(2))
    tiling = rng.choice(("static", "dynamic"))
    found = nk.simulate(
        layout, kernel_size=k, stride=s, dilation=d, is_causal=causal, q_tile=q, kv_tile=kv,
        kv_tiling=tiling,
    )  # fmt: skip
    wanted = counted(layout, params, q, kv, tiling == "dynamic")
    assert {name: getattr(found, name) for name in wanted} == wanted
    dense = np.prod([-(-n // t) for n, t in zip(layout, kv, strict=True)])
    queries = np.prod([-(-n // t) for n, t in zip(layout, q, strict=True)])
    assert found.tiles_dense == dense
    assert found.speedup_bound == dense / wanted["tiles_worst"]
    assert found.speedup_mean == dense * queries / wanted["visited"]
    assert found.full_share == wanted["full"] / wanted["visited"]
    assert found.speedup_flops == pytest.approx(np.prod(layout) / np.prod(k))


def test_dynamic_tiles_are_never_more_than_static_ones() -> None:
    static, dynamic = (
        nk.simulate(**VIDEO, q_tile=(2, 8, 8), kv_tile=(2, 8, 8), kv_tiling=tiling)
        for tiling in ("static", "dynamic")
    )
    assert (static.tiles_worst, dynamic.tiles_worst) == (250, 160)


def test_padding_is_what_passes_the_end_of_an_axis() -> None:
    found = nk.simulate(10, kernel_size=10, q_tile=4, kv_tile=4)
    assert (found.full, found.padding, found.partial) == (6, 3, 0)


def test_heads_and_batch_items_multiply_the_counts_alone() -> None:
    one = nk.simulate(**IMAGE, q_tile=16, kv_tile=8)
    many = nk.simulate(**IMAGE, q_tile=16, kv_tile=8, heads=24, batch=2)
    assert (many.visited, many.partial) == (48 * one.visited, 48 * one.partial)
    assert (many.tiles_worst, many.full_share) == (one.tiles_worst, one.full_share)


def test_end_to_end() -> None:
    given = {**VIDEO, "stride": (1, 8, 8), "q_tile": (4, 8, 8), "kv_tile": (2, 8, 8)}
    found = nk.simulate(**given, share=0.6)
    assert found.end_to_end == pytest.approx(1 / (0.4 + 0.6 / (900 / 99)))
    assert nk.simulate(**given, share=0).end_to_end == 1
    assert nk.simulate(**given, share=1).end_to_end == pytest.approx(found.speedup_bound)
    assert nk.simulate(**given).end_to_end is None


# --- what it says ---------------------------------------------------------------------------------


def test_json() -> None:
    found = nk.simulate(**TEXT, share=0.5).to_json()
    first = ["speedup_bound", "speedup_mean", "speedup_flops"]
    assert list(found)[:6] == [*first, "tiles_dense", "tiles_worst", "full_share"]
    assert found["tiles_dense"] == 256
    assert found["kv_tiling"] == "static"
    assert json.loads(json.dumps(found))["layout"] == [32768]


def test_repr() -> None:
    found = nk.simulate(**VIDEO, stride=(1, 8, 8), q_tile=(4, 8, 8), kv_tile=(2, 8, 8), share=0.6)
    assert repr(found) == (
        "30x48x80, window 18x24x24, stride 1x8x8, static tiles 4x8x8 / 2x8x8: speed-up bound 9.09, "
        "mean 10.26, FLOP-wise 11.11; 99 of 900 key tiles at worst; 85% of the visited tiles full; "
        "end to end 2.15"
    )
    plain = nk.simulate(8, kernel_size=3, dilation=2, is_causal=True, q_tile=2, kv_tile=2)
    assert repr(plain).startswith("8, window 3, dilation 2, causal 1, static tiles 2 / 2: ")


WRONG: list[tuple[dict[str, Any], str]] = [
    (
        {"kernel_size": 9},
        "simulate: a window of 9 keys does not fit axis 0 of 8 tokens; write a kernel_size of at "
        "most 8 there",
    ),
    (
        {"dilation": 3},
        "simulate: a window of 3 keys, 3 apart, does not fit axis 0 of 8 tokens; write a "
        "kernel_size of at most 2 there",
    ),
    (
        {"dilation": 9},
        "simulate: a window of 3 keys, 9 apart, does not fit axis 0 of 8 tokens; write a dilation "
        "of at most 2 there",
    ),
    (
        {"stride": 4},
        "simulate: stride 4 exceeds kernel_size 3, so some keys would be seen by no query; write a "
        "stride from 1 to 3",
    ),
    (
        {"kernel_size": (3, 3)},
        "simulate: kernel_size names 2, there are 1 axes; give one number, or one for every axis",
    ),
    (
        {"q_tile": (2, 2)},
        "simulate: q_tile names 2, there are 1 axes; give one number, or one for every axis",
    ),
    ({"kv_tile": 0}, "simulate: kv_tile=0 is not a whole number from 1"),
    ({"q_tile": 2.0}, "simulate: q_tile=2.0 is not a whole number from 1"),
    ({"layout": (8, 0)}, "simulate: layout=0 is not a whole number from 1"),
    ({"layout": ()}, "simulate: layout=() has no axis; write its sizes, as in (30, 48, 80)"),
    (
        {"layout": 2**23},
        "simulate: axis 0 of 8388608 tokens is too long to look at every query; write at most "
        "4194304",
    ),
    ({"kv_tiling": "stat"}, "simulate: kv_tiling='stat' is unknown; did you mean 'static'?"),
    ({"is_causal": 2}, "simulate: is_causal=2 is not True or False"),
    ({"heads": 0}, "simulate: heads=0 is not a whole number from 1"),
    ({"batch": True}, "simulate: batch=True is not a whole number from 1"),
    (
        {"share": 1.5},
        "simulate: share=1.5 is not between 0 and 1; it is the share of attention in the time of "
        "the run, as in 0.6",
    ),
]


@pytest.mark.parametrize(("change", "said"), WRONG, ids=[str(c) for c, _ in WRONG])
def test_wrong_input(change: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"layout": 8, "kernel_size": 3, "q_tile": 2, "kv_tile": 2}
    with pytest.raises(nk.InputError) as caught:
        nk.simulate(**given | change)
    assert str(caught.value) == said


# --- sweeps ---------------------------------------------------------------------------------------


def work(s: Simulation) -> tuple[float, float]:
    """What a sweep compares: scores of the worst tile by its queries, and scores in total."""
    return (
        s.tiles_worst * int(np.prod(s.kv_tile)),
        s.visited * int(np.prod(s.q_tile)) * int(np.prod(s.kv_tile)),
    )


def smaller(a: Simulation, b: Simulation) -> bool:
    return all(x <= y for x, y in zip(a.stride, b.stride, strict=True))


@pytest.mark.parametrize("tiling", ["static", "dynamic"])
def test_a_sweep_finds_what_trying_everything_does(
    tiling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_module, "Q_TOKENS", 8)
    monkeypatch.setattr(sweep_module, "KV_TOKENS", 4)
    given: dict[str, Any] = {"layout": (9, 14), "kernel_size": (4, 6), "kv_tiling": tiling}
    given |= {"dilation": (2, 1), "is_causal": (False, True)}
    lengths = (5, 14)
    pairs = list(itertools.product(tiles_of(8, lengths), tiles_of(4, lengths)))
    best: dict[tuple[int, ...], Simulation] = {}
    for s in itertools.product(range(1, 5), range(1, 7)):
        tried = [nk.simulate(**given, stride=s, q_tile=q, kv_tile=kv) for q, kv in pairs]
        best[s] = min(tried, key=lambda x: (*work(x), -x.full_share))
    found = sweep(**given)
    assert found.tried == 24 * len(pairs)
    assert [work(r) for r in found.results] == sorted(work(r) for r in found.results)
    worth = [
        a
        for a in best.values()
        if not any(
            b.stride != a.stride and smaller(b, a) and all(np.less_equal(work(b), work(a)))
            for b in best.values()
        )
    ]
    assert {r.stride: (*work(r), r.full_share) for r in found.results} == {
        r.stride: (*work(r), r.full_share) for r in worth
    }


def test_a_sweep_of_strides_alone() -> None:
    held: dict[str, Any] = {"q_tile": (4, 8, 8), "kv_tile": (2, 8, 8)}
    found = sweep(**VIDEO, **held, share=0.6)
    assert found.tried == 18 * 24 * 24
    strides = {r.stride: digits(r.speedup_bound) for r in found.results}
    assert list(strides)[:3] == [(16, 8, 8), (2, 8, 8), (1, 8, 8)]
    table = {(1, 1, 1): "3.27", (2, 1, 1): "3.60", (1, 1, 8): "5.45", (1, 8, 8): "9.09"}
    assert strides.items() >= table.items()
    assert (18, 24, 24) not in strides
    bounds = [r.speedup_bound for r in found.results]
    assert bounds == sorted(bounds, reverse=True)
    assert found.results[0].end_to_end == pytest.approx(2.2, abs=0.01)
    assert sweep(**VIDEO, **held, share=0.6, top=3).results == found.results[:3]


def test_a_sweep_of_tiles_alone() -> None:
    found = sweep(**IMAGE, stride=(16, 16))
    (best,) = found.results
    assert best.stride == (16, 16)
    assert digits(best.speedup_bound) == "10.24"
    assert int(np.prod(best.q_tile)) == 256
    assert int(np.prod(best.kv_tile)) == 128


def test_tiles_that_are_tried() -> None:
    assert tiles_of(8, (100, 2)) == [(4, 2), (8, 1)]
    assert tiles_of(4, (100, 100)) == [(1, 4), (2, 2), (4, 1)]
    assert tiles_of(1024, (3, 5)) == [(4, 8)]
    assert all(np.prod(t) == 256 for t in tiles_of(256, (30, 48, 80)))


def test_strides_that_are_tried() -> None:
    assert strides_of(24, [8]) == list(range(1, 25))
    some = strides_of(2048, [128])
    assert {1, 2, 64, 128, 256, 384, 2048} <= set(some)
    assert len(some) < 40
    assert max(strides_of(2000, [128])) == 2000


def test_wrong_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(nk.InputError, match="top=0 is not a whole number from 1"):
        sweep(**IMAGE, top=0)
    with pytest.raises(nk.InputError, match="stride=0 is not a whole number from 1"):
        sweep(**IMAGE, stride=0)
    monkeypatch.setattr(sweep_module, "MAX_PROBLEMS", 3)
    with pytest.raises(nk.InputError, match="are too many to try"):
        sweep(**IMAGE, q_tile=8, kv_tile=8)


TIMED = """
import time
start = time.perf_counter()
import napkin as nk
from napkin.studies.sweep import sweep
given = dict(layout=(30, 48, 80), kernel_size=(18, 24, 24), heads=24)
nk.simulate(**given, q_tile=(4, 8, 8), kv_tile=(2, 8, 8))
one = time.perf_counter()
sweep(**given)
print(one - start, time.perf_counter() - one)
"""


def test_it_is_quick() -> None:
    """Imports included: a problem in 0.2 s, all strides and tiles in 0.8 s where nothing else
    runs."""
    best = [9.0, 99.0]
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", TIMED], capture_output=True, text=True, timeout=60, check=True
        )
        best = [min(a, float(b)) for a, b in zip(best, done.stdout.split(), strict=True)]
        if best[0] < 1 and best[1] < 10:
            return
        time.sleep(1)
    assert best[0] < 1
    assert best[1] < 10
