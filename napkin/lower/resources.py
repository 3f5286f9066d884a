"""Shared memory of one group, in bytes, predicted from its loop program.

The kernel's operations are walked in the order in which they are emitted; each takes shared
memory for a while, and the answer is the most that is taken at once. What takes it:

* a ring for each chunk that feeds a product: `stages - 1` slots, filled by asynchronous copies
  while earlier ones are used, for the whole loop. wgmma reads its operands from shared memory and
  is waited for one iteration later, so a chunk that only it reads has one slot more;
* an operand that is in registers and must be read by other threads: held once for the whole loop,
  from the computation to the product otherwise;
* a change of register layout and a reduction across warps: while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from napkin.errors import InputError
from napkin.lower.compiler import Version, installed
from napkin.lower.program import Program
from napkin.lower.resources_home import Tensors
from napkin.lower.resources_model import Model


def shared_bytes(
    program: Program,
    dtypes: Mapping[str, str],
    arch: str,
    warps: int,
    stages: int,
    sizes: Mapping[str, int] | None = None,
    triton: Version | None = None,
) -> int:
    """Bytes of shared memory that the compiled kernel takes on `arch`.

    Args:
        sizes: the size of every axis of row-major tensors; by default, sizes that are multiples of
            16 and of their tiles. With other sizes loads are narrower, and some cannot be copied
            asynchronously.
        triton: the version that compiles it, (3, 6) or (3, 9); by default the installed one.

    Raises:
        InputError: `arch` is none of CUDA.
    """
    if not arch.startswith("sm_"):
        raise InputError(
            f"shared memory is predicted for CUDA architectures such as sm_90, not for {arch}"
        )
    capability = int(arch.removeprefix("sm_").rstrip("af"))
    tensors = Tensors(program, dtypes, sizes, capability, triton or installed())
    return Model(program, tensors, capability, warps, stages).peak()
