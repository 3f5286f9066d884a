"""Loops that multiply nothing load ahead where an iteration waits for reductions of its chunk."""

from __future__ import annotations

import re
from typing import Any

import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.settings.labelled import Labelled


def loops(plan: nk.Plan) -> list[str]:
    """The heads of the loops of a plan's first kernel."""
    first = plan.source.partition("@triton.jit")[2].partition("@triton.jit")[0]
    return re.findall(r"in tl\.range\((.*)\):", first)


@pytest.mark.parametrize("name", ["rmsnorm_gradient", "layernorm_gradient"])
def test_rows_that_wait_for_their_sums_are_loaded_ahead(name: str) -> None:
    plan = nk.derive(load(name), on="h100")
    (head,) = loops(plan)
    assert head.endswith(f"num_stages={plan.kernels[0].schedule.stages}")
    assert plan.kernels[0].schedule.stages == 3
    assert plan.kernels[0].choice.shared > 0


@nk.diagram("n d -> d", sizes={"n": 65536, "d": 1024})
def sums(X: Any) -> Any:
    """An iteration adds its chunk up, which nothing waits for."""
    return nk.reduce(X * X, "sum", over="n")


@pytest.mark.parametrize("diagram", [sums, load("matmul"), load("cross_entropy")])
def test_other_loops_are_left_to_triton(diagram: Any) -> None:
    """Lanes of cross entropy fold by themselves, and Triton loads ahead what is multiplied."""
    plan = nk.derive(diagram, on="h100")
    assert loops(plan)
    assert not [head for head in loops(plan) if "num_stages" in head]


@pytest.mark.parametrize(("d", "ahead"), [(4096, True), (4098, True), (4097, False)])
def test_values_of_two_bytes_are_copied_one_by_one_and_not_ahead(d: int, ahead: bool) -> None:
    plan = nk.derive(load("layernorm_gradient"), on="h100")
    choice = plan.kernels[0].choice
    of = Labelled(choice.kernel, {**choice.sizes, "d": d}, "bf16", plan.machine)
    assert of.copies_ahead == ahead
