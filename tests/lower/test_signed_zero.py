"""Zeros that are written out keep their sign, in every version of Triton."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.plan.file import kernel_file


@nk.diagram("n -> n")
def _signs(X: Any) -> Any:
    zero = nk.where(X > 0, 0.0, -0.0)
    return nk.where(1.0 / zero > 0, X, 1.0)


def test_a_negative_zero_is_written_by_its_bits() -> None:
    plan = nk.derive(_signs, "h100", {"n": 4}, "fp32")
    assert "tl.cast(-2147483648, tl.float32, bitcast=True)" in kernel_file(plan)
    x = np.array([-2.0, 3.0, -1.0, 0.5])
    np.testing.assert_array_equal(plan(x), [1.0, 3.0, 1.0, 0.5])


@pytest.mark.parametrize("power", [-3, 5, -4])
def test_odd_powers_keep_the_sign_of_zero(power: int) -> None:
    d = nk.diagram("n -> n")(lambda X: 1.0 / X**power if power > 0 else X**power)
    x = np.array([-0.0, 0.0, -2.0, 2.0, -np.inf, np.inf])
    np.testing.assert_allclose(nk.derive(d, "h100", {"n": 6}, "fp32")(x), d.evaluate(x), rtol=1e-6)
