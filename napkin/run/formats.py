"""Number formats: how each is stored, and exact rounding into those that numpy lacks.

Names are Triton's: ``fp32``, ``bf16``, ``i64``; ``fp8e4nv`` is 4 exponent bits and 3 of mantissa
with no infinity, ``fp8e5`` 5 and 2. ``i4`` and ``u4`` are two whole numbers to a byte, neighbours
along the last axis, the first one in the low half; a kernel sees the bytes.
"""

from __future__ import annotations

import functools

import numpy as np

from napkin.errors import check_known

STORAGE: dict[str, np.dtype] = {
    "fp64": np.dtype(np.float64),
    "fp32": np.dtype(np.float32),
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16),
    "fp8e4nv": np.dtype(np.uint8),
    "fp8e5": np.dtype(np.uint8),
    "i64": np.dtype(np.int64),
    "i32": np.dtype(np.int32),
    "i16": np.dtype(np.int16),
    "i8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "i4": np.dtype(np.uint8),
    "u4": np.dtype(np.uint8),
    "i1": np.dtype(np.bool_),
}
"""The numpy dtype that stores each number format."""

CODED: dict[str, int] = {"bf16": 0x7FC0, "fp8e4nv": 0x7F, "fp8e5": 0x7F}
"""The formats that numpy does not know, held as unsigned bits; and the bits of a NaN in each."""

HALVES = {"i4": "int4", "u4": "uint4"}
"""The formats of which a byte holds two, and the storage type that each is."""


def known(dtype: str) -> str:
    """A number format that there is.

    Raises:
        InputError: there is none of that name.
    """
    check_known(dtype, STORAGE, f"unknown number format {dtype!r}")
    return dtype


def element(dtype: str) -> str:
    """What a kernel's pointer to numbers in a format points to."""
    return "u8" if dtype in HALVES else dtype


def decode(bits: np.ndarray, dtype: str) -> np.ndarray:
    """The float32 values of numbers in a `CODED` format; exact."""
    return _from_bf16(bits) if dtype == "bf16" else _float8_values(dtype)[bits]


def encode(values: np.ndarray, dtype: str) -> np.ndarray:
    """The bits of the numbers nearest to `values` in a `CODED` format, ties to even.

    Beyond the largest number bf16 gives infinity, and the 8-bit formats their largest number, as
    the conversions of a GPU do.
    """
    if dtype == "bf16":
        return _to_bf16(values)
    largest = 0x7E if dtype == "fp8e4nv" else 0x7B
    magnitudes = _float8_values(dtype)[: largest + 1].astype(np.float64)
    middles = (magnitudes[1:] + magnitudes[:-1]) / 2
    size = np.abs(np.asarray(values, np.float64))
    bits = np.searchsorted(middles, size, side="left")
    tied = (bits < largest) & (size == middles[np.minimum(bits, largest - 1)])
    bits = np.where(np.isnan(size), CODED[dtype], bits + (tied & (bits % 2 == 1)))
    return (bits | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)


@functools.cache
def _float8_values(dtype: str) -> np.ndarray:
    mantissa, bias = (3, 7) if dtype == "fp8e4nv" else (2, 15)
    code = np.arange(128)
    power, fraction = code >> mantissa, code & ((1 << mantissa) - 1)
    values = np.where(
        power == 0,
        np.ldexp(fraction / (1 << mantissa), 1 - bias),
        np.ldexp(1 + fraction / (1 << mantissa), power - bias),
    )
    if dtype == "fp8e5":
        values[0x7C], values[0x7D:] = np.inf, np.nan
    else:
        values[0x7F] = np.nan
    return np.concatenate([values, -values]).astype(np.float32)


def _from_bf16(bits: np.ndarray) -> np.ndarray:
    """The float32 values of bfloat16 numbers given as uint16 bits; exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _to_bf16(values: np.ndarray) -> np.ndarray:
    """The uint16 bits of the bfloat16 numbers nearest to `values`, ties to even."""
    if values.dtype != np.float32:
        values = _to_odd_float32(np.asarray(values, np.float64))
    bits = np.ascontiguousarray(values).view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = ((bits + (even + np.uint32(0x7FFF))) >> np.uint32(16)).astype(np.uint16)
    nan = np.isnan(values)
    return np.where(nan, np.uint16(0x7FC0), rounded).reshape(values.shape) if nan.any() else rounded


def _to_odd_float32(values: np.ndarray) -> np.ndarray:
    """float32 for a second rounding: an inexact result is moved to its odd neighbour.

    Rounding twice to nearest is not rounding once; rounding to odd first makes it so.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        near = values.astype(np.float32)
        back = near.astype(np.float64)
    bits = near.view(np.uint32).copy()
    # An even neighbour is replaced by the one on the other side of the exact value.
    step = np.where(np.abs(back) > np.abs(values), np.uint32(0xFFFFFFFF), np.uint32(1))
    fix = (back != values) & ~np.isnan(values) & (bits & 1 == 0)
    bits[fix] += step[fix]
    return bits.view(np.float32)
