"""A plan and other ways to compute the same, timed in turns in one run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from napkin.diagram.diagram import Diagram
from napkin.errors import InputError, did_you_mean
from napkin.ir.expansion import expanded
from napkin.ir.infer import along
from napkin.ir.key_sets import spec_of
from napkin.ir.node import factors, postorder, union_axes
from napkin.measure.attention import AGAINST, NotAttention, attention_of
from napkin.measure.timing import Sample
from napkin.plan.plan import Plan
from napkin.progress import Progress, silent

if TYPE_CHECKING:
    from napkin.measure.heads import Problem

OURS = "napkin"

PACKAGES = {"fa3": "fa3-fwd", "natten": "natten"}
"""Packages of their own whose version a table says; torch's own is above it."""


@dataclass(frozen=True)
class Row:
    """One way to compute it.

    Attributes:
        time: its times, or None where it could not be timed; `note` then says why.
        relative_error: the largest of its outputs, against float64.
        settings: what is fixed about it: tiles of a plan, the version of a library.
    """

    name: str
    time: Sample | None
    relative_error: float | None = None
    note: str = ""
    settings: str = ""


@dataclass(frozen=True)
class Bench:
    """A table of times.

    Attributes:
        about: the device and versions.
        flops: operations of the products that the diagram asks for.
        moved: predicted bytes of the plan's kernels.
        seed: of the random inputs.
    """

    name: str
    machine: str
    dtype: str
    sizes: Mapping[str, int]
    about: Mapping[str, str]
    rows: tuple[Row, ...]
    predicted_us: float
    flops: float
    moved: int
    seed: int
    tolerance: float
    note: str = ""

    def ratio(self, row: Row) -> float | None:
        """Time of a row over that of the plan: above 1 where the plan is faster."""
        ours = self.rows[0].time
        return row.time.median / ours.median if row.time and ours else None

    @property
    def ok(self) -> bool:
        """Whether the plan's own results are right."""
        error = self.rows[0].relative_error
        return error is not None and error <= self.tolerance

    def to_json(self) -> dict[str, Any]:
        """The table as plain data."""
        return {
            "name": self.name,
            "machine": self.machine,
            "dtype": self.dtype,
            "sizes": dict(self.sizes),
            **self.about,
            "seed": self.seed,
            "note": self.note,
            "predicted_us": self.predicted_us,
            "flops": self.flops,
            "bytes": self.moved,
            "tolerance": self.tolerance,
            "rows": [self._row_json(r) for r in self.rows],
        }

    def _row_json(self, r: Row) -> dict[str, Any]:
        t = r.time
        return {
            "name": r.name,
            "median_us": t.median if t else None,
            "low_us": t.low if t else None,
            "high_us": t.high if t else None,
            "runs": t.runs if t else 0,
            "over_napkin": self.ratio(r),
            "tflops": self.flops / t.median / 1e6 if t else None,
            "relative_error": r.relative_error,
            "settings": r.settings,
            "note": r.note,
        }


def named(text: str, own: Mapping[str, Any]) -> tuple[str, ...]:
    """The baselines that --against names; `own` are those that the diagram's file declares.

    Raises:
        InputError: one is not known.
    """
    names = [n.strip() for n in text.split(",") if n.strip()]
    every = [*AGAINST, *own]
    for name in names:
        if name not in every:
            raise InputError(f"--against {name!r}: {did_you_mean(name, every)}")
    return tuple(dict.fromkeys(names))


def usual(diagram: Diagram, own: Mapping[str, Any]) -> tuple[str, ...]:
    """What a diagram is timed against where nothing is asked for."""
    try:
        attention_of(diagram)
    except NotAttention:
        return ("torch", "compile", *own)
    return ("sdpa", "flex", *own)


def operations(diagram: Diagram, sizes: Mapping[str, int], tensors: Sequence[Any]) -> float:
    """Operations of the products that a diagram asks for: of key sets, those of the pairs that are
    seen, counted on the tensors; whatever a kernel does beside is no useful work."""
    from napkin.torch.reference import terms

    sets: dict[tuple[str, ...], float] = {}
    for keys in diagram.key_sets:
        queries = tuple(a for a in keys.axes if a not in spec_of(keys).keys)
        count = along("sum", keys, spec_of(keys).keys)
        parts = terms(diagram, sizes, [(count, queries)], cut=queries).chunks(*tensors)
        seen = sum(float(found.sum()) for _, (found,) in parts)
        every = math.prod(sizes[a] for a in keys.axes)
        sets[keys.axes] = max(sets.get(keys.axes, 0.0), seen / max(every, 1))
    total = 0.0
    for n in postorder(expanded(diagram.roots).values()):
        arrays = [f for f in factors(n.args[0]) if f.axes] if n.op == "sum" else []
        if len(arrays) > 1:
            axes = union_axes(arrays)
            share = [part for own, part in sets.items() if set(own) <= set(axes)]
            total += 2 * math.prod(sizes[a] for a in axes) * min(share, default=1.0)
    return total


