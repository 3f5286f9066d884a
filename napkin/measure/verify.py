"""Run the matrix on the device: values against float64, into poisoned outputs, the same bits from
run to run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from napkin.errors import NapkinError, Refusal
from napkin.measure.matrix import Problem
from napkin.progress import Progress, silent

SMALL_BUDGET = 2 * 2**30
"""Bytes that the float64 evaluation keeps alive beside tensors that nearly fill the memory, or
beside other processes on the device."""


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
    problems: Sequence[Problem], machine: str, seed: int, progress: Progress = silent
) -> list[Outcome]:
    """Run problems one after another; each draws its inputs from `seed` and its place."""
    out: list[Outcome] = []
    for i, p in enumerate(problems):
        progress(str(p), i, len(problems))
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
    from napkin.measure.trials import RUN
    from napkin.plan.derive import derive
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
        plan = derive(p.diagram(), machine, p.sizes, p.dtype)
        error, note = RUN[p.how](plan, p, seed, SMALL_BUDGET if p.bytes else budget or BUDGET)
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


def brief(text: str) -> str:
    """A message on one line: its beginning, and its end, where a compiler says what is wrong."""
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:120]} ... {line[-170:]}"


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
