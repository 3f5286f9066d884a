"""Times of calls on the device: medians of runs with a cold L2, taken in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

COLD = 256 * 2**20
"""Bytes that are written before each run, so that L2 holds nothing of it: what
`triton.testing.do_bench` writes, five times the L2 of an H100."""

LEAD = 200_000
"""Clocks that the device waits before each run, about 0.1 ms: so long a launch may take the host
without being part of the time."""

LEAST, MOST = 10, 300
"""Runs of each call."""

Call = Callable[[], object]


@dataclass(frozen=True)
class Sample:
    """Microseconds of one call.

    Attributes:
        median: the middle run.
        low, high: the quartiles.
        runs: how many there were.
    """

    median: float
    low: float
    high: float
    runs: int


def sample(us: Sequence[float]) -> Sample:
    """Median and quartiles of runs, in microseconds; of one run, that run."""
    if len(us) == 1:
        return Sample(us[0], us[0], us[0], 1)
    low, median, high = statistics.quantiles(us, n=4, method="inclusive")
    return Sample(median, low, high, len(us))


def rounds(first: Sequence[float], seconds: float) -> int:
    """How often to go round calls that took `first` microseconds each, so that all of it takes
    about `seconds` for each call."""
    total = sum(first) * 1e-6
    return max(LEAST, min(MOST, int(seconds * len(first) / max(total, 1e-9))))


def interleaved(
    calls: Mapping[str, Call], seconds: float = 0.15, lead: int = LEAD
) -> dict[str, Sample]:
    """Times of calls, one after another in every round, each with a cold L2.

    Taken in turns, a clock that changes changes all of them. Launches are hidden behind the writes
    that clear L2, so what counts is the time on the device.

    Args:
        seconds: of running, about, for each call.
        lead: clocks that the device waits before each run; more where the host takes longer.
    """
    import torch

    if not calls:
        return {}
    for call in calls.values():  # compiles, and tunes where a library does
        call()
        call()
    torch.cuda.synchronize()
    cold = torch.empty(COLD // 4, dtype=torch.int32, device="cuda")
    names = list(calls)

    def go(count: int) -> dict[str, list[float]]:
        pairs: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {n: [] for n in names}
        for i in range(count):
            for name in names[i % len(names) :] + names[: i % len(names)]:
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                torch.cuda._sleep(lead)  # pyright: ignore[reportPrivateUsage]
                cold.zero_()
                start.record()
                calls[name]()
                end.record()
                pairs[name].append((start, end))
        torch.cuda.synchronize()
        return {n: [1e3 * a.elapsed_time(b) for a, b in found] for n, found in pairs.items()}

    first = {n: statistics.median(us) for n, us in go(3).items()}
    return {n: sample(us) for n, us in go(rounds(list(first.values()), seconds)).items()}
