"""The files of kernels in Gluon, and which names their functions are passed."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from napkin.ir.operators import FUNCTIONS
from napkin.lower.spelling import GLUON, GLUON_NAMES

HEAD = """\
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

# Triton 3.6 calls them async_copy_global_to_shared and async_copy_shared_to_global
_renamed = hasattr(tma, "async_load")
async_load = tma.async_load if _renamed else tma.async_copy_global_to_shared
async_store = tma.async_store if _renamed else tma.async_copy_shared_to_global
"""
"""The imports of a file of such kernels."""


ADDING = """\


@builtin
def _async_add(tensor_desc, coord, src, _semantic=None):
    coord = _semantic._convert_to_ir_values(coord, require_i64=False)
    add = ir.DESCRIPTOR_REDUCE_KIND.ADD
    _semantic.builder.create_async_tma_reduce(add, tensor_desc.handle, coord, src.handle)


# Triton 3.6 has it, and no name for it
async_add = tma.async_atomic_add if _renamed else _async_add
"""
"""What a file needs besides whose kernels add to memory in bulk."""


def imports(functions: str) -> str:
    """The head of a file with these functions."""
    head, more = HEAD, ""
    if GLUON.spelt("PropagateNan") in functions:  # for which Gluon has no name of its own
        more += "from triton import language as tl\n"
    if "async_add(" in functions:
        more += "from triton._C.libtriton import ir\n"
        inside = "from triton.experimental.gluon.language._core import builtin\n"
        hopper = "from triton.experimental.gluon.language.nvidia"
        head = head.replace(hopper, inside + hopper, 1) + ADDING
    return head.replace("import triton\n", f"import triton\n{more}", 1)


def predefined() -> set[str]:
    """Names that a function of such a file has without being passed them."""
    return {*GLUON_NAMES, "range", "float", "tl", *FUNCTIONS}


def free(body: Sequence[ast.stmt]) -> set[str]:
    """The names that statements use and do not make."""
    used: set[str] = set()
    made: set[str] = set()
    for s in body:
        for n in ast.walk(s):
            if isinstance(n, ast.Name):
                (used if isinstance(n.ctx, ast.Load) else made).add(n.id)
    return used - made - predefined()
