"""Bytes that Nsight Compute counts for generated kernels, beside the bytes predicted.

    python docs/measurements/bench_counters.py [--json FILE]

All kernels run in one process under one `ncu --clock-control none`, each once from empty caches.
From L2 to the multiprocessors and back: held to H, and explained where more than 1 % is between.
From and to memory: beside what the time model has (each array once, and again for a later pass
where the groups that run together read more than L2 holds), and explained where more than 10 % is
between. What explains them is computed: results that L2 still holds when a kernel ends are written
later; and operands that a wave of groups reads again, since those before have pushed them out of
L2, are counted from the launch order (`by_waves`).
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

import numpy as np
from heading import heading

import napkin as nk
from napkin.diagram.library import load
from napkin.diagram.types import stored_bytes
from napkin.measure import counters
from napkin.measure.counters import CounterRow
from napkin.measure.driver import command
from napkin.plan.plan import Plan, PlannedKernel

JOBS: list[dict[str, Any]] = [
    {"name": "matmul", "sizes": {"a": 4096, "b": 4096, "c": 4096}},
    {"name": "matmul_bias_gelu", "sizes": {"a": 2048, "b": 2048, "c": 2048}},
    {"name": "multi_head_attention", "sizes": {"b": 1, "h": 32, "q": 4096, "x": 4096, "d": 128}},
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
    {"name": "softmax", "sizes": {"n": 65536, "x": 4096}},
    {"name": "cross_entropy", "sizes": {"n": 8192, "v": 32000}},
    {
        "name": "decode_attention", "parts": {"x": 8},
        "sizes": {"b": 4, "k": 8, "r": 8, "x": 16384, "d": 128},
    },
]  # fmt: skip
"""Kernels; the arrays of six are together larger than the L2 of an H100."""

L2_TOLERANCE, MEMORY_TOLERANCE = 0.01, 0.1
"""Differences above which a row says why."""


def planned(job: Mapping[str, Any]) -> Plan:
    """The plan that the driver makes of a job."""
    return nk.derive(
        load(job["name"]), job["on"], job["sizes"], job["dtype"], parts=job.get("parts")
    )


def arrays_bytes(k: PlannedKernel) -> int:
    """Bytes of every array that a kernel reads or writes: its working set."""
    found = {(t.tensor, t.direction): t for t in k.H.parts}
    return sum(
        stored_bytes(math.prod(k.choice.sizes[a] for a in t.own or t.axes), k.dtypes[t.tensor])
        for t in found.values()
    )


def by_waves(k: PlannedKernel) -> tuple[int, int]:
    """Bytes read from memory if L2 keeps what a wave of groups reads until the next where both
    fit half of it, and nothing longer; and how many waves there are."""
    choice, sizes = k.choice, k.choice.sizes
    counts = [-(-sizes[a] // choice.tiles[a]) for a in choice.kernel.group]
    programs = np.arange(math.prod(counts))
    place = dict(zip(choice.kernel.group, np.unravel_index(programs, counts or (1,)), strict=False))
    together = k.machine.sms * choice.resident
    waves = -(-len(programs) // together)
    room = k.machine.level("l2").capacity.value / 2
    tile_of: list[tuple[np.ndarray, float]] = []  # of each array: what a group reads, and its bytes
    for t in k.H.parts:
        if t.direction == "write":
            continue
        carried = [a for a in t.axes if a in place]
        ids = np.zeros(len(programs), dtype=np.int64)
        for a in carried:
            ids = ids * counts[choice.kernel.group.index(a)] + place[a]
        size = stored_bytes(math.prod(sizes[a] for a in t.own or t.axes), k.dtypes[t.tensor])
        tile_of.append((ids, size / len(np.unique(ids))))
    total, before, live_before = 0.0, [set[int]() for _ in tile_of], 0.0
    for w in range(waves):
        now = [set(ids[w * together : (w + 1) * together].tolist()) for ids, _ in tile_of]
        live = sum(len(s) * each for s, (_, each) in zip(now, tile_of, strict=True))
        kept = live + live_before <= room
        for s, old, (_, each) in zip(now, before, tile_of, strict=True):
            total += len(s - old if kept else s) * each
        before, live_before = now, live
    return round(total), waves


def over(counted: int, predicted: int) -> float:
    """Counted over predicted; 1 where both are nothing."""
    return counted / predicted if predicted else 1.0 if not counted else math.inf


def why_l2(row: CounterRow, k: PlannedKernel) -> str:
    """Why reads or writes between L2 and the multiprocessors are not H."""
    said: list[str] = []
    groups = math.prod(-(-k.choice.sizes[a] // k.tiles[a]) for a in k.choice.kernel.group)
    for what, counted, predicted in (
        ("reads", row.read, row.read_predicted),
        ("writes", row.written, row.written_predicted),
    ):
        gap = counted - predicted
        if abs(gap) <= L2_TOLERANCE * predicted:
            continue
        if what == "reads" and 0 < gap <= counters.SLACK:
            said.append(f"{gap:,} bytes of arguments and constants")
        elif 0 < gap <= 2 * 32 * groups:
            said.append(f"{what}: {gap / groups:.0f} bytes a group, sectors that are used in part")
        else:
            said.append(f"{what}: {gap:+,} bytes, {gap / groups:+,.0f} a group: UNEXPLAINED")
    return "; ".join(said)


def why_memory(row: CounterRow, k: PlannedKernel) -> str:
    """Why what is read from memory or written to it is not what the time model has."""
    said: list[str] = []
    l2 = k.machine.level("l2").capacity.value
    if abs(over(row.from_memory, row.from_memory_predicted) - 1) > MEMORY_TOLERANCE:
        again, waves = by_waves(k)
        near = abs(over(row.from_memory, again) - 1)
        if again > row.from_memory_predicted and near <= 0.25:
            said.append(f"read again by waves of groups ({waves}): {again / 1e6:,.1f} MB by that")
        elif row.from_memory_predicted < row.from_memory < again:
            said.append(
                f"read again by waves of groups ({waves}), of which L2 held a part: at most "
                f"{again / 1e6:,.1f} MB"
            )
        elif abs(row.from_memory - row.from_memory_predicted) < 2 * 2**20:
            said.append("reads: under 2 MB, code and arguments")
        else:
            said.append("reads: UNEXPLAINED")
    gap = row.to_memory_predicted - row.to_memory
    if abs(gap) > MEMORY_TOLERANCE * row.to_memory_predicted:
        if 0 < gap <= l2:
            said.append(f"{gap / 1e6:,.1f} MB of results were still in L2")
        elif -2 * 2**20 < gap < 0:
            said.append("writes: under 2 MB beside the results")
        else:
            said.append("writes: UNEXPLAINED")
    return "; ".join(said)


HEAD = (
    f"{'kernel':64s} {'L2 read p':>10s} {'c':>10s} {'c/p':>6s} {'L2 write p':>10s} {'c/p':>6s} "
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
        profile = running.result()
    print(heading("MB; p: predicted, c: counted; DRAM from caches that start empty"), flush=True)
    print(HEAD)
    out: list[dict[str, Any]] = []
    for plan, found in zip(
        plans, counters.read_off_each(plans, profile, [None] * len(plans)), strict=True
    ):
        sizes = " ".join(f"{a}={n}" for a, n in plan.sizes.items())
        if found.note:
            print(f"{plan.name} {sizes}: {found.note}")
        for k, row in zip(plan.kernels, found.rows, strict=False):
            arrays = arrays_bytes(k)
            past = arrays > k.machine.level("l2").capacity.value
            why = "; ".join(filter(None, [why_l2(row, k), why_memory(row, k)]))
            out.append({"sizes": dict(plan.sizes), **asdict(row), "arrays": arrays, "why": why})
            print(f"{f'{k.name} {sizes}':64s} {row.read_predicted / 1e6:10.2f} "
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
    print(f"{len(out)} kernels: reads from L2 within 1 % of H in {sum(near)}; reads from memory "
          f"within 10 % of the model in {sum(memory)} of the {len(past)} whose arrays pass L2; "
          f"{unsaid} unexplained")  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
