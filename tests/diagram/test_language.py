"""The language on arrays: numbers of numpy beside them, angles, and what is said of other ways."""

from __future__ import annotations

import copy
import cProfile
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import napkin as nk


def traced(made: Callable[[nk.Array, nk.Array], Any]) -> nk.Diagram:
    return nk.diagram("n d, d m -> n m")(lambda X, W: made(X, W))


def product(X: nk.Array, W: nk.Array) -> nk.Array:
    return nk.contract(X, W, over="d")


NUMBERED = (
    "is no name of an axis: axes are named, not numbered; write over='d', or over='h d' for several"
)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda X, W: X @ W, "write nk.contract(X, Y, over='...')"),
        (lambda X, W: X[0], "write nk.take(X, axis=position)"),
        (lambda X, W: product(X.T, W), "no 'T'; axes have names and no order"),
        (lambda X, W: X.sum("d"), "no 'sum'; write nk.reduce(x, 'sum', over='...')"),
        (lambda X, W: X.shape, "write nk.size('a')"),
        (
            lambda X, W: np.exp(product(X, W)),
            "np.exp is a function of numpy's arrays; write nk.exp",
        ),
        (lambda X, W: np.ones(3) * product(X, W), "pass it to the diagram as an input"),
        (lambda X, W: product(X, W) / math.sqrt(nk.size("d")), "is no number yet"),
        (
            lambda X, W: nk.reduce(X, "argmax", over="d"),
            "not a reduction; write nk.argmax(x, over='a')",
        ),
        (lambda X, W: nk.contract(X, W, over="d", keys="causal"), "'causal' is no key set"),
        (
            lambda X, W: nk.reduce(X, "max", over="d", keys="causal"),
            "keys='causal' is no key set; write one such as nk.causal('q', 'x')",
        ),
        (
            lambda X, W: nk.softmax(X, over="d", keys="causal"),
            "softmax: keys='causal' is no key set of one array; write one such as nk.causal(",
        ),
        # axes by number, or under another library's name
        (lambda X, W: nk.softmax(X, over=-1), f"over=-1 {NUMBERED}"),
        (lambda X, W: nk.reduce(X, "sum", over=None), f"over=None {NUMBERED}"),
        (lambda X, W: nk.contract(X, W, over=1), f"over=1 {NUMBERED}"),
        (lambda X, W: nk.softmax([X, W], over=1), f"over=1 {NUMBERED}"),
        (lambda X, W: nk.softmax([X, W], over=["d", 1]), f"over=1 {NUMBERED}"),
        (lambda X, W: nk.sort(X, along=1), "along=1 is no name of an axis: axes are named"),
        (lambda X, W: X * nk.size(1), "size(1): axes are named; write a name, such as 'q' or 'x0'"),
        (lambda X, W: nk.slide(X, over=1, into="p w"), "slide over=1: axes are named; write a"),
        (lambda X, W: nk.reduce(X, "sum", axis="d"), "nk.reduce has no argument 'axis'; axes are"),
        (lambda X, W: nk.softmax(X, dim="d"), "argument 'dim'; axes are named, so write over='d'"),
        (lambda X, W: nk.sort(X, dim="d"), "argument 'dim'; axes are named, so write along='d'"),
        # arguments that are too few, too many, or unknown
        (lambda X, W: nk.contract(X, W), "nk.contract needs 'over'; axes are named, so write over"),
        (
            lambda X, W: nk.reduce(X),
            "nk.reduce needs 'how' and 'over'; its arguments are x, how, over, keys",
        ),
        (lambda X, W: nk.softmax(X, ovr="d"), "no argument 'ovr'; did you mean 'over'?"),
        (lambda X, W: nk.exp(X, 2), "nk.exp takes 1 positional argument but 2 were given; its arg"),
        (lambda X, W: nk.reduce(X, None, over="d"), "reduce None is not a reduction; known: sum"),
        (lambda X, W: nk.reduce(X, ["sum"], over="d"), "reduce ['sum'] is not a reduction; did"),
        (
            lambda X, W: nk.contract(nk.index("d"), 2**40, over="d"),
            "1099511627776 is beyond int32, which whole numbers are; write 1099511627776.0",
        ),
        *(
            (made, "a number of 1329 bits is beyond float64, which ends below 2**1024; write float")
            for made in (
                lambda X, W: X * 10**400,
                lambda X, W: X > -(10**400),
                lambda X, W: nk.where(X > 0, 10**400, X),
                lambda X, W: nk.index("n") ** 10**400,
                lambda X, W: nk.diagram("n -> n")(lambda X, s: X * s)(X, s=10**400),
            )
        ),
        (lambda X, W: nk.rename(3, d="e"), "rename takes an array of the diagram, not 3"),
        (lambda X, W: nk.dropout(X, "0.5", 1), "str '0.5' is not an array of the diagram or a num"),
        (lambda X, W: nk.compress(X, 3, into="w"), "keys=3 is no key set; write one such as"),
        (lambda X, W: nk.cast(X, np.float32), "no such dtype; known: fp64, fp32"),
        (lambda X, W: 3.0, "output 1 is 3.0, not an array; write 0.0 * X + 3.0 for an array full"),
    ],
)
def test_what_is_said_of_other_ways_to_write_it(made: Any, message: str) -> None:
    with pytest.raises(nk.InputError) as found:
        traced(made)
    assert message in str(found.value)


