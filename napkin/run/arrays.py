"""Arrays as a GPU holds them: a number format, a memory order, strides, and no GPU.

A kernel must be tried on views whose strides are not the row-major ones, and in number formats
that numpy lacks. A `DeviceArray` is a numpy view of the stored bits plus the name of the format,
spelt as in Triton's signatures (see `napkin.run.formats`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from napkin.errors import InputError
from napkin.ir.packing import pack, unpack
from napkin.run.formats import CODED, HALVES, STORAGE, decode, encode, known


@dataclass(frozen=True, eq=False)
class DeviceArray:
    """A view of stored numbers, to be passed to a kernel as a pointer to its first element.

    Attributes:
        data: the stored bits; may be any strided view. bf16 is held as uint16, fp8 as uint8, and
            numbers of 4 bits as half as many bytes along the last axis.
        dtype: the number format, such as ``"bf16"``.
    """

    data: np.ndarray
    dtype: str

    def __post_init__(self) -> None:
        wanted = STORAGE[known(self.dtype)]
        if self.data.dtype != wanted:
            raise InputError(f"{self.dtype} is stored as {wanted}, not as {self.data.dtype}")
        if any(step % self.data.itemsize for step in self.data.strides):
            raise InputError("the strides of an array must be whole numbers of its elements")

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return self.data.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance between neighbours along each axis, in elements."""
        return tuple(step // self.data.itemsize for step in self.data.strides)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.data.itemsize

    @property
    def misalignment(self) -> int:
        """Bytes from the last 256-byte boundary of its allocation to the first element.

        Device allocators align every allocation to 256 bytes or more, numpy does not; so the
        distance is counted from the start of the allocation that this view looks into.
        """
        owner = self.data
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        return (self.data.ctypes.data - owner.ctypes.data) % 256

    def to_float64(self) -> np.ndarray:
        """The values in float64: exact for every format but i64 beyond 2**53."""
        if self.dtype in CODED:
            return np.asarray(decode(self.data, self.dtype), np.float64)
        if self.dtype in HALVES:
            return unpack(self.data, HALVES[self.dtype]).astype(np.float64)
        return self.data.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Descriptor:
    """A host-side tensor descriptor argument: an array and the block that one access moves.

    Attributes:
        array: the array; its last stride must be 1, the others multiples of 16 bytes.
        block_shape: elements of a block along each axis.
    """

    array: DeviceArray
    block_shape: tuple[int, ...]


def as_device(values: DeviceArray | np.ndarray) -> DeviceArray:
    """`values` as a kernel argument without copying; a numpy array keeps its own format."""
    if isinstance(values, DeviceArray):
        return values
    for name, storage in STORAGE.items():
        if name not in CODED and name not in HALVES and storage == values.dtype:
            return DeviceArray(values, name)
    raise InputError(f"a kernel takes no array of {values.dtype}; known: {', '.join(STORAGE)}")


def to_device(
    values: np.ndarray,
    dtype: str,
    *,
    order: Sequence[int] | None = None,
) -> DeviceArray:
    """Round `values` to nearest even in the format `dtype` and lay them out in memory.

    Args:
        values: the numbers, usually float64.
        dtype: the number format to store.
        order: the axes from the slowest to the fastest in memory; row-major when not given.
    """
    values = np.asarray(values)
    if dtype in HALVES:
        values = pack(values, HALVES[dtype])
    array = empty(values.shape, dtype, order=order)
    if array.dtype in CODED:
        array.data[...] = encode(values, array.dtype)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            array.data[...] = values.astype(array.data.dtype)
    return array


def empty(shape: Sequence[int], dtype: str, *, order: Sequence[int] | None = None) -> DeviceArray:
    """An array that holds poison: NaN, or for integers the value farthest below zero.

    `shape` is that of `data`. Launch a kernel on it, and whatever the kernel did not write shows.
    `order` is that of `to_device`. Booleans have no value to spare and start as True.
    """
    axes = list(range(len(shape)) if order is None else order)
    if sorted(axes) != list(range(len(shape))):
        raise InputError(f"order {axes} must name each of the {len(shape)} axes once")
    data = np.full([shape[a] for a in axes], _poison(dtype), STORAGE[known(dtype)])
    return DeviceArray(data.transpose([axes.index(a) for a in range(len(axes))]), dtype)


def _poison(dtype: str) -> object:
    storage = STORAGE[dtype]
    if dtype in CODED:
        return CODED[dtype]
    if storage.kind == "f":
        return math.nan
    return True if storage.kind == "b" else max(np.iinfo(storage).min, -(2**53))
