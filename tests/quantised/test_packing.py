"""Numbers of 4 bits, two to a byte, and of 8 bits: there and back, and what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import napkin as nk
from napkin.errors import InputError
from napkin.ir.types import RANGES, STORAGE, stored_bytes
from napkin.run.arrays import empty, to_device

SHAPES = st.lists(st.integers(0, 5), max_size=2).flatmap(
    lambda front: st.integers(0, 8).map(lambda half: (*front, 2 * half))
)
DTYPES = st.sampled_from(["int4", "uint4"])


@given(shape=SHAPES, dtype=DTYPES, seed=st.integers(0, 2**32))
def test_unpack_undoes_pack(shape: tuple[int, ...], dtype: str, seed: int) -> None:
    holds = RANGES[dtype]
    values = np.random.default_rng(seed).integers(holds[0], holds[-1] + 1, size=shape)
    data = nk.pack(values, dtype)
    assert data.dtype == np.uint8
    assert data.shape == (*shape[:-1], shape[-1] // 2)
    assert data.size == stored_bytes(values.size, dtype)
    np.testing.assert_array_equal(nk.unpack(data, dtype), values)
    np.testing.assert_array_equal(nk.unpack(data.view(np.int8), dtype), values)


@given(data=st.binary(max_size=16), dtype=DTYPES)
def test_pack_undoes_unpack(data: bytes, dtype: str) -> None:
    given_bytes = np.frombuffer(data, np.uint8)
    np.testing.assert_array_equal(nk.pack(nk.unpack(given_bytes, dtype), dtype), given_bytes)


def test_the_first_of_two_is_in_the_low_half() -> None:
    assert nk.pack([1, -1]).tolist() == [0xF1]
    assert nk.unpack(np.array([0x8F], np.uint8)).tolist() == [-1, -8]
    assert nk.unpack(np.array([0x8F], np.uint8), "uint4").tolist() == [15, 8]


@pytest.mark.parametrize(
    ("values", "dtype", "said"),
    [
        ([1, 2, 3], "int4", r"two to a byte along the last axis, which must be even"),
        (3, "int4", r"which must be even"),
        ([8, 0], "int4", r"from -8 to 7, not 8"),
        ([-1, 0], "uint4", r"from 0 to 15, not -1"),
        ([0.5, 0], "int4", r"whole numbers from -8 to 7, not 0.5"),
        ([1, 2], "int8", r"'int8' does not share bytes; .*int4"),
    ],
)
def test_what_does_not_pack(values: object, dtype: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        nk.pack(values, dtype)


def test_only_bytes_unpack() -> None:
    with pytest.raises(InputError, match=r"lies in bytes .*, not in int64"):
        nk.unpack(np.array([1, 2]))


@given(shape=SHAPES, seed=st.integers(0, 2**32), flip=st.booleans())
def test_device_arrays_hold_the_values(shape: tuple[int, ...], seed: int, flip: bool) -> None:
    values = np.random.default_rng(seed).integers(-8, 8, size=shape)
    order = tuple(reversed(range(len(shape)))) if flip else None
    array = to_device(values, STORAGE["int4"].format, order=order)
    np.testing.assert_array_equal(array.to_float64(), values)
    assert empty(array.shape, array.dtype).shape == array.shape


@given(values=st.lists(st.floats(-600, 600), max_size=8))
def test_fp8_rounds_to_the_nearest_and_saturates(values: list[float]) -> None:
    codes = np.arange(127, dtype=np.uint8)
    every = to_device(np.zeros(127), "fp8e4nv")
    every.data[...] = codes
    grid = every.to_float64()
    grid = np.concatenate([-grid[::-1], grid])
    found = to_device(np.array(values, float), "fp8e4nv").to_float64()
    for x, y in zip(values, found, strict=True):
        assert abs(y - x) == np.abs(grid - x).min()
        assert abs(y) <= 448
