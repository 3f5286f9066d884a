"""The verdict on a plan: do its kernels compute, move and take what was predicted?

Values against float64 evaluation, bytes per tensor and direction against H, and shared memory of
an ahead-of-time compile against the largest operand and the room of the machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from napkin.check.gradient_slopes import Autograd, check_gradient, derivative_rows, results
from napkin.check.inputs import Given, given
from napkin.check.magnitudes import largest_under, overflow
from napkin.check.rounding import roundings
from napkin.check.verdict_rows import CheckFailed, ResourceRow, TrafficRow, ValueRow, Verdict
from napkin.diagram.diagram import Diagram
from napkin.ir.evaluate import close_to
from napkin.ir.node import Node, factors, postorder
from napkin.ir.storage import own_type, storage_type
from napkin.ir.whole_numbers import flag, whole
from napkin.plan.fitting import job_of
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel, distinct
from napkin.plan.samples import Case, cases, plan_of, small
from napkin.progress import Progress, silent
from napkin.run.arrays import DeviceArray, to_device
from napkin.run.compile import ARCHITECTURES as KNOWN
from napkin.run.compile import Job, Resources, compilations, resources_many
from napkin.run.interpreted import SPELLING, Ran, run_recipe
from napkin.run.worker import KernelError
from napkin.schedule import others
from napkin.target import target_of

TOLERANCE = {"fp32": 1e-5, "fp16": 5e-3, "bf16": 1e-2, "fp8": 5e-2}
"""Largest relative error, by norm, of what is rounded to each type on its way to memory."""

FP8_SUM = 2.0**-12
"""Largest relative error, by norm, of products of fp8 as Hopper's tensor cores add them up: each of
the four instructions for `napkin.algebra.contraction.EXACT_SUM` of them keeps 14 bits."""

HALF_STEP = {"fp32": 2**-24, "fp16": 2**-11, "bf16": 2**-8, "fp8": 2**-4}
"""Largest relative error of one rounding to each type."""

CANCELLED = 2.0**-46, 0.01
"""A result is 0 but for rounding where moving its inputs by so much of their size, some hundred
roundings of float64, moves it by so much of its own; or at all, where it is 0."""

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")

WARPGROUPS = "warpgroups"
"""What rows are marked with that are of kernels of warpgroups."""


def on_device(diagram: Diagram, dtype: str) -> float:
    """The largest relative error, by norm, that is allowed of a plan in a type on a device."""
    sums = (n for n in postorder([o.node for o in diagram.outputs]) if n.op == "sum")
    types = ([own_type(leaf) for leaf in factors(n.args[0])] for n in sums)
    narrow = any(each.count("fp8") > 1 for each in types)
    return max(TOLERANCE[dtype], FP8_SUM) if narrow else TOLERANCE[dtype]


def rounds_nothing(n: Node) -> bool:
    """Whether a term is computed of whole numbers and tests alone: then it is exact."""
    return all(m.kind != "real" for m in postorder([n]))


def check(
    plan: Plan,
    *,
    sizes: Mapping[str, int] | None = None,
    inputs: Mapping[str, Any] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    scalars: Mapping[str, float] | None = None,
    seed: int = 0,
    resources: bool = True,
    progress: Progress = silent,
    gradient_of: Diagram | None = None,
    autograd: Autograd | None = None,
) -> Verdict:
    """Check a plan on the CPU.

    Args:
        sizes: run at these sizes only; by default at sizes that divide the tiles, at primes, with
            an input transposed in memory, with a batch axis weaved in, and with boxes that reach
            past the end of a tensor
        inputs: the numbers of some inputs, by name; their axes have the sizes of these arrays.
        ranges: from where to where inputs are drawn, by name; reals are else normal, and whole
            numbers such as what reads them makes sense of.
        scalars: the values of scalars, by name; by default those that the diagram gives.
        seed: of the random inputs; a whole number.
        resources: whether to compile for each architecture as well.
        progress: called with a text, and how many steps of how many are done.
        gradient_of: the diagram that the plan computes the gradient of: it is compared with slopes
            of that diagram's values in float64, at small sizes, or at those of given inputs.
        autograd: torch's, to compare with beside differences.

    Raises:
        InputError: a size, an input, a range or a scalar does not fit the diagram, or the plan's
            diagram is no gradient of `gradient_of`.
        CheckFailed: a kernel does not run.
    """
    resources = flag(resources, "check: resources")
    seed, said = whole(seed, "check: seed"), given(plan.diagram, inputs, ranges, sizes)
    if gradient_of is not None:
        check_gradient(gradient_of, plan.diagram)
        gradient_of = _with_scalars(gradient_of, scalars)
    if scalars or plan.diagram.scalars:
        plan = replace(plan, diagram=_with_scalars(plan.diagram, scalars))
    todo = cases(plan, {**(sizes or {}), **said.sizes} if said.arrays else sizes)
    total = len(todo) + (1 if resources else 0)
    values: list[ValueRow] = []
    traffic: list[TrafficRow] = []
    for i, case in enumerate(todo):
        progress(case.name, i, total)
        chosen = plan_of(plan, case)
        for specialised in (False, True) if chosen.launched is not chosen else (False,):
            v, t = run_case(chosen, case, np.random.default_rng(seed + i), specialised, said)
            values += v
            traffic += t
    found: list[ResourceRow] = []
    if resources:
        progress("compile", len(todo), total)
        found = compiled(plan)
    beside, notes = (), plan.notes
    if gradient_of is not None:
        progress("derivatives", total, total)
        at = todo[0].sizes if said.arrays else small(gradient_of, np.random.default_rng(seed))
        beside, more = derivative_rows(gradient_of, plan.diagram, at, said, seed, autograd)
        notes = (*notes, *more)
    progress("done", total, total)
    rows = tuple(values), tuple(traffic), tuple(found)
    return Verdict(plan.name, *rows, tuple(notes), tuple(beside))


def _with_scalars(diagram: Diagram, scalars: Mapping[str, float] | None) -> Diagram:
    """A diagram that gives its scalars these values, where no call gives any."""
    return replace(diagram, scalars=diagram.check_scalars(scalars or {}))


def draw(
    diagram: Diagram,
    sizes: Mapping[str, int],
    dtype: str,
    rng: np.random.Generator,
    flip: bool,
    said: Given,
) -> dict[str, DeviceArray]:
    """Inputs in storage types; `flip` transposes the first input with two axes."""
    out: dict[str, DeviceArray] = {}
    for n in diagram.inputs:
        value, order = said.values(diagram, n, sizes, rng), None
        if flip and len(n.axes) > 1:
            order, flip = tuple(reversed(range(len(n.axes)))), False
        out[str(n.params[0])] = to_device(value, SPELLING[storage_type(n, dtype)], order=order)
    return out


def run_case(
    plan: Plan,
    case: Case,
    rng: np.random.Generator,
    specialised: bool = False,
    said: Given = Given(),  # noqa: B008
) -> tuple[list[ValueRow], list[TrafficRow]]:
    """Run one case: the errors of the outputs, and bytes predicted and counted; with `specialised`,
    of the kernels of warpgroups that take the place of others, and nothing where none can."""
    diagram, sizes = plan.diagram, case.sizes
    inputs = draw(diagram, sizes, plan.dtype, rng, case.transposed, said)
    scalars = diagram.check_scalars({})
    wanted = results(diagram, [a.to_float64() for a in inputs.values()], scalars)
    try:
        ran = run_recipe(plan.recipe, inputs, sizes, scalars, specialised)
    except KernelError as error:
        raise CheckFailed(f"{plan.name}, {case.name}: {error}") from None
    if specialised and not any(ran.specialised):
        return [], []
    found = _Found(plan, case, specialised, inputs, scalars, wanted, ran)
    return list(found.values()), list(found.traffic())


def as_promised(
    found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], inputs: Iterable[Any]
) -> np.ndarray[Any, Any]:
    """What was found, with what is wanted where NaN stands for an infinity or an infinity for NaN,
    as another order of sums may have it of inputs that hold such (docs/semantics.md)."""
    if all(np.isfinite(x).all() for x in inputs):
        return found
    other = (np.isnan(found) & np.isinf(wanted)) | (np.isinf(found) & np.isnan(wanted))
    return np.where(other, wanted, found)


@dataclass(frozen=True)
class _Found:
    """What was found in one case, of kernels of warpgroups or of the others."""

    plan: Plan
    case: Case
    specialised: bool
    inputs: Mapping[str, DeviceArray]
    scalars: Mapping[str, float]
    wanted: Sequence[Any]
    ran: Ran

    def _called(self, name: str) -> str:
        return f"{name}, {WARPGROUPS}" if self.specialised else name

    @cached_property
    def exact(self) -> list[Any]:
        """The inputs as they are stored."""
        return [a.to_float64() for a in self.inputs.values()]

    def values(self) -> Iterator[ValueRow]:
        """The errors of the outputs."""
        plan, diagram = self.plan, self.plan.diagram
        for i, o in enumerate(diagram.outputs):
            found = self.ran.tensors[plan.tensor_of[o.name]].to_float64()
            found = as_promised(found, self.wanted[i], self.exact)
            types = roundings(plan, plan.tensor_of[o.name])
            limit = 0.0 if rounds_nothing(o.node) else max(TOLERANCE[t] for t in types)
            error = close_to(found, self.wanted[i], storage_type(o.node, plan.dtype))
            step = max(HALF_STEP[t] for t in types)
            moves, terms, past = 0.0, 0.0, ""
            if limit < error < math.inf:
                moves = self._moves(i, step)
                if o.node.kind == "real" and self._cancels(i):
                    on = self.exact, self.case.sizes, self.scalars
                    terms = largest_under(diagram, i, *on)
                    gap = np.linalg.norm((found - self.wanted[i])[np.isfinite(found)])
                    error = float(gap / (terms * math.sqrt(found.size))) if terms else error
            if not error <= limit:
                whole = math.isfinite(error)
                past = overflow(diagram, self.exact, self.case.sizes, self.scalars, whole=whole)
            yield ValueRow(
                self._called(self.case.name), o.name, error, limit, moves, past, terms=terms
            )

    def _cancels(self, i: int) -> bool:
        """Whether an output is 0 but for rounding."""
        step, part = CANCELLED
        return self._moves(i, step) > (part if self.wanted[i].any() else 0.0)

    def _moves(self, i: int, step: float) -> float:
        """How far an output moves, by norm, if each value of every input moves by up to `step` of
        its size: no rounding on the way can be asked to do less. 0 where that leaves the
        numbers."""
        rng, diagram = np.random.default_rng(0), self.plan.diagram
        near = [
            x * (1 + step * rng.uniform(-1, 1, x.shape)) if n.kind == "real" else x
            for n, x in zip(diagram.inputs, self.exact, strict=True)
        ]
        moved = close_to(results(diagram, near, self.scalars)[i], self.wanted[i])
        return moved if math.isfinite(moved) else 0.0

    def traffic(self) -> Iterator[TrafficRow]:
        """Bytes predicted and counted of each kernel that ran."""
        plan, ran = self.plan, self.ran
        fast = zip(plan.launched.kernels, ran.specialised, strict=True)
        kernels = [k if own else plain for plain, (k, own) in zip(plan.kernels, fast, strict=True)]
        for k, counted, boxed in zip(kernels, ran.moved, ran.described, strict=True):
            if self.specialised and not k.schedule.warpgroups:
                continue
            wanted = k.bytes_at(plan.full(self.case.sizes), self._numbers, boxed)
            predicted = {(k.binding[t], str(d)): n for (t, d), n in wanted.items()}
            seen = {(t, str(d)): n for (t, d), n in counted.items()}
            for key in dict.fromkeys([*predicted, *seen]):
                both = predicted.get(key, 0), seen.get(key, 0)
                yield TrafficRow(self.case.name, self._called(k.name), *key, *both)

    @cached_property
    def _numbers(self) -> dict[str, Any]:
        """The values of arrays, for which key sets may ask."""
        values = {t: a.to_float64() for t, a in self.ran.tensors.items()}
        whole = {t for t, a in self.ran.tensors.items() if a.dtype[0] in "iu"}
        return {t: x.astype(np.int64) if t in whole else x for t, x in values.items()}


def compiled(plan: Plan, *, registers: bool = True) -> list[ResourceRow]:
    """What every kernel takes on every architecture, those of warpgroups on that of their machine,
    from ahead-of-time compiles. The planner has asked the compiler of its machine alone: where that
    of another architecture fails, other warps and stages are taken, as by a launch.

    Args:
        registers: whether to look at the machine code, too; else only shared memory is known.
    """
    own = plan.machine.arch
    archs = dict.fromkeys([*ARCHITECTURES, own] if own in KNOWN else ARCHITECTURES)
    todo = [(k, arch) for k in distinct(plan.kernels) for arch in archs if _compiles(k, arch)]
    todo += [(k, own) for k in distinct(plan.of_warpgroups)]
    ask = resources_many if registers else compilations
    jobs = _jobs(plan, todo)
    each = [(k, arch, job) for (k, arch), job in zip(todo, jobs, strict=True)]
    rows = [_row(k, arch, r) for (k, arch, _), r in zip(each, ask(jobs), strict=True)]
    return [
        _otherwise(k, job, row, ask) if row.allocated is None and arch != own else row
        for (k, arch, job), row in zip(each, rows, strict=True)
    ]


def _otherwise(
    k: PlannedKernel, job: Job, row: ResourceRow, ask: Callable[[list[Job]], Sequence[Any]]
) -> ResourceRow:
    """The row of a kernel with other warps and stages; as it is where it compiles with none."""
    for warps, stages in others(job.num_warps, job.num_stages):
        (found,) = ask([replace(job, num_warps=warps, num_stages=stages)])
        if not isinstance(found, Exception):
            note = f"with {warps} warps and {stages} stages: {row.note}"
            return replace(_row(k, row.arch, found), note=note)
    return row


def _row(k: PlannedKernel, arch: str, found: Resources | int | Exception) -> ResourceRow:
    """A row of what a kernel takes on an architecture."""
    name = f"{k.name}, {WARPGROUPS}" if k.schedule.warpgroups else k.name
    least, most = (
        (k.operand_bytes, k.machine.shared_per_block) if arch == k.machine.arch else (0, 0)
    )
    if isinstance(found, Exception):
        return ResourceRow(name, arch, least, most, None, None, None, str(found))
    if isinstance(found, int):
        return ResourceRow(name, arch, least, most, found, None, None)
    taken = found.shared_bytes, found.registers, found.spills, found.note
    return ResourceRow(name, arch, least, most, *taken)


def spilled(plan: Plan) -> dict[str, int]:
    """Bytes that a thread of each kernel spills to L2, as compiled for the plan's machine; 0 where
    that is not known."""
    kernels = [k for k in distinct(plan.kernels) if _compiles(k, plan.machine.arch)]
    found = resources_many(_jobs(plan, [(k, plan.machine.arch) for k in kernels]))
    return {
        k.name: 0 if isinstance(r, Exception) else r.spilled or 0
        for k, r in zip(kernels, found, strict=True)
    }


def _jobs(plan: Plan, todo: Sequence[tuple[PlannedKernel, str]]) -> list[Job]:
    """Compilations of kernels for row-major tensors of the plan's sizes."""
    sizes = plan.full(plan.sizes)
    return [job_of(k, sizes, arch) for k, arch in todo]


def _compiles(k: PlannedKernel, arch: str) -> bool:
    """Whether Triton has the types of a kernel's tensors and casts on an architecture."""
    casts = map(own_type, postorder(k.choice.kernel.terms))
    return target_of(arch).has_fp8 or "fp8" not in {*k.dtypes.values(), *casts}
