"""Plans run alone in a process, for a tool that watches it: `python -m napkin.measure.driver JOBS`.

Nsight Compute and compute-sanitizer take a program and not a call. This one derives each plan, runs
it once to compile, and once more between the calls that start and stop a profiler, so that what a
profiler sees is the plan's kernels in their order.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def command(jobs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The command that runs jobs: name, on, sizes, dtype, seed, and where wanted storage, gradient,
    tuned, layout."""
    return [sys.executable, "-m", "napkin.measure.driver", json.dumps([dict(j) for j in jobs])]


def main(text: str) -> None:
    """Run the jobs that the JSON text says."""
    for job in json.loads(text):
        _run(job)


def _run(job: Mapping[str, Any]) -> None:
    import torch

    from napkin.diagram.library import load
    from napkin.gradient.gradient import gradient
    from napkin.measure.tensors import drawn
    from napkin.plan.derive import derive
    from napkin.torch.run import opened

    tuned, parts = bool(job.get("tuned")), job.get("parts")
    diagram = load(job["name"]).stored(**job.get("storage", {}))
    diagram = gradient(diagram) if job.get("gradient") else diagram
    on, exact = (job["on"], job["sizes"], job["dtype"]), bool(job.get("deterministic", True))
    plan = derive(diagram, *on, parts=parts, tuned=tuned, deterministic=exact)
    tensors = drawn(plan.diagram, plan.sizes, plan.dtype, job["seed"], job.get("layout", "plain"))
    _, _, calls = opened(plan, tensors, {})
    for call in calls:
        call()
    torch.cuda.synchronize()
    profiler: Any = torch.cuda.cudart()
    profiler.cudaProfilerStart()  # which does nothing where no profiler waits for it
    for call in calls:
        call()
    torch.cuda.synchronize()
    profiler.cudaProfilerStop()


if __name__ == "__main__":
    main(sys.argv[1])
