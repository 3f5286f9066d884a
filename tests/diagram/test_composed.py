"""Takes and slides of each other against numpy: values, bytes, and the sizes that follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import napkin as nk

Numbers = np.ndarray[Any, Any]


def numbers(seed: int, *shape: int) -> Numbers:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def places(seed: int, *shape: int) -> Numbers:
    """Positions before an axis, inside it and past its end."""
    return np.random.default_rng(seed).integers(-3, 9, size=shape)


def taken(x: Numbers, at: Numbers, axis: int = 0) -> Numbers:
    return np.take(x, at, axis=axis, mode="clip")


def windows(
    x: Numbers, taps: int, axis: int = 0, stride: int = 1, dilation: int = 1, pad: Any = (0, 0)
) -> Numbers:
    """Windows along one axis of a padded array, each tap behind its window."""
    x = np.pad(x, [pad if i == axis else (0, 0) for i in range(x.ndim)])
    count = (x.shape[axis] - dilation * (taps - 1) - 1) // stride + 1
    each = [
        np.take(x, [stride * p + dilation * w for w in range(taps)], axis=axis)
        for p in range(count)
    ]
    return np.stack(each, axis=axis)


def holds(diagram: nk.Diagram, wanted: Numbers, *arrays: Numbers) -> None:
    """Evaluation, the kernels' values and their bytes, at the sizes of the arrays."""
    np.testing.assert_allclose(diagram.evaluate(*arrays), wanted, rtol=1e-6, atol=1e-6)
    sizes = diagram.sizes_of([a.shape for a in arrays])
    given = {a: sizes[a] for n in diagram.inputs for a in n.axes}
    plan = nk.derive(diagram, sizes=given, dtype="fp32")
    np.testing.assert_allclose(plan(*arrays), wanted, rtol=1e-5, atol=1e-5)
    plan.check(sizes=given, resources=False).raise_if_wrong()


def test_a_take_of_a_take_by_tables_that_are_inputs() -> None:
    @nk.diagram("a d, b:int, c:int -> c d")
    def twice(X, I, J):  # noqa: E741
        return nk.take(nk.take(X, a=I), b=J)

    X, I, J = numbers(0, 7, 5), places(1, 11), places(2, 13)  # noqa: E741
    holds(twice, taken(taken(X, I), J), X, I, J)


def test_three_takes_along_one_axis_and_another() -> None:
    @nk.diagram("a d, b:int, c:int, e:int -> c e")
    def thrice(X, I, J, K):  # noqa: E741
        rows = nk.take(nk.take(X, a=I), b=nk.index("c") * 2 - 3)
        return nk.take(rows, d=nk.size("d") - 1 - K, c=J)

    X, I, J, K = numbers(0, 7, 5), places(1, 11), places(2, 13), places(3, 3)  # noqa: E741
    rows = taken(taken(X, I), np.arange(13) * 2 - 3)
    holds(thrice, taken(taken(rows, J), 4 - K, axis=1), X, I, J, K)


def test_an_axis_of_the_table_and_of_its_positions_is_taken_again() -> None:
    """`d` is the table's and the positions': both are read at its new positions."""

    @nk.diagram("a d, d b:int, e d:int -> e b d")
    def shared(X, I, J):  # noqa: E741
        return nk.take(nk.take(X, a=I), d=J)

    X, I, J = numbers(0, 5, 7), places(1, 7, 3), places(2, 4, 7)  # noqa: E741
    inner = X[I.clip(0, 4), np.arange(7)[:, None]]
    wanted = inner[J.clip(0, 6)].transpose(0, 2, 1)
    holds(shared, wanted, X, I, J)


def test_a_convolution_of_a_reversed_array() -> None:
    @nk.diagram("i, w -> p")
    def correlated(X, W):
        back = nk.take(nk.rename(X, i="j"), j=nk.size("j") - 1 - nk.index("i"))
        return nk.contract(nk.slide(back, over="i", into="p w", padding=(1, 2)), W, over="w")

    X, W = numbers(0, 13), numbers(1, 3)
    holds(correlated, windows(X[::-1], 3, pad=(1, 2)) @ W, X, W)


def test_windows_along_another_axis_than_is_taken_are_one_reading() -> None:
    @nk.diagram("a i, b:int -> b p w")
    def beside(X, I):  # noqa: E741
        read = nk.slide(nk.take(X, a=I), over="i", into="p w", window=3, padding=1, stride=2)
        assert read.node.args[0].op == "input"
        return read

    X, I = numbers(0, 5, 9), places(1, 4)  # noqa: E741
    holds(beside, windows(taken(X, I), 3, axis=1, stride=2, pad=(1, 1)), X, I)


def test_windows_along_an_axis_of_the_positions_are_none_of_the_table() -> None:
    """The table has the axis as well: both are read in windows."""

    @nk.diagram("a i, i:int -> p w")
    def diagonal(X, I):  # noqa: E741
        return nk.slide(nk.take(X, a=I), over="i", into="p w", window=2, padding=(0, 1))

    X, I = numbers(0, 5, 9), places(1, 9)  # noqa: E741
    holds(diagonal, windows(X[I.clip(0, 4), np.arange(9)], 2, pad=(0, 1)), X, I)


SLID = [
    (dict(stride=2, dilation=1, padding=(1, 2)), dict(stride=1, dilation=2, padding=(2, 0))),
    (dict(stride=1, dilation=2, padding=(0, 0)), dict(stride=3, dilation=1, padding=(0, 0))),
    (dict(stride=1, dilation=1, padding=(2, 1)), dict(stride=2, dilation=2, padding=(1, 3))),
]


