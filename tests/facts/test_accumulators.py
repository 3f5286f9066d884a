"""The table of accumulators (derivation 2.5): facts 16, 18, 19 and 20, their laws executed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import napkin as nk
from napkin.derive.derivation import Derivation
from napkin.derive.fold import Emit, Pass, State, Stream, state_leaf
from napkin.derive.kernel import Kernel, leaves, tensor_of
from napkin.derive.law import (
    States,
    advance,
    assert_law,
    breach,
    chunk_of,
    finished,
    folded,
    merged,
    ranges,
    start,
)
from napkin.diagram.infer import along, pointwise
from napkin.diagram.node import Node, node, number
from napkin.lower.execute import execute

BIG = (1e4, -1e4)
SCORES = (1e4, -1e4, -math.inf)


@dataclass
class Row:
    """A row of the table: the function, the states that are expected, and what to try it on."""

    diagram: nk.Diagram
    states: str
    extremes: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    lengths: tuple[int, ...] = (0, 1, 1, 2, 3, 5)
    hold: tuple[str, ...] = ()
    tail: bool = True

    def derived(self) -> Kernel:
        return self.diagram.stream("x", hold=self.hold).kernel


ROWS: dict[str, Row] = {}


def row(signature: str, states: str, **how: Any) -> Callable[[Callable[..., Any]], nk.Diagram]:
    def add(function: Callable[..., Any]) -> nk.Diagram:
        made = nk.diagram(signature)(function)
        ROWS[made.name] = Row(made, states, **how)
        return made

    return add


@row("n x -> n", "fold[n]", extremes={"X": BIG}, tail=False)
def total(X):
    return nk.reduce(X, "sum", over="x")


@row("n x -> n:int", "fold[n]", tail=False)
def count(X):
    return nk.reduce(X > 0, "sum", over="x")


@row("n x -> n", "fold[n]", extremes={"X": (*BIG, -math.inf)}, tail=False)
def l1(X):
    return nk.reduce(nk.abs(X), "sum", over="x")


@row("n x -> n", "fold[n]", extremes={"X": (*BIG, -math.inf)}, tail=False)
def sum_of_squares(X):
    return nk.reduce(X * X, "sum", over="x")


@row("n x -> n", "fold[n]", extremes={"X": (*BIG, -math.inf)}, tail=False)
def largest(X):
    return nk.reduce(X, "max", over="x")


@row("n x -> n", "fold[n]", extremes={"X": (*BIG, -math.inf)}, tail=False)
def smallest(X):
    return nk.reduce(X, "min", over="x")


@row("n x -> n", "fold[n]", extremes={"X": BIG}, tail=False)
def product(X):
    return nk.reduce(X, "prod", over="x")


@row("n x -> n:bool", "fold[n]", extremes={"X": SCORES})
def some(X):
    return nk.reduce(X > 1, "any", over="x")


@row("x, x -> ()", "fold[]", extremes={"V": BIG}, tail=False)
def dot(V, W):
    return nk.contract(V, W, over="x")


@row("a x, x c -> a c", "fold[a c]", extremes={"A": BIG}, tail=False)
def contraction(A, B):
    return nk.contract(A, B, over="x")


@row("n x -> n", "fold[n]", extremes={"X": BIG})
def mean(X):
    return nk.reduce(X, "mean", over="x")


# A mean of nothing has no value, so folds that carry one start from a chunk that holds some.
@row(
    "n x -> n",
    "fold[n] fold[] carried[n] running[n]",
    extremes={"X": BIG},
    lengths=(1, 1, 2, 3, 5),
)
def variance(X):
    mu = nk.reduce(X, "mean", over="x")
    return nk.reduce((X - mu) ** 2, "mean", over="x")


@row("n x -> n", "fold[n] running[n]", extremes={"X": SCORES})
def logsumexp(X):
    return nk.reduce(X, "logsumexp", over="x")


@row("q x, x d -> q d", "fold[q] running[q] running[q d]", extremes={"S": SCORES})
def softmax_contraction(S, V):
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


ROWS["auxiliary"] = Row(
    softmax_contraction,
    "fold[q] running[q] carried[q] running[q d]",
    extremes={"S": SCORES},
    hold=("z",),
    tail=False,
)


@row("q x, x d -> q d", "fold[q] fold[q d]")
def base(S, V):
    w = nk.exp(S)
    return nk.contract(w / nk.reduce(w, "sum", over="x"), V, over="x")


@row("q x, x d -> q d", "fold[q] fold[q d]", extremes={"S": BIG})
def l2_contraction(S, V):
    norm = nk.sqrt(nk.reduce(S * S, "sum", over="x"))
    return nk.contract(S / norm, V, over="x")


@row("q x, x d -> q d", "fold[q] fold[q d]", extremes={"S": BIG})
def l1_contraction(S, V):
    norm = nk.reduce(nk.abs(S), "sum", over="x")
    return nk.contract(S / norm, V, over="x")


@row("n x, x, x m -> n m", "fold[n] fold[n m]", extremes={"X": BIG})
def rmsnorm_linear(X, G, W, eps=1e-6):
    power = nk.reduce(X * X, "mean", over="x")
    return nk.contract(X * nk.rsqrt(power + eps) * G, W, over="x")


@row(
    "n x, x, x, x m -> n m",
    "fold[n] fold[] carried[n] running[n] fold[m] fold[n m] fold[m]",
    extremes={"X": BIG},
    lengths=(1, 1, 2, 3, 5),
)
def layernorm_linear(X, G, B, W, eps=1e-5):
    mu = nk.reduce(X, "mean", over="x")
    var = nk.reduce((X - mu) ** 2, "mean", over="x")
    return nk.contract((X - mu) * nk.rsqrt(var + eps) * G + B, W, over="x")


@pytest.mark.parametrize("name", ROWS)
def test_fact_18_every_accumulator_keeps_its_law(name: str) -> None:
    this = ROWS[name]
    kernel = this.derived()
    (only,) = kernel.stream.passes
    shapes = [f"{s.held}[{' '.join(s.axes)}]" for s in only.states]
    assert sorted(shapes) == sorted(this.states.replace("] ", "],").split(","))
    assert all("x" not in s.axes for s in only.states)
    (tail,) = kernel.stream.tails
    assert (tail.node.op != "state") == this.tail
    scalars = this.diagram.scalars
    assert_law(kernel, trials=12, lengths=this.lengths, scalars=scalars)
    assert_law(
        kernel, trials=12, seed=1, lengths=this.lengths, scalars=scalars, extremes=this.extremes
    )


def inputs(kernel: Kernel) -> dict[str, Node]:
    return {tensor_of(n): n for n in leaves([o.node for o in kernel.outputs])}


@pytest.mark.parametrize("name", ROWS)
def test_fact_18_whatever_the_chunk_boundaries(name: str) -> None:
    this = ROWS[name]
    kernel = this.derived()
    plain = st.floats(-4, 4, allow_nan=False).map(lambda v: v or 0.5)

    @settings(max_examples=10, deadline=None)
    @given(data=st.data())
    def holds(data: st.DataObject) -> None:
        length = st.integers(min(this.lengths), 4)
        lengths = data.draw(st.lists(length, min_size=1, max_size=5).filter(any))
        sizes = {axis: data.draw(st.integers(1, 3), axis) for axis in kernel.axes}
        sizes["x"] = sum(lengths)
        arrays: dict[str, Any] = {}
        for tensor, leaf in inputs(kernel).items():
            values = plain
            if this.extremes.get(tensor):
                values = st.one_of(plain, st.sampled_from(this.extremes[tensor]))
            shape = [sizes[axis] for axis in leaf.axes]
            count = math.prod(shape)
            drawn = data.draw(st.lists(values, min_size=count, max_size=count), tensor)
            arrays[tensor] = np.reshape(np.array(drawn), shape)
        assert not breach(kernel, arrays, sizes, lengths, this.diagram.scalars, tolerance=1e-7)

    holds()


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
    made = ROWS["mean"].derived()
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
    unscaled, auxiliary = ROWS["softmax_contraction"].derived(), ROWS["auxiliary"].derived()
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


@pytest.mark.parametrize("name", ["softmax_contraction", "auxiliary"])
def test_fact_20_merge_is_associative_and_commutative(name: str) -> None:
    kernel = ROWS[name].derived()
    (step,) = kernel.stream.passes
    lengths = (5, 0, 1, 8, 3)
    n = sum(lengths)
    S, V = scores(n, seed=20)
    leaf = inputs(kernel)
    bind = {leaf["S"]: S, leaf["V"]: V}
    sizes = {"q": 4, "x": n, "d": 3}
    nothing = start(kernel.stream, step, sizes)
    parts = [
        advance(kernel.stream, step, nothing, chunk_of(bind, "x", part), part, sizes)[0]
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
