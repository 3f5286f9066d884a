"""Every reduction a kernel of its own: `derive(..., materialise="every")`."""

from __future__ import annotations

import numpy as np
import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.studies.strategies import compare

SMALL = {"q": 32, "x": 48, "d": 16}


@pytest.mark.parametrize(
    ("name", "sizes", "kernels"),
    [
        ("attention", SMALL, 4),
        ("causal_attention", {"q": 32, "x": 32, "d": 16}, 4),
        ("layernorm", {"n": 8, "d": 64}, 2),
        ("matmul", {"a": 32, "b": 32, "c": 32}, 1),
        ("cross_entropy", {"n": 16, "v": 64}, 3),
    ],
)
def test_a_kernel_for_each_reduction(name: str, sizes: dict[str, int], kernels: int) -> None:
    diagram = load(name)
    plan = nk.derive(diagram, sizes=sizes, dtype="fp32", materialise="every")
    assert len(plan.kernels) == kernels
    verdict = plan.check(sizes=dict(plan.sizes))
    assert verdict.ok, verdict


def test_what_is_stored_is_read_once_for_each_reader() -> None:
    """Scores are stored once; maxima, sums and the result each read them, and nothing of their
    size is stored beside them: 4 q x in all."""
    plan = nk.derive(load("attention"), sizes=SMALL, materialise="every")
    assert sorted(" ".join(axes) for axes in plan.materialised.values()) == ["q", "q", "q x"]


def test_values_without_fusion() -> None:
    rng = np.random.default_rng(0)
    Q, K, V = (rng.standard_normal((SMALL[a], SMALL["d"])).astype("float32") for a in "qxx")
    diagram = load("attention")
    unfused = nk.derive(diagram, sizes=SMALL, dtype="fp32", materialise="every")
    fused = nk.derive(diagram, sizes=SMALL, dtype="fp32")
    np.testing.assert_allclose(unfused(Q, K, V), fused(Q, K, V), rtol=1e-4, atol=1e-5)


def test_parts_are_no_part_of_the_optimum() -> None:
    """A plan in parts moves states that the least transfers have no use for."""
    sizes = {"q": 1, "x": 65536, "d": 128}
    found = compare(load("attention"), sizes=sizes, names=("fused",))
    assert found.plan.parts
    assert found.optimum == pytest.approx(2 * (2 * 128 + 2 * 65536 * 128))
    assert found.optimum == found.compulsory


def test_no_least_lies_below_the_optimum() -> None:
    """A low-rank correction keeps X A beside its result, in a state that M does not count: tiles
    that leave it no room would seem to move less than the optimum."""

    @nk.diagram("n d, d m, d r, r m -> n m", sizes=dict(n=1024, d=1024, m=1024, r=16))
    def low_rank(X, W, A, B):
        return nk.contract(X, W, over="d") + nk.contract(nk.contract(X, A, over="d"), B, over="r")

    found = compare(low_rank, names=("unfused", "fused"))
    (fused,) = (s for s in found.strategies if s.name == "fused")
    assert len(found.plan.kernels) == 1
    assert found.optimum is not None
    for s in found.strategies:
        assert s.least is None or s.least >= found.optimum
    assert fused.least is None
