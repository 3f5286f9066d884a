"""erf and the normal distribution function as kernels compute them, beside float64."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.ir.operators import FUNCTIONS

Array = np.ndarray[Any, Any]


def both(function: Any, of: Any, x: Array) -> tuple[Array, Array]:
    """The values of a kernel in float32, and exact ones."""

    @nk.diagram("n -> n")
    def diagram(X: Any) -> Any:
        return function(X)

    plan = nk.derive(diagram, sizes={"n": len(x)}, dtype="fp32")
    exact = np.array([of(float(v)) for v in x])
    return np.asarray(plan(x), float), exact


def points() -> Array:
    """Values of float32 on both sides of 0, near to it and far, and where polynomials meet."""
    near = np.geomspace(1e-30, 12, 3000)
    even = np.linspace(0, 12, 12001)
    meet = 0.9 + np.arange(-8, 9) * 2.0**-24
    found = np.concatenate([near, even, meet]).astype(np.float32)
    return np.unique(np.concatenate([-found, found]))


def test_erf_is_near_the_rounding_of_float32() -> None:
    x = points()
    found, exact = both(nk.erf, math.erf, x)
    off = abs(found - exact)
    assert off.max() < 2.1 * 2**-24
    assert (off <= 1.8e-7 * abs(exact)).all()


def test_the_normal_distribution_function_is_near_the_rounding_of_float32() -> None:
    x = points()
    found, exact = both(nk.ndtr, lambda v: math.erfc(-v * math.sqrt(0.5)) / 2, x)
    off = abs(found - exact)
    assert off.max() < 1.4 * 2**-24
    # What is small below 0 is not what is left of 1.
    for low, most in ((-2.0, 6.5e-7), (-4.0, 1.4e-5), (-8.0, 2.6e-4)):
        part = x >= low
        assert (off[part] <= most * exact[part]).all()
    assert (np.diff(found[x < -8]) >= 0).all()


def test_gelu_far_out_and_at_what_is_no_number() -> None:
    x = np.array([-1e30, -40.0, -14.0, 0.0, 14.0, 1e30, math.inf, math.nan], np.float32)
    found, _ = both(nk.gelu, abs, x)
    assert (abs(found[:3]) < 1e-30).all()
    assert (found[3:7] == x[3:7]).all()
    assert math.isnan(found[7])


@pytest.mark.parametrize("function", [nk.erf, nk.ndtr])
def test_infinite_arguments(function: Any) -> None:
    found, _ = both(function, abs, np.array([-math.inf, math.inf, math.nan], np.float32))
    assert list(found[:2]) == [-1.0 if function is nk.erf else 0.0, 1.0]
    assert math.isnan(found[2])


def short(x: Array) -> Array:
    """The function that kernels call where results are rounded to 16 bits, in float32."""
    space: dict[str, Any] = {
        "tl": SimpleNamespace(abs=np.abs, where=np.where, exp2=np.exp2),
        "triton": SimpleNamespace(jit=lambda function: function),
    }
    exec(FUNCTIONS["ndtr_16"].triton, space)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(space["ndtr_16"](x), float)


def test_fewer_terms_are_far_under_the_rounding_of_16_bits() -> None:
    x = points()
    found, exact = short(x), np.array([math.erfc(-v * math.sqrt(0.5)) / 2 for v in x.tolist()])
    for low, most in ((-7.0, 1e-4), (-8.0, 4e-4)):
        part = x >= low
        assert (abs(found - exact)[part] <= most * exact[part]).all()
    assert (np.diff(found[x < -7]) >= 0).all()
    out = short(np.array([-math.inf, -1e4, 1e4, math.inf, math.nan], np.float32))
    assert list(out[:4]) == [0.0, 0.0, 1.0, 1.0]
    assert math.isnan(out[4])


@nk.diagram("n -> n")
def gelu(X: Any) -> Any:
    return nk.gelu(X)


@nk.diagram("n -> n")
def wide(X: Any) -> Any:
    return nk.cast(nk.gelu(X), "fp32")


@nk.diagram("n -> n")
def middle(X: Any) -> Any:
    return nk.ndtr(X) - 0.5


@nk.diagram("n -> n")
def steep(X: Any) -> Any:
    return nk.sin(nk.gelu(X) * 2000.0)


@nk.diagram("n, n -> n")
def apart(X: Any, R: Any) -> Any:
    return nk.gelu(X) - R


@nk.diagram("n, n -> n")
def gated(X: Any, R: Any) -> Any:
    return nk.gelu(X) * R


@pytest.mark.parametrize(
    ("diagram", "dtype", "short"),
    [(gelu, "bf16", True), (gelu, "fp16", True), (gelu, "fp32", False), (wide, "bf16", False),
     (middle, "bf16", False), (steep, "fp16", False), (apart, "fp16", False),
     (gated, "fp16", True)],
)  # fmt: skip
def test_fewer_terms_are_taken_where_factors_are_rounded(
    diagram: Any, dtype: str, short: bool
) -> None:
    plan = nk.derive(diagram, sizes={"n": 4096}, dtype=dtype)
    assert ("ndtr_16(" in plan.source) == short
    assert ("ndtr(" in plan.source) != short
