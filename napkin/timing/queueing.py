"""Groups that share what they take turns at: a closed queueing network."""

from __future__ import annotations

from collections.abc import Sequence

BLEND = 4
"""How nearly two that go on together take what the longer one takes, where both take about as long:
the power of which both are summed."""


def cycle(groups: int, stations: Sequence[float], delay: float) -> float:
    """Seconds of one round of each of several like groups of one multiprocessor, by mean value
    analysis (Reiser and Lavenberg 1980): who comes to a station finds there, on average, those that
    would be there without him.

    Args:
        stations: seconds of one group at each of the things that it shares with the others.
        delay: seconds that it waits for what it shares with none, such as an answer of memory.
    """
    waiting = [0.0] * len(stations)
    out = delay
    for n in range(1, groups + 1):
        there = [s * (1 + w) for s, w in zip(stations, waiting, strict=True)]
        out = delay + sum(there)
        waiting = [n * t / out if out else 0.0 for t in there]
    return out


def blended(one: float, other: float) -> float:
    """Seconds of two that go on together."""
    return (one**BLEND + other**BLEND) ** (1 / BLEND)
