"""Run a Triton kernel on the CPU and count the bytes that it moves.

The kernel runs in Triton's interpreter, in a child process (see `napkin.run.worker`), on copies
of its array arguments that are copied back when it is done. It needs no GPU and no torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from napkin.errors import InputError
from napkin.run._wire import Landing, Launch, Packed, pack
from napkin.run.arrays import Descriptor, DeviceArray, as_device
from napkin.run.worker import Worker, worker

Argument = DeviceArray | Descriptor | np.ndarray | int | float
"""What a run-time parameter may be bound to. Arrays are passed as pointers to the first element."""

_LIMITS = (2**31 - 1, 65535, 65535)  # programs along each axis of a CUDA grid


Traffic = Counter[tuple[str, str]]
"""The bytes that a launch moved, over all its programs, by (parameter, ``"read"``, ``"write"`` or
``"add"``). Every lane of an access that its mask leaves on counts its element's bytes, each time.
Atomic additions are counted by themselves, other atomics as a read and a write."""


def run(
    source: str | Path,
    kernel: str,
    grid: Sequence[int],
    args: Sequence[Argument],
    constexprs: Mapping[str, object],
    *,
    timeout: float | None = None,
) -> Traffic:
    """Launch a kernel in the interpreter; array arguments change in place, as on a GPU.

    Args:
        source: the kernel's file, or its text.
        kernel: the name of the jitted function in it.
        grid: programs along each of one to three axes.
        args: the run-time parameters, in the kernel's order. Strides are the caller's to pass.
        constexprs: the compile-time parameters by name; `num_warps` and the like are no part.
        timeout: seconds after which the launch is given up; None waits for its end.

    Raises:
        OutOfBounds: an access touched an address that holds no element of any argument.
        KernelError: the kernel raised, ran past `timeout`, or killed its process.
        InputError: the call was wrong.
    """
    sizes = tuple(int(size) for size in grid)
    if not 1 <= len(sizes) <= 3 or any(size < 0 for size in sizes):
        raise InputError(f"a grid has one to three sizes, none below zero, not {sizes}")
    for axis, (size, limit) in enumerate(zip(sizes, _LIMITS, strict=False)):
        if size > limit:
            raise InputError(f"axis {axis} of the grid has {size} programs; a GPU allows {limit}")
    arrays = [_array(arg) for arg in args]
    text, path = read_source(source)
    packed = tuple(_pack(arg, array) for arg, array in zip(args, arrays, strict=True))
    launch = Launch(text, path, kernel, sizes, packed, dict(constexprs))
    landing: Landing = start().call(launch, timeout)
    named = {
        name: (array, sent)
        for name, array, sent in zip(landing.names, arrays, packed, strict=True)
        if array is not None and isinstance(sent, Packed)
    }
    for name, raw in landing.contents.items():
        array, sent = named[name]
        _refuse_sharing(name, array, {other: each for other, (each, _) in named.items()})
        array.data[...] = sent.view(raw)
    return landing.bytes


def start() -> Worker:
    """The interpreting child; started if there is none, without waiting until it is ready.

    Call it early to import Triton (about a second) while something else is being worked out.
    """
    # Tiles are too small for numpy to share a product among threads.
    environment = {"TRITON_INTERPRET": "1", "OPENBLAS_NUM_THREADS": "1"}
    return worker("napkin.run._interpreter", environment)


def read_source(source: str | Path) -> tuple[str, str | None]:
    """The text of a kernel's file, and its path when `source` is one."""
    if isinstance(source, Path):
        try:
            return source.read_text(encoding="utf-8"), str(source)
        except OSError as error:
            raise InputError(f"cannot read the kernel {source}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InputError(f"cannot read the kernel {source}: it is no text in UTF-8") from None
    if "\n" not in source:
        raise InputError(f"{source!r} is no kernel's text; give a file as a pathlib.Path")
    return source, None


def _array(arg: Argument) -> DeviceArray | None:
    if isinstance(arg, Descriptor):
        return arg.array
    return as_device(arg) if isinstance(arg, (DeviceArray, np.ndarray)) else None


def _pack(arg: Argument, array: DeviceArray | None) -> Packed | int | float:
    if array is not None:
        block = tuple(arg.block_shape) if isinstance(arg, Descriptor) else ()
        return pack(array.data, array.dtype, array.misalignment, block)
    if isinstance(arg, (bool, np.bool_)):
        return bool(arg)
    if isinstance(arg, (int, np.integer)):
        return int(arg)
    if isinstance(arg, (float, np.floating)):
        return float(arg)
    raise InputError(f"a kernel takes arrays, ints and floats, not {type(arg).__name__}")


def _refuse_sharing(name: str, array: DeviceArray, others: Mapping[str, DeviceArray]) -> None:
    """Each argument is a copy of its own, so one that is written must not overlap another."""
    for other, each in others.items():
        if other != name and np.shares_memory(array.data, each.data):
            raise InputError(f"the kernel writes {name}, which shares memory with {other}")
