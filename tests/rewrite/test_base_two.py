"""Exponentials to base 2 below numbers of rows: those that memory holds, and those that a kernel
finds and stores."""

import math
from functools import cache

import numpy as np
import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.ir.evaluate import evaluate
from napkin.ir.infer import pointwise
from napkin.ir.node import FLOOR, Node, node, number, postorder
from napkin.plan.plan import Plan
from napkin.rewrite.base_two import in_base_two

S, M, L = (node("input", params=(t,), axes=axes, kind="real") for t, axes in (
    ("S", ("q", "x")), ("M", ("q",)), ("L", ("q",))))  # fmt: skip


def below(*rows: Node) -> Node:
    """exp(S / 8 - ...)."""
    inner = pointwise("mul", (S, number(0.125)))
    for r in rows:
        inner = pointwise("sub", (inner, r))
    return pointwise("exp", (inner,))


@pytest.mark.parametrize("rows", [(M,), (M, L)])
@pytest.mark.parametrize("mean", [0.0, 3e4, -1e30])
def test_weights_below_rows_that_memory_holds(rows: tuple[Node, ...], mean: float) -> None:
    """With the lowest float as the maximum of an empty row, too."""
    weights = below(*rows)
    made = in_base_two([], [weights])[weights]
    assert made.op == "exp2"
    scores = np.full((3, 5), 8 * mean)
    scores[1, :3], scores[2] = 8 * mean - 8, -math.inf
    m = (scores / 8).max(axis=1)
    m[2] = -3.4028234663852886e38
    arrays = {S: scores, M: m, L: np.log([5.0, 2 + 3 / math.e, 1.0])}
    wanted, found = evaluate([weights, made], arrays, {"q": 3, "x": 5}, {})
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert not found[2].any()


def test_other_exponentials_stay() -> None:
    plain = pointwise("exp", (S,))
    constant = pointwise("exp", (pointwise("sub", (S, number(2.0))),))
    whole = pointwise("exp", (pointwise("sub", (S, S)),))
    assert in_base_two([], [plain, constant, whole]) == {n: n for n in (plain, constant, whole)}


@cache
def gradient() -> Plan:
    sizes = {"q": 4096, "x": 4096, "d": 128}
    return nk.derive(nk.gradient(load("attention")), on="a100", sizes=sizes, dtype="bf16")


def test_a_maximum_that_is_stored_is_one_state() -> None:
    """Exponentials are computed below what is stored, and not below a state of its own that
    carries it. Where it stays, sums are multiplied by the exponential of 0."""
    first, second = gradient().kernels
    states = [s for p in first.choice.kernel.stream.passes for s in p.states]
    assert [s.name for s in states[:2]] == ["m", "z"]
    assert not [s.name for s in states if s.held == "carried"]
    made = in_base_two(first.choice.kernel.stream.passes, []).values()
    (rescale,) = (n for n in postorder(made) if n.op == "exp2" and n.axes == ("q",))
    old, new = rescale.args[0].args[0].args
    assert (old, new) == (states[0].leaf("old"), states[0].leaf("new"))
    for k in (first, second):
        assert "tl.exp2(" in k.written.source
        assert "tl.exp(" not in k.written.source


@pytest.mark.parametrize("scale", [0.125, 8.0])
@pytest.mark.parametrize("tag", ["old", "new"])
def test_a_row_without_scores_is_told_by_the_maximum_that_is_held(scale: float, tag: str) -> None:
    """The lowest float, scaled, may be larger than the lowest float: exp(scaled - m) was infinite,
    and its product with an empty sum NaN."""

    @nk.diagram("q x, x -> q")
    def behind(S: nk.Array, B: nk.Array):
        scores = nk.where(S > 0.0, S * scale, -math.inf)
        return nk.reduce(nk.exp(scores + nk.reduce(B, "sum", over="x")), "sum", over="x")

    passes = behind.stream("x").kernel.stream.passes
    (top,) = (s for p in passes for s in p.states if s.name.endswith("_top"))
    leaf, lowest = top.leaf(tag), number(FLOOR)
    scored = pointwise("greater", (leaf, lowest))
    largest = pointwise("where", (scored, leaf, number(-math.inf)))
    made = in_base_two(passes, [largest])[largest]
    (found,) = evaluate([made], {leaf: np.array([FLOOR, 3.0])}, {"q": 2}, {})
    np.testing.assert_array_equal(found, [-math.inf, 3.0 * scale])
