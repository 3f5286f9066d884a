"""The verdict on a plan: do its kernels compute, move and take what was predicted?

Values against float64 evaluation, bytes per tensor and direction against H, and shared memory of
an ahead-of-time compile against the prediction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from napkin.check.arrays import Descriptor, DeviceArray, empty, to_device
from napkin.check.compile import Job, resources_many, specialise
from napkin.check.inputs import whole_numbers
from napkin.check.rounding import roundings
from napkin.check.running import SPELLING, launch_of, outputs_of, run_kernels
from napkin.check.worker import KernelError
from napkin.diagram.diagram import Diagram
from napkin.diagram.evaluate import close_to
from napkin.diagram.storage import own_type, storage_type
from napkin.diagram.types import FP8_CAPABILITY, PACKED
from napkin.errors import NapkinError
from napkin.lower.launch import MIN_CAPABILITY, WARPS
from napkin.plan.derive import derive
from napkin.plan.plan import Plan, PlannedKernel, distinct
from napkin.plan.samples import Case, cases

TOLERANCE = {"fp32": 1e-5, "fp16": 5e-3, "bf16": 1e-2, "fp8": 5e-2}
"""Largest relative error, by norm, of what is rounded to each type on its way to memory."""

HALF_STEP = {"fp32": 2**-24, "fp16": 2**-11, "bf16": 2**-8, "fp8": 2**-4}
"""Largest relative error of one rounding to each type."""

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
EXACT = ("sm_80", "sm_90")
"""Architectures whose shared memory is modelled; on the others it is only reported."""

WARPGROUPS = "warpgroups"
"""What rows are marked with that are of kernels of warpgroups."""

Progress = Callable[[str, int, int], None]


class CheckFailed(NapkinError):
    """A check found a prediction that does not hold."""


@dataclass(frozen=True)
class ValueRow:
    """The error of one output in one case.

    Attributes:
        moves: how far rounding the inputs once more moves it, by norm, where the error passes the
            tolerance: it tells a diagram that no kernel computes more exactly from a wrong kernel,
            and changes no verdict.
    """

    case: str
    output: str
    relative_error: float
    tolerance: float
    moves: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the error is within the tolerance; NaN is not."""
        return self.relative_error <= self.tolerance

    @property
    def mark(self) -> str:
        """That in words, and where it is not, how sensitive the output is."""
        said = f"; rounding its inputs alone moves it by {self.moves:.1e}" if self.moves else ""
        return ("ok" if self.ok else "WRONG") + said


@dataclass(frozen=True)
class TrafficRow:
    """Bytes of one tensor in one direction, in one kernel and one case."""

    case: str
    kernel: str
    tensor: str
    direction: str
    predicted: int
    counted: int

    @property
    def ok(self) -> bool:
        """Whether they are equal."""
        return self.predicted == self.counted


