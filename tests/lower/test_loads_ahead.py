"""Loops load ahead what their products do not read, and, where they multiply nothing, what an
iteration reduces and waits for."""

from __future__ import annotations

import re
from typing import Any

import pytest

import napkin as nk
from napkin.count.residency import live_set
from napkin.diagram.library import load
from napkin.machine.machines import machine
from napkin.schedule import Schedule
from napkin.settings.labelled import Labelled
from napkin.settings.pricing import Pricing


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


@nk.diagram("a c, a b, c b -> c", sizes={"a": 4096, "c": 4096, "b": 128})
def weighted(G: Any, X: Any, W: Any) -> Any:
    """The gradient of a scale of each column: G is multiplied with what a product gives."""
    return nk.reduce(G * nk.contract(X, W, over="b"), "sum", over="a")


def test_what_products_do_not_read_is_loaded_ahead_and_has_room() -> None:
    """Triton alone loads X ahead, and an iteration waits for G."""
    kernel = weighted.stream("a").group("c").kernel
    assert live_set(kernel).streamed_others == (("G", ("a", "c")),)
    assert copies(4096, 3) - copies(4096, 1) == 2 * (64 * 128 + 64 * 128) * 2
    plan = nk.derive(weighted, on="h100", deterministic=True)
    assert plan.kernels[0].choice.kernel.products
    assert [head for head in loops(plan) if "num_stages=" in head] == loops(plan)
    plan.check(sizes=dict(a=77, c=53, b=30), resources=False).raise_if_wrong()


def copies(c: int, stages: int) -> int:
    """Bytes of shared memory of the kernel at so many columns."""
    kernel, sizes = weighted.stream("a").group("c").kernel, weighted.check_sizes({"c": c})
    pricing = Pricing(kernel, sizes, "bf16", machine("h100"))
    return pricing.at(Schedule({"a": 64, "c": 128, "b": 128}, 4, stages)).shared


def test_rows_of_odd_numbers_of_two_bytes_are_not_copied_ahead() -> None:
    """Triton copies nothing of fewer than 4 bytes ahead: at 4,095 columns it copies X alone."""
    assert copies(4096, 3) - copies(4095, 3) == 2 * 64 * 128 * 2
    kernel, sizes = weighted.stream("a").group("c").kernel, weighted.check_sizes({})
    even, odd = (Labelled(kernel, {**sizes, "c": c}, "bf16", machine("h100")) for c in (4096, 4095))
    assert (even.copied, odd.copied) == ({"G", "X"}, {"X"})


@nk.diagram("a c, a:int, a b, c b -> c", sizes={"a": 4096, "c": 4096, "b": 128})
def placed(G: Any, at: Any, X: Any, W: Any) -> Any:
    return nk.reduce(nk.take(G, a=at) * nk.contract(X, W, over="b"), "sum", over="a")


def test_what_lies_at_positions_that_are_read_is_left_to_triton() -> None:
    """Such a reading takes a stage of the pipeline from all others."""
    kernel = placed.stream("a").group("c").kernel
    assert kernel.products
    assert not live_set(kernel).streamed_others
    assert not [head for head in loops(nk.derive(placed, on="h100")) if "num_stages" in head]


@nk.diagram("q n, q r, x n, x r -> q x", sizes=dict(q=256, x=4096, n=128, r=64))
def in_two_parts(Q: Any, P: Any, K: Any, R: Any) -> Any:
    """Scores of which a part is rotated (arXiv 2405.04434), less the largest of each row."""
    S = nk.contract(Q, K, over="n") + nk.contract(P, R, over="r")
    return S - nk.reduce(S, "max", over="x")


def test_a_product_is_done_with_its_operands_before_the_next_one_reads_its_own() -> None:
    """The second starts from the first. Where loads are waited for, both take one place."""
    plan = nk.derive(in_two_parts, on="h100")
    reads = re.findall(r"([A-Z])_tile = tl\.|tl\.(dot)\(", plan.source)
    assert [a or b for a, b in reads if a in {"K", "R"} or b][:4] in (
        ["K", "dot", "R", "dot"],
        ["R", "dot", "K", "dot"],
    )
