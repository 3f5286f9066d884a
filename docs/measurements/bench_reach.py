"""What the planner reaches beyond attention, products and norms: kernels of shipped diagrams and of
those in `tests/field`, beside torch.compile and the library that has a kernel for the same.

    python docs/measurements/bench_reach.py [--on h200] [--most SECONDS] [--tuned] [cumsum 20..25]

A process for each problem derives and compiles; those that are timed wait for the others, and take
turns. Of each: launches, predicted microseconds, bytes that groups move over the compulsory ones,
what limits the longest kernel, and medians with a cold L2 (`napkin.measure.timing`), with the
largest relative error of the outputs by float64. --tuned adds torch.compile's max-autotune.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

import libraries
import torch
from heading import heading

import napkin as nk
from napkin.diagram.diagram import Diagram
from napkin.diagram.library import baselines, load

FIELD = Path(__file__).resolve().parents[2] / "tests" / "field"
sys.path.insert(0, str(FIELD))


@dataclass(frozen=True)
class Problem:
    """A diagram at sizes, and what it is timed beside.

    Attributes:
        family: the file in `tests/field`; none for a shipped diagram.
        sizes: where they are others than the diagram's own.
        plain: whether torch evaluates it term by term in a time worth waiting for, so that
            torch.compile can be timed.
        how: further arguments of `nk.derive`.
    """

    name: str
    family: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    plain: bool = True
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, Any])
    how: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def found(self) -> tuple[Diagram, Mapping[str, tuple[float, float]], dict[str, Any]]:
        """The diagram, the ranges of its inputs, and other ways to compute it."""
        own = libraries.BESIDE.get(self.name, {})
        if not self.family:
            return load(self.name), self.ranges, baselines(self.name) | own
        from table import entries

        entry = next(e for e in entries(self.family) if e.name == self.name)
        return entry.make(), {**entry.ranges, **self.ranges}, dict(own)


PROBLEMS = [
    # pointwise results that are stored once
    Problem("rotary_attention", sizes=dict(b=4)),
    Problem("gelu_matmul"),
    Problem("triangle_multiplication"),
    # what several kernels compute again
    Problem("siglip_loss", "losses"),
    Problem("layernorm_gradient"),
    # several outputs of one kernel
    Problem("rmsnorm_residual"),
    Problem("adamw", ranges=dict(V=(0.0, 1.0))),
    Problem("swiglu_gradient"),
    # a stream in a stream
    Problem("linear_cross_entropy"),
    Problem("linear_jensen_shannon", "losses", ranges=dict(W=(-0.1, 0.1), U=(-0.1, 0.1))),
    Problem("attention_output"),
    # products with scales on both sides, squares as products
    Problem("blockwise_fp8_linear"),
    Problem("blockwise_fp8_linear", sizes=dict(g=224, b=32), plain=False),
    Problem("squared_distances", plain=False, how=dict(multiply_out=True)),
    Problem("nearest_centre", "retrieval"),
    # the order of contractions
    Problem("bilinear_form"),
    Problem("mttkrp"),
    Problem("tensor_train"),
    Problem("tucker_reconstruction", "transforms"),
    # scans
    Problem("cumsum"),
    Problem("prefix_sums", "recurrences"),
    Problem("minimal_gru", "recurrences", plain=False),
    Problem("selective_scan", plain=False),
    Problem("state_space_dual", plain=False),
    Problem("multiscale_retention", "attention", sizes=dict(h=32), ranges=dict(G=(0.9, 0.999))),
    Problem("gated_linear_attention", plain=False),
    Problem("gated_delta_rule", plain=False),
    Problem("elman_network", plain=False),
    Problem("lstm_layer", "recurrences", plain=False, ranges=dict(U=(-0.1, 0.1))),
    # selections and random numbers
    Problem("greedy_token"),
    Problem("top_experts"),
    Problem("sample_token", plain=False),
    Problem("dropout_attention", plain=False),
    # groups that data decides
    Problem("grouped_experts", plain=False),
]


def chosen(words: list[str]) -> list[int]:
    """Problems by number, by a range of numbers, or by name."""
    found: list[int] = []
    for word in words:
        first, dots, last = word.partition("..")
        if first.isdigit():
            found += range(int(first), int(last) + 1 if dots else int(first) + 1)
        else:
            found += [i for i, p in enumerate(PROBLEMS) if p.name == word]
    return found or list(range(len(PROBLEMS)))


def measure(i: int, tuned: bool, on: str, most: float, ready: Any, turn: Any) -> None:
    """Print one problem's line."""
    began = time.monotonic()
    entered = False

    @contextmanager
    def alone() -> Iterator[None]:
        nonlocal entered
        entered = True
        torch.cuda.empty_cache()
        with suppress(BrokenBarrierError):
            ready.wait(max(0.1, most - (time.monotonic() - began)))
        with turn:
            yield
            torch.cuda.empty_cache()

    try:
        line = measured(PROBLEMS[i], tuned, on, alone)
    except Exception as error:
        line = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    print(f"{i:2} {PROBLEMS[i].name:26} {line}", flush=True)
    if not entered:
        with suppress(BrokenBarrierError):
            ready.wait(0.0 if time.monotonic() - began > most else most)


def measured(problem: Problem, tuned: bool, on: str, alone: Callable[[], Any]) -> str:
    """The numbers of a problem."""
    from napkin.measure.bench import bench
    from napkin.studies.strategies import compulsory

    diagram, ranges, own = problem.found()
    plan = nk.derive(diagram, on=on, sizes=problem.sizes, **problem.how)
    against = ["compile"] if problem.plain else []
    if tuned and problem.plain:
        against, own = [], {"max-autotune": libraries.autotuned(plan)}
    table = bench(plan, [*against, *own], own, 0, ranges=ranges, alone=alone())
    longest = max(plan.launched.kernels, key=lambda k: k.choice.time.seconds)
    parts = [
        f"{len(plan.launched.kernels)} kernels, predicted {table.predicted_us:8.1f}",
        f"bytes {table.moved / compulsory(plan):6.2f}",
        longest.choice.time.limited_by,
    ]
    for row in table.rows:
        if row.time is None:
            parts.append(f"{row.name}: {row.note}")
            continue
        error = "-" if row.relative_error is None else f"{row.relative_error:.1e}"
        ratio = f" {table.ratio(row):.2f}x" if row is not table.rows[0] else ""
        parts.append(f"{row.name} {row.time.median:.1f}{ratio} (error {error})")
    return " | ".join(parts)


def main() -> None:
    """Measure the problems that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="*")
    parser.add_argument("--most", type=float, default=60.0, help="seconds until timing begins")
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--on", default="h100", help="the machine that plans are for")
    given = parser.parse_args()
    print(heading("us, and the others' times over napkin's"), flush=True)
    numbers = chosen(given.problems)
    context = multiprocessing.get_context("spawn")
    ready, turn = context.Barrier(len(numbers)), context.Lock()
    processes = [
        context.Process(target=measure, args=(i, given.tuned, given.on, given.most, ready, turn))
        for i in numbers
    ]
    for p in processes:
        p.start()
    for p in processes:
        p.join()


if __name__ == "__main__":
    main()
