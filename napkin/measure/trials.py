"""Run a problem on the device: what its outputs are off by, and whether runs agree. A child process
of `napkin verify --gpu` imports this module."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from napkin.errors import NapkinError, Refusal
from napkin.measure.matrix import Problem
from napkin.measure.outcome import Outcome, brief
from napkin.measure.tensors import drawn
from napkin.measure.values import compared, errors, poisoned, same_bits
from napkin.plan.derive import derive
from napkin.plan.plan import Plan
from napkin.plan.samples import cases, plan_of

BUDGET = 2 * 2**30
"""Bytes that the float64 evaluation keeps alive, beside other processes on the device and beside
tensors that nearly fill its memory."""

Found = tuple[float, str]
"""The largest error, and a note on what else is wrong."""


def handle(request: tuple[Problem, str, int]) -> tuple[Outcome, bool]:
    """The outcome of a problem, and whether the device takes further launches of this process."""
    found = outcome(*request)
    going_on = found.status != "wrong" or usable()
    if going_on and torch.cuda.is_available():
        torch.cuda.empty_cache()  # other processes have use for it
    return found, going_on


def usable() -> bool:
    """Whether the device still answers: after a read out of bounds it does not, in this process."""
    try:
        torch.cuda.synchronize()
    except (RuntimeError, AssertionError):  # the latter of a torch that is built without CUDA
        return False
    return True


def outcome(p: Problem, machine: str, seed: int) -> Outcome:
    """Run one problem; whatever goes wrong becomes an outcome."""
    began = time.monotonic()

    def end(status: str, error: float | None = None, note: str = "") -> Outcome:
        return Outcome.of(p, status, error, time.monotonic() - began, note)

    try:
        free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved()
        free -= torch.cuda.memory_allocated()
        if p.bytes > free:
            needs = f"needs {p.bytes / 2**30:.0f} GiB, {free / 2**30:.0f} are free"
            return end("skipped", note=needs)
        error, note = RUN[p.how](p, machine, seed)
    except torch.OutOfMemoryError as why:
        return end("skipped", note=str(why).split(". ")[0])
    except Refusal as why:
        return end("refused", note=str(why))
    except NapkinError as why:
        return end("wrong", note=str(why))
    except Exception as why:
        # A launch that fails is what this command is there to find: say which, and go on.
        return end("wrong", note=f"{type(why).__name__}: {brief(str(why))}")
    found = end("ok", error, note)
    return found if not note and error <= found.tolerance else replace(found, status="wrong")


def _derived(p: Problem, machine: str) -> Plan:
    return derive(p.diagram(), machine, p.sizes, p.dtype)


def _plan(p: Problem, machine: str, seed: int) -> Found:
    """The plan for the problem's sizes, on inputs as they lie."""
    plan = _derived(p, machine)
    tensors = drawn(plan.diagram, plan.sizes, p.dtype, seed, p.layout)
    ran = poisoned(plan, tensors, 1 if p.bytes else 3)
    off = errors(plan, ran.outputs, tensors, plan.sizes, BUDGET)
    return max(off.values()), "" if ran.repeats else "results differ from run to run"


def _cases(p: Problem, machine: str, seed: int) -> Found:
    """The kernels of a plan as they are, at every size of a check."""
    plan = _derived(p, machine)
    worst, notes = 0.0, list[str]()
    wanted = [c for c in cases(plan) if not p.only or c.name in p.only]
    for i, case in enumerate(wanted):
        chosen = plan_of(plan, case)
        layout = "transposed" if case.transposed else "plain"
        tensors = drawn(chosen.diagram, case.sizes, p.dtype, seed + i, layout)
        ran = poisoned(chosen, tensors, as_is=True)
        off = max(errors(chosen, ran.outputs, tensors, case.sizes, BUDGET).values())
        worst = max(worst, off)
        if not ran.repeats:
            notes.append(f"{case.name}: results differ from run to run")
    return worst, "; ".join(notes)


def _streams(p: Problem, machine: str, seed: int) -> Found:
    """Two launches on two streams at once give what they give alone."""
    plan = _derived(p, machine)
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
    return max(errors(plan, alone[0], inputs[0], plan.sizes, BUDGET).values()), ""


def _call(p: Problem, machine: str, seed: int) -> Found:
    """A function of the library, which plans by itself, against the diagram of what it computes."""
    assert p.call is not None
    call, diagram = p.call, p.diagram()
    sizes = diagram.check_sizes(p.sizes)
    tensors = drawn(diagram, sizes, p.dtype, seed, p.layout)
    names = [o.name for o in diagram.outputs]

    def called() -> dict[str, Any]:
        found: Any = call(*tensors)
        return dict(zip(names, found if isinstance(found, tuple) else (found,), strict=True))

    first, again = called(), called()
    repeats = all(same_bits(first[n], again[n]) for n in names)
    off = max(compared(diagram, {"": first}, tensors, sizes, BUDGET)[""].values())
    return off, "" if repeats else "results differ from run to run"


RUN: dict[str, Callable[[Problem, str, int], Found]] = {
    "plan": _plan,
    "cases": _cases,
    "streams": _streams,
    "call": _call,
}
"""Ways to run a problem, by `Problem.how`."""
