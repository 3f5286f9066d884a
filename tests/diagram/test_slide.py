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
from napkin.torch.reference import evaluation


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
        ({"stride": 10**400}, "is not a whole number from 1 to 2147483647"),
        ({"padding": 2**31}, "slide padding=2147483648 is not a whole number from 0 to 2147483647"),
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


def test_windows_under_the_name_of_the_axis() -> None:
    """A residual connection: what is added lies at the windows."""

    @nk.diagram("i c, w c o -> p o", sizes={"i": 100, "w": 3, "c": 20, "o": 20})
    def residual(X, W):
        Y = nk.contract(nk.slide(X, over="i", into="p w", padding=1), W, over="w c")
        return nk.maximum(Y, 0.0) + nk.rename(X, i="p", c="o")

    X, W = numbers(0, 11, 4), numbers(1, 3, 4, 4)
    padded = np.pad(X, ((1, 1), (0, 0)))
    wanted = np.maximum(sum(padded[w : w + 11] @ W[w] for w in range(3)), 0) + X
    np.testing.assert_allclose(residual.evaluate(X, W), wanted)
    nk.derive(residual).check(sizes={"i": 37}, resources=False).raise_if_wrong()
    with pytest.raises(
        nk.InputError, match=r"p is i under another name.* there are 98 windows; pad"
    ):
        residual.check_sizes({"w": 5})


def test_windows_of_a_computed_array_under_other_names() -> None:
    @nk.diagram("i c, c o, v o r -> s r", sizes={"i": 100, "c": 20, "o": 20, "v": 3, "r": 20})
    def convolved(X, W, V):
        Y = nk.maximum(nk.contract(X, W, over="c"), 0.0)
        return nk.contract(nk.rename(nk.slide(Y, over="i", into="p v"), p="s"), V, over="v o")

    X, W, V = numbers(0, 9, 4), numbers(1, 4, 5), numbers(2, 3, 5, 6)
    Y = np.maximum(X @ W, 0)
    wanted = sum(Y[v : v + 7] @ V[v] for v in range(3))
    np.testing.assert_allclose(convolved.evaluate(X, W, V), wanted)
    plan = nk.derive(convolved)
    assert list(plan.materialised) == ["Y"]

    @nk.diagram("i c, c o -> o i")
    def back(X, W):
        Y = nk.contract(X, W, over="c")
        read = nk.slide(Y, over="i", into="p v", window=3, padding=1)
        return nk.reduce(nk.rename(read, p="i"), "sum", over="v")

    Y = np.pad(X @ W, ((1, 1), (0, 0)))
    np.testing.assert_allclose(back.evaluate(X, W), sum(Y[v : v + 9] for v in range(3)).T)

    @nk.diagram("i c, c o -> p i")
    def twice(X, W):
        read = nk.slide(nk.contract(X, W, over="c"), over="i", into="p v", window=3)
        return nk.reduce(nk.rename(read, o="i"), "sum", over="v")

    with pytest.raises(nk.InputError, match="rename to i: the array is read along i of one that"):
        twice.evaluate(X, numbers(1, 4, 9))
    plan.check(sizes={"i": 37}, resources=False).raise_if_wrong()


def test_a_dilated_key_set_over_windows_stays_whole() -> None:
    """Queries whose values are read in windows are not split by residue."""

    @nk.diagram("i d, x d, x d -> q d", sizes={"i": 130, "x": 128, "d": 16})
    def attention(Q, K, V):
        means = nk.reduce(nk.slide(Q, over="i", into="q w", window=3), "mean", over="w")
        S = nk.contract(means, K, over="d")
        keys = nk.dilated(4, 3, queries="q", keys="x")
        return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")

    nk.derive(attention).check(sizes={"i": 66, "x": 64}, resources=False).raise_if_wrong()


def test_two_axes_renamed_to_one_name_have_one_size() -> None:
    """Windows u and taps v are both read as s, so there are as many windows as taps."""

    @nk.diagram("a -> u s, s v")
    def both(X):
        Y = nk.slide(X, over="a", into="u v", window=2, padding=1)
        return Y.rename(v="s"), Y.rename(u="s")

    assert both.check_sizes({"a": 1}) == {"a": 1, "u": 2, "v": 2, "s": 2}
    with pytest.raises(nk.InputError, match="u=2, but with a=7 and v=2 both has 8 windows"):
        both.check_sizes({"a": 7})


