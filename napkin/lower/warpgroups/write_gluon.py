"""A warp-specialised CTA as a Gluon kernel: one warp asks for chunks, each warpgroup folds those of
its group.

Chunks lie in rings of shared memory. A barrier for each place says that it is full, another that
every group has read it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from napkin.derive.kernel import tensor_of
from napkin.lower import syntax as sx
from napkin.lower.compiler import installed
from napkin.lower.divisibility import tensor_axes
from napkin.lower.signature import Written
from napkin.lower.warpgroups import chunks, sums
from napkin.lower.warpgroups.cta import SpecialisedCta
from napkin.lower.warpgroups.gluon import captured
from napkin.lower.warpgroups.iterations import Rows
from napkin.lower.warpgroups.kernel_text import Text, text_of
from napkin.lower.warpgroups.rings import Rings

CONSTANTS_APART = (3, 9)
"""The Triton from which constants are not passed: every part has its own. 3.6 passes them; the
versions between were not read."""


def write_cta(cta: SpecialisedCta) -> Written:
    """The Gluon kernel of a warp-specialised CTA."""
    return _text(cta).written


def _text(cta: SpecialisedCta) -> Text:
    rings = Rings(cta)
    rings.emitter.count(cta.program.roots)
    stages = sx.assign(rings.scope.stages, cta.stages, rings.lang.word("constexpr"))
    first = [rings.index_type(), stages, *rings.places.steps()]
    if cta.sums:
        parts = sums.first(rings), sums.loads(rings), sums.folds(rings)
    else:
        parts = chunks.first(rings), chunks.loads(rings), Rows(rings).folds()
    return text_of(rings.scope, [*first, *parts[0]], *parts[1:])


def passed(cta: SpecialisedCta, even: Collection[str], sizes: Mapping[str, int]) -> list[str]:
    """What the block's first warps pass to the others of a CTA: "descriptor" (a pointer, too),
    "scalar", or "ring R", of R axes.

    Args:
        even: the axes that warp-specialised CTAs divide.
        sizes: of every axis; tensors are row-major. What is 1 is compiled in.
    """
    text, program = _text(cta), cta.program
    scope = text.scope
    fixed = {a.name for a in text.written.arguments if a.constexpr} | {scope.stages}
    names = captured(text.bodies, {scope.even(a) for a in even}) - fixed - {scope.warpgroup}
    if installed() >= CONSTANTS_APART:
        names -= text.constants
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
