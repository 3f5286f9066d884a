"""Run the matrix on the device: values against float64, into poisoned outputs, the same bits from
run to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from queue import SimpleQueue
from typing import Any

from napkin.measure.matrix import Problem
from napkin.measure.outcome import Outcome
from napkin.progress import Progress, silent
from napkin.run.worker import KernelError, worker

PROCESSES = 8
"""Processes that plan, compile and run problems at once. Planning and compiling take nearly all of
the time, and the device waits for them."""


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
    problems: Sequence[Problem],
    machine: str,
    seed: int,
    progress: Progress = silent,
    told: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """Run problems in several processes; each draws its inputs from `seed` and its place. Those
    that nearly fill the device's memory run last, one after another.

    Args:
        told: called with each outcome as it is reached.
    """
    slots: SimpleQueue[int] = SimpleQueue()
    for slot in range(PROCESSES):
        slots.put(slot)

    def one(i: int) -> Outcome:
        slot = slots.get()
        try:
            return in_child(problems[i], machine, seed + i, slot)
        finally:
            slots.put(slot)

    out: dict[int, Outcome] = {}
    large = [i for i, p in enumerate(problems) if p.bytes]
    small = [i for i, p in enumerate(problems) if not p.bytes]
    for places, most in ((small, PROCESSES), (large, 1)):
        pool = ThreadPoolExecutor(most)
        try:
            running = {pool.submit(one, i): i for i in places}
            for done in as_completed(running):
                i = running[done]
                out[i] = done.result()
                told(out[i])
                progress(str(problems[i]), len(out), len(problems))
        finally:
            pool.shutdown(cancel_futures=True)
    return [out[i] for i in range(len(problems))]


def in_child(problem: Problem, machine: str, seed: int, slot: int) -> Outcome:
    """Run a problem in child process number `slot`. Where a kernel ends the child, or leaves it a
    device that takes no more launches, the next problem finds a new one."""
    child = worker("napkin.measure.trials", {}, slot)
    try:
        found, usable = child.call((problem, machine, seed))
    except KernelError as why:
        return Outcome.of(problem, "wrong", note=str(why))
    if not usable:
        child.close()
    return found


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