def test_what_other_functions_raise_is_theirs() -> None:
    def softmax(X: Any) -> Any:
        return X

    with pytest.raises(TypeError, match="got an unexpected keyword argument 'dim'"):
        traced(lambda X, W: softmax(X, dim="d"))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="can only concatenate"):
        traced(lambda X, W: "a" + 1)  # type: ignore[operator]


def test_an_axis_called_like_an_argument() -> None:
    made = nk.diagram("x d -> y d")(lambda X: nk.rename(X, x="y"))
    assert made.outputs[0].axes == ("y", "d")
    assert nk.diagram("self -> y")(lambda X: X.rename(self="y")).axes == ("self", "y")


def test_names_that_other_libraries_have() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'relu'; write nk.maximum\(x, 0.0\)"):
        nk.relu  # noqa: B018
    assert not hasattr(nk, "max")
    seen: list[nk.Array] = []
    traced(lambda X, W: seen.append(copy.copy(X)) or product(X, W))
    assert seen[0].axes == ("n", "d")
    assert not hasattr(seen[0], "shape")


def test_numbers_of_numpy_and_numbers_on_the_left() -> None:
    def made(X: nk.Array, W: nk.Array) -> nk.Array:
        S = np.float32(0.5) * product(X, W) + np.int64(3)
        return S * 2 ** (-nk.index("m")) + 7 % (nk.index("n") + 2) + 9 // (nk.index("n") + 1)

    X, W = np.random.default_rng(0).normal(size=(2, 3, 3))
    n = np.arange(3)
    wanted = (X @ W / 2 + 3) * 0.5**n + (7 % (n + 2) + 9 // (n + 1))[:, None]
    assert np.allclose(traced(made).evaluate(X, W), wanted)


def test_sine_and_cosine_in_a_kernel() -> None:
    @nk.diagram("t d -> t d", sizes={"t": 512, "d": 32})
    def turned(X):
        angle = nk.index("t") * 10000.0 ** (-nk.index("d") / nk.size("d"))
        return X * nk.cos(angle) - nk.sin(angle)

    nk.derive(turned, dtype="fp32").check(
        sizes={"t": 77, "d": 19}, resources=False
    ).raise_if_wrong()


def test_tracing_under_a_profiler() -> None:
    """cProfile's hook is an object that is no function; tracing has one of its own meanwhile."""
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        found = traced(product)
    finally:
        profiler.disable()
    assert found.outputs[0].node.op == "sum"
