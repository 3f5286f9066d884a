"""Rows whose length is a multiple of 8, 4 or 2 values and not of 16: what a launch says of them,
how wide the compiler loads them, and that results and bytes stay what they are."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

import napkin as nk
from napkin.check.verdict import check
from napkin.diagram.library import load
from napkin.lower.launch import known_step, launch
from napkin.plan.fitting import job_of
from napkin.plan.plan import Plan
from napkin.plan.ranked import with_choices
from napkin.run.compile import Resources, resources_many


@pytest.mark.parametrize(
    ("length", "strides", "step"),
    [
        (792, [792], 8),
        (792, [800], 8),
        (784, [792], 8),
        (788, [788, 788 * 3], 4),
        (790, [790], 2),
        (791, [791], 1),
        (792, [791], 1),
        (784, [784], 1),  # the launcher finds 16 by itself
        (784, [0], 1),  # rows that are all one
        (24, [], 8),
    ],
)
def test_the_step_of_rows(length: int, strides: list[int], step: int) -> None:
    assert known_step(length, strides) == step


def steps(plan: Plan, sizes: Mapping[str, int], strides: Mapping[str, list[int]]) -> dict[str, int]:
    entry = plan.kernels[0].written.entry
    found = launch(entry, sizes, {"eps": 1e-5}, strides).constexprs
    return {name: int(n) for name, n in found.items() if name.startswith("STEP")}


def test_each_axis_of_rows_has_a_step() -> None:
    plan = nk.derive(load("matmul"), on="h100", sizes={"a": 256, "b": 1336, "c": 1001})
    sizes = {"a": 256, "b": 1336, "c": 1001}
    packed = {"A": [1336, 1], "B": [1001, 1], "C": [1001, 1]}
    assert steps(plan, sizes, packed) == {"STEP_B": 8, "STEP_C": 1}
    padded = {**packed, "A": [1338, 1]}
    assert steps(plan, sizes, padded) == {"STEP_B": 2, "STEP_C": 1}
    turned = {**packed, "A": [1, 256]}
    assert steps(plan, sizes, turned) == {"STEP_B": 1, "STEP_C": 1}


def test_lengths_of_small_tiles_have_none() -> None:
    """Labels and losses go along n, one for each row of logits: other lengths of n ask for no other
    kernel."""
    plan = nk.derive(load("cross_entropy"), on="h100", sizes={"n": 1000, "v": 5000})
    kinds = {a.name for a in plan.kernels[0].written.entry.arguments if a.kind == "step"}
    assert kinds == {"STEP_V"}


def compiled(name: str, on: str, arch: str, sizes: Mapping[str, int]) -> Resources:
    plan = nk.derive(load(name), on=on, sizes=sizes)
    (kernel,) = plan.kernels
    (found,) = resources_many([job_of(kernel, plan.full(plan.sizes), arch)])
    assert isinstance(found, Resources)
    return found


@pytest.mark.parametrize("name", ["softmax", "logsumexp", "variance", "rmsnorm"])
@pytest.mark.parametrize("length", [784, 792, 788, 790, 791])
def test_loads_are_as_wide_as_rows_allow(name: str, length: int) -> None:
    first, last = load(name).inputs[0].axes
    found = compiled(name, "h100", "sm_90", {first: 4096, last: length})
    step = 8 if length % 16 == 0 else known_step(length, [length])
    assert max(found.loads) == 16 * step
    assert all(bits == 16 * step for bits, many in found.loads.items() if many > 1)


@pytest.mark.parametrize(("b", "bits"), [(1344, 128), (1336, 128), (1340, 64), (1338, 32)])
def test_operands_are_copied_ahead(b: int, bits: int) -> None:
    """Where no tensor descriptor serves, operands are copied by as many bytes as rows allow; both
    sides of the product have rows of b, or of 4096."""
    found = compiled("matmul", "a100", "sm_80", {"a": 1024, "b": b, "c": 4096})
    assert set(found.loads) == {bits, 128}


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("softmax", {"n": 5, "x": 72}),
        ("layernorm", {"n": 3, "d": 60}),
        ("cross_entropy", {"n": 3, "v": 1032}),
        ("matmul", {"a": 24, "b": 40, "c": 88}),
        ("matmul", {"a": 24, "b": 42, "c": 84}),
    ],
)
def test_results_and_bytes_hold(name: str, sizes: Mapping[str, int]) -> None:
    plan = nk.derive(load(name), on="h100", sizes=sizes)
    verdict = check(plan, sizes=sizes)
    assert verdict.ok, str(verdict)


def test_bounds_of_two_terms_along_the_queries_say_nothing_of_multiples() -> None:
    """Triton 3.6 takes 2 * f(q) + q % 2 for even, and compares runs of keys with it at once."""
    pair = {"queries": "q", "keys": "x"}
    plain, dilated = nk.sliding(20, 0, **pair), nk.neighborhood(64, 4, 2, **pair)

    def source(keys: nk.KeySet) -> str:
        @nk.diagram("q d, x d, x d -> q d", sizes={"q": 4001, "x": 4001, "d": 64})
        def attention(Q, K, V):
            return nk.contract(nk.softmax(nk.contract(Q, K, over="d"), "x", keys=keys), V, over="x")

        return nk.derive(attention, on="h100").recipe.source

    assert re.search(r"tl.multiple_of\(\w+, \[1\]\)\[:, None\] <= x", source(plain | dilated))
    assert "tl.multiple_of" not in source(plain)


def test_bounds_that_fall_as_the_query_rises_say_nothing_of_multiples() -> None:
    """Triton 3.6 takes size - q for even where q begins at an even number, and took the first key
    past the end with the last."""

    def opposite(i, size):
        return [(size - 3 - i, size - i + 2)]

    @nk.diagram("q x:int -> q", sizes={"q": 512, "x": 512})
    def least_opposite(values):
        keys = nk.key_set("opposite", opposite, queries="q", keys="x")
        return nk.reduce(values, "min", over="x", keys=keys)

    plan = nk.derive(least_opposite, on="h200")
    (kernel,) = plan.kernels
    plan = with_choices(plan, [kernel.choice.under(tiles={**kernel.tiles, "q": 2})])
    assert re.search(r"x\[None, :\] < tl.multiple_of\([^:]*, \[1\]\)\[:, None\]", plan.source)
    plan.check(sizes={"q": 37, "x": 37}, resources=False).raise_if_wrong()
