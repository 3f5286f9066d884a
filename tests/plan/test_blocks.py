"""Products folded block by block: what is contracted is never stored, and states are merged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.algebra import rule
from napkin.algebra.rule import LawError
from napkin.bound.symbolic_cost import Cost
from napkin.count.traffic import Traffic
from napkin.derive import label as labels
from napkin.derive.kernel import Kernel
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.derive.rules import block
from napkin.derive.rules.block import block_axis, blocked
from napkin.diagram.diagram import Diagram
from napkin.diagram.library import load
from napkin.plan.fitting import job_of
from napkin.plan.plan import Plan
from napkin.run.recipe import recipe_of

LONG = {"n": 8192, "d": 4096, "v": 32000}
ODD = ({"n": 17, "d": 70, "v": 600}, {"n": 1, "d": 1, "v": 1})


@nk.diagram("n d, v d -> n")
def normaliser(X: Any, W: Any) -> Any:
    return nk.reduce(nk.contract(X, W, over="d"), "logsumexp", over="v")


@nk.diagram("n d, v d, v -> n, n")
def moments(X: Any, W: Any, b: Any) -> Any:
    """Its running variance needs how many positions a block has."""
    L = nk.contract(X, W, over="d") + b
    mean = nk.reduce(L, "mean", over="v")
    return nk.reduce((L - mean) ** 2, "mean", over="v"), nk.reduce(L, "max", over="v")


@nk.diagram("n d, v d, n v -> n")
def masked(X: Any, W: Any, M: Any) -> Any:
    """Of some blocks no position counts."""
    L = nk.contract(X, W, over="d")
    return nk.reduce(nk.where(M > 0, L, -np.inf), "logsumexp", over="v")


DIAGRAMS = (normaliser, moments, masked)


def streamed(diagram: Diagram, axis: str) -> Kernel:
    ready = prepare(diagram)
    return label(diagram.name, ready.outputs, ready.names, streamed=axis)


def planned(diagram: Diagram, **settings: Any) -> Plan:
    return nk.derive(diagram, on="h100", sizes=LONG, **settings)


@pytest.mark.parametrize("diagram", DIAGRAMS, ids=lambda d: d.name)
def test_blocks_and_their_merge_are_the_diagram(
    diagram: Diagram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule, "VERIFYING", True)
    found = blocked(streamed(diagram, "v"), "d", 64)
    assert found is not None
    first, merge = found
    assert first.stream.axes == ("d",)
    assert first.group == ("n", "v")
    assert merge.stream.axes == (block_axis("v", 64),)


def test_a_block_counts_its_own_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean that took the size of the whole axis breaks the law."""
    monkeypatch.setattr(rule, "VERIFYING", True)
    whole = labels.known_counts
    monkeypatch.setattr(labels, "known_counts", lambda outputs, cut: whole(outputs, cut[:1]))
    with pytest.raises(LawError, match="merge"):
        blocked(streamed(moments, "v"), "d", 64)


def test_a_block_starts_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule, "VERIFYING", True)
    monkeypatch.setattr(block, "in_kind", lambda *_: 1.0)
    with pytest.raises(LawError, match="merge"):
        blocked(streamed(normaliser, "v"), "d", 64)


@pytest.mark.parametrize(("diagram", "dtype"), [(normaliser, "bf16"), (moments, "fp32")])
def test_blocks_compute_the_diagram_and_move_what_is_predicted(
    diagram: Diagram, dtype: str
) -> None:
    plan = planned(diagram, dtype=dtype)
    assert [k.name for k in plan.kernels] == [f"{diagram.name}_blocks", f"{diagram.name}_merge"]
    for sizes in ODD:
        plan.check(sizes=sizes).raise_if_wrong()


def test_blocks_in_which_nothing_counts() -> None:
    plan = planned(masked, dtype="fp32")
    assert plan.kernels[0].name == "masked_blocks"
    rng = np.random.default_rng(0)
    X, W, M = (rng.normal(size=s) for s in ((9, 20), (600, 20), (9, 600)))
    M[:, 250:] = -1
    M[0] = -1
    found = plan(*(a.astype("f4") for a in (X, W, M)))
    L = np.where(M > 0, X @ W.T, -np.inf)
    top = np.maximum(L.max(1), -1e30)
    with np.errstate(divide="ignore"):
        wanted = top + np.log(np.exp(L - top[:, None]).sum(1))
    assert found[0] == wanted[0] == -np.inf
    np.testing.assert_allclose(found[1:], wanted[1:], rtol=1e-5)


