"""Fact 18: every accumulator that napkin derives keeps its law, executed on ragged chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from fold_law import assert_law, breach
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import napkin as nk
from napkin.derive.kernel import Kernel, leaves, tensor_of
from napkin.ir.node import Node

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

    # Not shrunk when it fails: that takes minutes, and the arrays are small already.
    @settings(max_examples=10, deadline=None, phases=(Phase.reuse, Phase.generate))
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
