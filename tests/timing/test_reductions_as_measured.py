"""The time model beside kernels that multiply nothing and reduce over lanes and warps, and kernels
that read what no descriptor serves, as timed on an H200 (docs/measurements, reductions)."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest

import napkin as nk
from napkin.machine.machines import machine
from napkin.schedule import Schedule
from napkin.settings.pricing import Pricing

SIZES = {"n": 8192, "m": 8192, "d": 128}


@nk.diagram("n m, n d, m d -> n d", sizes=SIZES)
def rows(G: Any, X: Any, Y: Any) -> Any:
    """The gradient of squared distances for their left points: sums along the rows of G."""
    return nk.reduce(G * (X - Y), "sum", over="m")


@nk.diagram("n m, n d, m d -> m d", sizes=SIZES)
def columns(G: Any, X: Any, Y: Any) -> Any:
    """That for their right points: sums along the columns of G."""
    return nk.reduce(G * (X - Y), "sum", over="n")


@cache
def pricing(f: nk.Diagram, stream: str, group: str) -> Pricing:
    kernel = f.stream(stream).group(group).group("d").kernel
    return Pricing(kernel, f.check_sizes({}), "bf16", machine("h200"))


def priced(n: int, d: int, m: int, warps: int) -> float:
    tiles = {"n": n, "m": m, "d": d}
    found = pricing(rows, "m", "n").at(Schedule(tiles, warps, 3, per_thread=True))
    return found.time.seconds * 1e6


@pytest.mark.parametrize(
    ("n", "d", "m", "warps", "us"),
    [(8, 32, 64, 8, 10499.5), (8, 32, 64, 4, 5735.2), (16, 32, 32, 8, 19656.1),
     (16, 32, 32, 4, 10174.9), (16, 16, 64, 4, 5690.0), (8, 16, 128, 8, 6114.1)],
)  # fmt: skip
def test_sums_over_warps_are_priced_as_they_were_timed(
    n: int, d: int, m: int, warps: int, us: float
) -> None:
    """Each warp passes its part of every result through shared memory: they were priced at 2,020 to
    2,360 us."""
    assert abs(math.log(priced(n, d, m, warps) / us)) < math.log(1.4)


@pytest.mark.parametrize(
    ("tiles", "warps", "us"),
    [({"m": 16, "d": 32, "n": 32}, 8, 1781.7), ({"m": 16, "d": 32, "n": 32}, 4, 1489.2)],
)
def test_sums_within_a_thread_are_priced_as_before(
    tiles: dict[str, int], warps: int, us: float
) -> None:
    found = pricing(columns, "n", "m").at(Schedule(tiles, warps, 3, per_thread=True))
    assert abs(math.log(found.time.seconds * 1e6 / us)) < math.log(1.25)


def test_the_planner_takes_a_setting_without_sums_over_many_warps() -> None:
    """The first choice took 10,451 us, another one 2,546."""
    (k,) = nk.derive(rows, on="h200").kernels
    crossed = k.choice.run.crossed
    assert crossed * k.choice.run.chunks <= 512 * 64


@nk.diagram("t b k, t b k, t b d -> k d", sizes={"t": 512, "b": 64, "k": 256, "d": 256})
def weights(H: Any, D: Any, X: Any) -> Any:
    """The gradient of a recurrent network's weights: an operand that is a product of readings."""
    return nk.contract(H, D, X, over="t b")


def test_what_is_read_past_descriptors_is_priced_as_loads() -> None:
    """A factor of an operand comes in no box: its loads cost nothing, whatever lines they touch."""
    kernel = weights.stream("t").group("k").group("d").kernel
    found = Pricing(kernel, weights.check_sizes({}), "bf16", machine("h200"))
    boxed = {m.of.tensor for m in found.of.moved if m.served}
    assert {"H", "D"}.isdisjoint(boxed & {m.of.tensor for m in found.of.moved if m.of.streamed})
