"""The assembler of kernels, where Triton would take one that makes wrong machine code.

Triton before 3.9 assembles for Hopper with the ptxas of CUDA 12.8. Where a loop holds many matrix
products and few registers are free, that one leaves the uniform registers unwritten from which it
makes the products' addresses in shared memory: an illegal memory access, or wrong values
(`napkin.run.machine_code` finds such code). Triton brings a later ptxas for Blackwell; from 3.9
on it serves Hopper, too, and here it does so for every Triton.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Generator

from triton import knobs
from triton.backends.nvidia import compiler

HOPPER = range(90, 100)
"""Compute capabilities."""

RIGHT = 12, 9
"""The first release of CUDA whose ptxas assembles these loops right."""

_SWAPPING = threading.Lock()


@contextlib.contextmanager
def assembler(capability: int) -> Generator[None]:
    """A context in which Triton compiles for a compute capability, such as 90, with the latest
    ptxas that it brings; with the one that $TRITON_PTXAS_PATH names, where it is set."""
    nvidia = knobs.nvidia
    if (
        capability not in HOPPER
        or os.environ.get("TRITON_PTXAS_PATH")
        or compiler.get_ptxas(capability).path == nvidia.ptxas_blackwell.path
        or _release(nvidia.ptxas_blackwell.version) <= _release(nvidia.ptxas.version)
    ):
        yield
        return
    with _SWAPPING, nvidia.scope():
        nvidia.ptxas = nvidia.ptxas_blackwell.path
        # What is compiled is kept under the assembler's version, which is asked for once.
        compiler.get_ptxas_version.cache_clear()
        try:
            yield
        finally:
            compiler.get_ptxas_version.cache_clear()


def right(capability: int) -> bool:
    """Whether the ptxas that Triton takes for a compute capability makes no such code: those of
    CUDA 12.9 and later make none, in all kernels that were ever looked at."""
    return capability not in HOPPER or _release(compiler.get_ptxas(capability).version) >= RIGHT


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
