"""Run the matrix on the device: values against float64, into poisoned outputs, the same bits from
run to run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from napkin.errors import NapkinError, Refusal
from napkin.measure.matrix import Problem

SMALL_BUDGET = 2 * 2**30
"""Bytes that the float64 evaluation keeps alive beside tensors that nearly fill the memory, or
beside other processes on the device."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Outcome:
    """How one problem went.

    Attributes:
        status: "ok", "wrong", "refused" (no kernel fits, and the message said so) or "skipped".
        relative_error: the largest of its outputs, against float64.
    """

    group: str
    title: str
    status: str
    relative_error: float | None
    tolerance: float
    seconds: float
    note: str = ""


@dataclass(frozen=True)
class Tool:
    """What compute-sanitizer said of the sample.

    Attributes:
        status: "ok", "wrong" (it found something), "refused" (it watched nothing) or "skipped" (it
            is not there).
    """

    tool: str
    status: str
    note: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Verified:
    """Every outcome."""

    about: dict[str, str]
    machine: str
    seed: int
    outcomes: tuple[Outcome, ...]
    tools: tuple[Tool, ...] = ()

    @property
    def wrong(self) -> list[Outcome | Tool]:
        """What did not hold."""
        return [o for o in (*self.outcomes, *self.tools) if o.status == "wrong"]

    @property
    def ok(self) -> bool:
        """Whether everything that ran held, and something ran."""
        return not self.wrong and any(o.status == "ok" for o in self.outcomes)

    def to_json(self) -> dict[str, Any]:
        """It as plain data."""
        return {
            "ok": self.ok,
            **self.about,
            "machine": self.machine,
            "seed": self.seed,
            "problems": [asdict(o) for o in self.outcomes],
            "sanitizer": [asdict(t) for t in self.tools],
        }


def verify(
    problems: Sequence[Problem], machine: str, seed: int, progress: Progress | None = None
) -> list[Outcome]:
    """Run problems one after another; each draws its inputs from `seed` and its place."""
    tell = progress or (lambda text, done, total: None)
    out: list[Outcome] = []
    for i, p in enumerate(problems):
        tell(str(p), i, len(problems))
        out.append(outcome(p, machine, seed + i))
        if out[-1].status == "wrong" and not usable():
            rest = problems[i + 1 :]
            why = f"after {p} the device takes no more launches"
            out += [Outcome(q.group, q.title, "skipped", None, 0.0, 0.0, why) for q in rest]
            break
    return out


def usable() -> bool:
    """Whether the device still answers: after a read out of bounds it does not, in this process."""
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def outcome(p: Problem, machine: str, seed: int, budget: int | None = None) -> Outcome:
    """Run one problem; whatever goes wrong becomes an outcome.

    Args:
        budget: bytes that the float64 evaluation may keep alive; as many as there are for one
            process by default.
    """
    import torch

    from napkin.check.verdict import TOLERANCE
    from napkin.torch.reference import BUDGET

    began = time.monotonic()
    limit = TOLERANCE[p.dtype]

    def end(status: str, error: float | None = None, note: str = "") -> Outcome:
        title = f"{p.title}, {p.dtype}, {p.layout}"
        return Outcome(p.group, title, status, error, limit, time.monotonic() - began, note)

    free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved()
    free -= torch.cuda.memory_allocated()
    if p.bytes > free:
        return end("skipped", note=f"needs {p.bytes / 2**30:.0f} GiB, {free / 2**30:.0f} are free")
    try:
        error, note = RUN[p.how](p, machine, seed, SMALL_BUDGET if p.bytes else budget or BUDGET)
    except torch.OutOfMemoryError as why:
        torch.cuda.empty_cache()
        return end("skipped", note=str(why).split(". ")[0])
    except Refusal as why:
        return end("refused", note=str(why))
    except NapkinError as why:
        return end("wrong", note=str(why))
    except Exception as why:
        # A launch that fails is what this command is there to find: say which, and go on.
        return end("wrong", note=f"{type(why).__name__}: {brief(str(why))}")
    finally:
        if p.bytes:
            torch.cuda.empty_cache()
    status = "wrong" if note or not error <= limit else "ok"
    return end(status, error, note)


Found = tuple[float, str]
"""The largest error, and a note on what else is wrong."""


