"""Time: the slowest of the pipes that a kernel uses, from its counted work and bytes.

A roofline over the kernel's own counts: matrix products, arithmetic and special functions, bytes
into the inner level, and bytes from the outermost memory, with the tail wave and the launch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from napkin.cost.machines import Machine

LAUNCH_SECONDS = 3e-6
"""Seconds between the launch of a kernel and its first instruction, and after its last."""

GROUP_SECONDS = 1e-6
"""Seconds from a group's first load to its last store, beside its work: two memory latencies."""

CHUNK_SECONDS = {True: 0.2e-6, False: 0.7e-6}
"""Seconds of a turn of the streamed loop beside its work, with loads pipelined, and for each load
that is waited for: the second is a memory latency, the first a barrier. Attention at stage 1 waits
twice a turn: 1.2 to 1.8 us over three tiles (docs/measurements)."""

EXPOSED = 0.1
"""Share of the faster pipes' time that is not hidden behind the slowest: an assumption, until it is
measured; it makes a kernel that moves less the better one among equals."""

COPIED = 0.9
"""Share of the outermost memory's rate that a copy reaches: 3.02 of 3.35 TB/s (H100)."""

STREAMED = 48e9
"""Bytes per second that one multiprocessor takes from DRAM, however few there are: attention of one
query with 32 groups of 2 x 32 KB in flight, two shapes, 46 and 49 GB/s each (H100)."""

STALL = 2.1
"""Clocks that a multiprocessor spends for each one of arithmetic in a loop whose products wait for
the arithmetic between them: the instructions of a turn depend on each other, and warps of one group
wait together. Measured on an H100 over twelve tiles of attention, within 3 % for one resident group
(docs/measurements)."""

HIDDEN = {1: 1.0, 2: 0.87, 3: 0.82}
"""What is left of such a turn where two groups share a multiprocessor, or three or more: 0.80 to
0.91 and 0.81 to 0.84 in the same measurement; 0.87 to 0.89 where three wait for their loads."""

SPECIAL_SLOTS = 1.5
"""Instructions of arithmetic that one of the special-function unit counts as in such a loop."""

ARITHMETIC_LANES = 128
"""float32 operations per clock and SM (CUDA Programming Guide, arithmetic throughput)."""


@dataclass(frozen=True)
class Time:
    """Seconds of one kernel and the pipe that sets them."""

    seconds: float
    limited_by: str
    pipes: Mapping[str, float]


def predict(
    machine: Machine,
    dtype: str,
    work: Mapping[str, float],
    inner_bytes: float,
    outer_bytes: float,
    groups: int,
    resident: int = 1,
    overlapped: bool = True,
    chunks: int = 0,
    pipelined: bool = False,
    chained: bool = False,
    longest: float = 1.0,
    loads: int = 1,
) -> Time:
    """The time of a kernel.

    Args:
        work: operations per pipe: "product", "arithmetic", "special".
        inner_bytes: bytes into and out of the inner level (H).
        outer_bytes: bytes from and to the outermost memory.
        groups: program instances; the last wave of them may leave multiprocessors idle.
        resident: program instances that one multiprocessor holds at once.
        overlapped: whether loads go on while the last chunk is computed.
        chunks: turns of the streamed loop in one group.
        pipelined: whether their loads are started a turn or more ahead.
        chained: whether the loop's products and its arithmetic wait for each other.
        longest: work of the busiest group over that of a group on average.
        loads: how often a turn waits for memory where loads are not started ahead.
    """
    clock = machine.clock
    lanes = machine.sms * clock
    pipes = {
        "tensor cores" if dtype != "fp32" else "fp32 arithmetic": work["product"]
        / machine.peak(dtype),
        "arithmetic": work["arithmetic"] / (ARITHMETIC_LANES * lanes),
        "special functions": work["special"] / machine.special_rate,
        "L2 to shared memory": inner_bytes / machine.l2_rate,
    }
    computing = list(pipes)[:3]
    if chained:
        slots = work["arithmetic"] + SPECIAL_SLOTS * work["special"]
        waiting = STALL * slots / (ARITHMETIC_LANES * lanes)
        turns = pipes[computing[0]] + waiting
        hidden = HIDDEN[min(resident, 3 if pipelined else 2)]
        pipes["products in turn with arithmetic"] = turns * hidden
    else:
        turns = max(pipes[k] for k in computing)
    waves = groups / (machine.sms * resident)
    idle = math.ceil(waves) / waves if waves else 1.0
    pipes = {k: v * idle for k, v in pipes.items()}
    alone = turns * machine.sms / max(groups, 1)  # of a group on average
    turn = CHUNK_SECONDS[pipelined] * (1 if pipelined else loads)
    waits = chained and not pipelined
    alone += chunks * turn if waits else 0.0
    pipes["latency"] = math.ceil(waves) * (GROUP_SECONDS + (alone if waits else chunks * turn))
    busy = min(max(groups, 1), machine.sms)
    pipes["DRAM"] = outer_bytes / min(COPIED * machine.dram_rate, STREAMED * busy)
    slowest = max(pipes, key=lambda k: pipes[k])
    same = {"latency", *computing} if not pipelined else set(computing)
    beside = {k: v for k, v in pipes.items() if k != slowest and not (chained and k in same)}
    seconds = pipes[slowest] + EXPOSED * sum(beside.values())
    if not overlapped:
        moving = max(pipes["L2 to shared memory"], pipes["DRAM"])
        rest = max(v for k, v in pipes.items() if k not in {"L2 to shared memory", "DRAM"})
        seconds = moving + rest
    # However the groups are spread, one of them runs on one multiprocessor.
    if longest > 1.0 and alone * longest > seconds:
        slowest, seconds = "the longest group", alone * longest
    return Time(seconds + LAUNCH_SECONDS, "launch" if seconds < LAUNCH_SECONDS else slowest, pipes)