def test_taps_that_are_slid_over_are_as_many_as_their_window_has() -> None:
    """One window h of one tap q, with stride 3, needs no more than one of the two taps x."""

    @nk.diagram("a, q h -> e")
    def both(X, K):
        inner = nk.slide(X, over="a", into="e x", stride=3, padding=2, window=2)
        return nk.contract(nk.slide(inner, over="x", into="h q", stride=3), K, over="q h")

    X = np.arange(1.0, 8.0)
    found = both.evaluate(X, np.full((1, 1), 2.0))
    np.testing.assert_array_equal(found, [0.0, 4.0, 10.0, 0.0])


def test_the_windows_of_a_window_say_nothing_of_a_length_that_is_given() -> None:
    """Windows of 2 hold one window of 1, as one of 1 would; they have 2 taps for all that."""

    @nk.diagram("i, q h -> e")
    def nested(X, W):
        inner = nk.slide(X, over="i", into="e x", window=2)
        return nk.contract(nk.slide(inner, over="x", into="h q", stride=3), W, over="q h")

    assert nested.check_sizes({"i": 7, "q": 1, "h": 1})["x"] == 2
    X, W = np.arange(7.0), np.array([[3.0]])
    np.testing.assert_array_equal(nested.evaluate(X, W), 3 * X[:-1])


@pytest.mark.parametrize(
    "made",
    [
        lambda x, m: (nk.exp(x) - 1.0) + m,
        lambda x, m: nk.cos(x) - nk.exp(m),
        lambda x, m: nk.sigmoid(m) - 0.5 + x,
        lambda x, m: nk.where(1.0 / x, m, 1.0),
        lambda x, m: nk.where(x > 4, m, 1.0),
        lambda x, m: nk.exp(x) * m,
    ],
)
def test_padding_is_0_behind_arithmetic_of_which_a_part_is_not(made) -> None:
    """exp(x) - 1 is 0 where x is, though exp(x) is not."""

    @nk.diagram("e, e -> e", sizes={"e": 2})
    def plain(X, M):
        return made(X, M)

    @nk.diagram("e, e -> a b", sizes={"e": 2})
    def slid(X, M):
        return nk.slide(made(X, M), over="e", into="b a", padding=(2, 1), window=2)

    X, M = np.array([3.0, 5.0]), np.array([0.5, 2.0])
    padded = np.concatenate([[0, 0], plain.evaluate(X, M), [0]])
    wanted = [padded[a : a + 4] for a in range(2)]
    np.testing.assert_array_equal(slid.evaluate(X, M), wanted)
    nk.derive(slid, on="h100", dtype="fp32").check(resources=False).raise_if_wrong()


@pytest.mark.parametrize("out", ["p d", "p", "d"])
def test_renamed_windows_say_nothing_of_the_number_of_taps(out: str) -> None:
    def taps(X):
        made = nk.slide(X, over="c", into="o d").rename(o="p")
        gone = [a for a in "pd" if a not in out]
        return nk.reduce(made, "sum", over=gone) if gone else made

    with pytest.raises(nk.InputError, match=r"axis 'd' is on no input|no input has an axis 'd'"):
        nk.diagram(f"c -> {out}")(taps)


def test_an_array_under_another_name_says_the_number_of_taps() -> None:
    @nk.diagram("c, u -> p")
    def filtered(X, W):
        return nk.contract(nk.slide(X, over="c", into="p d"), W.rename(u="d"), over="d")

    assert filtered.evaluate([1.0, 2.0, 4.0], [1.0, 10.0]).tolist() == [21.0, 42.0]


def test_renamed_taps_are_as_many_as_an_array_under_their_new_name_has() -> None:
    @nk.diagram("c, u -> p")
    def filtered(X, W):
        return nk.contract(nk.slide(X, over="c", into="p d").rename(d="u"), W, over="u")

    assert filtered.evaluate([1.0, 2.0, 4.0], [1.0, 10.0]).tolist() == [21.0, 42.0]


def test_windows_of_one_reading_are_the_taps_of_another_that_comes_first() -> None:
    @nk.diagram("a, w -> q p, p w")
    def both(X, W):
        taps = nk.slide(X, over="a", into="q p", dilation=2)
        return taps, nk.slide(X, over="a", into="p w", stride=2) * W

    assert both.check_sizes({"a": 7, "w": 3}) == {"a": 7, "w": 3, "q": 3, "p": 3}
    first, _ = both.evaluate(np.arange(7.0), np.ones(3))
    assert first.tolist() == [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]


def test_windows_of_one_axis_are_the_length_of_another() -> None:
    @nk.diagram("b e, v w -> e p v w")
    def nested(X, W):
        inner = nk.slide(X, over="e", into="p w")
        return nk.slide(inner, over="b", into="e v", stride=3) * W

    sizes = {"b": 17, "v": 3, "w": 2}
    assert nested.check_sizes(sizes) == {**sizes, "e": 5, "p": 4}
