"""A band as a Gluon kernel: one warp asks for chunks, each warpgroup folds those of its group.

Chunks lie in rings of shared memory. A barrier for each place says that it is full, another that
every group has read it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from napkin.derive.kernel import tensor_of
from napkin.lower.compiler import installed
from napkin.lower.divisibility import tensor_axes
from napkin.lower.warpgroups.band import Band
from napkin.lower.warpgroups.gluon import captured
from napkin.lower.warpgroups.iterations import Rows
from napkin.lower.warpgroups.kernel_text import Whole
from napkin.lower.warpgroups.sums import Sums
from napkin.lower.write import Written

CONSTANTS_APART = (3, 9)
"""The Triton from which constants are not passed: every part has its own. 3.6 passes them; the
versions between were not read."""


def _writer(band: Band) -> Whole:
    return Sums(band) if band.sums else Rows(band)


def write_band(band: Band) -> Written:
    """The Gluon kernel of a band."""
    return _writer(band).function()


def passed(band: Band, even: Collection[str], sizes: Mapping[str, int]) -> list[str]:
    """What the block's first warps pass to the others of a band: "descriptor" (a pointer, too),
    "scalar", or "ring R", of R axes.

    Args:
        even: the axes that bands divide.
        sizes: of every axis; tensors are row-major. What is 1 is compiled in.
    """
    writer = _writer(band)
    made = writer.function()
    fixed = {a.name for a in made.arguments if a.constexpr} | {writer.scope.stages}
    known = {writer.scope.even(a) for a in even}
    names = captured(writer.bodies, known) - fixed - {writer.scope.warpgroup}
    if installed() >= CONSTANTS_APART:
        names -= writer.zeros
    scope, program = writer.scope, band.program
    names -= {scope.size(a) for a, n in sizes.items() if n == 1}
    for t, axes in tensor_axes(program.kernel).items():
        ones = (a for i, a in enumerate(axes) if math.prod(sizes[x] for x in axes[i + 1 :]) == 1)
        names -= {scope.stride(t, a) for a in ones}
    boxed = {tensor_of(n): axes for n, axes in program.boxes.items()} | dict(program.stores)
    kinds = {scope.tensor(t): "descriptor" for t in scope.tensors}
    kinds |= dict.fromkeys(scope.bases, "descriptor")  # which takes as much as a pointer
    for t, axes in boxed.items():
        kinds[scope.ring(t)] = f"ring {len(axes) + 1}"
    for t in (*boxed, ""):
        kinds |= {scope.full(t): "ring 2", scope.free(t): "ring 2"}
    kinds[scope.order] = "ring 2"
    return [kinds.get(n, "scalar") for n in names]