@dataclass(frozen=True)
class ResourceRow:
    """What one kernel takes on one architecture; shared memory in bytes."""

    kernel: str
    arch: str
    shared_predicted: int
    shared_compiled: int | None
    registers: int | None
    spills: int | None
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether predicted and compiled shared memory are equal, where that is modelled."""
        return self.arch not in EXACT or self.shared_predicted == self.shared_compiled


@dataclass(frozen=True)
class Verdict:
    """Every row of a check."""

    name: str
    values: tuple[ValueRow, ...]
    traffic: tuple[TrafficRow, ...]
    resources: tuple[ResourceRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every row holds."""
        return all(r.ok for r in (*self.values, *self.traffic, *self.resources))

    @property
    def relative_error(self) -> float:
        """The largest error of any output."""
        return max((r.relative_error for r in self.values), default=0.0)

    def raise_if_wrong(self) -> None:
        """Raise with the rows that failed.

        Raises:
            CheckFailed: some row does not hold.
        """
        bad = [r for r in (*self.values, *self.traffic, *self.resources) if not r.ok]
        if bad:
            lines = "; ".join(str(r) for r in bad[:5])
            raise CheckFailed(f"{self.name}: {len(bad)} predictions do not hold: {lines}")

    def to_json(self) -> dict[str, Any]:
        """The verdict as plain data."""
        return {
            "ok": self.ok,
            "values": {
                "relative_error": self.relative_error,
                "tolerance": max((r.tolerance for r in self.values), default=0.0),
                "ok": all(r.ok for r in self.values),
                "rows": [asdict(r) for r in self.values],
            },
            "traffic": [asdict(r) for r in self.traffic],
            "resources": [asdict(r) for r in self.resources],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        good = "holds" if self.ok else "DOES NOT HOLD"
        lines = [f"{self.name}: the prediction {good}"]
        for v in self.values:
            lines.append(f"  {v.case}: {v.output} error {v.relative_error:.2e} {v.mark}")
        for t in self.traffic:
            mark = "=" if t.ok else "!="
            lines.append(
                f"  {t.case}: {t.kernel} {t.direction} {t.tensor} {t.predicted} {mark} {t.counted}"
            )
        for r in self.resources:
            mark = "=" if r.shared_predicted == r.shared_compiled else "!="
            lines.append(
                f"  {r.kernel} {r.arch} shared {r.shared_predicted} {mark} {r.shared_compiled}, "
                f"{r.registers} registers, {r.spills} bytes spilled"
            )
        return "\n".join(lines)


def check(
    plan: Plan,
    *,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    resources: bool = True,
    progress: Progress | None = None,
) -> Verdict:
    """Check a plan on the CPU.

    Args:
        sizes: run at these sizes only; by default at sizes that divide the tiles, at primes, with
            an input transposed in memory, with a batch axis weaved in, and with boxes that reach
            past the end of a tensor
        seed: of the random inputs.
        resources: whether to compile for each architecture as well.
        progress: called with a text, and how many steps of how many are done.
    """
    tell = progress or (lambda text, done, total: None)
    todo = cases(plan, sizes)
    total = len(todo) + (1 if resources else 0)
    values: list[ValueRow] = []
    traffic: list[TrafficRow] = []
    for i, case in enumerate(todo):
        tell(case.name, i, total)
        chosen = plan
        if case.weave:
            woven = plan.diagram.weave(case.weave)
            full = {**plan.sizes, **case.sizes}
            chosen = derive(woven, plan.machine, full, plan.dtype)
        for bands in (False, True):
            if bands and chosen.launched is chosen:
                continue
            v, t = run_case(chosen, case, np.random.default_rng(seed + i), bands)
            values += v
            traffic += t
    found: list[ResourceRow] = []
    if resources:
        tell("compile", len(todo), total)
        found = compiled(plan)
    tell("done", total, total)
    return Verdict(plan.name, tuple(values), tuple(traffic), tuple(found))


def draw(
    diagram: Diagram, sizes: Mapping[str, int], dtype: str, rng: np.random.Generator, flip: bool
) -> dict[str, DeviceArray]:
    """Random inputs in storage types; `flip` transposes the first input with two axes."""
    out: dict[str, DeviceArray] = {}
    for n in diagram.inputs:
        shape = [sizes[a] for a in n.axes]
        if n.kind == "real":
            value = rng.normal(size=shape)
        elif n.kind == "int":
            value = whole_numbers(diagram, n, shape, sizes, rng)
        else:
            value = rng.integers(0, 2, size=shape)
        order = None
        if flip and len(shape) > 1:
            order, flip = tuple(reversed(range(len(shape)))), False
        out[str(n.params[0])] = to_device(value, SPELLING[storage_type(n, dtype)], order=order)
    return out


def run_case(
    plan: Plan, case: Case, rng: np.random.Generator, bands: bool = False
) -> tuple[list[ValueRow], list[TrafficRow]]:
    """Run one case: the errors of the outputs, and bytes predicted and counted; with `bands`, of
    the kernels of warpgroups that take the place of others, and nothing where none can."""
    diagram, sizes = plan.diagram, case.sizes
    inputs = draw(diagram, sizes, plan.dtype, rng, case.transposed)
    scalars = diagram.check_scalars({})
    wanted = diagram.evaluate(*(a.to_float64() for a in inputs.values()), **scalars)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    try:
        ran = run_kernels(plan, inputs, sizes, scalars, bands)
    except KernelError as error:
        raise CheckFailed(f"{plan.name}, {case.name}: {error}") from None
    if bands and not any(ran.banded):
        return [], []
    # Key sets may ask for the values of arrays of whole numbers.
    given = {
        t: a.data for t, a in ran.tensors.items() if a.data.dtype.kind in "iu" and a.dtype != "bf16"
    }
    values: list[ValueRow] = []
    for o, w in zip(diagram.outputs, wanted, strict=True):
        found = ran.tensors[plan.tensor_of[o.name]].to_float64()
        types = roundings(plan, plan.tensor_of[o.name])
        limit = max(TOLERANCE[t] for t in types)
        error = close_to(found, w, storage_type(o.node, plan.dtype))
        moves = 0.0
        if limit < error < math.inf:
            step = max(HALF_STEP[t] for t in types)
            moves = _moves(diagram, o.name, inputs, scalars, step)
        name = f"{case.name}, {WARPGROUPS}" if bands else case.name
        values.append(ValueRow(name, o.name, error, limit, moves))
    traffic: list[TrafficRow] = []
    kernels = [
        fast if banded else plain
        for plain, fast, banded in zip(plan.kernels, plan.launched.kernels, ran.banded, strict=True)
    ]
    for k, counted, boxed in zip(kernels, ran.moved, ran.described, strict=True):
        if bands and not k.choice.band[1]:
            continue
        wanted_bytes = k.bytes_at(plan.full(sizes), given, boxed)
        predicted = {(k.binding[t], str(d)): n for (t, d), n in wanted_bytes.items()}
        seen = {(t, str(d)): n for (t, d), n in counted.items()}
        for key in dict.fromkeys([*predicted, *seen]):
            both = predicted.get(key, 0), seen.get(key, 0)
            called = f"{k.name}, {WARPGROUPS}" if bands else k.name
            traffic.append(TrafficRow(case.name, called, *key, *both))
    return values, traffic


def _moves(
    diagram: Diagram,
    output: str,
    inputs: Mapping[str, DeviceArray],
    scalars: Mapping[str, float],
    step: float,
) -> float:
    """How far an output moves, by norm, if each value of every input moves by up to `step` of its
    size: no rounding on the way can be asked to do less. 0 where that leaves the numbers."""
    rng = np.random.default_rng(0)
    exact = [inputs[str(n.params[0])].to_float64() for n in diagram.inputs]
    near = [
        x * (1 + step * rng.uniform(-1, 1, x.shape)) if n.kind == "real" else x
        for n, x in zip(diagram.inputs, exact, strict=True)
    ]
    place = [o.name for o in diagram.outputs].index(output)
    found: list[Any] = []
    for values in (exact, near):
        made = diagram.evaluate(*values, **scalars)
        found.append(made[place] if isinstance(made, tuple) else made)
    moved = close_to(found[1], found[0])
    return moved if math.isfinite(moved) else 0.0


def compiled(plan: Plan) -> list[ResourceRow]:
    """Resources of every kernel on every architecture, from an ahead-of-time compile."""
    kernels = distinct(plan.kernels)
    pairs = [(k, arch) for k in kernels for arch in ARCHITECTURES if _compiles(k, arch)]
    found = resources_many([_job(plan, k, arch) for k, arch in pairs])
    rows: list[ResourceRow] = []
    for (k, arch), r in zip(pairs, found, strict=True):
        predicted = k.shared_on(arch)
        if isinstance(r, Exception):
            rows.append(ResourceRow(k.name, arch, predicted, None, None, None, str(r)))
        else:
            row = ResourceRow(
                k.name, arch, predicted, r.shared_bytes, r.registers, r.spills, r.note
            )
            said = row.note or row.shared_predicted == row.shared_compiled or arch in EXACT
            rows.append(row if said else replace(row, note="reported, not checked"))
    return [*rows, *compiled_bands(plan)]


def compiled_bands(plan: Plan) -> list[ResourceRow]:
    """Resources of the kernels of warpgroups, on the architecture of their machine."""
    kernels = [k for k in distinct(plan.launched.kernels) if k.choice.band[1]]
    arch = plan.machine.arch
    found = resources_many([_job(plan, k, arch) for k in kernels])
    rows: list[ResourceRow] = []
    for k, r in zip(kernels, found, strict=True):
        name, predicted = f"{k.name}, {WARPGROUPS}", k.shared_bytes
        if isinstance(r, Exception):
            rows.append(ResourceRow(name, arch, predicted, None, None, None, str(r)))
        else:
            taken = r.shared_bytes, r.registers, r.spills, r.note
            rows.append(ResourceRow(name, arch, predicted, *taken))
    return rows


def spilled(plan: Plan) -> dict[str, int]:
    """Bytes that a thread of each kernel spills to L2, as compiled for the plan's machine; 0 where
    that is not known."""
    kernels = [k for k in distinct(plan.kernels) if _compiles(k, plan.machine.arch)]
    found = resources_many([_job(plan, k, plan.machine.arch) for k in kernels])
    return {
        k.name: 0 if isinstance(r, Exception) else r.spilled or 0
        for k, r in zip(kernels, found, strict=True)
    }


def _compiles(k: PlannedKernel, arch: str) -> bool:
    """Whether Triton has the types of a kernel's tensors on an architecture."""
    return int(arch.removeprefix("sm_")) >= FP8_CAPABILITY or "fp8" not in k.dtypes.values()


def _job(plan: Plan, k: PlannedKernel, arch: str) -> Job:
    sizes = plan.full(plan.sizes)
    tensors = {str(n.params[0]): n.axes for n in plan.diagram.inputs}
    tensors |= {t: axes for t, axes, _ in outputs_of(plan)}
    shapes = {t: [sizes[a] for a in axes] for t, axes in tensors.items()}
    for n in plan.diagram.inputs:
        if own_type(n) in PACKED:
            shapes[str(n.params[0])][-1] //= 2
    strides = {t: contiguous(shape) for t, shape in shapes.items()}
    scalars = plan.diagram.check_scalars({})
    capability = int(arch.removeprefix("sm_"))
    call = launch_of(k, sizes, scalars, strides, capability >= MIN_CAPABILITY)
    args: dict[str, Any] = {}
    for a in call.order:
        if a in call.tensors:
            made = empty([1], SPELLING[k.dtypes[call.tensors[a]]])
            args[a] = Descriptor(made, call.boxes[a].sizes) if a in call.boxes else made
        else:
            args[a] = call.scalars[a]
    special = specialise(args)
    banded = bool(k.choice.band[1])
    return Job(
        plan.warpgroups if banded else plan.source,
        k.name,
        special.signature,
        call.constexprs,
        arch,
        num_warps=WARPS if banded else k.choice.warps,
        num_stages=k.choice.stages,
        divisible=special.divisible,
        ones=special.ones,
    )


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in values."""
    out: list[int] = []
    step = 1
    for n in reversed(shape):
        out.append(step)
        step *= n
    return tuple(reversed(out))