def test_what_blocks_cost() -> None:
    """The operands cross as for a product that is stored; of the product, two states of each block
    do."""
    found = blocked(streamed(normaliser, "v"), "d", 128)
    assert found is not None
    first, merge = found
    assert str(Cost(first).H.total) == "d*n*v/g_v + d*n*v/g_n + n*v/64"
    assert str(Cost(merge).H.total) == "n*v/64 + n"
    plan = planned(normaliser, dtype="bf16")
    length = plan.blocks[0].step
    assert plan.workspace == 2 * 4 * LONG["n"] * (LONG["v"] // length)
    stored = planned(normaliser, dtype="bf16", materialise=["X_W"])
    assert plan.workspace * 60 < stored.workspace
    assert plan.seconds < stored.seconds


def test_short_products_stay_in_one_kernel() -> None:
    plan = nk.derive(normaliser, on="h100", sizes={"n": 512, "d": 64, "v": 512})
    assert not plan.blocks
    assert not nk.derive(load("attention"), on="h100").blocks


def test_the_compiler_is_asked_about_blocks() -> None:
    """Sizes of the axes that a kernel splits follow from those of the diagram."""
    plan = planned(normaliser)
    assert {block_axis("v", b.step) for b in plan.blocks} == {b.place for b in plan.blocks} != set()
    for k in plan.kernels:
        assert job_of(k, LONG, "sm_90") == job_of(k, plan.full(LONG), "sm_90")


def test_a_recipe_of_blocks_is_read_back() -> None:
    recipe = planned(normaliser).recipe
    axis = recipe.blocks[0].place
    again = recipe_of(recipe.to_json())
    assert again.blocks == recipe.blocks
    assert again.full({"n": 3, "d": 4, "v": 1000})[axis] == -(-1000 // recipe.blocks[0].step)


def test_the_trail_names_the_block() -> None:
    plan = planned(normaliser)
    assert f"block v = {plan.blocks[0].step}" in str(plan.trail)


def test_where_blocks_are_none() -> None:
    """Nothing else is streamed within them, or a key set says which chunks are seen."""
    assert blocked(streamed(normaliser, "v"), "n", 64) is None
    assert blocked(streamed(load("causal_attention"), "x"), "d", 64) is None


@nk.diagram("d, v d, () -> ()")
def scaled_normaliser(x: Any, W: Any, scale: Any) -> Any:
    return nk.reduce(nk.contract(x, W, over="d"), "logsumexp", over="v") * scale


def test_a_scalar_that_the_merge_reads_is_one_value_of_its_traffic() -> None:
    found = blocked(streamed(scaled_normaliser, "v"), "d", 64)
    assert found is not None
    (read,) = (p for p in Traffic(found[1]).parts if p.tensor == "scale")
    assert (read.total, read.size) == (1, 1)


@nk.diagram("n v d, d p -> n")
def squares(X: Any, W: Any) -> Any:
    """Its running sum keeps p before n, and a block computes it with n before p."""
    S = nk.contract(W, X, over="d")
    near = nk.exp(S - nk.reduce(S, "max", over="v p"))
    return nk.reduce(nk.reduce(near, "sum", over="v") ** 2, "sum", over="p")


def test_states_are_merged_by_the_names_of_their_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule, "VERIFYING", True)
    assert blocked(streamed(squares, "v"), "d", 2) is not None


@nk.diagram("x e -> ()")
def spread_of_all(X: Any) -> Any:
    off = X - nk.reduce(X, "mean", over="x e")
    return nk.reduce(off * off, "mean", over="x e")


def test_blocks_are_none_where_a_mean_is_over_both_axes() -> None:
    """The last block, which is shorter, was divided by the length of all."""
    assert blocked(streamed(spread_of_all, "x"), "e", 4) is None
