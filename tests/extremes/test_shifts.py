"""Data far from zero: what cancels in float32, and what does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.diagram.library import load

N = 65


@nk.diagram("n x -> n")
def naive_variance(X: Any) -> Any:
    mean = nk.reduce(X, "mean", over="x")
    return nk.reduce(X * X, "mean", over="x") - mean * mean


def shifted(rng: np.random.Generator, mean: float) -> np.ndarray[Any, Any]:
    return (mean + rng.normal(size=(3, N))).astype(np.float32).astype(float)


def errors(ways: Any, diagram: nk.Diagram, *arrays: Any) -> dict[str, float]:
    """The error of every float32 kernel, by way, relative to the largest value."""
    found = ways(diagram, arrays)
    (wanted,) = found.evaluated()
    return {
        way: float(np.abs(value - wanted).max() / np.abs(wanted).max())
        for way, (value,) in found.every().items()
    }


@pytest.mark.parametrize("mean", [1e2, 1e4])
def test_the_running_variance_does_not_cancel(ways: Any, rng: Any, mean: float) -> None:
    """Chan's merge holds sums of squares about the mean so far: what is left of the shift is the
    rounding of that mean."""
    found = errors(ways, load("variance"), shifted(rng, mean))
    assert max(found.values()) < 1e-6 + mean * 2.0**-24, found


def test_the_difference_of_squares_does(ways: Any, rng: Any) -> None:
    """E[x^2] - E[x]^2 is what was written, so that is what runs: the shift's square is rounded."""
    found = errors(ways, naive_variance, shifted(rng, 1e4))
    assert all(error > 0.1 for way, error in found.items() if "kernel" in way), found
    assert all(error < 1e-6 for way, error in found.items() if "folds" in way), found


def test_layernorm_far_from_zero(ways: Any, rng: Any) -> None:
    """X - mean has the error of a float32 mean, half of 1e4 * 2**-23, whoever computes it."""
    found = errors(ways, load("layernorm"), shifted(rng, 1e4), np.ones(N), np.zeros(N))
    assert max(found.values()) < 1e-3, found


def test_layernorm_near_zero(ways: Any, rng: Any) -> None:
    found = errors(ways, load("layernorm"), shifted(rng, 1.0), np.ones(N), np.zeros(N))
    assert max(found.values()) < 1e-5, found


@pytest.mark.parametrize("scale", [1e-15, 1e4, 1e15])
def test_rmsnorm_over_the_range(ways: Any, rng: Any, scale: float) -> None:
    """Squares stay within float32 up to about 1e19, and eps = 1e-6 rules below 1e-3."""
    found = errors(ways, load("rmsnorm"), rng.normal(size=(3, N)) * scale, np.ones(N))
    assert max(found.values()) < 1e-5, found
