"""compute-sanitizer over a sample of kernels: reads and writes out of bounds, and races."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from napkin.measure.counters import environment
from napkin.measure.driver import command
from napkin.measure.matrix import SANITIZED
from napkin.measure.verify import Tool

TOOLS = ("memcheck", "racecheck")

_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) errors?")
_HAZARDS = re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed \((\d+) errors?")
_MISSING = "compute-sanitizer is not on the PATH; it comes with the CUDA toolkit, in its bin"


def sanitized(
    machine: str, seed: int, sample: Sequence[dict[str, Any]] = SANITIZED, timeout: float = 600
) -> list[Tool]:
    """Run the sample under each tool; where compute-sanitizer is missing, a note."""
    found = shutil.which("compute-sanitizer")
    if found is None:
        return [Tool(tool, "skipped", _MISSING) for tool in TOOLS]
    jobs = [{**job, "on": machine, "seed": seed} for job in sample]
    out: list[Tool] = []
    for tool in TOOLS:
        # Each tensor in an allocation of its own: a cache of memory would hide where one ends.
        env = {**environment(), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        full = [found, "--tool", tool, "--print-limit", "10", *command(jobs)]
        try:
            done = subprocess.run(
                full, capture_output=True, text=True, timeout=timeout, check=False, env=env
            )
        except subprocess.TimeoutExpired:
            out.append(Tool(tool, "wrong", f"it did not end within {timeout:.0f} s"))
            continue
        out.append(judged(tool, done.stdout + done.stderr, done.returncode))
    return out


def judged(tool: str, text: str, status: int) -> Tool:
    """What a tool printed, as an outcome."""
    pattern = _HAZARDS if tool == "racecheck" else _SUMMARY
    found = pattern.search(text)
    if found is None or status:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return Tool(tool, "wrong", f"it ended with status {status}: {' '.join(lines[-3:])[:300]}")
    if int(found[1]):
        first = next((s for s in text.splitlines() if "Invalid" in s or "Error:" in s), "")
        return Tool(tool, "wrong", f"{found[0]}; {first.strip('= ')}")
    return Tool(tool, "ok", found[0])
