"""Launches by CUDA's driver, of which the arguments are packed once.

Triton's launchers walk over every argument of every launch, and describe each tensor to the device
anew: up to 30 us, in which the GPU waits. From launch to launch on tensors of one kind only their
addresses change. The driver is asked how large each parameter of the machine code is; where Triton
lays them out in another way, or launches with more than parameters, Triton launches.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST

from napkin.run.assembler import HOPPER

_FORMATS = {"fp32": "f", "fp64": "d"} | {
    f"{sign}{bits}": letter if sign == "i" else letter.upper()
    for bits, letter in ((1, "b"), (8, "b"), (16, "h"), (32, "i"), (64, "q"))
    for sign in "iu"
}
"""How numbers are packed, by Triton's names of types."""

_ROOM = 128
"""Bytes that each parameter has: those of a tensor map, the largest. It begins at a multiple."""

_USUAL = {
    "num_ctas": 1, "launch_cooperative_grid": False, "launch_pdl": False,
    "global_scratch_size": 0, "profile_scratch_size": 0,
}  # fmt: skip
"""The metadata of a kernel that is launched with parameters alone."""

_L2_OF_128_BYTES, _NAN = 2, 1
"""A `CUtensorMapL2promotion`, and a `CUtensorMapFloatOOBfill`; the other is 0."""


class _Parameter(NamedTuple):
    """A parameter of the machine code.

    Attributes:
        packed: its bytes; where it holds an address, another one takes its place.
        tensor: the place of the tensor whose address it holds, if it holds one.
    """

    packed: bytes
    tensor: int | None = None


