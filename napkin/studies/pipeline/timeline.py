"""Which team has which pipe when: the pipelining diagram (arXiv 2412.03317, Figures 34 and 35).

The tensor cores and the slowest pipe of the arithmetic each serve one team at a time, whoever was
ready first. Within a team the arithmetic of an iteration waits for its first products and its other
products wait for the arithmetic; what may run beside that is the way of overlapping:

* inter: a team's iterations follow each other, and only other teams fill the gaps;
* intra: the first products of the next iteration are issued as soon as the arithmetic has consumed
  the result that they replace, before the products that wait for the arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

from napkin.studies.pipeline.overlap import Overlap


@dataclass(frozen=True)
class Bar:
    """One team on one pipe.

    Attributes:
        team, iteration: whose, and in which iteration of its loop.
        what: "first" or "second" products, or "arithmetic".
        pipe: "tensor", or the pipe of the arithmetic.
        start, end: in clocks.
        counted: clocks of it that are counted operations; the rest is overhead.
    """

    team: int
    iteration: int
    what: str
    pipe: str
    start: float
    end: float
    counted: float


@dataclass(frozen=True)
class _Job:
    iteration: int
    what: str
    after: tuple[tuple[int, str], ...]


def schedule(
    iteration: Overlap,
    how: str,
    *,
    teams: int,
    iterations: int,
    rows: int = 1,
    overhead: float = 0.0,
) -> tuple[Bar, ...]:
    """The bars of `iterations` iterations of each of `teams` teams, of `rows` rows, by start."""
    counted = {
        "first": iteration.first,
        "second": iteration.second,
        "arithmetic": iteration.arithmetic,
    }
    long = {**counted, "arithmetic": iteration.arithmetic * (1 + overhead)}
    pipe = {"first": "tensor", "second": "tensor", "arithmetic": iteration.pipe}
    left = [_jobs(how, iterations) for _ in range(teams)]
    ends: list[dict[tuple[int, str], float]] = [{} for _ in range(teams)]
    free = dict.fromkeys(pipe.values(), 0.0)
    bars: list[Bar] = []
    while any(jobs for queues in left for jobs in queues.values()):
        best: tuple[float, float, int, int, str] | None = None
        for team, queues in enumerate(left):
            for name, jobs in queues.items():
                if jobs and all(k in ends[team] for k in jobs[0].after):
                    job = jobs[0]
                    ready = max((ends[team][k] for k in job.after), default=0.0)
                    start = max(ready, free[pipe[job.what]])
                    key = (start, ready, job.iteration, team, name)
                    best = key if best is None else min(best, key)
        assert best is not None  # the first job of some team waits for nothing
        start, _, _, team, name = best
        job = left[team][name].pop(0)
        end = start + rows * long[job.what]
        ends[team][job.iteration, job.what] = free[pipe[job.what]] = end
        bars.append(
            Bar(team, job.iteration, job.what, pipe[job.what], start, end, rows * counted[job.what])
        )
    return tuple(sorted((b for b in bars if b.end > b.start), key=lambda b: (b.start, b.team)))


def _jobs(how: str, iterations: int) -> dict[str, list[_Job]]:
    """A team's work for the tensor cores and for arithmetic, in the order of issue."""
    tensor: list[_Job] = []
    other: list[_Job] = []
    for i in range(iterations):
        before = ((i - 1, "arithmetic"),) if i else ()
        if how == "inter":
            waits = ((i - 1, "second"),) if i else ()
            tensor += [_Job(i, "first", waits), _Job(i, "second", ((i, "arithmetic"),))]
        else:
            tensor.append(_Job(i, "first", before))
            if i:
                tensor.append(_Job(i - 1, "second", before))
        other.append(_Job(i, "arithmetic", ((i, "first"),)))
    if how == "intra" and iterations:
        tensor.append(_Job(iterations - 1, "second", ((iterations - 1, "arithmetic"),)))
    return {"tensor": tensor, "other": other}
