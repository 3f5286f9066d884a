"""The time model beside kernels that compute an operand of a product in every iteration, as timed
on an H200 (docs/measurements)."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import pytest

import napkin as nk
from napkin.count.matrix_products import crossed
from napkin.diagram.library import load
from napkin.machine.machines import machine
from napkin.schedule import Schedule
from napkin.settings.choice import Choice
from napkin.settings.labels import labellings
from napkin.settings.pricing import Pricing

FILE = Path(__file__).parents[2] / "docs/measurements/2026-11-23-h200-computed-operands.csv"
SIZES = {"n": 8192, "m": 4096, "d": 4096}


@nk.diagram("n d, d, d m -> n m")
def scaled(X, G, W):
    return nk.contract(X * G, W, over="d")


@nk.diagram("n d, d m -> n m")
def cubed(X, W):
    return nk.contract(X * X * X, W, over="d")


@nk.diagram("n d, d, d m -> n m")
def scaled_and_summed(X, G, W):
    power = nk.reduce(X * X, "mean", over="d")
    return nk.contract(X * G, W, over="d") * nk.rsqrt(power + 1e-6)


OPERANDS = {
    "X * G": scaled,
    "X * X * X": cubed,
    "X * G, beside a sum of X * X": scaled_and_summed,
}


def priced(diagram: nk.Diagram, schedule: Schedule) -> Choice:
    """One kernel for all of it, at a setting."""
    plan = nk.derive(diagram, "h200", SIZES, materialise=[])
    (kernel,) = plan.kernels
    terms, sizes = kernel.choice.kernel, plan.full(SIZES)
    streams = labellings(terms.name, terms.origin, terms.names, sizes)
    made = next(k for k in streams if k.stream.axis == "d" and len(k.stream.passes) == 1)
    own = made.sized(sizes)
    return Pricing(made, own, "bf16", plan.machine).at(schedule)


def timed(operand: str) -> Iterator[tuple[Choice, float]]:
    """The settings on record that a plan may take, and their times in microseconds."""
    for row in csv.DictReader(FILE.read_text().splitlines()):
        if row["operand"] == operand and int(row["stages"]) > 1:
            tiles = {a: int(row[a]) for a in SIZES}
            schedule = Schedule(tiles, int(row["warps"]), int(row["stages"]), described=2)
            yield priced(OPERANDS[operand], schedule), float(row["measured_us"])


@pytest.mark.parametrize(
    ("operand", "most"),
    [("X * G", 0.10), ("X * X * X", 0.10), ("X * G, beside a sum of X * X", 0.25)],
)
def test_kernels_of_computed_operands_are_priced_as_they_were_timed(
    operand: str, most: float
) -> None:
    ratios = [1e6 * c.time.seconds / us for c, us in timed(operand)]
    assert len(ratios) == 6
    assert fmean(abs(math.log(r)) for r in ratios) < most


@pytest.mark.parametrize("diagram", [scaled, cubed], ids=lambda d: d.name)
def test_operands_that_are_computed_leave_no_room_for_a_loop_that_waits(
    diagram: nk.Diagram,
) -> None:
    """With one stage such a loop took 1,173 to 1,393 us, with three 474 to 571."""
    plan = nk.derive(diagram, "h200", SIZES)
    assert all(k.schedule.stages > 1 for k in plan.kernels)


def test_readings_in_two_layouts_are_stored_first() -> None:
    """In one kernel it took 812 us at least; the scaled rows stored, and their product, 390."""
    plan = nk.derive(scaled_and_summed, "h200", SIZES)
    assert len(plan.kernels) == 2
    assert not any(crossed(k.choice.kernel) for k in plan.kernels)
    one = nk.derive(scaled_and_summed, "h200", SIZES, materialise=[]).kernels[0].choice.kernel
    assert len(crossed(one)) == 1


def test_rows_that_several_warps_compute_count_as_often() -> None:
    """Of attention with 64 rows, 8 warps took 1.5 to 2.3 times as long as 4 (H100)."""
    plan = nk.derive(load("attention"), "h100", {"q": 4096, "x": 4096, "d": 128})
    kernel = plan.kernels[0].choice.kernel
    pricing = Pricing(kernel, kernel.sized(plan.full(plan.sizes)), "bf16", machine("h100"))
    tiles = {"q": 64, "x": 64, "d": 128}
    four, eight = (pricing.at(Schedule(tiles, w, 3, described=2)).run.work for w in (4, 8))
    wide = {**tiles, "q": 128}
    assert eight["special"] - four["special"] == 4096 * 4096  # the weights once more
    assert eight["product"] == pytest.approx(
        1.5 * four["product"]
    )  # of two products one is read on
    assert pricing.at(Schedule(wide, 8, 3, described=2)).run.work["product"] == four["product"]
