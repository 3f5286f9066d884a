"""Ways to run a problem on the device: what its outputs are off by, and whether runs agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from napkin.measure.matrix import Problem
from napkin.measure.tensors import drawn
from napkin.measure.values import errors, poisoned, same_bits
from napkin.plan.derive import derive
from napkin.plan.plan import Plan
from napkin.plan.samples import cases

Found = tuple[float, str]
"""The largest error, and a note on what else is wrong."""


def _plan(plan: Plan, p: Problem, seed: int, budget: int) -> Found:
    """The plan for the problem's sizes, on inputs as they lie."""
    tensors = drawn(plan.diagram, plan.sizes, p.dtype, seed, p.layout)
    ran = poisoned(plan, tensors, 1 if p.bytes else 3)
    off = errors(plan, ran.outputs, tensors, plan.sizes, budget)
    return max(off.values()), "" if ran.repeats else "results differ from run to run"


def _cases(plan: Plan, p: Problem, seed: int, budget: int) -> Found:
    """The kernels of a plan as they are, at every size of a check."""
    worst, notes = 0.0, list[str]()
    wanted = [c for c in cases(plan) if not p.only or c.name in p.only]
    for i, case in enumerate(wanted):
        chosen = plan
        if case.weave:
            full = {**plan.sizes, **case.sizes}
            on = plan.machine, full, plan.dtype
            woven = plan.diagram.weave(case.weave)
            chosen = derive(woven, *on, deterministic=plan.deterministic)
        layout = "transposed" if case.transposed else "plain"
        tensors = drawn(chosen.diagram, case.sizes, p.dtype, seed + i, layout)
        ran = poisoned(chosen, tensors, as_is=True)
        off = max(errors(chosen, ran.outputs, tensors, case.sizes, budget).values())
        worst = max(worst, off)
        if not ran.repeats:
            notes.append(f"{case.name}: results differ from run to run")
    return worst, "; ".join(notes)


def _streams(plan: Plan, p: Problem, seed: int, budget: int) -> Found:
    """Two launches on two streams at once give what they give alone."""
    inputs = [drawn(plan.diagram, plan.sizes, p.dtype, seed + i, p.layout) for i in range(2)]
    alone = [poisoned(plan, tensors, 1).outputs for tensors in inputs]
    torch.cuda.synchronize()
    sides = [torch.cuda.Stream() for _ in inputs]
    again: list[dict[str, torch.Tensor]] = [{}, {}]
    names = [o.name for o in plan.diagram.outputs]
    for _ in range(5):
        for i, (side, tensors) in enumerate(zip(sides, inputs, strict=True)):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                found = plan(*tensors)
            found = found if isinstance(found, tuple) else (found,)
            again[i] = dict(zip(names, found, strict=True))
        torch.cuda.synchronize()
        for a, b in zip(alone, again, strict=True):
            if not all(same_bits(a[name], b[name]) for name in names):
                return float("inf"), "results differ from those of a launch alone"
    return max(errors(plan, alone[0], inputs[0], plan.sizes, budget).values()), ""


def _call(plan: Plan, p: Problem, seed: int, budget: int) -> Found:
    """A function of the library against the diagram of what it computes."""
    assert p.call is not None
    tensors = drawn(plan.diagram, plan.sizes, p.dtype, seed, p.layout)
    names = [o.name for o in plan.diagram.outputs]

    def called() -> dict[str, Any]:
        found: Any = p.call(*tensors) if p.call else None
        return dict(zip(names, found if isinstance(found, tuple) else (found,), strict=True))

    first, again = called(), called()
    repeats = all(same_bits(first[n], again[n]) for n in names)
    off = max(errors(plan, first, tensors, plan.sizes, budget).values())
    return off, "" if repeats else "results differ from run to run"


RUN: dict[str, Callable[[Plan, Problem, int, int], Found]] = {
    "plan": _plan,
    "cases": _cases,
    "streams": _streams,
    "call": _call,
}
"""Ways to run a problem, by `Problem.how`."""
