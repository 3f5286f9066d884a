"""The time model beside scans by any step, as timed on an H100: warps, and what each step loads."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.machine.machines import machine
from napkin.schedule import Schedule
from napkin.settings.choice import Choice
from napkin.settings.pricing import Pricing

LATE = math.log(1.5)
"""How far a price may be off: a barrier between loads may show or not."""


@cache
def pricing() -> Pricing:
    """Of the kernel that makes one step after another."""
    f = load("gated_delta_rule")
    kernel = f.stream("t").group("b").group("h").group("v").kernel
    return Pricing(kernel, f.check_sizes({}), "bf16", machine("h100"))


def priced(v: int, warps: int, h: int = 1) -> Choice:
    tiles = {"b": 1, "h": h, "v": v, "t": 1, "k": 128}
    return pricing().at(Schedule(tiles, warps, 3, per_thread=True))


@pytest.mark.parametrize(
    ("v", "warps", "us"),
    [(32, 8, 7329.9), (32, 4, 5932.3), (32, 2, 3438.2), (32, 1, 3088.1), (16, 8, 6511.6),
     (16, 4, 5444.1), (16, 2, 3195.6)],
)  # fmt: skip
def test_settings_are_priced_as_they_were_timed(v: int, warps: int, us: float) -> None:
    assert abs(math.log(priced(v, warps).time.seconds * 1e6 / us)) < LATE


@nk.diagram("h t k, h t k, h t v, h t k, h t -> h t v", sizes=dict(h=32, t=2048, k=128, v=128))
def kimi_delta(Q: Any, K: Any, V: Any, G: Any, B: Any) -> Any:
    """Kimi delta attention: a gate for each key (arXiv 2510.26692)."""
    k = K * nk.rsqrt(nk.reduce(K * K, "sum", over="k") + 1e-6)

    def step(S: Any) -> Any:
        left = nk.sigmoid(G) * S
        return left + nk.sigmoid(B) * k * (V - nk.contract(left, k, over="k"))

    return nk.contract(Q, nk.scan(step, 0.0, along="t", axes="k"), over="k")


@nk.diagram(
    "h t k, h t k, h t v, h t k, h t k, h t k -> h t v", sizes=dict(h=64, t=2048, k=64, v=64)
)
def goose(R: Any, K: Any, V: Any, W: Any, A: Any, B: Any) -> Any:
    """RWKV-7: a state moved along a direction of its own (arXiv 2503.14456)."""
    a = A * nk.rsqrt(nk.reduce(A * A, "sum", over="k") + 1e-6)

    def step(S: Any) -> Any:
        moved = nk.contract(S, a, over="k") * (a * nk.sigmoid(B))
        return nk.sigmoid(W) * S - moved + V * K

    return nk.contract(R, nk.scan(step, 0.0, along="t", axes="k"), over="k")


@pytest.mark.parametrize(
    ("f", "v", "us", "others"),
    [(kimi_delta, 8, 1430.1, {}), (goose, 8, 1097.6, {}), (goose, 32, 737.9, {"h": 512, "t": 256})],
)
def test_steps_of_one_warp_are_priced_as_they_were_timed(
    f: nk.Diagram, v: int, us: float, others: dict[str, int]
) -> None:
    """On an H200. Lanes lie along the keys, which are the last dimension of the state in memory, so
    each gate is computed once: it was counted for every lane along the values. They take values
    from each other to add up keys, for each of the values."""
    kernel = f.stream("t").group("h").group("v").kernel
    sizes = {**f.sizes, **others}
    tiles = {"h": 1, "v": v, "t": 1, "k": sizes["k"]}
    found = Pricing(kernel, f.check_sizes(sizes), "bf16", machine("h200"))
    seconds = found.at(Schedule(tiles, 1, 3, per_thread=True)).time.seconds
    assert abs(math.log(seconds * 1e6 / us)) < 0.25


def test_a_step_is_taken_by_itself_where_chunks_ahead_take_as_long() -> None:
    """Chunks ahead took 1,378 us (H200)."""
    (k,) = nk.derive(goose, on="h200").kernels
    assert k.schedule.warps == k.tiles["t"] == 1


def test_one_warp_is_taken() -> None:
    assert min((1, 2, 4, 8), key=lambda warps: priced(16, warps).time.seconds) == 1


def test_threads_that_take_less_than_is_copied_ahead_are_waited_for() -> None:
    """Q and K of 128 values: 2 bytes of a row for each of 128 threads, 4 for each of 64. A step of
    several warps waits for the two one after the other, as reductions lie between."""
    assert priced(16, 4).run.late > 2
    assert priced(16, 2).run.late < 2
    assert priced(16, 1).run.late == 1


def test_what_lies_along_the_steps_is_loaded_once_for_a_sector() -> None:
    f = nk.diagram("n t -> n t", sizes={"n": 4096, "t": 4096})(
        lambda X: nk.scan(lambda h: nk.maximum(h, X), 0.0, along="t")
    )
    (k,) = nk.derive(f, on="h100").kernels
    assert k.choice.run.late == 2 / 32
