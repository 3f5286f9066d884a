"""What travels between the user's process and the children that hold Triton."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class Packed:
    """An array as it travels to the child and back.

    Attributes:
        dtype: the number format, in Triton's spelling.
        storage: the numpy dtype of the stored bits.
        shape: elements along each axis.
        strides: bytes along each axis.
        first: bytes from the start of `raw` to the first element.
        misalignment: bytes of the first element past a 256-byte boundary.
        raw: the bytes from the lowest to the highest element, gaps included.
    """

    dtype: str
    storage: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    first: int
    misalignment: int
    raw: np.ndarray

    def view(self, raw: np.ndarray) -> np.ndarray:
        """The elements inside `raw`, bytes laid out as this array's own."""
        return np.ndarray(self.shape, np.dtype(self.storage), raw, self.first, self.strides)


def pack(data: np.ndarray, dtype: str, misalignment: int) -> Packed:
    """`data` as bytes; the gaps between its elements hold ones, NaN as a float."""
    reach = [(size - 1) * step for size, step in zip(data.shape, data.strides, strict=True)]
    first = -sum(min(each, 0) for each in reach)
    extent = first + sum(max(each, 0) for each in reach) + data.itemsize if data.size else 0
    raw = np.full(max(extent, 1), 0xFF, np.uint8)[:extent]
    packed = Packed(dtype, data.dtype.str, data.shape, data.strides, first, misalignment, raw)
    if data.size:
        packed.view(raw)[...] = data
    return packed


@dataclass(frozen=True)
class Block:
    """A host-side descriptor of `array` that moves blocks of `shape`."""

    array: Packed
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Launch:
    """One launch, as it travels to the child.

    Attributes:
        text: the kernel's file.
        path: where the file is, for messages; None when there is only the text.
        kernel: the kernel's name in it.
        grid: programs along each of at most three axes.
        args: what the run-time parameters are bound to, in order. A `Block` is a descriptor.
        constexprs: what the compile-time parameters are bound to.
    """

    text: str
    path: str | None
    kernel: str
    grid: tuple[int, ...]
    args: tuple[Packed | Block | int | float, ...]
    constexprs: Mapping[str, object]


@dataclass(frozen=True)
class Landing:
    """What came of a launch.

    Attributes:
        names: the parameter that each of the launch's `args` was bound to.
        bytes: bytes moved by (parameter, ``"read"`` or ``"write"``).
        contents: the new bytes of each array that was written.
    """

    names: tuple[str, ...]
    bytes: dict[tuple[str, str], int]
    contents: dict[str, np.ndarray]


@dataclass(frozen=True)
class Compilation:
    """One kernel to compile one way, as it travels to the child.

    Attributes:
        text: the kernel's file.
        path: where the file is, for messages; None when there is only the text.
        kernel: the kernel's name in it.
        signature: the type of each run-time parameter.
        constexprs: what the compile-time parameters are bound to.
        capability: the compute capability, such as 90.
        options: the compiler's options, such as ``num_warps``.
        divisible: parameters that are multiples of 16.
        ones: integer parameters that are 1.
        allocate: whether to stop once shared memory is allocated.
    """

    text: str
    path: str | None
    kernel: str
    signature: Mapping[str, str]
    constexprs: Mapping[str, object]
    capability: int
    options: Mapping[str, object]
    divisible: frozenset[str]
    ones: frozenset[str]
    allocate: bool = False


class Compiled(NamedTuple):
    """What the compiler said of one kernel.

    Attributes:
        shared_bytes: dynamic shared memory of a program, in bytes.
        registers: registers of a thread, or None.
        spills: bytes of stack of a thread, or None.
        tensor_memory_columns: columns of tensor memory.
        note: why a figure is missing, or empty.
        loads: instructions that load from global memory, by the bits that a thread asks for.
        spilled: bytes that the code of a thread stores to that stack, or None.
    """

    shared_bytes: int
    registers: int | None
    spills: int | None
    tensor_memory_columns: int
    note: str
    loads: Mapping[int, int]
    spilled: int | None