def bench(
    plan: Plan,
    against: Sequence[str],
    own: Mapping[str, Callable[..., Any]],
    seed: int,
    progress: Progress = silent,
    gradient_of: Diagram | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    alone: AbstractContextManager[object] | None = None,
) -> Bench:
    """Time a plan and its baselines at the plan's sizes, every result compared with float64.

    Args:
        against: names of baselines.
        own: those that the diagram's file declares.
        gradient_of: the diagram that the plan is the gradient of, if it is one.
        ranges: from where to where real inputs are drawn, by name; they are else normal.
        alone: entered where results are compared and calls timed, by processes that share the
            device.
    """
    import torch

    from napkin.check.verdict import on_device
    from napkin.measure.check import elsewhere
    from napkin.measure.device import described, version_of
    from napkin.measure.heads import Problem
    from napkin.measure.tensors import drawn
    from napkin.measure.timing import interleaved
    from napkin.measure.values import compared, poisoned

    total = len(against) + 2
    progress("compile", 0, total)
    tensors = drawn(plan.diagram, plan.sizes, plan.dtype, seed, ranges=ranges)
    ran = poisoned(plan, tensors, 1)
    results: dict[str, Mapping[str, torch.Tensor]] = {OURS: ran.outputs}
    calls: dict[str, Callable[[], Any]] = {OURS: plan.bound_call(*tensors)}
    settings = {OURS: "; ".join(settings_text(k) for k in plan.launched.kernels[:3])}
    notes: dict[str, str] = {}
    problem = Problem(plan.diagram, plan.sizes, plan.dtype, tensors, gradient_of)
    for i, name in enumerate(against):
        progress(name, i + 1, total)
        ready = _baseline(name, problem, own)
        if isinstance(ready, str):
            notes[name] = ready
        else:
            calls[name], results[name] = ready
            settings[name] = version_of(PACKAGES.get(name, ""))
    progress("time", total - 1, total)
    with alone or nullcontext():
        gaps = compared(plan.diagram, results, tensors, plan.sizes)
        off = {name: max(each.values()) for name, each in gaps.items()}
        results.clear()
        times = interleaved(calls)
    rows = tuple(
        Row(n, times.get(n), off.get(n), notes.get(n, ""), settings.get(n, ""))
        for n in (OURS, *against)
    )
    about = described()
    flops = operations(plan.diagram, plan.sizes, tensors)
    return Bench(
        plan.name, plan.machine.name, plan.dtype, plan.sizes, about, rows, plan.seconds * 1e6,
        flops, plan.moved, seed, on_device(plan.diagram, plan.dtype),
        elsewhere(plan, about["arch"]),
    )  # fmt: skip


def _baseline(
    name: str, problem: Problem, own: Mapping[str, Callable[..., Any]]
) -> tuple[Callable[[], Any], dict[str, Any]] | str:
    """The call of a baseline, and its results by name; or why there is none."""
    import torch

    from napkin.measure.baselines import NotHere, made

    try:
        beside = made(name, problem, own)
        found = beside.outputs(beside.call())
        results = dict(zip([o.name for o in problem.diagram.outputs], found, strict=True))
        torch.cuda.synchronize()
    except NotHere as why:
        return str(why)
    except Exception as error:
        # Of a library that fails on this problem the table says so, and times the others.
        torch.cuda.empty_cache()
        return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    return beside.call, results


def settings_text(k: Any) -> str:
    """Tiles, warps and stages of a kernel."""
    tiles = ",".join(f"{a}={n}" for a, n in k.tiles.items() if n > 1)
    s = k.schedule
    lasting = f" p{s.persistent}" if s.persistent else ""
    beside = f" {s.warpgroups} warpgroups" if s.warpgroups else ""
    return f"{tiles} w{s.warps} s{s.stages}{lasting}{beside}"
