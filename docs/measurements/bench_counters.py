"""Bytes that Nsight Compute counts for generated kernels, beside the bytes predicted.

    python docs/measurements/bench_counters.py [--json FILE]

All kernels run in one process under one `ncu --clock-control none`, each once from empty caches.
H is what groups ask for. What passes between L2 and the multiprocessors is predicted from it, and
the last column says what is between the two: sectors and boxes that are used in part, what L1 still
has, registers that spill (as compiled). Counted bytes are held to that within 1 %, and to what the
time model has from memory within 10 %: each array once, and again where a wave of groups comes to
it when L2 has it no longer. Results that L2 still holds when a kernel ends are written later.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from heading import heading

import napkin as nk
from napkin.check.verdict import spilled
from napkin.derive.kernel import tensor_of
from napkin.diagram.library import load
from napkin.ir.types import stored_bytes
from napkin.measure import counters
from napkin.measure.counters import CounterRow
from napkin.measure.driver import command
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel

JOBS: list[dict[str, Any]] = [
    {"name": "matmul", "sizes": {"a": 4096, "b": 4096, "c": 4096}},
    {"name": "matmul", "sizes": {"a": 8072, "b": 1000, "c": 8104}},
    {"name": "matmul_bias_gelu", "sizes": {"a": 2048, "b": 2048, "c": 2048}},
    {"name": "multi_head_attention", "sizes": {"b": 1, "h": 32, "q": 4096, "x": 4096, "d": 128}},
    {"name": "attention", "sizes": {"q": 8120, "x": 8088, "d": 96}},
    {"name": "causal_attention", "sizes": {"q": 16384, "x": 16384, "d": 128}},
    {
        "name": "grouped_query_attention",
        "sizes": {"b": 4, "k": 8, "r": 4, "q": 2048, "x": 2048, "d": 128},
    },
    {"name": "neighborhood_attention_1d", "sizes": {"q": 65536, "x": 65536, "d": 64}},
    {
        "name": "neighborhood_attention_2d",
        "sizes": {"q0": 256, "q1": 256, "x0": 256, "x1": 256, "d": 64},
    },
    {"name": "layernorm", "sizes": {"n": 32768, "d": 8192}},
    {"name": "layernorm", "sizes": {"n": 4096, "d": 65536}},
    {"name": "softmax", "sizes": {"n": 65536, "x": 4096}},
    {"name": "cross_entropy", "sizes": {"n": 8192, "v": 32000}},
    {
        "name": "decode_attention", "parts": {"x": 8},
        "sizes": {"b": 4, "k": 8, "r": 8, "x": 16384, "d": 128},
    },
]  # fmt: skip
"""Kernels; the arrays of nine are together larger than the L2 of an H100, and of two no tile
divides the axes."""

L2_TOLERANCE, MEMORY_TOLERANCE = 0.01, 0.1
"""Differences above which a row says why."""


def planned(job: Mapping[str, Any]) -> Plan:
    """The plan that the driver makes of a job."""
    return nk.derive(
        load(job["name"]), job["on"], job["sizes"], job["dtype"], parts=job.get("parts")
    ).launched


def arrays_bytes(k: PlannedKernel) -> int:
    """Bytes of every array that a kernel reads or writes: its working set."""
    return read_once(k) + _once(k, "write")


def read_once(k: PlannedKernel) -> int:
    """Bytes of every array that a kernel reads."""
    return _once(k, "read")


def _once(k: PlannedKernel, direction: str) -> int:
    found = {t.tensor: t for t in k.H.parts if t.direction == direction}
    return sum(
        stored_bytes(math.prod(k.choice.sizes[a] for a in t.own or t.axes), k.dtypes[t.tensor])
        for t in found.values()
    )


def over(counted: int, predicted: int) -> float:
    """Counted over predicted; 1 where both are nothing."""
    return counted / predicted if predicted else 1.0 if not counted else math.inf


def parts_l2(k: PlannedKernel, spills: int) -> list[str]:
    """What is predicted to pass between L2 and the multiprocessors beside H, and why."""
    boxed = set(map(tensor_of, k.program.boxes))
    asked, found = k.bytes, dict[str, list[Any]]()
    for (tensor, way), crossing in k.crossing_at(k.choice.sizes, None, spills).items():
        more = crossing - asked.get((tensor, way), 0)
        why = "L1 has it" if more < 0 else "sectors used in part"
        why = "boxes past the end" if way == "read" and more > 0 and tensor in boxed else why
        why = why if tensor else f"{spills} bytes a thread of spilled registers"
        if more:
            found.setdefault(why, [0]).append(tensor)
            found[why][0] += more
    return [
        f"{why}: {more / 1e6:+,.2f} MB" + (f" ({', '.join(of)})" if any(of) else "")
        for why, (more, *of) in found.items()
    ]


def why_l2(row: CounterRow) -> list[str]:
    """What is left between counted and predicted bytes of L2."""
    said: list[str] = []
    for what, counted, predicted in (
        ("reads", row.read, row.read_predicted),
        ("writes", row.written, row.written_predicted),
    ):
        gap = counted - predicted
        if abs(gap) <= L2_TOLERANCE * predicted:
            continue
        if what == "reads" and 0 < gap <= counters.SLACK:
            said.append(f"{gap:,} bytes of arguments and constants")
        else:
            said.append(f"{what}: {gap:+,} bytes: UNEXPLAINED")
    return said


def why_memory(row: CounterRow, k: PlannedKernel) -> list[str]:
    """Why what is read from memory or written to it is not what the time model has."""
    said: list[str] = []
    again = row.from_memory_predicted - read_once(k)
    if again > 0:
        said.append(f"read again by later waves of groups: {again / 1e6:,.1f} MB")
    gap = row.from_memory - row.from_memory_predicted
    if abs(gap) > MEMORY_TOLERANCE * row.from_memory_predicted:
        small = abs(gap) < 2 * 2**20
        said.append("reads: under 2 MB, code and arguments" if small else "reads: UNEXPLAINED")
    gap = row.to_memory_predicted - row.to_memory
    if abs(gap) > MEMORY_TOLERANCE * row.to_memory_predicted:
        if 0 < gap <= k.machine.level("l2").capacity.value:
            said.append(f"{gap / 1e6:,.1f} MB of results were still in L2")
        elif -2 * 2**20 < gap < 0:
            said.append("writes: under 2 MB beside the results")
        else:
            said.append("writes: UNEXPLAINED")
    return said


HEAD = (
    f"{'kernel':64s} {'H, read':>10s} {'L2 read p':>10s} {'c':>10s} {'c/p':>6s} "
    f"{'L2 write p':>10s} {'c/p':>6s} "
    f"{'DRAM read p':>11s} {'c':>9s} {'c/p':>6s} {'DRAM write p':>12s} {'c':>9s} {'c/p':>6s} "
    f"{'arrays':>8s}  why"
)


def main(arguments: Sequence[str] | None = None, jobs: Sequence[Mapping[str, Any]] = JOBS) -> int:
    """Print the table; 1 where no counters could be read."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    parser.add_argument("--on", default="h100")
    parser.add_argument("--compile", action="store_true", help="into Triton's cache, and no more")
    given = parser.parse_args(arguments)
    full = [{"on": given.on, "dtype": "bf16", "seed": i, **job} for i, job in enumerate(jobs)]
    if given.compile:
        return subprocess.run(command(full), env=counters.environment(), check=False).returncode
    with ThreadPoolExecutor(1) as beside:  # plans are derived here while the driver does, too
        running = beside.submit(counters.profiled, command(full))
        plans = [planned(job) for job in full]
        spills = [spilled(plan) for plan in plans]
        profile = running.result()
    print(heading("MB; p: predicted, c: counted; DRAM from caches that start empty"), flush=True)
    print(HEAD)
    out: list[dict[str, Any]] = []
    each = counters.read_off_each(plans, profile, [None] * len(plans), spills)
    for plan, spill, found in zip(plans, spills, each, strict=True):
        sizes = " ".join(f"{a}={n}" for a, n in plan.sizes.items())
        if found.note:
            print(f"{plan.name} {sizes}: {found.note}")
        for k, row in zip(plan.kernels, found.rows, strict=False):
            arrays = arrays_bytes(k)
            past = arrays > k.machine.level("l2").capacity.value
            said = [*parts_l2(k, spill.get(k.name, 0)), *why_l2(row), *why_memory(row, k)]
            why = "; ".join(said)
            out.append({"sizes": dict(plan.sizes), **asdict(row), "arrays": arrays, "why": why})
            print(f"{f'{k.name} {sizes}':64s} {row.read_requested / 1e6:10.2f} "
                  f"{row.read_predicted / 1e6:10.2f} "
                  f"{row.read / 1e6:10.2f} {over(row.read, row.read_predicted):6.3f} "
                  f"{row.written_predicted / 1e6:10.2f} "
                  f"{over(row.written, row.written_predicted):6.3f} "
                  f"{row.from_memory_predicted / 1e6:11.1f} {row.from_memory / 1e6:9.1f} "
                  f"{over(row.from_memory, row.from_memory_predicted):6.3f} "
                  f"{row.to_memory_predicted / 1e6:12.1f} {row.to_memory / 1e6:9.1f} "
                  f"{over(row.to_memory, row.to_memory_predicted):6.3f} "
                  f"{arrays / 1e6:7.1f}{'>' if past else ' '}  {why}", flush=True)  # fmt: skip
    summary(out, plans)
    if given.json:
        given.json.write_text(json.dumps(out))
    return int(not out)


def summary(out: Sequence[Mapping[str, Any]], plans: Sequence[Plan]) -> None:
    """How many rows hold."""
    if not out:
        return
    l2 = plans[0].machine.level("l2").capacity.value
    near = [abs(over(r["read"], r["read_predicted"]) - 1) <= L2_TOLERANCE for r in out]
    past = [r for r in out if r["arrays"] > l2]
    memory = [
        abs(over(r["from_memory"], r["from_memory_predicted"]) - 1) <= MEMORY_TOLERANCE
        for r in past
    ]
    unsaid = sum("UNEXPLAINED" in r["why"] for r in out)
    print(f"{len(out)} kernels: reads from L2 within 1 % of what is predicted in {sum(near)}; "
          f"from memory within 10 % in {sum(memory)} of the {len(past)} whose arrays pass L2; "
          f"{unsaid} unexplained")  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
