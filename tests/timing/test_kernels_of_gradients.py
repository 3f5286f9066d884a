"""The time model beside kernels of gradients of drawn sizes, as counted and timed on an H100."""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

import napkin as nk
from napkin.machine.machines import machine
from napkin.schedule import Schedule
from napkin.timing.execution import Execution
from napkin.timing.kernel_time import predict

RECORD = Path("docs/measurements/2026-11-25-h100-gradient-kernels.csv")


@cache
def record() -> list[tuple[str, bool, float]]:
    """Kernels, whether the planner took the setting, and predicted over measured time."""
    found = list[tuple[str, bool, float]]()
    for row in csv.DictReader(RECORD.read_text().splitlines()):
        does = json.loads(row["does"])
        run = Execution(**{**does, "schedule": Schedule(**does["schedule"])})
        seconds = predict(machine("h100"), "bf16", run).seconds
        ratio = 1e6 * seconds / float(row["measured_us"])
        found.append((row["kernel"], row["chosen"] == "1", ratio))
    return found


def off(name: str) -> float:
    """Mean absolute error of what the planner took of the kernels of some name."""
    return fmean(abs(ratio - 1) for kernel, chosen, ratio in record() if chosen and name in kernel)


def test_what_the_planner_takes_is_priced_as_it_was_timed() -> None:
    errors = [abs(ratio - 1) for _, chosen, ratio in record() if chosen]
    assert fmean(errors) < 0.21
    assert median(errors) < 0.142


def test_small_kernels_take_a_launch() -> None:
    assert off("merge") < 0.2


def test_operands_that_are_computed_are_waited_for() -> None:
    """Products of gelu's derivative and a cotangent; they were predicted 2.1 to 5.5 times too
    fast."""
    assert off("experts_gradient_dW") < 0.3
    assert off("mlp_gradient_dW") < 0.25


def test_lines_of_few_bytes_are_answered_one_by_one() -> None:
    assert off("gradient_dG") < 0.15


def test_what_is_read_after_the_loop_has_registers_beside_the_product() -> None:
    """Of 256 x 128 values, in 8 warps, 1,440 bytes of a thread were spilled: gelu's derivative
    after a product took 7,132 us, 128 x 128 two thirds of it (H100)."""

    @nk.diagram("a c, c b, a b:fp32, a b:fp32 -> a b", sizes={"a": 8192, "b": 8192, "c": 4096})
    def finished(A: Any, B: Any, C: Any, D: Any) -> Any:
        return nk.contract(A, B, over="c") * C + nk.exp(D)

    (kernel,) = nk.derive(finished, on="h100").kernels
    run = kernel.choice.run
    assert run.finishing_bytes == 2 * 4 * 8192 * 8192
    results = kernel.tiles["a"] * kernel.tiles["b"]
    assert 3 * 4 * results <= kernel.schedule.warps * 32 * 255 * 4
