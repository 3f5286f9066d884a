"""`slide` against loops over windows and taps, the sizes that follow, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import napkin as nk
from napkin.diagram.columns import columns, validate
from napkin.show.dataflow import dot
from napkin.torch.evaluate import evaluation


def numbers(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape)


def windows(x: np.ndarray[Any, Any], taps: int, stride: int, dilation: int, pad: tuple[int, int]):
    """X[stride * p + dilation * w - before], by slices of a padded array."""
    padded = np.pad(x, pad)
    count = (len(padded) - dilation * (taps - 1) - 1) // stride + 1
    return np.array(
        [[padded[stride * p + dilation * w] for w in range(taps)] for p in range(max(count, 0))]
    ).reshape(max(count, 0), taps)


@given(
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 3),
    st.tuples(st.integers(0, 5), st.integers(0, 5)),
)
def test_values(length: int, taps: int, stride: int, dilation: int, pad: tuple[int, int]) -> None:
    @nk.diagram("i, w -> p w")
    def read(X, W):
        return W + nk.slide(X, over="i", into="p w", stride=stride, dilation=dilation, padding=pad)

    X, W = numbers(0, length), numbers(1, taps)
    if length + sum(pad) <= dilation * (taps - 1):
        with pytest.raises(nk.InputError, match=f"i={length} is shorter than a window of read"):
            read.check_sizes({"i": length, "w": taps})
        return
    wanted = windows(X, taps, stride, dilation, pad) + W
    assert np.array_equal(read.evaluate(X, W), wanted)
    (found,) = evaluation(read, read.sizes_of([X.shape, W.shape]))(
        torch.from_numpy(X), torch.from_numpy(W)
    )
    assert np.array_equal(found.numpy(), wanted)


def test_two_axes_are_one_reading() -> None:
    @nk.diagram("b i j c, u v c o -> b p q o")
    def convolution(X, W):
        rows = nk.slide(X, over="i", into="p u", stride=2, padding=1)
        both = nk.slide(rows, over="j", into="q v", dilation=2, padding=(1, 2))
        assert both.node.op == "take"
        assert both.node.args[0] is X.node
        return nk.contract(both, W, over="c u v")

    X, W = numbers(0, 2, 9, 11, 4), numbers(1, 3, 3, 4, 5)
    padded = torch.nn.functional.pad(torch.from_numpy(X).permute(0, 3, 1, 2), (1, 2, 1, 1))
    kernel = torch.from_numpy(W).permute(3, 2, 0, 1)
    wanted = torch.nn.functional.conv2d(padded, kernel, stride=(2, 1), dilation=(1, 2))
    np.testing.assert_allclose(convolution.evaluate(X, W), wanted.permute(0, 2, 3, 1).numpy())
    assert "slide(X, i=index(p) * 2 + index(u) - 1, j=index(q)" in repr(convolution)
    validate(convolution)
    assert [x.after.op for x in columns(convolution)[1:] if x.after].count("take") == 1
    assert "slide" in dot(convolution)


@pytest.mark.parametrize(
    "f",
    [nk.exp, lambda x: nk.maximum(x, 0.0), lambda x: x * nk.index("i") + 1.0],
    ids=["exp", "relu", "by position"],
)
def test_arithmetic_before_a_window_is_padded_with_zeros(f: Any) -> None:
    """exp(0) is no 0, so a test stands behind it; max(0, 0) is one, and needs none."""

    @nk.diagram("i -> p", sizes={"i": 100})
    def summed(X):
        read = nk.slide(f(X), over="i", into="p w", padding=1, window=3)
        return nk.reduce(read, "sum", over="w")

    X = numbers(0, 37)
    value = nk.diagram("i -> i")(f).evaluate(X)
    np.testing.assert_allclose(summed.evaluate(X), windows(value, 3, 1, 1, (1, 1)).sum(1))
    nk.derive(summed).check(sizes={"i": 37}, resources=False).raise_if_wrong()


CONVOLUTION = nk.diagram("i c, w c -> p", sizes={"i": 20, "c": 4, "w": 3})(
    lambda X, W: nk.contract(nk.slide(X, over="i", into="p w", stride=2), W, over="w c")
)


def test_sizes_follow_from_the_axis_or_from_the_windows() -> None:
    assert CONVOLUTION.check_sizes({}) == {"i": 20, "c": 4, "w": 3, "p": 9}
    assert CONVOLUTION.check_sizes({"w": 5})["p"] == 8
    assert CONVOLUTION.check_sizes({"p": 6})["i"] == 13
    assert CONVOLUTION.check_sizes({"p": 6, "i": 14})["i"] == 14
    with pytest.raises(nk.InputError, match=r"p=6, but with i=20 and w=3 .* has 9 windows"):
        CONVOLUTION.check_sizes({"p": 6, "i": 20})
    with pytest.raises(nk.InputError, match=r"i=2 is shorter than a window .*; write i=3 or more"):
        CONVOLUTION.check_sizes({"i": 2})


def test_no_windows_of_an_axis_that_is_too_short() -> None:
    assert CONVOLUTION.evaluate(numbers(0, 2, 4), numbers(1, 3, 4)).shape == (0,)
    assert CONVOLUTION.evaluate(numbers(0, 0, 4), numbers(1, 3, 4)).shape == (0,)


def test_a_window_of_so_many_taps() -> None:
    @nk.diagram("i -> p", sizes={"i": 8})
    def pooled(X):
        return nk.reduce(nk.slide(X, over="i", into="p w", stride=3, window=2), "max", over="w")

    X = numbers(0, 12)
    assert np.array_equal(pooled.evaluate(X), windows(X, 2, 3, 1, (0, 0)).max(1))
    assert pooled.check_sizes({})["w"] == 2
    with pytest.raises(nk.InputError, match="w=3, but pooled slides a window of 2 along i"):
        pooled.check_sizes({"w": 3})
    with pytest.raises(
        nk.InputError, match=r"slide reads i = p \+ w, but no input has an axis 'w'"
    ):
        nk.diagram("i -> p")(
            lambda X: nk.reduce(nk.slide(X, over="i", into="p w"), "max", over="w")
        )


@pytest.mark.parametrize(
    ("given_", "what"),
    [
        ({"over": "j"}, "slide over='j': the array has axes 'i c'"),
        ({"into": "p"}, "slide into='p': write two axes"),
        ({"into": "p p"}, "twice|write two axes"),
        ({"into": "p c"}, "the array has an axis 'c' already"),
        ({"stride": 0}, "slide stride=0 is not a whole number from 1"),
        ({"dilation": 1.5}, "slide dilation=1.5 is not a whole number from 1"),
        ({"padding": -1}, "slide padding=-1 is not a whole number from 0"),
        ({"padding": (1, 2, 3)}, "write one number, or before and after"),
        ({"window": 0}, "slide window=0 is not a whole number from 1"),
    ],
)
def test_what_is_no_window(given_: dict[str, Any], what: str) -> None:
    with pytest.raises(nk.InputError, match=what):
        nk.diagram("i c -> c p w")(
            lambda X: nk.slide(X, **{"over": "i", "into": "p w", "window": 3} | given_)
        )
