"""NaN in, NaN out: in every output that depends on it, and in no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.diagram.diagram import Diagram
from napkin.diagram.library import load

SIZES = {"q": 3, "x": 5, "d": 4, "n": 3, "v": 5, "m": 3, "a": 3, "b": 5, "c": 4, "f": 5, "e": 3}


@nk.diagram("n x -> n, n, n, n, n")
def reductions(X: Any) -> Any:
    return tuple(nk.reduce(X, how, over="x") for how in ("max", "min", "sum", "prod", "mean"))


@nk.diagram("n x -> n x, n x, n x")
def clamped(X: Any) -> Any:
    return nk.maximum(X, 0.0), nk.minimum(X, 6.0), nk.maximum(nk.minimum(X, 1.0), -1.0)


@nk.diagram("n x, n x -> n x, n")
def pairs(X: Any, Y: Any) -> Any:
    larger = nk.maximum(X, Y)
    return larger, nk.reduce(larger, "max", over="x")


@nk.diagram("n x -> n")
def range_of(X: Any) -> Any:
    return nk.reduce(X, "max", over="x") - nk.reduce(X, "min", over="x")


SHIPPED = [
    "attention", "softmax", "logsumexp", "cross_entropy", "rmsnorm", "rmsnorm_linear", "layernorm",
    "variance", "matmul_bias_gelu",
]  # fmt: skip
DIAGRAMS = [*map(load, SHIPPED), reductions, clamped, pairs, range_of]


def changed(diagram: Diagram, arrays: list[Any], at: tuple[int, Any]) -> list[Any]:
    """Where outputs depend on one number of one input, found by changing it."""
    out: list[Any] = []
    plain = diagram.evaluate(*arrays)
    for value in (-30.0, 30.0):
        moved = [a.copy() for a in arrays]
        moved[at[0]][at[1]] = value
        other = diagram.evaluate(*moved)
        pairs = zip(_tuple(plain), _tuple(other), strict=True)
        found = [p != o for p, o in pairs]
        out = [a | b for a, b in zip(out, found, strict=True)] if out else found
    return out


def _tuple(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("diagram", DIAGRAMS, ids=lambda d: d.name)
def test_nan_comes_out_where_it_went_in(agree: Any, rng: Any, diagram: Diagram) -> None:
    arrays = [
        rng.normal(size=[SIZES[a] for a in n.axes])
        if n.kind == "real"
        else rng.integers(0, SIZES["v"], size=[SIZES[a] for a in n.axes])
        for n in diagram.inputs
    ]
    for i, n in enumerate(diagram.inputs):
        if n.kind != "real":
            continue
        at = tuple(int(rng.integers(size)) for size in arrays[i].shape)
        bad = [a.copy() for a in arrays]
        bad[i][at] = np.nan
        found = _tuple(agree(diagram, *bad, plan=diagram is reductions))
        for f, depends in zip(found, changed(diagram, arrays, (i, at)), strict=True):
            np.testing.assert_array_equal(np.isnan(f), depends, err_msg=f"{n.params[0]}{at}")


@pytest.mark.parametrize("position", [0, 3, 4])
def test_a_maximum_keeps_nan_wherever_it_stands(agree: Any, rng: Any, position: int) -> None:
    X = rng.normal(size=(3, 5))
    X[1, position] = np.nan
    for found in agree(reductions, X, dtype="bf16"):
        np.testing.assert_array_equal(np.isnan(found), [False, True, False])


def test_infinities_are_ordinary_numbers_to_reductions(agree: Any) -> None:
    X = np.array([[np.inf, 1, 2], [-np.inf, 1, 2], [-np.inf, np.inf, 0]])
    top, low, total, product, mean = agree(reductions, X)
    assert top.tolist() == [np.inf, 2, np.inf]
    assert low.tolist() == [1, -np.inf, -np.inf]
    np.testing.assert_array_equal(total, [np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(product, [np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(mean, [np.inf, -np.inf, np.nan])


def test_the_stabilising_maximum_stays_plain() -> None:
    """NaN stands in the sum of the exponentials already, so `tl.max` is enough there."""
    plan = nk.derive(load("softmax"), sizes={"n": 4, "x": 64})
    assert "tl.max(" in plan.source
    assert "propagate_nan" not in plan.source
    assert "propagate_nan" in nk.derive(range_of, sizes={"n": 4, "x": 64}).source


UNDEFINED = {
    "shifted squares": lambda x, r: nk.reduce((x - r) ** 2, "sum", over="x"),
    "exponentials": lambda x, r: nk.reduce(nk.exp(x - r), "sum", over="x"),
}


@pytest.mark.parametrize("root", [nk.log, nk.sqrt, nk.rsqrt])
@pytest.mark.parametrize("name", UNDEFINED)
def test_a_sum_that_is_negative_for_a_while_has_a_logarithm_in_the_end(
    agree: Any, name: str, root: Any
) -> None:
    """A state that is rescaled by NaN once is NaN for good."""
    diagram = nk.diagram("n x -> n", name="undefined")(
        lambda x: UNDEFINED[name](x, root(nk.reduce(x, "sum", over="x")))
    )
    X = np.array([[-1.0, -2.0, 3.0, 2.0, 1.0], [1.0, -2.0, 0.5, 2.0, 0.5]])
    assert np.isfinite(agree(diagram, X, tolerance=1e-4)).all()


def test_logarithms_of_sums_of_exponentials_are_still_held_running() -> None:
    @nk.diagram("n x -> n")
    def entropy(X: Any) -> Any:
        L = nk.log(nk.reduce(nk.exp(X), "sum", over="x"))
        return nk.reduce(nk.exp(X - L) * X, "sum", over="x")

    plan = nk.derive(entropy, sizes={"n": 4096, "x": 65536}, dtype="fp32")
    (kernel,) = plan.kernels
    assert len(kernel.choice.kernel.stream.passes) == 1


@nk.diagram("n x, n x -> n")
def powers(X: Any, Y: Any) -> Any:
    return nk.reduce(nk.exp(X - nk.reduce(Y, "mean", over="x")), "sum", over="x")


def test_exponentials_of_a_masked_row_read_what_is_subtracted(agree: Any) -> None:
    """exp(-inf - r) is 0 of a number r, and NaN of -inf and NaN."""
    Y = np.zeros((5, 5))
    Y[1, 2], Y[2, 0], Y[3, 4] = np.nan, -np.inf, np.inf
    found = agree(powers, np.full((5, 5), -np.inf), Y)
    np.testing.assert_array_equal(found, [0, np.nan, np.nan, 0, 0])
