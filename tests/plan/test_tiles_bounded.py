"""Kernels with many grouped axes: few of their settings are priced, and the best of all is among
them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import pytest

import napkin as nk
from napkin.algebra.tracer import Dropped, tracing
from napkin.derive.kernel import Kernel
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.diagram.library import load
from napkin.machine.machines import machine
from napkin.settings import tiles
from napkin.settings.best import unpriced
from napkin.settings.climb import best_tiles
from napkin.settings.tiles import MOST, Tiles

WIDE = dict.fromkeys("whnabcd", 2048)


@nk.diagram("w h n d, w a b, w n c -> w a h n c b", sizes=WIDE)
def seven(T: Any, V: Any, X: Any) -> Any:
    """A sum whose result has six axes, of which no two are carried by the same arrays."""
    return nk.contract(T, T, V, X, over="d")


def wide() -> Kernel:
    ready = prepare(seven)
    return label("seven", ready.outputs, ready.names, streamed="d")


def test_settings_of_seven_axes_are_bounded() -> None:
    """There are 199,547 of them, which took 100 s to price."""
    kernel = wide()
    assert len(kernel.group) == 6
    requests = Tiles(kernel, WIDE)
    found = list(requests.settings())
    assert requests.left_out
    assert MOST / 2 < len(found) < 1.5 * MOST
    assert len({tuple(t.items()) for t in found}) == len(found)
    assert {t["d"] for t in found} >= {32, 64, 128, 256}


def test_the_trace_says_that_settings_were_left_out() -> None:
    with tracing() as tracer:
        unpriced(wide(), WIDE, "fp32", machine("h100"))
    (left,) = [e for e in tracer.events if isinstance(e, Dropped)]
    assert left.kind == "setting"
    assert f"of more than {MOST:,} settings" in left.what
    assert "groups ask for the fewest values are priced" in left.why


@pytest.mark.parametrize("name", ["conv2d", "latent_attention"])
def test_the_fastest_setting_is_not_left_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an eighth of the settings that these kernels have."""
    plan = nk.derive(load(name), on="h100")
    kernels = [k.choice for k in plan.kernels]
    every = [list(_tiles(c.kernel, c.sizes).settings()) for c in kernels]
    choice, settings = max(zip(kernels, every, strict=True), key=lambda pair: len(pair[1]))
    monkeypatch.setattr(tiles, "MOST", len(settings) // 8)
    few = list(_tiles(choice.kernel, choice.sizes).settings())
    assert len(few) < len(settings) / 4
    best = best_tiles(choice.kernel, choice.sizes, "bf16", machine("h100"))
    assert best is not None
    assert best.time.seconds <= 1.02 * choice.time.seconds


def _tiles(kernel: Kernel, sizes: Mapping[str, int]) -> Tiles:
    return Tiles(kernel, kernel.sized(sizes))


def test_all_settings_of_a_shipped_diagram_are_priced() -> None:
    for k in nk.derive(load("conv2d"), on="h100").kernels:
        requests = _tiles(k.choice.kernel, k.choice.sizes)
        list(requests.settings())
        assert not requests.left_out


def test_shapes_of_axes_that_the_same_arrays_carry_are_the_best_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are found axis by axis: all combinations of six axes would be 12 ** 6."""
    uneven = dict(zip("whnabcd", (2000, 7, 96, 33, 1, 5, 2048), strict=True))
    for axes, long in (("wh", ""), ("hnab", ""), ("hnab", "ha"), ("bcnw", ""), ("bcnw", "cw")):
        found = Tiles(wide(), uneven)
        every: dict[int, list[tuple[float, tuple[int, ...]]]] = {}
        for values in itertools.product(*(found._candidates(a) for a in axes)):
            at = [*zip(axes, values, strict=True)]
            if any(n < min(tiles.LONG, max(found._candidates(a))) for a, n in at if a in long):
                continue
            padded = math.prod(tiles.waste(wide(), uneven, a, n) for a, n in at)
            shapes = every.setdefault(math.prod(values), [])
            shapes.append((padded, tuple(-n for n in values[::-1])))
        best = [order for shapes in every.values() for _, order in sorted(shapes)[: tiles.SHAPES]]
        own = [tuple(-n for n in shape[::-1]) for shape in found._least_padded(axes, long)]
        assert own == best

    asked: list[tuple[str, int]] = []

    def counted(kernel: Kernel, sizes: Mapping[str, int], axis: str, tile: int) -> float:
        asked.append((axis, tile))
        return 1.0

    requests = Tiles(wide(), WIDE)
    monkeypatch.setattr(tiles, "waste", counted)
    requests._least_padded("whnabc")
    assert len(asked) == sum(len(requests._candidates(a)) for a in "whnabc")
