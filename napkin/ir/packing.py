"""Whole numbers of 4 bits, two to a byte: neighbours along the last axis, the first one in the low
half."""

from __future__ import annotations

from typing import Any

from napkin.errors import InputError, check_known
from napkin.ir.types import PACKED, RANGES


def pack(values: Any, dtype: str = "int4") -> Any:
    """Whole numbers of 4 bits as bytes (uint8), half as many along the last axis.

    Args:
        values: an array, its last axis even, with numbers from -8 to 7 (int4) or 0 to 15 (uint4).

    Raises:
        InputError: a number is out of range, the last axis odd, or `dtype` no packed type.
    """
    import numpy as np

    found = np.asarray(values)
    _check(dtype)
    if found.dtype.kind not in "biuf":
        raise InputError(f"pack: {dtype} holds whole numbers, not {found.dtype}")
    if not found.ndim or found.shape[-1] % 2:
        raise InputError(
            f"pack: {dtype} lies two to a byte along the last axis, which must be even, "
            f"not that of shape {found.shape}"
        )
    wrong = found[
        (found != np.floor(found)) | (found < RANGES[dtype][0]) | (found > RANGES[dtype][-1])
    ]
    if wrong.size:
        raise InputError(
            f"pack: {dtype} holds whole numbers from {RANGES[dtype][0]} to {RANGES[dtype][-1]}, "
            f"not {wrong.flat[0]:g}"
        )
    halves = found.astype(np.int64).astype(np.uint8) & np.uint8(15)
    return halves[..., 0::2] | (halves[..., 1::2] << np.uint8(4))


def unpack(data: Any, dtype: str = "int4") -> Any:
    """The whole numbers (int64) in bytes that hold two each: the inverse of `pack`.

    Args:
        data: an array of int8 or uint8.

    Raises:
        InputError: `data` holds no bytes, or `dtype` is no packed type.
    """
    import numpy as np

    found = np.asarray(data)
    _check(dtype)
    if str(found.dtype) not in {"uint8", "int8"} or not found.ndim:
        raise InputError(f"unpack: {dtype} lies in bytes (uint8 or int8), not in {found.dtype}")
    bits = found.astype(np.uint8)
    out = np.empty((*bits.shape[:-1], 2 * bits.shape[-1]), np.int64)
    out[..., 0::2], out[..., 1::2] = bits & 15, bits >> 4
    return np.where(out > RANGES[dtype][-1], out - 16, out)


def _check(dtype: str) -> None:
    check_known(dtype, PACKED, f"{dtype!r} does not share bytes")
