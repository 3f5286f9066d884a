"""Loads and stores of groups, counted at many settings of tiles at once."""

from __future__ import annotations

import itertools
import random

import pytest

import napkin as nk
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.diagram.library import load
from napkin.machine.machines import machine
from napkin.settings.accesses import TOGETHER, with_accesses
from napkin.settings.labelled import Labelled
from napkin.settings.tiles import Tiles


@nk.diagram("b s -> b")
def summed(X):
    return nk.reduce(X, "sum", over="s")


@nk.diagram("s d, t:int -> t d")
def rows(X, T):
    return nk.take(X, s=T)


@nk.diagram("s d, t:int -> s t")
def columns(X, T):
    return nk.take(X, d=T)


def labelled(d: nk.Diagram, sizes: dict[str, int], streamed: str = "") -> Labelled:
    ready = prepare(d)
    kernel = label("k", ready.outputs, ready.names, streamed=streamed)
    return Labelled(kernel, kernel.sized(sizes), "fp32", machine("h100"))


def test_rows_are_loaded_in_lines_of_128_bytes() -> None:
    """Rows of 4,096 bytes, 16 bytes a thread: each load of a warp touches four lines."""
    of = labelled(summed, {"b": 64, "s": 1024}, "s")
    ((_, found),) = with_accesses(of, [{"b": 8, "s": 128}])
    loads, stores = 64 * 1024 * 4 / 16 / 32, 64 * 4 / 16 / 32
    assert found.number == pytest.approx(loads + stores)
    assert found.moved == 64 * 1024 + 64
    assert found.lines == pytest.approx(4 * loads + 16 * stores)  # of tiles of 32 bytes
    assert found.singles == 0


def test_lanes_past_the_end_are_asked() -> None:
    of = labelled(summed, {"b": 64, "s": 1000}, "s")
    ((_, found),) = with_accesses(of, [{"b": 64, "s": 512}])
    assert found.moved == 64 * 1024 + 64


def test_single_values_that_are_read_may_lie_anywhere() -> None:
    """Each of 32 lanes touches a line of its own, where rows lie in lines as they are stored."""
    of = labelled(rows, {"s": 64, "t": 256, "d": 128})
    ((_, found),) = with_accesses(of, [{"t": 8, "d": 128}])
    each = 256 * 128 * 4 / 16 / 32  # loads of X, and stores, of 512 bytes
    assert found.lines == pytest.approx(2 * 4 * each + 16 * 256 * 4 / 16 / 32, rel=0.02)
    of = labelled(columns, {"s": 128, "t": 256, "d": 64})
    ((_, found),) = with_accesses(of, [{"s": 8, "t": 128}])
    loads = 128 * 256 / 32
    assert found.lines >= 32 * loads
    assert found.scattered == pytest.approx((32 - 1) * loads, rel=0.05)


@pytest.mark.parametrize("name", ["attention", "causal_attention", "conv2d", "selective_scan"])
def test_many_settings_are_counted_as_one_by_one(name: str) -> None:
    of = nk.derive(load(name), "h100", dtype="bf16").kernels[0].choice
    known = Labelled(of.kernel, of.kernel.sized(of.sizes), "bf16", machine("h100"))
    every = list(Tiles(of.kernel, known.sizes).settings())
    some = random.Random(0).sample(every, min(len(every), TOGETHER + 9))
    together = list(with_accesses(known, some))
    assert [tiles for tiles, _ in together] == some
    alone = itertools.chain.from_iterable(with_accesses(known, [tiles]) for tiles in some)
    assert together == list(alone)