def brief(text: str) -> str:
    """A message on one line: its beginning, and its end, where a compiler says what is wrong."""
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:120]} ... {line[-170:]}"


def _plan(p: Problem, machine: str, seed: int, budget: int) -> Found:
    """The plan for the problem's sizes, on inputs as they lie."""
    from napkin.measure.tensors import drawn
    from napkin.measure.values import errors, poisoned
    from napkin.plan.derive import derive

    plan = derive(p.diagram(), machine, p.sizes, p.dtype)
    tensors = drawn(plan.diagram, plan.sizes, p.dtype, seed, p.layout)
    ran = poisoned(plan, tensors, 1 if p.bytes else 3)
    off = errors(plan, ran.outputs, tensors, plan.sizes, budget)
    return max(off.values()), "" if ran.repeats else "results differ from run to run"


def _cases(p: Problem, machine: str, seed: int, budget: int) -> Found:
    """The kernels of a plan as they are, at every size of a check."""
    from napkin.measure.tensors import drawn
    from napkin.measure.values import errors, poisoned
    from napkin.plan.derive import derive
    from napkin.plan.samples import cases

    plan = derive(p.diagram(), machine, p.sizes, p.dtype)
    worst, notes = 0.0, list[str]()
    wanted = [c for c in cases(plan) if not p.only or c.name in p.only]
    for i, case in enumerate(wanted):
        chosen = plan
        if case.weave:
            full = {**plan.sizes, **case.sizes}
            chosen = derive(plan.diagram.weave(case.weave), plan.machine, full, plan.dtype)
        layout = "transposed" if case.transposed else "plain"
        tensors = drawn(chosen.diagram, case.sizes, p.dtype, seed + i, layout)
        ran = poisoned(chosen, tensors, as_is=True)
        off = max(errors(chosen, ran.outputs, tensors, case.sizes, budget).values())
        worst = max(worst, off)
        if not ran.repeats:
            notes.append(f"{case.name}: results differ from run to run")
    return worst, "; ".join(notes)


def _streams(p: Problem, machine: str, seed: int, budget: int) -> Found:
    """Two launches on two streams at once give what they give alone."""
    import torch

    from napkin.measure.tensors import drawn
    from napkin.measure.values import errors, poisoned, same_bits
    from napkin.plan.derive import derive

    plan = derive(p.diagram(), machine, p.sizes, p.dtype)
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


def _call(p: Problem, machine: str, seed: int, budget: int) -> Found:
    """A function of the library against the diagram of what it computes."""
    from napkin.measure.tensors import drawn
    from napkin.measure.values import errors, same_bits
    from napkin.plan.derive import derive

    assert p.call is not None
    plan = derive(p.diagram(), machine, p.sizes, p.dtype)
    tensors = drawn(plan.diagram, plan.sizes, p.dtype, seed, p.layout)
    names = [o.name for o in plan.diagram.outputs]

    def called() -> dict[str, Any]:
        found: Any = p.call(*tensors) if p.call else None
        return dict(zip(names, found if isinstance(found, tuple) else (found,), strict=True))

    first, again = called(), called()
    repeats = all(same_bits(first[n], again[n]) for n in names)
    off = max(errors(plan, first, tensors, plan.sizes, budget).values())
    return off, "" if repeats else "results differ from run to run"


RUN: dict[str, Callable[[Problem, str, int, int], Found]] = {
    "plan": _plan,
    "cases": _cases,
    "streams": _streams,
    "call": _call,
}
"""Ways to run a problem, by `Problem.how`."""


def summed(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """For each group: how many ended how, the worst error over its tolerance, seconds."""
    groups: dict[str, list[Outcome]] = {}
    for o in outcomes:
        groups.setdefault(o.group, []).append(o)
    rows: list[dict[str, Any]] = []
    for name, found in groups.items():
        known = [o for o in found if o.relative_error is not None]
        worst = max(known, key=lambda o: (o.relative_error or 0.0) / o.tolerance, default=None)
        row: dict[str, Any] = {"group": name, "problems": len(found)}
        row |= {s: sum(o.status == s for o in found) for s in ("ok", "wrong", "refused", "skipped")}
        row |= {
            "worst": worst.relative_error if worst else None,
            "at_most": worst.tolerance if worst else None,
            "seconds": sum(o.seconds for o in found),
        }
        rows.append(row)
    return rows
