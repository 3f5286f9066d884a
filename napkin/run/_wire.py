"""What travels between the user's process and the children that hold Triton."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

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
        block: of a host-side descriptor, what it moves at once; () for a pointer.
    """

    dtype: str
    storage: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    first: int
    misalignment: int
    raw: np.ndarray
    block: tuple[int, ...] = ()

    def view(self, raw: np.ndarray) -> np.ndarray:
        """The elements inside `raw`, bytes laid out as this array's own."""
        return np.ndarray(self.shape, np.dtype(self.storage), raw, self.first, self.strides)


def pack(data: np.ndarray, dtype: str, misalignment: int, block: tuple[int, ...] = ()) -> Packed:
    """`data` as bytes; the gaps between its elements hold ones, NaN as a float."""
    reach = [(size - 1) * step for size, step in zip(data.shape, data.strides, strict=True)]
    first = -sum(min(each, 0) for each in reach)
    extent = first + sum(max(each, 0) for each in reach) + data.itemsize if data.size else 0
    raw = np.full(max(extent, 1), 0xFF, np.uint8)[:extent]
    laid = data.dtype.str, data.shape, data.strides, first, misalignment
    packed = Packed(dtype, *laid, raw, block)
    if data.size:
        packed.view(raw)[...] = data
    return packed


@dataclass(frozen=True)
class Launch:
    """One launch, as it travels to the child.

    Attributes:
        text: the kernel's file.
        path: where the file is, for messages; None when there is only the text.
        kernel: the kernel's name in it.
        grid: programs along each of at most three axes.
        args: what the run-time parameters are bound to, in order.
        constexprs: what the compile-time parameters are bound to.
    """

    text: str
    path: str | None
    kernel: str
    grid: tuple[int, ...]
    args: tuple[Packed | int | float, ...]
    constexprs: Mapping[str, object]


@dataclass(frozen=True)
class Landing:
    """What came of a launch.

    Attributes:
        names: the parameter that each of the launch's `args` was bound to.
        bytes: bytes moved by (parameter, ``"read"``, ``"write"`` or ``"add"``).
        contents: the new bytes of each array that was written.
    """

    names: tuple[str, ...]
    bytes: Counter[tuple[str, str]]
    contents: dict[str, np.ndarray]


@dataclass(frozen=True)
class Job:
    """One kernel to compile one way.

    Attributes:
        source: the kernel's file, or its text; as it travels to the child, its text.
        kernel: the name of the jitted function in it.
        signature: each run-time parameter's type, such as ``*bf16`` or ``i32``. A compile-time
            parameter may be listed as ``constexpr`` or left out.
        constexprs: the compile-time parameters by name.
        arch: the architecture, such as ``sm_90``.
        num_warps: warps of a program.
        num_stages: depth of the software pipeline.
        divisible: parameters to treat as multiples of 16. A launch finds them out by itself; leave
            the pointers and strides out here and the pipeline is dropped, and every figure changes.
        ones: integer parameters to treat as 1, as a launch does with every integer that is 1.
        options: the compiler's options beside these.
        path: where the file is, for messages; None when there is only the text.
        wanted: "allocation" and "compilation" ask for bytes of shared memory alone. The first stops
            once they are allocated, the second compiles to machine code. "resources" asks for all
            of `Resources`, for which that code is read.
    """

    source: str | Path
    kernel: str
    signature: Mapping[str, str]
    constexprs: Mapping[str, object]
    arch: str = "sm_90"
    num_warps: int = 4
    num_stages: int = 3
    divisible: Collection[str] = ()
    ones: Collection[str] = ()
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    path: str | None = None
    wanted: Literal["allocation", "compilation", "resources"] = "resources"


@dataclass(frozen=True)
class Resources:
    """What one program of a compiled kernel occupies.

    Attributes:
        shared_bytes: dynamic shared memory of a program, in bytes.
        registers: registers of a thread; None when they could not be read.
        spills: bytes of a thread's registers that spill to local memory; None likewise.
        tensor_memory_columns: columns of tensor memory (sm_100 only), of 512 in all.
        note: why a figure is missing, or empty.
        loads: instructions that load from global memory, by the bits that a thread asks for; what
            tensor descriptors serve is not among them.
        spilled: bytes that a thread stores there if its code runs through once; L1 writes them
            through to L2. None likewise.
    """

    shared_bytes: int
    registers: int | None
    spills: int | None
    tensor_memory_columns: int
    note: str
    loads: Mapping[int, int]
    spilled: int | None