@pytest.mark.parametrize("over", ["p", "w"])
@pytest.mark.parametrize(("first", "second"), SLID)
def test_a_slide_of_a_slide(first: dict[str, Any], second: dict[str, Any], over: str) -> None:
    """Over the windows of the first, and over its taps."""

    @nk.diagram("i c -> c r v")
    def again(X):
        once = nk.slide(X, over="i", into="p w", window=4, **first)
        twice = nk.slide(once, over=over, into="r v", window=2, **second)
        return nk.reduce(twice, "sum", over="w" if over == "p" else "p")

    X = numbers(0, 11, 3)

    def window(x: Numbers, taps: int, axis: int, how: dict[str, Any]) -> Numbers:
        return windows(x, taps, axis, how["stride"], how["dilation"], how["padding"])

    once = window(X, 4, 0, first)
    twice = window(once, 2, 0 if over == "p" else 1, second)
    wanted = twice.sum(2) if over == "p" else twice.sum(0)
    holds(again, wanted.transpose(2, 0, 1), X)


def test_a_take_of_a_slide_is_padded_and_clamped() -> None:
    """The positions are clamped into the windows; what these read of the padding is 0."""

    @nk.diagram("i, q:int, w v -> q v")
    def picked(X, I, W):  # noqa: E741
        read = nk.slide(X, over="i", into="p w", padding=(2, 1), stride=2)
        return nk.contract(nk.take(read, p=I), W, over="w")

    X, I, W = numbers(0, 9), places(1, 7), numbers(2, 4, 3)  # noqa: E741
    holds(picked, taken(windows(X, 4, stride=2, pad=(2, 1)), I) @ W, X, I, W)


def test_the_taps_of_a_slide_in_another_order() -> None:
    @nk.diagram("i, w:int, w -> p")
    def shuffled(X, I, W):  # noqa: E741
        read = nk.slide(X, over="i", into="p w", padding=1)
        return nk.contract(nk.take(read, w=I), W, over="w")

    X, I, W = numbers(0, 17), np.array([2, 0, 1]), numbers(2, 3)  # noqa: E741
    holds(shuffled, windows(X, 3, pad=(1, 1))[:, I] @ W, X, I, W)


def test_three_deep_behind_arithmetic_and_under_another_name() -> None:
    @nk.diagram("i, q:int -> r v w")
    def deep(X, I):  # noqa: E741
        read = nk.slide(X, over="i", into="p w", padding=1, window=3)
        some = nk.rename(nk.take(nk.exp(read), p=nk.index("q") * 2 - 1), q="s")
        last = nk.take(some, s=nk.take(I, q=nk.index("q") + 1))
        return nk.slide(last, over="q", into="r v", window=2, stride=2, padding=1)

    X, I = numbers(0, 9), places(1, 9)  # noqa: E741
    some = taken(np.exp(windows(X, 3, pad=(1, 1))), np.arange(9) * 2 - 1)
    last = taken(some, taken(I, np.arange(9) + 1))
    holds(deep, windows(last, 2, stride=2, pad=(1, 1)), X, I)


@pytest.mark.parametrize(
    "f", [nk.exp, lambda x: x > 0.0, lambda x: nk.where(x > 0.0, 2, 3)], ids=["real", "bool", "int"]
)
def test_the_padding_of_a_composed_reading_has_its_type(f: Callable[[Any], Any]) -> None:
    @nk.diagram("i, q:int -> q w")
    def padded(X, I):  # noqa: E741
        read = nk.slide(f(X), over="i", into="p w", padding=2, window=3)
        found = nk.take(read, p=I)
        assert found.node.kind == read.node.kind
        return nk.where(found, 1.5, -0.5) if found.node.kind == "bool" else found * 2

    X, I = numbers(0, 9), places(1, 6)  # noqa: E741
    value = nk.diagram("i -> i")(f).evaluate(X)
    found = taken(windows(value, 3, pad=(2, 2)), I)
    wanted = np.where(found, 1.5, -0.5) if found.dtype == bool else found * 2
    holds(padded, wanted, X, I)


def test_arithmetic_on_a_renamed_sum_is_stored_before_it_is_read_in_windows() -> None:
    @nk.diagram("a b -> d e")
    def read(X):
        shifted = nk.rename(nk.reduce(X, "sum", over="a") + 1.5, b="c")
        return nk.slide(shifted, over="c", into="d e", window=2)

    X = numbers(0, 11, 17)
    holds(read, windows(X.sum(0) + 1.5, 2), X)


def test_positions_are_read_once_for_arithmetic_that_is_shared() -> None:
    """A chain of doublings is opened in a time that grows with its length."""

    @nk.diagram("a, b:int -> b")
    def doubled(X, I):  # noqa: E741
        for _ in range(40):
            X = X + X * 0.5
        return nk.take(X, a=I)

    X, I = numbers(0, 7), places(1, 5)  # noqa: E741
    np.testing.assert_allclose(doubled.evaluate(X, I), taken(X * 1.5**40, I), rtol=1e-6)


def test_sizes_follow_from_windows_of_windows() -> None:
    @nk.diagram("i -> r v", sizes={"i": 20})
    def again(X):
        once = nk.slide(X, over="i", into="p w", window=3, stride=2)
        return nk.slide(nk.reduce(once, "max", over="w"), over="p", into="r v", window=2)

    assert again.check_sizes({}) == {"i": 20, "p": 9, "w": 3, "r": 8, "v": 2}
    found = again.check_sizes({"r": 5})
    assert (found["i"], found["p"]) == (13, 6)
    with pytest.raises(nk.InputError, match=r"r=5, but with p=9 and v=2"):
        again.check_sizes({"r": 5, "i": 20})
