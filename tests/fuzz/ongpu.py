"""Plans on a CUDA device: values of the planner's own plans, and of plans that are drawn.

Each process plans, compiles and launches by itself, so N of them plan on N cores and share the
device; what a kernel breaks, it breaks for its own process.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import numpy as np
from filled import arrays as fill
from forced import Forcing
from judged import Found, crash, differing, error
from programs import Program, Ref, shapes, union
from sized import fit
from values import results
from written import diagram as written_diagram

from napkin.check.rounding import roundings
from napkin.check.verdict import HALF_STEP, TOLERANCE
from napkin.diagram.storage import own_type
from napkin.diagram.types import PACKED
from napkin.errors import Refusal
from napkin.plan.derive import derive
from napkin.plan.plan import Plan

SIZES = (1, 7, 16, 31, 33, 64, 65, 127, 128, 257, 512)
VALUES = 4e6
"""Values of the largest array that the evaluation forms."""

SENSITIVE = 30.0
"""How much further than by rounding its inputs once a result may be off."""


def gpu(program: Program, seed: int) -> None:
    """Raises `Found` where a plan of a program is wrong on the device."""
    rng = random.Random(seed)
    diagram = written_diagram(program)
    dtype = rng.choice(("fp32", "bf16", "fp16"))
    sizes = sized(program, rng)
    if sizes is None:
        return
    plan = derive(diagram, device(), sizes, dtype)
    _Case(program, plan, sizes, seed).check()
    if plan.launched is not plan:
        _Case(program, plan.without_descriptors(), sizes, seed).check()
    small = dict(program.sizes)
    forcing = Forcing(diagram, small, dtype, rng)
    drawn = next((p for p in (forcing.plan() for _ in range(4)) if p is not None), None)
    if drawn is not None:
        _Case(program, drawn, small, seed).check()


def device() -> str:
    """The machine file of the device, or the nearest one."""
    import torch

    capability = torch.cuda.get_device_capability()[0]
    return {8: "a100", 9: "h200", 10: "b200"}.get(capability, "h100")


def sized(program: Program, rng: random.Random) -> dict[str, int] | None:
    """Sizes as large as an evaluation in numpy stands."""
    wanted = {a: rng.choice(SIZES) for a in program.sizes}
    while (sizes := fit(program, wanted)) is not None:
        if _largest(program, sizes) <= VALUES or max(wanted.values()) == 1:
            return sizes
        longest = max(wanted, key=wanted.__getitem__)
        wanted[longest] = wanted[longest] // 2
    return None


def _largest(program: Program, sizes: Mapping[str, int]) -> float:
    """Values of the largest array that evaluation forms; of key sets, pairs of queries and keys."""
    found, most = shapes(program), 1.0
    for step in program.steps:
        axes = union(*(found[a.at].axes for a in step.args if isinstance(a, Ref)))
        most = max(most, math.prod(float(sizes[a]) for a in axes if a in sizes))
    return max(most, *(math.prod(float(sizes[a]) for a in s.axes if a in sizes) for s in found))


class _Case:
    def __init__(self, program: Program, plan: Plan, sizes: Mapping[str, int], seed: int) -> None:
        import torch

        from napkin.torch.storage import input_types

        self.program, self.plan, self.sizes = program, plan, dict(sizes)
        data = fill(program, sizes, seed)
        types = input_types(plan.diagram, plan.dtype)
        self.tensors, self.data = [], []
        for n, x, t in zip(plan.diagram.inputs, data, types, strict=True):
            packed = own_type(n) in PACKED
            given = torch.from_numpy(np.array(_bytes(x, own_type(n)) if packed else x)).to(t)
            self.tensors.append(given.cuda())
            self.data.append(x if packed else given.to(torch.float64).numpy())
        self.wanted = results(program, self.data, sizes)

    def check(self) -> None:
        import torch

        from napkin.torch.prepared import prepare

        plan = self.plan
        scalars = plan.diagram.check_scalars({})
        try:
            made = prepare(plan.diagram, plan.recipe, self.tensors, self.sizes, scalars, plan.dtype)
            out = made(self.tensors)
            torch.cuda.synchronize()
        except Refusal:
            raise
        except Exception as problem:
            raise Found(crash(problem)) from problem
        for i, (o, t) in enumerate(zip(plan.diagram.outputs, out, strict=True)):
            self._value(i, o.name, t.to(torch.float64).cpu().numpy())

    def _value(self, i: int, name: str, found: np.ndarray) -> None:
        wanted = self.wanted[i]
        types = roundings(self.plan, self.plan.tensor_of[name])
        limit = max(TOLERANCE[t] for t in types)
        step = max(HALF_STEP[t] for t in types)
        beyond = np.isfinite(wanted) & (np.abs(wanted) > (6e4 if "fp16" in types else 1e30))
        if beyond.any():
            return
        off = error(found.reshape(wanted.shape), wanted)
        if off <= limit:
            return
        moves = self._moves(i, step)
        if off <= SENSITIVE * moves:
            return
        category = "wrong value" if off > 30 * limit and off > 1000 * moves else "imprecise"
        about = f"{self.plan.dtype}, sizes {self.sizes}, {[k.name for k in self.plan.kernels]}"
        said = f"{about}: {name} off by {off:.2g}, inputs move it by {moves:.2g}: "
        said += differing(found.reshape(wanted.shape), wanted)
        raise Found(category, f"on the device, {self.plan.dtype}", said)

    def _moves(self, i: int, step: float) -> float:
        rng = np.random.default_rng(0)
        near = [
            x * (1 + step * rng.uniform(-1, 1, x.shape)) if n.kind == "real" else x
            for n, x in zip(self.program.inputs, self.data, strict=True)
        ]
        off = error(results(self.program, near, self.sizes)[i], self.wanted[i])
        return off if np.isfinite(off) else np.inf


def _bytes(x: np.ndarray, dtype: str) -> np.ndarray:
    import napkin as nk

    return nk.pack(x, dtype)
