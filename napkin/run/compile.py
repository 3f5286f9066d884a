"""What a kernel needs on a GPU, from compiling it ahead of time; no GPU and no torch.

The compiler runs in child processes (see `napkin.run.worker`) and keeps what it compiled in
Triton's own cache, so asking again is quick.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from napkin.errors import check_known
from napkin.run._wire import Job, Resources
from napkin.run.arrays import Descriptor, DeviceArray, as_device
from napkin.run.cache_folder import folder, read, triton_version, write
from napkin.run.formats import element
from napkin.run.interpret import Argument, read_source
from napkin.run.worker import KernelError, Worker, worker

__all__ = [
    "ARCHITECTURES", "Job", "Resources", "Specialisation", "allocations", "available",
    "compilations", "resources_many", "specialise", "start",
]  # fmt: skip

ARCHITECTURES = {f"sm_{n}": n for n in (80, 86, 89, 90, 100, 103, 120)}
"""The compute capability of each architecture that can be compiled for."""


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


def resources_many(jobs: Sequence[Job]) -> list[Resources | KernelError]:
    """Compile every job, several at a time; a job that the compiler refuses gives its error.

    Raises:
        InputError: a job is wrong: no such architecture, kernel or parameter.
    """
    return _answers(list(map(_read, jobs)))


def compilations(jobs: Sequence[Job]) -> list[int | KernelError]:
    """Bytes of shared memory of every job, compiled to machine code of which nothing is read. A
    job that the compiler refuses gives its error."""
    return _answers([replace(_read(job), wanted="compilation") for job in jobs])


_allocated: dict[str, int | KernelError] = {}
"""What was allocated, by a digest of what was asked."""


def allocations(jobs: Sequence[Job]) -> list[int | KernelError]:
    """Bytes of shared memory that a program of each kernel is allocated: by the compiler's own
    passes, without the rest of the compilation. A job that it refuses gives its error. Bytes are
    kept on disk for this version of Triton, since starting the compiler takes a second."""
    asked = [replace(_read(job), wanted="allocation") for job in jobs]
    keys = list(map(_digest, asked))
    for key, job in zip(keys, asked, strict=True):
        if key not in _allocated and (kept := _kept(key)) is not None:
            _allocated[key] = kept
        if key not in _allocated:  # one child answers sooner than a second is ready
            (_allocated[key],) = (found,) = _answers([job])
            if isinstance(found, int):
                with contextlib.suppress(OSError):
                    write(_place(key), str(found))
    return [_allocated[key] for key in keys]


def _digest(job: Job) -> str:
    """What tells a job from another, in any process."""
    named = (sorted(x.items()) for x in (job.signature, job.constexprs, job.options))
    known = sorted(job.divisible), sorted(job.ones)
    ways = job.arch, job.num_warps, job.num_stages
    text = repr((triton_version(), job.source, job.kernel, *named, *known, *ways))
    return hashlib.sha256(text.encode()).hexdigest()


def _kept(key: str) -> int | None:
    """Bytes that were kept; None where there are none, or they are not as they were written."""
    text = read(_place(key)) or ""
    return int(text) if text.isascii() and text.isdigit() else None


def _place(key: str) -> Path:
    return folder() / "allocations" / key


def _read(job: Job) -> Job:
    """A job as it travels to the child."""
    check_known(job.arch, ARCHITECTURES, f"cannot compile for {job.arch!r}")
    text, path = read_source(job.source)
    constexprs, options = dict(job.constexprs), dict(job.options)
    return replace(job, source=text, path=path, constexprs=constexprs, options=options)


def _answers(asked: Sequence[Job]) -> list[Any]:
    """What the compiling children say, or why they refuse."""
    count = max(1, min(len(asked), len(os.sched_getaffinity(0)), 8))
    slots: SimpleQueue[int] = SimpleQueue()
    for slot in range(count):
        slots.put(slot)

    def one(job: Job) -> Any:
        slot = slots.get()
        try:
            return start(slot).call(job)
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
