"""What a kernel needs on a GPU, from compiling it ahead of time; no GPU and no torch.

The compiler runs in child processes (see `napkin.run.worker`) and keeps what it compiled in
Triton's own cache, so asking again is quick.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import pickle
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from napkin.errors import InputError, did_you_mean
from napkin.run._wire import Compilation, Compiled
from napkin.run.arrays import Descriptor, DeviceArray, as_device
from napkin.run.formats import element
from napkin.run.interpret import Argument, read_source
from napkin.run.worker import KernelError, Worker, worker

ARCHITECTURES = {f"sm_{n}": n for n in (80, 86, 89, 90, 100, 103, 120)}
"""The compute capability of each architecture that can be compiled for."""


@dataclass(frozen=True)
class Resources:
    """What one program of a compiled kernel occupies.

    Attributes:
        kernel: the kernel's name.
        arch: the architecture it was compiled for.
        num_warps: warps of a program.
        num_stages: depth of the software pipeline that was asked for.
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

    kernel: str
    arch: str
    num_warps: int
    num_stages: int
    shared_bytes: int
    registers: int | None
    spills: int | None
    tensor_memory_columns: int = 0
    note: str = ""
    loads: Mapping[int, int] = field(default_factory=dict[int, int])
    spilled: int | None = None


@dataclass(frozen=True)
class Specialisation:
    """How Triton's launcher sees the run-time arguments: their types and what it knows of them.

    Attributes:
        signature: each parameter's type, such as ``*bf16``, ``i32``, ``fp32``.
        divisible: parameters known to be multiples of 16 (addresses in bytes).
        ones: integer parameters known to be 1, which become constants.
    """

    signature: Mapping[str, str]
    divisible: frozenset[str]
    ones: frozenset[str]


def specialise(args: Mapping[str, Argument]) -> Specialisation:
    """Mirror Triton's launcher: what a launch with `args`, by parameter, would compile for."""
    signature: dict[str, str] = {}
    divisible: set[str] = set()
    ones: set[str] = set()
    for name, value in args.items():
        if isinstance(value, bool):
            signature[name] = "u1"
        elif isinstance(value, int):
            signature[name] = "i32" if -(2**31) <= value < 2**31 else "i64"
            if value == 1:
                ones.add(name)
            elif value % 16 == 0:
                divisible.add(name)
        elif isinstance(value, float):
            signature[name] = "fp32"
        elif isinstance(value, Descriptor):
            block = ", ".join(map(str, value.block_shape))
            signature[name] = f"tensordesc<{value.array.dtype}[{block}]>"
        else:
            array: DeviceArray = as_device(value)
            signature[name] = f"*{element(array.dtype)}"
            if array.misalignment % 16 == 0:
                divisible.add(name)
    return Specialisation(signature, frozenset(divisible), frozenset(ones))


@dataclass(frozen=True)
class Job:
    """One kernel to compile one way; see `resources` for what the fields mean."""

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


def resources(
    source: str | Path,
    kernel: str,
    signature: Mapping[str, str],
    constexprs: Mapping[str, object],
    arch: str = "sm_90",
    *,
    num_warps: int = 4,
    num_stages: int = 3,
    divisible: Collection[str] = (),
    ones: Collection[str] = (),
) -> Resources:
    """Compile a kernel for `arch` and read off what it needs.

    Args:
        source: the kernel's file, or its text.
        kernel: the name of the jitted function in it.
        signature: each run-time parameter's type, such as ``*bf16`` or ``i32``. A compile-time
            parameter may be listed as ``constexpr`` or left out.
        constexprs: the compile-time parameters by name.
        arch: one of `ARCHITECTURES`, such as ``sm_90``.
        num_warps: warps of a program.
        num_stages: depth of the software pipeline.
        divisible: parameters to treat as multiples of 16. A launch finds them out by itself; leave
            the pointers and strides out here and the pipeline is dropped, and every figure changes.
        ones: integer parameters to treat as 1, as a launch does with every integer that is 1.

    Raises:
        KernelError: the compiler refused the kernel (`CompileError`), or died of it.
        InputError: the call was wrong.
    """
    job = Job(source, kernel, signature, constexprs, arch, num_warps, num_stages, divisible, ones)
    found = resources_many([job])[0]
    if isinstance(found, KernelError):
        raise found
    return found


def resources_many(jobs: Sequence[Job]) -> list[Resources | KernelError]:
    """Compile every job, several at a time; a job that the compiler refuses gives its error."""
    found = _answers([_compilation(job) for job in jobs])
    return [_resources(*pair) for pair in zip(jobs, found, strict=True)]


def _resources(job: Job, found: Compiled | KernelError) -> Resources | KernelError:
    if isinstance(found, KernelError):
        return found
    return Resources(job.kernel, job.arch, job.num_warps, job.num_stages, *found)


_allocated: dict[str, int | KernelError] = {}
"""What was allocated, by a digest of what was asked."""


def allocations(jobs: Sequence[Job]) -> list[int | KernelError]:
    """Bytes of shared memory that a program of each kernel is allocated: by the compiler's own
    passes, without the rest of the compilation. A job that it refuses gives its error."""
    asked = [replace(_compilation(job), allocate=True) for job in jobs]
    keys = [hashlib.sha256(pickle.dumps(astuple(a))).hexdigest() for a in asked]
    for key, compilation in zip(keys, asked, strict=True):
        if key not in _allocated:  # one child answers sooner than a second is ready
            (_allocated[key],) = _answers([compilation])
    return [_allocated[key] for key in keys]


def _answers(asked: Sequence[Compilation]) -> list[Any]:
    """What the compiling children say, or why they refuse."""
    count = max(1, min(len(asked), len(os.sched_getaffinity(0)), 8))
    slots: SimpleQueue[int] = SimpleQueue()
    for slot in range(count):
        slots.put(slot)

    def one(compilation: Compilation) -> Any:
        slot = slots.get()
        try:
            return start(slot).call(compilation)
        except KernelError as error:
            return error
        finally:
            slots.put(slot)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, asked))


@functools.cache
def available() -> bool:
    """Whether Triton is installed; it is built for Linux alone."""
    return importlib.util.find_spec("triton") is not None


def start(slot: int = 0) -> Worker:
    """A compiling child; started if there is none, without waiting until it is ready."""
    return worker("napkin.run._compiler", {"TRITON_INTERPRET": None}, slot)


def _compilation(job: Job) -> Compilation:
    if job.arch not in ARCHITECTURES:
        raise InputError(
            f"cannot compile for {job.arch!r}; {did_you_mean(job.arch, ARCHITECTURES)}"
        )
    text, path = read_source(job.source)
    return Compilation(
        text=text,
        path=path,
        kernel=job.kernel,
        signature=dict(job.signature),
        constexprs=dict(job.constexprs),
        capability=ARCHITECTURES[job.arch],
        options={"num_warps": job.num_warps, "num_stages": job.num_stages, **job.options},
        divisible=frozenset(job.divisible),
        ones=frozenset(job.ones),
    )
