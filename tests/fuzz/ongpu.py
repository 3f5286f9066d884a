"""Plans on a CUDA device: values of the planner's own plans, and of plans that are drawn.

Each process plans, compiles and launches by itself, so N of them plan on N cores and share the
device; what a kernel breaks, it breaks for its own process. Most of the time goes into Triton's
compiler: so of a program one plan or two are run, and each distinct one is compiled once.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from algebra import kind
from drawing import KINDS
from filled import arrays as fill
from forced import Forcing
from judged import COUNTS, Failure, Found, crash, differing, error, reordered, worst
from otherwise import allowed, excused
from programs import Program, Ref, shapes, union
from sized import shrunk
from unsure import MANY, SAMPLES, Wobble, excess, held_in, wobbles
from values import results, wrapped
from written import diagram as written_diagram

from napkin.check.rounding import roundings
from napkin.check.verdict import HALF_STEP, TOLERANCE
from napkin.errors import Refusal
from napkin.ir.storage import own_type
from napkin.ir.types import PACKED
from napkin.lower.dots import multiplies
from napkin.plan.derive import derive
from napkin.plan.fitting import at_most, job_of
from napkin.plan.plan import Plan
from napkin.plan.planned import distinct
from napkin.run.compile import allocations

SIZES = (1, 7, 16, 31, 33, 64, 65, 127, 128, 257, 512)
VALUES = 4e6
"""Values of the largest array that the evaluation forms."""

SENSITIVE = 30.0
"""How much further than by rounding its inputs once a result may be off."""


DRAWN_OF = 3
"""Of so many programs one runs under a plan that is drawn, at small sizes."""

PLAIN_OF = 4
"""Of so many programs one runs without warpgroups and descriptors, too."""

warnings.filterwarnings("ignore", message="tl.where with a non-boolean condition")
torch.set_num_threads(1)


def gpu(program: Program, seed: int) -> None:
    """Raises `Found` where a plan of a program is wrong on the device."""
    rng = random.Random(seed)
    diagram = written_diagram(program)
    dtype = rng.choice(("fp32", "bf16", "fp16"))
    failed: list[Failure] = []
    for plan, sizes in plans(program, diagram, dtype, seed, rng):
        COUNTS["plans run"] += 1
        COUNTS["kernels run"] += len(plan.kernels)
        case = Case(program, plan, sizes, seed)
        try:
            case.check()
        except Found as found:
            failed.append(case.noted(found.failure))
        except Exception as problem:
            failed.append(case.noted(crash(problem)))
    if failed:
        raise Found(worst(failed))


def plans(
    program: Program, diagram, dtype: str, seed: int, rng: random.Random
) -> Iterator[tuple[Plan, dict[str, int]]]:
    """The plans of a program to run, and at which sizes."""
    if seed % DRAWN_OF == 0:
        small = dict(program.sizes)
        forcing = Forcing(diagram, small, dtype, rng, seed >= KINDS)
        found = (forcing.plan() for _ in range(4))
        drawn = next((p for p in found if p is not None and compiles(p)), None)
        if drawn is not None:
            yield drawn, small
            return
    sizes = sized(program, rng)
    if sizes is None:
        return
    plan = derive(diagram, device(), sizes, dtype, deterministic=seed < KINDS)
    yield plan, sizes
    if seed % PLAIN_OF == 0 and plan.launched is not plan:
        yield plan.without_descriptors(), sizes


def compiles(plan: Plan) -> bool:
    """Whether the compiler takes all kernels and finds room for them, asked about those that the
    planner asks it about; a plan that it does not take is counted."""
    room, arch = plan.machine.shared_per_block, plan.machine.arch
    asked = [k for k in distinct(plan.kernels) if at_most(k) > room or multiplies(k.program)]
    jobs = [job_of(k, k.choice.sizes, arch, s) for k in asked for s in (True, False)]
    taken = all(isinstance(found, int) and found <= room for found in allocations(jobs))
    COUNTS["drawn plans that the compiler does not take"] += not taken
    return taken


@cache
def device() -> str:
    """The machine file of the device, or the nearest one."""
    capability = torch.cuda.get_device_capability()[0]
    return {8: "a100", 9: "h200", 10: "b200"}.get(capability, "h100")


def sized(program: Program, rng: random.Random) -> dict[str, int] | None:
    """Sizes as large as an evaluation in numpy stands."""
    wanted = {a: rng.choice(SIZES) for a in program.sizes}
    return shrunk(program, wanted, lambda sizes: _largest(program, sizes) <= VALUES)


def _largest(program: Program, sizes: Mapping[str, int]) -> float:
    """Values of the largest array that evaluation forms; of key sets, pairs of queries and keys."""
    found, most = shapes(program), 1.0
    for step in program.steps:
        axes = union(*(found[a.at].axes for a in step.args if isinstance(a, Ref)))
        most = max(most, math.prod(float(sizes[a]) for a in axes if a in sizes))
    every = [s.axes for s in found]
    every += [union(axes, program.weave[0]) for _, axes in program.outputs]
    return max(most, *(math.prod(float(sizes[a]) for a in axes if a in sizes) for axes in every))


class Case:
    """A plan on the device, or where tensors are put.

    Attributes:
        errors: how far each result was off, and how far rounding its inputs once moves it.
    """

    def __init__(
        self, program: Program, plan: Plan, sizes: Mapping[str, int], seed: int, on: str = "cuda"
    ) -> None:
        from napkin.run.prepared import input_types

        self.program, self.plan, self.sizes = program, plan, dict(sizes)
        self.errors: dict[str, dict[str, float]] = {}
        data = fill(program, sizes, seed)
        types = input_types(plan.diagram, plan.dtype)
        self.tensors, self.data = [], []
        for n, x, t in zip(plan.diagram.inputs, data, types, strict=True):
            packed = own_type(n) in PACKED
            given = torch.from_numpy(np.array(_bytes(x, own_type(n)) if packed else x)).to(t)
            self.tensors.append(given.to(on))
            self.data.append(x if packed else given.to(torch.float64).numpy())
        self.wanted = results(program, self.data, sizes)

    def check(self) -> None:
        """Run it, and compare every result.

        Raises:
            Found: one is wrong.
        """
        found = self._run()
        failed: list[Failure] = []
        for i, (o, t) in enumerate(zip(self.plan.diagram.outputs, found, strict=True)):
            try:
                self._value(i, o.name, t.to(torch.float64).cpu().numpy())
            except Found as wrong:
                failed.append(wrong.failure)
        if failed:
            raise Found(worst(failed))

    def _run(self) -> list[torch.Tensor]:
        from napkin.run.prepared import prepare

        plan = self.plan
        scalars = plan.diagram.check_scalars({})
        try:
            made = prepare(plan.diagram, plan.recipe, self.tensors, self.sizes, scalars, plan.dtype)
            out = made(self.tensors)
            if out and out[0].is_cuda:
                torch.cuda.synchronize()
        except Refusal:
            raise
        except Exception as problem:
            raise Found(crash(problem)) from problem
        return list(out)

    def noted(self, failure: Failure) -> Failure:
        """A failure with what it takes to look into it without the device."""
        plan = self.plan
        kernels = [
            {
                "name": k.name,
                "kind": kind(k),
                "tiles": dict(k.tiles),
                "warps": k.schedule.warps,
                "stages": k.schedule.stages,
                "warpgroups": k.schedule.side,
            }
            for k in plan.launched.kernels
        ]
        facts = {
            "dtype": plan.dtype,
            "machine": plan.machine.name,
            "sizes": self.sizes,
            "drawn_plan": not plan.specialised,
            "kernels": kernels,
            "errors": self.errors,
            "source": plan.recipe.source,
            "warpgroups": plan.recipe.warpgroups,
        }
        return replace(failure, facts=facts)

    def _value(self, i: int, name: str, found: np.ndarray) -> None:
        wanted = self.wanted[i]
        types = roundings(self.plan, self.plan.tensor_of[name])
        limit = max(TOLERANCE[t] for t in types)
        step = max(HALF_STEP[t] for t in types)
        beyond = np.isfinite(wanted) & (np.abs(wanted) > (6e4 if "fp16" in types else 1e30))
        # Parts of a product of thousands of numbers leave float32 before the whole is 0.
        vanishes = any(s.op == "prod" for s in self.program.steps) and not wanted.all()
        if beyond.any() or vanishes:
            return
        found = found.reshape(wanted.shape)
        if any(given.strewn for given in self.program.inputs):
            axes = self.plan.diagram.outputs[i].axes
            found = excused(reordered(found, wanted), wanted, self.plan, axes)
        off = error(found, wanted)
        if off <= limit or wrapped(self.program, self.data, self.sizes)[i]:
            return
        moves = self._moves(i, step)
        self.errors[name] = {
            "off": off, "limit": limit, "moves": moves, "worst": _largest_gap(found, wanted)
        }  # fmt: skip
        if off <= SENSITIVE * moves:
            return
        for samples in (SAMPLES, MANY):
            off = excess(found, wanted, self._wobbles(types, step, samples)[i])
            if off <= limit:
                return
        category = "wrong value" if off > 30 * limit and off > 1000 * moves else "imprecise"
        about = f"{self.plan.dtype}, sizes {self.sizes}, {[k.name for k in self.plan.kernels]}"
        said = f"{about}: {name} off by {off:.2g}, inputs move it by {moves:.2g}: "
        said += differing(found, wanted)
        raise Found(category, f"on the device, {self.plan.dtype}", said)

    def _wobbles(self, types: Set[str], step: float, samples: int) -> list[Wobble]:
        """How far results move by a few roundings of each step. In 16 bits a value is rounded where
        it is stored or multiplied, not at every step; and so it is where it leaves fp16, or is too
        small for it."""
        held = held_in(types, self.plan)
        few = step if types == {"fp32"} else step / 8
        given = self.program, self.data, self.sizes
        found = wobbles(*given, self.wanted, few, held, fused=True, samples=samples)
        if not any(n.strewn for n in self.program.inputs):
            return found
        return allowed(*given, self.plan, found, self.wanted)

    def _moves(self, i: int, step: float) -> float:
        rng = np.random.default_rng(0)
        near = [
            x * (1 + step * rng.uniform(-1, 1, x.shape)) if n.kind == "real" else x
            for n, x in zip(self.program.inputs, self.data, strict=True)
        ]
        off = error(results(self.program, near, self.sizes)[i], self.wanted[i])
        return off if np.isfinite(off) else np.inf


def _largest_gap(found: np.ndarray, wanted: np.ndarray) -> float:
    with np.errstate(all="ignore"):
        return float(np.nan_to_num(np.abs(found - wanted), nan=np.inf).max(initial=0.0))


def _bytes(x: np.ndarray, dtype: str) -> np.ndarray:
    import napkin as nk

    return nk.pack(x, dtype)
