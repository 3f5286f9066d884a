"""Bytes that the device counted, by Nsight Compute, beside the bytes predicted.

What crosses between L2 and the multiprocessors is H; what crosses between memory and L2 is less or
more, as caches have it, and stands beside it without a prediction.
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

from napkin.plan.plan import Plan

READ = "l1tex__m_xbar2l1tex_read_bytes.sum"
WRITTEN = "l1tex__m_l1tex2xbar_write_bytes.sum"
FROM_MEMORY = "dram__bytes_read.sum"
TO_MEMORY = "dram__bytes_write.sum"
METRICS = (READ, WRITTEN, FROM_MEMORY, TO_MEMORY)

TOLERANCE = 0.01
"""Largest difference of counted from predicted reads, over predicted: descriptors, arguments and
partly used sectors are in the count."""

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
    """One kernel: bytes from L2 and to L2, predicted and counted, and bytes of memory, counted."""

    kernel: str
    read_predicted: int
    read: int
    written_predicted: int
    written: int
    from_memory: int
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


def counted(
    plan: Plan,
    command: Sequence[str],
    arrays: Mapping[str, Any] | None = None,
    timeout: float = 300,
) -> Counters:
    """Run the driver's command for a plan under Nsight Compute.

    Args:
        command: of `napkin.measure.driver.command`, for the same plan.
        arrays: inputs of whole numbers by name, as numpy arrays: which keys are visited may depend
            on them.
        timeout: seconds; a run takes about twenty.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        return Counters(note=_INSTALL)
    full = [
        ncu, "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none",
        "--target-processes", "all", "--metrics", ",".join(METRICS),
        "--csv", "--print-units", "base", *command,
    ]  # fmt: skip
    try:
        done = subprocess.run(
            full, capture_output=True, text=True, timeout=timeout, check=False, env=environment()
        )
    except subprocess.TimeoutExpired:
        return Counters(note=f"ncu did not end within {timeout:.0f} s")
    return read_off(plan, done.stdout, done.stderr, done.returncode, arrays)


def environment() -> dict[str, str]:
    """The environment of a process that runs the driver: it imports this napkin."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def read_off(
    plan: Plan, out: str, err: str, status: int, arrays: Mapping[str, Any] | None = None
) -> Counters:
    """The counters in what ncu printed, beside the plan's predictions."""
    if "ERR_NVGPUCTRPERM" in out + err:
        return Counters(note=_ALLOW)
    found = parse(out)
    if status or len(found) != len(plan.kernels):
        lines = [
            line for line in (out + err).splitlines() if "==ERROR==" in line or "Error" in line
        ]
        said = "; ".join(line.strip() for line in lines[-2:]) or f"it ended with status {status}"
        what = f"{len(found)} kernels of {len(plan.kernels)} were counted"
        return Counters(note=f"ncu gave no counters ({what}): {said}")
    rows: list[CounterRow] = []
    for k, (_, values) in zip(plan.kernels, found, strict=True):
        lacking = [m for m in METRICS if m not in values]
        if lacking:
            return Counters(note=f"this device has no counter {lacking[0]}")
        moved = {"read": 0, "write": 0}
        for (_, direction), count in k.bytes_at(k.choice.sizes, arrays).items():
            moved[str(direction)] += count
        numbers = [round(values[m]) for m in METRICS]
        rows.append(CounterRow(k.name, moved["read"], numbers[0], moved["write"], *numbers[1:]))
    return Counters(tuple(rows))


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
