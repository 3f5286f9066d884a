"""The exponential in the logarithm of a sigmoid overflows, as `docs/semantics.md` says; that in
another form does not."""

from __future__ import annotations

from typing import Any

import numpy as np

import napkin as nk

LOW = np.array([-100.0, -89.0])
X = np.array([*LOW, -60.0, -1.0, 0.0, 1.0, 90.0])


def kernel(f: nk.Diagram, *arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(nk.derive(f, sizes={"n": 4096}, dtype="fp32")(*arrays))


@nk.diagram("n -> n")
def plain(X: Any) -> Any:
    return nk.log(nk.sigmoid(X))


@nk.diagram("n -> n")
def in_range(X: Any) -> Any:
    return nk.minimum(X, 0.0) - nk.log(1.0 + nk.exp(-nk.abs(X)))


def test_a_sigmoid_whose_exponential_overflows_has_no_logarithm() -> None:
    assert np.isneginf(kernel(plain, LOW)).all()
    assert np.isnan(kernel(nk.gradient(plain), LOW, np.ones(2))).all()


def test_a_form_that_stays_in_range_is_finite() -> None:
    np.testing.assert_allclose(kernel(in_range, X), -np.logaddexp(0, -X), rtol=1e-6, atol=1e-30)
    slope = kernel(nk.gradient(in_range), X, np.ones(len(X)))
    np.testing.assert_allclose(slope, 1 / (1 + np.exp(X)), rtol=1e-6, atol=1e-30)
