"""What a state has to carry, and what may be done with it: facts 16, 19 and 20."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fold_law import assert_law
from in_numpy import execute

import napkin as nk
from napkin.algebra.fold import Emit, Pass, State, Stream, state_leaf
from napkin.algebra.law import States, advance, chunk_of, finished, folded, merged, ranges, start
from napkin.derive.kernel import Kernel
from napkin.ir.infer import along, pointwise
from napkin.ir.node import Node, node, number
from napkin.moves.derivation import Derivation


@nk.diagram("n x -> n")
def mean(X):
    return nk.reduce(X, "mean", over="x")


@nk.diagram("q x, x d -> q d")
def softmax_contraction(S, V):
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


UNSCALED = softmax_contraction.stream("x").kernel
AUXILIARY = softmax_contraction.stream("x", hold=["z"]).kernel


def candidate(step: Callable[[Node, Node, Node], Node], merge: Node | None = None) -> Kernel:
    """A fold for `mean` whose whole state is the mean; `step` gets state, chunk's sum and count."""
    whole = Derivation.start(mean).kernel
    (X,) = mean.inputs
    old, new = (state_leaf("y", tag, ("n",), "real") for tag in ("old", "new"))
    ones = node("ones", params=(("x",),), axes=("x",), kind="int")
    body = step(old, along("sum", X, ("x",)), along("sum", ones, ("x",)))
    state = State("y", ("n",), "real", 0.0, body, merge or old, "fold")
    fold = Stream("x", (Pass((state,), ()),), (Emit("O", new),), ())
    return replace(whole, whole=("n",), stream=fold)


def test_fact_16_a_mean_needs_its_count() -> None:
    # No body at all does for Y = R: these prefixes have one mean, and differ by what follows.
    def value(*xs: float) -> float:
        return float(mean.evaluate(np.array([xs]))[0])

    assert value(0, 2) == value(1)
    assert value(0, 2, 4) != value(1, 4)

    def op(name: str, *args: Node) -> Node:
        return pointwise(name, args)

    # So whatever body is proposed, running it on ragged chunks finds it out.
    proposals: list[Callable[[Node, Node, Node], Node]] = [
        lambda y, s, n: op("div", op("add", y, op("div", s, n)), number(2)),
        lambda y, s, n: op("div", op("add", y, s), op("add", n, number(1))),
        lambda y, s, n: op("div", s, n),
    ]
    for step in proposals:
        with pytest.raises(nk.Refusal, match="fold x is refused at mean: its law fails: output O"):
            assert_law(candidate(step), lengths=(1, 2, 3))

    # What is derived carries the sum; the tail divides by the count of what was read.
    made = mean.stream("x").kernel
    (state,) = made.stream.states
    tail = made.stream.tails[0].node
    assert state.held == "fold"
    assert tail.op == "div"
    assert tail.args[0] is state.leaf("new")
    assert (tail.args[1].op, tail.args[1].params) == ("size", ("x",))
    assert_law(made)

    # Where the count is not the length of the axis, it is a state beside the sum.
    @nk.diagram("n x -> n")
    def mean_of_positive(X):
        kept = X > 0
        s = nk.reduce(nk.where(kept, X, 0.0), "sum", over="x")
        n = nk.reduce(kept, "sum", over="x")
        return s / nk.maximum(n, 1)

    pair = mean_of_positive.stream("x").kernel
    assert {s.name: s.held for s in pair.stream.states} == {"s": "fold", "n": "fold"}
    assert_law(pair)


def scores(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    S = rng.normal(size=(4, n)) * 5
    S[rng.random(S.shape) < 0.2] = -np.inf
    S[0, : n // 3] = -np.inf
    S[1, :] = -np.inf
    S[2, rng.integers(n)] = 1e4
    return S, rng.normal(size=(n, 3))


def test_fact_19_auxiliary_equals_unscaled() -> None:
    unscaled, auxiliary = UNSCALED, AUXILIARY
    assert unscaled.stream.tails[0].node.op == "div"
    assert auxiliary.stream.tails[0].node.op == "state"  # normalised as it goes: no tail
    for n, chunk in itertools.product((1, 7, 30), (1, 4, 64)):
        S, V = scores(n, seed=n)
        sizes, tiles = {"q": 4, "x": n, "d": 3}, {"x": chunk}
        runs = [execute(kernel, {"S": S, "V": V}, sizes, tiles) for kernel in (unscaled, auxiliary)]
        np.testing.assert_allclose(
            runs[0].outputs["O"], runs[1].outputs["O"], rtol=1e-12, atol=1e-12
        )
        wanted = softmax_contraction.evaluate(S, V)
        np.testing.assert_allclose(runs[1].outputs["O"], wanted, rtol=1e-12, atol=1e-12)
        assert runs[0].moved == runs[1].moved


@pytest.mark.parametrize("kernel", [UNSCALED, AUXILIARY], ids=["unscaled", "auxiliary"])
def test_fact_20_merge_is_associative_and_commutative(kernel: Kernel) -> None:
    (step,) = kernel.stream.passes
    lengths = (5, 0, 1, 8, 3)
    n = sum(lengths)
    S, V = scores(n, seed=20)
    bind = dict(zip(softmax_contraction.inputs, (S, V), strict=True))
    sizes = {"q": 4, "x": n, "d": 3}
    nothing = start(step, sizes)
    parts = [
        advance(step, nothing, chunk_of(bind, {"x": part}), {"x": part}, sizes)[0]
        for part in ranges(lengths)
    ]

    def join(left: States, right: States) -> States:
        return merged(step, left, right, sizes)

    def assert_same(left: States, right: States) -> None:
        assert left.keys() == right.keys()
        for state in left:
            np.testing.assert_allclose(left[state], right[state], rtol=1e-12, atol=1e-300)

    for p in parts:
        assert_same(join(p, nothing), p)
        assert_same(join(nothing, p), p)
    for p, r in itertools.product(parts, repeat=2):
        assert_same(join(p, r), join(r, p))
    for p, r, t in itertools.product(parts, repeat=3):
        assert_same(join(join(p, r), t), join(p, join(r, t)))

    # Split-K: any tree over the parts in any order ends where the stream does.
    streamed = folded(kernel.stream, bind, sizes, ranges(lengths))[1]["O"]
    rng = np.random.default_rng(0)
    for _ in range(10):
        trees = [parts[i] for i in rng.permutation(len(parts))]
        while len(trees) > 1:
            i = int(rng.integers(len(trees) - 1))
            trees[i : i + 2] = [join(trees[i], trees[i + 1])]
        split = finished(kernel.stream, trees[0], bind, sizes)["O"]
        np.testing.assert_allclose(split, streamed, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(streamed, softmax_contraction.evaluate(S, V), rtol=1e-12, atol=1e-12)
