"""compute-sanitizer over a sample of kernels: reads and writes out of bounds, and races."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from napkin.measure.counters import environment
from napkin.measure.driver import command
from napkin.measure.matrix import SANITIZED
from napkin.measure.verify import Tool

TOOLS = {"memcheck": ("--report-api-errors", "no"), "racecheck": ()}
"""Tools, each with its options. What torch and Triton try of the driver's calls is no error of a
kernel."""

_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) errors?")
_HAZARDS = re.compile(
    r"RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?, (\d+) warnings?\)"
)
_MISSING = "compute-sanitizer is not on the PATH; it comes with the CUDA toolkit, in its bin"
_BANNER = "COMPUTE-SANITIZER"


def sanitized(
    machine: str, seed: int, sample: Sequence[dict[str, Any]] = SANITIZED, timeout: float = 300
) -> list[Tool]:
    """Run the sample under every tool, all at once; where compute-sanitizer is missing, a note.

    Args:
        timeout: seconds of each; most of a run is starting, deriving and compiling.
    """
    found = shutil.which("compute-sanitizer")
    if found is None:
        return [Tool(tool, "skipped", _MISSING) for tool in TOOLS]
    jobs = [{**job, "on": machine, "seed": seed} for job in sample]
    with ThreadPoolExecutor(len(TOOLS)) as beside:
        return list(beside.map(partial(_run, found, command(jobs), timeout), TOOLS))


def _run(program: str, watched: Sequence[str], timeout: float, tool: str) -> Tool:
    # Each tensor in an allocation of its own: a cache of memory would hide where one ends.
    env = {**environment(), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    full = [program, "--tool", tool, *TOOLS[tool], "--print-limit", "10", *watched]
    began = time.monotonic()
    try:
        done = subprocess.run(
            full, capture_output=True, text=True, timeout=timeout, check=False, env=env
        )
    except subprocess.TimeoutExpired:
        return Tool(tool, "refused", f"it did not end within {timeout:.0f} s", timeout)
    said = judged(tool, done.stdout + done.stderr, done.returncode)
    return replace(said, seconds=time.monotonic() - began)


def judged(tool: str, text: str, status: int) -> Tool:
    """What a tool printed, as an outcome: wrong where it found something or the kernels did not
    run, refused where it watched nothing."""
    pattern = _HAZARDS if tool == "racecheck" else _SUMMARY
    found, lines = pattern.search(text), [s.strip() for s in text.splitlines() if s.strip()]
    own = [s.lstrip("= ") for s in lines if s.startswith("===")]
    if found is not None and int(found[1]):
        first = next((s for s in own if s.startswith(("Invalid", "Error:", "Program hit"))), "")
        where = next((s for s in own if s.startswith("at ")), "") if "Invalid" in first else ""
        return Tool(tool, "wrong", "; ".join(filter(None, [found[0], f"{first} {where}".strip()])))
    if "Traceback" in text or (found is not None and status):
        return Tool(tool, "wrong", f"what it watched ended with status {status}: {_last(lines)}")
    if found is None:
        said = " ".join(s for s in own if s != _BANNER) or _last(lines) or "it said nothing"
        return Tool(tool, "refused", f"it ended with status {status}: {said[:300]}")
    return Tool(tool, "ok", found[0])


def _last(lines: Sequence[str]) -> str:
    return " ".join([s for s in lines if not s.startswith("===")][-2:])[-300:]
