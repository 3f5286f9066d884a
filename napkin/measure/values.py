"""Values on the device: a plan's kernels, into poisoned outputs, against float64 on that device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from napkin.check.verdict import on_device, rounds_nothing
from napkin.check.verdict_rows import ValueRow
from napkin.diagram.diagram import Diagram
from napkin.ir.types import LARGEST, NEAR, STEP
from napkin.measure.tensors import drawn, poison
from napkin.plan.plan import Plan
from napkin.torch.dtypes import REAL
from napkin.torch.reference import BUDGET, evaluation
from napkin.torch.run import opened

RUNS = 3
"""Runs whose results must be the same, bit for bit."""


@dataclass
class Errors:
    """Relative error by norm of one output, gathered part by part; inf where special values
    differ, and past the largest number and near 0 by the storage type, as in
    `napkin.ir.evaluate.close_to`."""

    gap: float = 0.0
    scale: float = 0.0
    special: bool = False

    def add(self, found: torch.Tensor, wanted: torch.Tensor) -> Errors:
        """Take one part in."""
        dtype = "fp8" if found.dtype == torch.float8_e4m3fn else REAL.get(found.dtype, "")
        found, wanted = found.to(torch.float64), wanted.to(torch.float64)
        if found.shape != wanted.shape:
            self.special = True
            return self
        if dtype in LARGEST:
            most = LARGEST[dtype]
            past = torch.isfinite(wanted) & (wanted.abs() >= NEAR * most)
            found = torch.where(past, found.clamp(-most, most), found)
            wanted = torch.where(past, wanted.clamp(-most, most), wanted)
        finite = torch.isfinite(wanted)
        same = (found == wanted) | (found.isnan() & wanted.isnan())
        if bool((~finite & ~same).any()) or bool((finite & ~torch.isfinite(found)).any()):
            self.special = True
            return self
        wanted = torch.where(finite, wanted, 0.0)
        found = torch.where(finite, found, 0.0)
        gap = ((found - wanted).abs() - STEP.get(dtype, 0.0) / 2).clamp_min(0.0)
        self.gap += float(gap.square().sum())
        self.scale += float(wanted.square().sum())
        return self

    @property
    def relative(self) -> float:
        """||found - wanted|| / ||wanted||."""
        if self.special:
            return math.inf
        gap, scale = math.sqrt(self.gap), math.sqrt(self.scale)
        return gap / scale if scale else gap


@dataclass(frozen=True)
class Ran:
    """What the kernels left, by output, and whether every run left the same bits."""

    outputs: Mapping[str, torch.Tensor]
    repeats: bool


def poisoned(
    plan: Plan, tensors: Sequence[torch.Tensor], runs: int = RUNS, as_is: bool = False
) -> Ran:
    """Run a plan's kernels into poisoned tensors, `runs` times, each time into the same.

    Args:
        as_is: with the plan's own tiles, whatever the shapes; an axis that a kernel holds whole
            must fit.
    """
    chosen, known, calls = opened(plan, tensors, {}, as_is)
    own = [t for name, t in known.items() if name not in plan.diagram.input_names]
    first: dict[str, torch.Tensor] = {}
    repeats = True
    names = {o.name: chosen.tensor_of[o.name] for o in plan.diagram.outputs}
    for i in range(runs):
        for t in own:
            poison(t)
        for call in calls:
            call()
        if i == 0 and runs > 1:
            first = {o: known[t].clone() for o, t in names.items()}
        elif runs > 1:
            repeats &= all(same_bits(first[o], known[t]) for o, t in names.items())
    return Ran({o: known[t] for o, t in names.items()}, repeats)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold the same bits, NaN included."""
    of = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return torch.equal(a.contiguous().view(of), b.contiguous().view(of))


Outputs = Mapping[str, torch.Tensor]
"""Results by the names of a diagram's outputs."""


def compared(
    diagram: Diagram,
    results: Mapping[str, Outputs],
    tensors: Sequence[torch.Tensor],
    sizes: Mapping[str, int],
    budget: int = BUDGET,
) -> dict[str, dict[str, float]]:
    """The relative errors, by output, of each of several results for the same tensors.

    What is right is evaluated once, in float64 on the tensors' device, part by part.
    """
    total = {name: {o.name: Errors() for o in diagram.outputs} for name in results}
    made = evaluation(diagram, sizes)
    for box, wanted in made.chunks(*tensors, budget=budget):
        for o, w in zip(diagram.outputs, wanted, strict=True):
            held = [box.get(a) for a in o.axes]
            part = tuple(slice(None) if r is None else slice(r.start, r.stop) for r in held)
            for name, found in results.items():
                total[name][o.name].add(found[o.name][part], w)
    return {name: {o: e.relative for o, e in each.items()} for name, each in total.items()}


def errors(
    plan: Plan, found: Outputs, tensors: Sequence[torch.Tensor],
    sizes: Mapping[str, int], budget: int = BUDGET,
) -> dict[str, float]:  # fmt: skip
    """The relative error of each output of a plan; as `compared`."""
    return compared(plan.diagram, {"": found}, tensors, sizes, budget)[""]


@dataclass(frozen=True)
class DeviceValues:
    """Errors of the outputs on the device, whether results repeat, and whether they have to: not
    where groups add in memory in any order."""

    rows: tuple[ValueRow, ...]
    repeats: bool
    have_to: bool = True

    @property
    def ok(self) -> bool:
        """Whether every output is within its tolerance, and every run gave the same where it has
        to."""
        return (self.repeats or not self.have_to) and all(r.ok for r in self.rows)


def device_values(plan: Plan, seed: int) -> DeviceValues:
    """Run a plan on random inputs of its sizes and compare."""
    tensors = drawn(plan.diagram, plan.sizes, plan.dtype, seed)
    ran = poisoned(plan, tensors)
    off = errors(plan, ran.outputs, tensors, plan.sizes)
    limit = on_device(plan.diagram, plan.dtype)
    exact = {o.name for o in plan.diagram.outputs if rounds_nothing(o.node)}
    rows = tuple(ValueRow("as planned", o, e, 0.0 if o in exact else limit) for o, e in off.items())
    return DeviceValues(rows, ran.repeats, not plan.accumulates)
