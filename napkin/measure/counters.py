"""Bytes that the device counted, by Nsight Compute, beside the bytes predicted.

H is what the groups of a kernel ask for. What passes between L2 and the multiprocessors is
predicted from it (`napkin.count.crossing`: whole sectors and boxes, less what L1 has) and held to
that. What crosses between memory and L2, from caches that start empty, stands beside what the time
of the kernel was predicted with, and is not judged: results stay in L2 when a kernel ends.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napkin.count.traffic import Direction
from napkin.plan.plan import Plan

READ = "l1tex__m_xbar2l1tex_read_bytes.sum"
WRITTEN = "l1tex__m_l1tex2xbar_write_bytes.sum"
FROM_MEMORY = "dram__bytes_read.sum"
TO_MEMORY = "dram__bytes_write.sum"
METRICS = (READ, WRITTEN, FROM_MEMORY, TO_MEMORY)

TOLERANCE = 0.01
"""Largest difference of counted from predicted reads, over predicted: descriptors and arguments are
in the count."""

SLACK = 64 * 2**10
"""Bytes that a kernel may read beside: its arguments and constants, once in each multiprocessor."""

_UNITS = {"byte": 1, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "tbyte": 1e12}

_INSTALL = "Nsight Compute (ncu) is not on the PATH; it comes with the CUDA toolkit, in its bin"
_ALLOW = (
    "the driver keeps performance counters from this user (ERR_NVGPUCTRPERM); an administrator "
    "allows them by `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in /etc/modprobe.d and "
    "a reboot, or runs the container with --cap-add=SYS_ADMIN"
)


@dataclass(frozen=True)
class CounterRow:
    """One kernel: bytes from L2 and to L2, and from memory and to memory, predicted and counted.

    Attributes:
        read_requested, written_requested: what its groups ask for (H).
    """

    kernel: str
    read_requested: int
    read_predicted: int
    read: int
    written_requested: int
    written_predicted: int
    written: int
    from_memory_predicted: int
    from_memory: int
    to_memory_predicted: int
    to_memory: int

    @property
    def ok(self) -> bool:
        """Whether reads are those predicted, within 1 % (and a few bytes of arguments)."""
        gap = abs(self.read - self.read_predicted)
        return gap <= TOLERANCE * self.read_predicted + SLACK


@dataclass(frozen=True)
class Counters:
    """The rows of a plan's kernels, or a note that says why there are none."""

    rows: tuple[CounterRow, ...] = ()
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether every row holds; without rows there is nothing that could be wrong."""
        return all(r.ok for r in self.rows)


Arrays = Mapping[str, Any]
"""Inputs by name, as numpy arrays, where the keys that are visited may depend on them."""


def counted(
    plan: Plan, command: Sequence[str], arrays: Arrays | None = None, timeout: float = 300
) -> Counters:
    """Run the driver's command for a plan under Nsight Compute.

    Args:
        command: of `napkin.measure.driver.command`, for the same plan.
        timeout: seconds; a run takes about twenty.
    """
    return read_off_each([plan], profiled(command, timeout), [arrays])[0]


Launched = tuple[str, Mapping[str, float]]
"""A kernel's name, and its metrics."""


@dataclass(frozen=True)
class Profile:
    """What Nsight Compute said of a command.

    Attributes:
        launches: in order, metrics in bytes.
        note: what it said where there are fewer than there should be.
        refused: why it counted nothing.
    """

    launches: tuple[Launched, ...] = ()
    note: str = ""
    refused: str = ""


def profiled(command: Sequence[str], timeout: float = 300) -> Profile:
    """Run a command under Nsight Compute: launches while a profiler is on, from empty caches."""
    ncu = shutil.which("ncu")
    if ncu is None:
        return Profile(refused=_INSTALL)
    full = [
        ncu, "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "all",
        "--target-processes", "all", "--metrics", ",".join(METRICS),
        "--csv", "--print-units", "base", *command,
    ]  # fmt: skip
    try:
        done = subprocess.run(
            full, capture_output=True, text=True, timeout=timeout, check=False, env=environment()
        )
    except subprocess.TimeoutExpired:
        return Profile(refused=f"ncu did not end within {timeout:.0f} s")
    return profile_of(done.stdout, done.stderr, done.returncode)


