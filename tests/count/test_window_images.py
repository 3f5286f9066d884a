"""What windows read: the image of their affine map, and the pairs that are not padding, counted."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import napkin as nk
from napkin.count.traffic import Traffic
from napkin.count.window_images import image, inside, pairs
from napkin.diagram.library import load
from napkin.ir.symbols import group_symbol, size_symbol
from napkin.ir.windows import Slide, Span

SLIDES = st.builds(
    lambda stride, dilation, before, past: Slide(
        "i", "p", "w", stride, dilation, -before, Span(past)
    ),
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(0, 9),
    st.integers(0, 9),
)


@given(SLIDES, st.integers(1, 12), st.integers(1, 12))
def test_image(s: Slide, windows: int, taps: int) -> None:
    places = {s.stride * p + s.dilation * w for p in range(windows) for w in range(taps)}
    assert image(s, windows, taps) == len(places)


@given(SLIDES, st.integers(1, 30), st.integers(1, 6))
def test_inside(s: Slide, length: int, taps: int) -> None:
    windows = max(s.count(length, taps), 0)
    at = [s.stride * p + s.dilation * w + s.offset for p in range(windows) for w in range(taps)]
    assert max(at, default=0) < length + s.span.past
    found = inside([s], {"i": length, "p": windows, "w": taps})
    assert found == sum(0 <= i < length for i in at)
    assert s.count(s.least(7, taps), taps) >= 7


@given(SLIDES, st.integers(1, 30), st.integers(1, 6))
def test_pairs(s: Slide, length: int, taps: int) -> None:
    windows = max(s.count(length, taps), 0)
    found = pairs(s, length, windows, tuple(range(taps + 1)))
    for p, w in product(range(windows + 1), range(taps + 1)):
        at = [s.stride * a + s.dilation * b + s.offset for a in range(p) for b in range(w)]
        assert found[p, w] == sum(0 <= x < length for x in at)


def test_a_stride_leaves_gaps_between_single_taps() -> None:
    """Streamed tap by tap, g windows read g positions, however far apart."""

    @nk.diagram("i c, w c o -> p o")
    def strided(X, W):
        return nk.contract(nk.slide(X, over="i", into="p w", stride=2), W, over="c w")

    c, o, p, w = map(size_symbol, "copw")
    g_o, g_p = map(group_symbol, "op")
    one = strided.stream("c w").group("p", "o").cost
    assert one.H.total == Traffic(one.kernel, tap_by_tap=True).total
    held = strided.stream("c").group("p", "o").cost.H
    wanted = p / g_p * o / g_o * c * (2 * g_p + w - 2)
    both: Any = held.parts[0].total.subs({w: 7}) - wanted.subs({w: 7})
    assert both.simplify() == 0


def test_windows_and_taps_that_are_both_cut() -> None:
    """The corner that both halos share is no part of the bound, which is said to be inexact."""

    @nk.diagram("q d, i d -> q w")
    def local(Q, K):
        return nk.contract(nk.slide(K, over="i", into="q w", window=9), Q, over="d")

    found = local.stream("d").group("q", "w").cost
    d, q, w = map(size_symbol, "dqw")
    g_q, g_w = map(group_symbol, "qw")
    keys = d * q * w * (g_q + g_w - 1) / (g_q * g_w)
    assert (found.H.per_tensor["K"] - keys).expand() == 0
    assert not found.optimum().exact
    assert load("conv1d").stream("c").group("p", "o").cost.optimum().exact


CASES: dict[str, tuple[nk.Diagram, dict[str, int]]] = {}


def case(signature: str, **sizes: int):
    def add(function: Any) -> nk.Diagram:
        found = nk.diagram(signature, sizes=sizes)(function)
        CASES[function.__name__] = found, sizes
        return found

    return add


@case("i c, w c o -> p o", i=61, c=37, w=3, o=19)
def strided_and_dilated(X, W):
    read = nk.slide(X, over="i", into="p w", stride=2, dilation=3, padding=(4, 1))
    return nk.contract(read, W, over="c w")


@case("i c, w c o -> p o", i=53, c=20, w=2, o=24)
def gaps(X, W):
    return nk.contract(nk.slide(X, over="i", into="p w", stride=5, padding=3), W, over="w c")


@case("b i c, w c -> b p c", b=2, i=67, c=35, w=4)
def depthwise(X, W):
    return nk.contract(nk.slide(X, over="i", into="p w", padding=(3, 0)), W, over="w")


@case("i j c -> p q c", i=13, j=9, c=19)
def pooled(X):
    rows = nk.slide(X, over="i", into="p u", stride=2, window=3)
    return nk.reduce(nk.slide(rows, over="j", into="q v", stride=2, window=3), "max", over="u v")


@case("i j c, u v c o -> p q o", i=14, j=11, u=3, v=2, c=20, o=18)
def plane(X, W):
    rows = nk.slide(X, over="i", into="p u", stride=2, padding=1)
    return nk.contract(nk.slide(rows, over="j", into="q v", dilation=2, padding=2), W, over="u v c")


@case("i c, w c o, v o r -> q r", i=70, c=18, w=4, o=20, v=3, r=17)
def stacked(X, W, V):
    Y = nk.maximum(nk.contract(nk.slide(X, over="i", into="p w", stride=2), W, over="w c"), 0.0)
    return nk.contract(nk.slide(Y, over="p", into="q v", padding=1), V, over="v o")


@case("q d, i d, w -> q", q=40, d=16, i=49, w=10)
def windowed_attention(Q, K, B):
    """Each query and the keys of its own window, with a bias for each place: three passes."""
    S = nk.contract(nk.slide(K, over="i", into="q w"), Q, over="d") + B
    return nk.reduce(S, "logsumexp", over="w")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_kernels_move_what_is_counted(name: str, dtype: str) -> None:
    diagram, sizes = CASES[name]
    plan = nk.derive(diagram, dtype=dtype)
    plan.check(sizes=sizes, resources=False).raise_if_wrong()


@pytest.mark.parametrize("keys", [nk.sinks(2), nk.causal(), nk.sliding(3, 1)])
@pytest.mark.parametrize(
    ("signature", "into", "window"),
    [
        ("a x, q x -> q p w", "p w", 3),  # neither is an axis of the key set
        ("a h, q h x -> q h w", "x w", 3),  # windows are keys
        ("a x, q h x -> q h w", "q w", 3),  # windows are queries
        ("a h, q h x -> p q h", "p x", None),  # taps are keys
    ],
)
def test_padding_beside_a_key_set_is_not_read(
    signature: str, into: str, window: int | None, keys: nk.KeySet
) -> None:
    """Windows of a stream that visits the keys of a key set count without their padding."""

    @nk.diagram(signature)
    def windows(Z, X):
        read = nk.slide(Z, over="a", into=into, padding=(2, 1), window=window)
        return nk.contract(read, X, over="x", keys=keys.over("q", "x"))

    rows = 4095 if "p" not in into else 64 if window else 5000
    large = {"a": rows, "q": 4096, "x": 4096, "h": 8}
    small = {"a": 20 if window is None else 12, "q": 13, "x": 13, "h": 3}
    given = {a for n in windows.inputs for a in n.axes}
    plan = nk.derive(windows, sizes={a: n for a, n in large.items() if a in given}, dtype="fp32")
    found = plan.check(sizes={a: n for a, n in small.items() if a in given}, resources=False)
    found.raise_if_wrong()


def test_windows_of_a_vast_axis_are_counted_by_their_taps() -> None:
    slide = Slide("i", "p", "w", 1, 1, -1, Span(1))
    assert inside([slide], {"i": 2**40, "p": 2**40, "w": 3}) == 3 * 2**40 - 2
