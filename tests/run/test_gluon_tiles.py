"""Whole numbers in the emulation of warpgroups are a GPU's."""

from __future__ import annotations

import numpy as np
import pytest

from napkin.run.arrays import to_device
from napkin.run.warpgroups import run_cta

KERNEL = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def kernel(tiles, scalars, N: gl.constexpr):
    at = gl.arange(0, N)
    gl.store(tiles + at, (at - 4) {op} 3)
    place = gl.program_id(0) - 4
    gl.store(scalars + gl.program_id(0), place {op} 3)
"""


@pytest.mark.parametrize(
    ("op", "wanted"),
    [("//", [-1, -1, 0, 0, 0, 0, 0, 1]), ("%", [-1, 0, -2, -1, 0, 1, 2, 0])],
)
def test_quotients_round_to_zero(op: str, wanted: list[int]) -> None:
    tiles, scalars = (to_device(np.zeros(8), "i32") for _ in range(2))
    run_cta(KERNEL.replace("{op}", op), "kernel", 8, [tiles, scalars], {"N": 8})
    assert tiles.data.tolist() == wanted
    assert scalars.data.tolist() == wanted


TESTED = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def kernel(scalars):
    place = gl.program_id(0) - 2
    negative = (place + 1 < 0) & (place != 0)
    gl.store(scalars + gl.program_id(0), place - negative.to(gl.int32))
"""


def test_a_test_of_scalars_is_converted() -> None:
    scalars = to_device(np.zeros(4), "i32")
    run_cta(TESTED, "kernel", 4, [scalars], {})
    assert scalars.data.tolist() == [-3, -1, 0, 1]


BITS = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def kernel(signs):
    zero = gl.cast(-2147483648, gl.float32, bitcast=True)
    gl.store(signs + gl.program_id(0), 1.0 / zero)
"""


def test_bits_are_read_as_another_type() -> None:
    signs = to_device(np.zeros(1), "fp32")
    run_cta(BITS, "kernel", 1, [signs], {})
    assert signs.data.tolist() == [-np.inf]