def environment() -> dict[str, str]:
    """The environment of a process that runs the driver: it imports this napkin."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def profile_of(out: str, err: str, status: int) -> Profile:
    """What ncu printed, and how it ended, as a profile."""
    if "ERR_NVGPUCTRPERM" in out + err:
        return Profile(refused=_ALLOW)
    found = tuple(parse(out))
    marks = ("==ERROR==", "==WARNING==", "Error", "error:")
    lines = [s.strip() for s in (out + err).splitlines() if any(m in s for m in marks)]
    said = "; ".join(lines[-2:])
    if status:
        return Profile(found, said or f"it ended with status {status}")
    return Profile(found, "" if found else said)


def read_off_each(
    plans: Sequence[Plan],
    profile: Profile,
    arrays: Sequence[Arrays | None],
    spilled: Sequence[Mapping[str, int]] = (),
) -> list[Counters]:
    """The counters of plans that ran in this order, each beside its predictions; where a run ended
    early, of those that came before.

    Args:
        spilled: bytes that a thread of each kernel spills, by name, for each plan
            (`napkin.check.verdict.spilled`); none where that is left out.
    """
    launches, out = list(profile.launches), list[Counters]()
    spills = spilled or [dict[str, int]() for _ in plans]
    for plan, given, spilled_bytes in zip(plans, arrays, spills, strict=True):
        own, launches = launches[: len(plan.kernels)], launches[len(plan.kernels) :]
        whole = len(own) == len(plan.kernels) and (plan is not plans[-1] or not launches)
        if whole:
            out.append(_counted(plan, own, given, spilled_bytes, profile.note))
        else:
            out.append(_lacking(plan, len(own) + len(launches), profile))
    return out


def _lacking(plan: Plan, counted: int, profile: Profile) -> Counters:
    if profile.refused:
        return Counters(note=profile.refused)
    what = f"{counted} kernels of {len(plan.kernels)} were counted"
    return Counters(note=f"ncu gave no counters ({what}): {profile.note or 'it said nothing more'}")


def _counted(
    plan: Plan,
    found: Sequence[Launched],
    arrays: Arrays | None,
    spilled: Mapping[str, int],
    note: str,
) -> Counters:
    rows: list[CounterRow] = []
    for k, (name, values) in zip(plan.kernels, found, strict=True):
        if k.name not in name:
            return Counters(note=f"ncu counted {name} where {k.name} was to run")
        lacking = [m for m in METRICS if m not in values]
        if lacking:
            return Counters(note=f"this device has no counter {lacking[0]}")
        sizes, of = k.choice.sizes, {m: round(values[m]) for m in METRICS}
        asked = _by_direction(k.bytes_at(sizes, arrays))
        moved = _by_direction(k.crossing_at(sizes, arrays, spilled.get(k.name, 0)))
        row = CounterRow(
            k.name,
            *(asked["read"], moved["read"], of[READ]),
            *(asked["write"], moved["write"], of[WRITTEN]),
            *(k.choice.outer["read"], of[FROM_MEMORY], k.choice.outer["write"], of[TO_MEMORY]),
        )
        rows.append(row)
    return Counters(tuple(rows), note)


def _by_direction(moved: Mapping[tuple[str, Direction], int]) -> dict[Direction, int]:
    out: dict[Direction, int] = {"read": 0, "write": 0}
    for (_, direction), count in moved.items():
        out["read" if direction == "read" else "write"] += count
    return out


def parse(text: str) -> list[tuple[str, dict[str, float]]]:
    """Launches in order, each with its kernel's name and its metrics in bytes, from ncu's CSV."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    table = csv.DictReader(io.StringIO("\n".join(lines[start:])))
    out: dict[str, tuple[str, dict[str, float]]] = {}
    for row in table:
        name, value = row.get("Metric Name"), _number(row)
        if not name or value is None:
            continue
        out.setdefault(row["ID"], (row["Kernel Name"], {}))[1][name] = value
    return list(out.values())


def _number(row: Mapping[str, Any]) -> float | None:
    unit = _UNITS.get(str(row.get("Metric Unit", "")).lower())
    try:
        value = float(str(row.get("Metric Value", "")).replace(",", ""))
    except ValueError:
        return None
    return None if unit is None else value * unit