class _Config(ctypes.Structure):
    """A `CUlaunchConfig`."""

    _fields_ = (
        *((f"{of}_{axis}", ctypes.c_uint) for of in ("grid", "block") for axis in "xyz"),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


class _Unknown(Exception):
    """A parameter that only Triton packs."""


class Direct:
    """A kernel on a device, launched on other tensors again and again."""

    def __init__(
        self, cuda: Any, function: Any, config: _Config, parameters: Sequence[_Parameter]
    ) -> None:
        self._buffer = ctypes.create_string_buffer(_ROOM * (len(parameters) + 1))
        first = _aligned(self._buffer)
        self._pointers = (ctypes.c_void_p * len(parameters))()
        self._cells: list[tuple[ctypes.c_uint64, int]] = []
        self._maps: list[tuple[ctypes.c_void_p, int]] = []
        for i, (packed, tensor) in enumerate(parameters):
            at = self._pointers[i] = first + _ROOM * i
            ctypes.memmove(at, packed, len(packed))
            if tensor is not None and len(packed) == _ROOM:
                self._maps.append((ctypes.c_void_p(at), tensor))
            elif tensor is not None:
                self._cells.append((ctypes.c_uint64.from_address(at), tensor))
        self._described = [0] * len(self._maps)
        self._config, self._lock = config, threading.Lock()
        self._given = ctypes.byref(config), function, self._pointers, None
        self._launch, self._replace = cuda.cuLaunchKernelEx, cuda.cuTensorMapReplaceAddress

    def __call__(self, tensors: Sequence[torch.Tensor], stream: int) -> bool:
        """Launch on tensors; False where the driver does not."""
        with self._lock:  # the driver has read all parameters when it returns
            for cell, which in self._cells:
                cell.value = tensors[which].data_ptr()
            for i, (held, which) in enumerate(self._maps):
                address = tensors[which].data_ptr()
                if address != self._described[i]:
                    if self._replace(held, address):
                        return False
                    self._described[i] = address
            self._config.stream = stream
            return not self._launch(*self._given)


def direct(
    made: Any, grid: int, arguments: Sequence[Any], places: Mapping[int, int]
) -> Direct | None:
    """What launches a kernel; None where only Triton can.

    Args:
        made: Triton's compiled kernel, loaded.
        arguments: those of run time, with tensors like those of every launch.
        places: by the places of arguments that hold tensors, those of the tensors.
    """
    cuda = driver()
    if cuda is None or any(getattr(made.metadata, k, v) != v for k, v in _USUAL.items()):
        return None
    try:
        parameters = [*_parameters(cuda, made, arguments, places)]
    except (_Unknown, AttributeError, KeyError, struct.error):
        return None
    function = ctypes.c_void_p(made.function)
    if [len(p.packed) for p in parameters] != _sizes(cuda, function):
        return None
    warps, _, shared = made.packed_metadata
    return Direct(cuda, function, _Config(grid, 1, 1, 32 * warps, 1, 1, shared), parameters)


@cache
def driver() -> Any:
    """CUDA's driver; None where there is none, or one that cannot tell about parameters."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        cuda.cuTensorMapReplaceAddress.argtypes = [ctypes.c_void_p] * 2
        _ = cuda.cuLaunchKernelEx, cuda.cuFuncGetParamInfo, cuda.cuTensorMapEncodeTiled
    except (OSError, AttributeError):
        return None
    return cuda


def _parameters(
    cuda: Any, made: Any, arguments: Sequence[Any], places: Mapping[int, int]
) -> Iterator[_Parameter]:
    """What the machine code takes: for a descriptor a tensor map, the shape and the strides; at
    the end the addresses of two scratch memories, which are empty. On Blackwell Triton changes
    tensor maps for some drivers: there it describes tensors itself."""
    maps = iter(getattr(made.metadata, "tensordesc_meta", None) or ())
    for i, (kind, value) in enumerate(zip(made.src.signature.values(), arguments, strict=False)):
        if kind == "constexpr":
            continue
        if not isinstance(kind, str):
            raise _Unknown
        if kind in _FORMATS:
            yield _Parameter(struct.pack(_FORMATS[kind], value))
        elif kind.startswith("*"):
            yield _Parameter(bytes(8), places[i])
        elif kind.startswith("tensordesc") and made.metadata.target.arch in HOPPER:
            yield _Parameter(_tensor_map(cuda, value, next(maps, None)), places[i])
            yield from (_Parameter(struct.pack("i", n)) for n in value.shape)
            yield from (_Parameter(struct.pack("q", n)) for n in value.strides)
        else:
            raise _Unknown
    yield from [_Parameter(bytes(8))] * 2


def _tensor_map(cuda: Any, described: Any, boxes: Any) -> bytes:
    """The tensor map of a descriptor, of which the compiler says how boxes lie in shared memory."""
    if boxes is None or boxes["fp4_padded"] or boxes.get("is_im2col"):
        raise _Unknown
    if getattr(described, "round_f32_to_tf32", False):
        raise _Unknown
    box, size = boxes["block_size"], boxes["elem_size"]
    rank, room = len(box), ctypes.create_string_buffer(2 * _ROOM)
    at = _aligned(room)
    many, few = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank
    refused = cuda.cuTensorMapEncodeTiled(
        ctypes.c_void_p(at), TMA_DTYPE_DEVICE_TO_HOST[boxes["elem_type"]], rank,
        ctypes.c_void_p(described.base.data_ptr()),
        many(*reversed(described.shape)),
        many(*(n * size for n in reversed(described.strides[:-1]))),
        few(*reversed(box)), few(*[1] * rank),
        0, boxes["swizzle"], _L2_OF_128_BYTES, _NAN if described.padding == "nan" else 0,
    )  # fmt: skip
    if refused:
        raise _Unknown
    return ctypes.string_at(at, _ROOM)


def _sizes(cuda: Any, function: ctypes.c_void_p) -> list[int]:
    """The bytes of each parameter of a function."""
    found: list[int] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    while not cuda.cuFuncGetParamInfo(
        function, ctypes.c_size_t(len(found)), ctypes.byref(offset), ctypes.byref(size)
    ):
        found.append(size.value)
    return found


def _aligned(buffer: Any) -> int:
    """The first address in a buffer that a parameter may have."""
    return -(-ctypes.addressof(buffer) // _ROOM) * _ROOM
