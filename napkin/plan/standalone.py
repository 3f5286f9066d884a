"""Kernel files that run alone: the kernels of a plan, and a function `run` that launches them.

They need torch and triton, and nothing of napkin.
"""

from __future__ import annotations

from collections.abc import Sequence

from napkin.lower.printer import WIDTH
from napkin.plan.launcher import Launcher
from napkin.plan.plan import Plan

_HELPERS = {
    "_reach": '''
def _reach(sizes, strides, tiles):
    """The farthest offset that a kernel forms in a tensor, whose axes it pads to whole tiles."""
    padded = [triton.cdiv(max(n, 1), tile) * tile for n, tile in zip(sizes, tiles)]
    return sum(n * abs(stride) for n, stride in zip(padded, strides))
''',
    "_step": '''
def _step(length, *strides):
    """The largest power of two, up to 8, that divides rows and the way from each to the next; 1
    where 16 does, since Triton sees that by itself."""
    step = math.gcd(length, *(s for each in strides for s in each[:-1]), 16)
    return 1 if step == 16 else step
''',
    "_described": '''
def _described(*tensors):
    """Whether descriptors serve these tensors: the GPU has them, the last axis is contiguous, and
    all rows begin at multiples of 16 bytes."""
    device = tensors[0].device
    if device.type == "cuda" and torch.cuda.get_device_capability(device)[0] {other} 9:
        return False
    rows = [s * t.element_size() for t in tensors for s in t.stride()[:-1]]
    aligned = all(s > 0 and s % 16 == 0 for s in rows)
    aligned = aligned and all(t.data_ptr() % 16 == 0 for t in tensors)
    return aligned and all(t.numel() > 0 and t.stride(-1) == 1 for t in tensors)
''',
    "_box": '''
def _box(t, sizes):
    """The descriptor of a tensor's boxes, and how they lie in shared memory."""
    dtype = {1: gl.float8e4nv, 2: gl.float16, 4: gl.float32}[t.element_size()]
    layout = gl.NVMMASharedLayout.get_default_for(sizes, dtype)
    return hopper.TensorDescriptor.from_tensor(t, sizes, layout)
''',
}
"""Functions that `run` calls."""

_IMPORTS = {
    "hopper.": "from triton.experimental.gluon.nvidia import hopper",
    " TensorDescriptor.": "from triton.tools.tensor_descriptor import TensorDescriptor",
}


NAMES = ("kernel.py", "warpgroups.py")
"""The files that a plan may have."""


def standalone(plan: Plan) -> dict[str, str]:
    """The files of a plan, by name: kernel.py, and warpgroups.py where it has warp-specialised
    kernels. `run` of the latter refuses tensors that descriptors do not serve."""
    found = {"kernel.py": _standalone(plan, plan.source)}
    if plan.warpgroups:
        found["warpgroups.py"] = _standalone(plan, plan.warpgroups, warpgroups=True)
    return found


def _imported(plain: Sequence[str]) -> str:
    """The import of kernels from the file beside."""
    line = f"from kernel import {', '.join(plain)}  # beside this file\n"
    if len(line) <= WIDTH:
        return line
    return (
        "from kernel import (  # beside this file\n" + "".join(f"    {n},\n" for n in plain) + ")\n"
    )


def _standalone(plan: Plan, source: str, warpgroups: bool = False) -> str:
    """A kernel file of a plan with the function `run` after the kernels."""
    run = "\n".join(Launcher(plan, warpgroups).lines())
    other = "!=" if warpgroups else "<"
    own = [h.strip().replace("{other}", other) for f, h in _HELPERS.items() if f"{f}(" in run]
    body = "\n\n\n".join([*own, run])
    also = [f"{line}\n" for name, line in _IMPORTS.items() if name in body]
    plain = sorted(
        {s.entry.name for s in plan.recipe.steps if warpgroups and s.specialised is None}
    )
    also += [_imported(plain)] if plain else []
    math = "import math\n\n" if "math." in body else ""
    doc, first, rest = source.partition("\nimport triton\n")
    imports, _, kernels = rest.partition("\n\n")
    return f"{doc}\n{math}import torch{first}{imports}\n{''.join(also)}\n{kernels}\n\n{body}\n"
