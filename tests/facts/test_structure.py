"""What a diagram is and which moves are legal on it: facts 1, 2, 14, 15, 17 and 40."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fold_law import assert_law
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from in_numpy import execute
from trails import replayed

import napkin as nk
from napkin.algebra.relabel import Labels
from napkin.count.memory import tile
from napkin.diagram.columns import columns
from napkin.diagram.library import load
from napkin.ir.node import Node
from napkin.ir.rewrite import substitute
from napkin.ir.symbols import group_symbol, size_symbol
from napkin.moves.derivation import Derivation

a, b, c, w, x, y = map(size_symbol, "abcwxy")
g_a, g_b = map(group_symbol, "ab")


@nk.diagram("b, b -> ()")
def dot(A, B):
    return nk.contract(A, B, over="b")


@nk.diagram("x, x d -> d")
def softmax_contraction(S, V):
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


def states(d: Derivation) -> dict[str, tuple[tuple[str, ...], str]]:
    return {s.name: (s.axes, s.held) for s in d.kernel.stream.states}


def steps(d: Derivation) -> dict[str, Node]:
    return {s.name: s.step for s in d.kernel.stream.states}


def arrays_for(diagram: nk.Diagram, sizes: dict[str, int], seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    out: dict[str, Any] = {}
    for leaf in diagram.inputs:
        shape = [sizes[axis] for axis in leaf.axes]
        real = leaf.kind == "real"
        out[str(leaf.params[0])] = rng.normal(size=shape) if real else rng.integers(0, 3, shape)
    return out


def test_fact_01_dot_product_weaved_twice_is_matmul() -> None:
    matmul = load("matmul")
    woven = dot.weave("c", into="B").weave("a", into="A")
    for have, want in zip(woven.signature.inputs, matmul.signature.inputs, strict=True):
        assert set(have.axes) == set(want.axes)
    assert woven.signature.outputs == matmul.signature.outputs

    A, B = arrays_for(matmul, {"a": 3, "b": 4, "c": 5}).values()
    np.testing.assert_allclose(woven.evaluate(A, B.T), A @ B)

    @nk.diagram("a b, b c -> a c")
    def applied(A, B):
        return dot(A, B)

    assert applied.roots == matmul.roots  # in the matrices' own order of axes, it is one term
    assert woven.stream("b").group("a", "c").H == matmul.stream("b").group("a", "c").H


def test_fact_02_matmul_without_labels() -> None:
    matmul = load("matmul")
    whole = matmul.group()
    assert whole.labels == Labels()
    assert (whole.H - (a * b + b * c + a * c)).expand() == 0
    sums = [sum(tile(whole.kernel, entry.axes) for entry in column) for column in columns(matmul)]
    assert sums == [a * b + b * c, a * c]
    for sizes in ({"a": 3, "b": 2, "c": 5}, {"a": 9, "b": 1, "c": 9}):
        numbers = {size_symbol(axis): n for axis, n in sizes.items()}
        run = execute(whole.kernel, arrays_for(matmul, sizes), sizes, {})
        assert run.total == whole.H.subs(numbers)
        assert run.peak == whole.M.subs(numbers) == max(s.subs(numbers) for s in sums)


def test_fact_14_two_weaved_axes() -> None:
    """Fig. 12, for slices of x = y e and w = y f values."""

    @nk.diagram("y e, y f -> y")
    def step(X, W):
        return nk.reduce(nk.exp(X), "sum", over="e") * nk.reduce(W, "max", over="f")

    made = step.weave("b", into="W").weave("a", into="X").group("a", "b")
    H = made.H.subs({size_symbol("e"): x / y, size_symbol("f"): w / y})
    assert (H - (a * b * (x / g_b + w / g_a) + a * b * y)).expand() == 0


def test_fact_15_stream_is_refused_where_the_output_carries_the_axis() -> None:
    @nk.diagram("n x -> n x")
    def ordered(X):
        return nk.sort(X, along="x")

    for name in ("softmax", "rmsnorm", "layernorm"):
        diagram = load(name)
        axis = diagram.inputs[0].axes[-1]
        with pytest.raises(nk.Refusal) as refused:
            diagram.stream(axis)
        assert str(refused.value) == (
            f"stream {axis} is refused at O: output O carries {axis} and needs a reduction over "
            f"it to finish; instead, follow it by a reduction over {axis} or read {axis} once "
            f"more (passes=2) or hold {axis} whole"
        )
        # The moves that it names are legal.
        assert_law(diagram.stream(axis, passes=2).kernel, scalars=diagram.scalars, lengths=(1, 3))
        assert diagram.group("n").kernel.whole == (axis,)
    with pytest.raises(nk.Refusal) as refused:
        ordered.stream("x")
    assert str(refused.value) == (
        "stream x is refused at O: sort mixes positions along x and its output carries "
        "the axis; instead, hold x whole"
    )
    assert ordered.group("n").kernel.whole == ("x",)
    assert len(softmax_contraction.stream("x").kernel.stream.passes) == 1


def test_fact_17_fusion_keeps_streamability() -> None:
    f = softmax_contraction
    alone = f.stream("x")
    assert states(alone) == {
        "m": ((), "fold"),
        "z": ((), "running"),
        "O": (("d",), "running"),
    }

    # (a) Weave: the state gains the axis.
    woven = f.weave("p", into="S").stream("x")
    assert states(woven) == {n: (("p", *axes), how) for n, (axes, how) in states(alone).items()}

    # (b) Pre-compose with E weaved over the stream: the body is E, then the body of f.
    @nk.diagram("d, x d, x d -> d")
    def attention_row(Q, K, V):
        return f(nk.contract(Q, K, over="d"), V)

    row = attention_row.stream("x")
    assert states(row) == states(alone)
    Q, K, _ = attention_row.inputs
    S, _ = f.inputs
    scores = nk.contract(nk.Array(Q), nk.Array(K), over="d").node
    for name, step in steps(alone).items():
        assert substitute([step], {S: scores})[step] is steps(row)[name]

    # (c) Post-compose any function of the output: only the tail changes.
    @nk.diagram("x, x d -> d")
    def followed(S, V):
        return nk.softmax(nk.gelu(f(S, V)), over="d")

    tailed = followed.stream("x")
    assert list(states(tailed).values()) == list(states(alone).values())
    assert tailed.kernel.stream.tails[0].node is not alone.kernel.stream.tails[0].node

    # (d) Product: the states side by side.
    @nk.diagram("x, x d, x -> d, ()")
    def both(S, V, W):
        return f(S, V), nk.reduce(W, "logsumexp", over="x")

    pair, other = both.stream("x"), load("logsumexp").stream("v")
    shapes = [how for _, how in states(alone).values()] + [how for _, how in states(other).values()]
    assert sorted(how for _, how in states(pair).values()) == sorted(shapes)

    for made in (alone, woven, row, tailed, pair):
        assert_law(made.kernel, trials=8)

    # What mixes along the stream before f, or needs its results at each position, is refused.
    @nk.diagram("x -> x")
    def cumulative(S):
        return nk.cumsum(S, along="x")

    @nk.diagram("x -> x")
    def sorted_scores(S):
        return nk.sort(S, along="x")

    @nk.diagram("x -> x")
    def weights(S):
        return nk.softmax(S, over="x")

    @nk.diagram("x -> ()")
    def logsumexp(S):
        return nk.reduce(S, "logsumexp", over="x")

    for mixing in (cumulative, sorted_scores, weights):
        with pytest.raises(nk.Refusal, match="stream x is refused"):
            (mixing >> logsumexp).stream("x")
    for mixing in (sorted_scores, weights):
        with pytest.raises(nk.Refusal, match="stream x is refused"):
            mixing.stream("x")
    # A running sum by itself is a state that is seen at every position.
    assert_law(cumulative.stream("x").kernel, trials=8)


RELABELLED = {
    "matmul": ("b", 1, ()),
    "attention": ("x", 1, ("z",)),
    "grouped_query_attention": ("x", 1, ()),
    "cross_entropy": ("v", 1, ()),
    "softmax": ("x", 2, ()),
    "layernorm_linear": ("d", 1, ()),
}


@pytest.mark.parametrize("name", RELABELLED)
def test_fact_40_relabelling_keeps_the_value(name: str) -> None:
    diagram = load(name)
    axis, passes, hold = RELABELLED[name]
    legal = [m.argument for m in Derivation.start(diagram).legal() if m.rule == "group"]
    streamed = {how: diagram.stream(axis, passes=passes, hold=how) for how in {(), hold}}

    # Not shrunk when it fails: every try derives anew.
    @settings(max_examples=8, deadline=None, phases=(Phase.reuse, Phase.generate))
    @given(data=st.data())
    def relabelled(data: st.DataObject) -> None:
        sizes = {axis: data.draw(st.integers(1, 6), axis) for axis in diagram.axes}
        start = data.draw(st.sampled_from([Derivation.start(diagram), *streamed.values()]))
        chosen = data.draw(st.permutations(legal))[: data.draw(st.integers(0, len(legal)))]
        tiles = {axis: data.draw(st.integers(1, 6)) for axis in (axis, *chosen)}
        made = start.group(**{axis: tiles[axis] for axis in chosen})

        arrays = arrays_for(diagram, sizes)
        wanted = diagram.evaluate(*arrays.values())
        assert made.diagram is diagram
        run = execute(made.kernel, arrays, sizes, tiles, diagram.scalars)
        (found,) = run.outputs.values()
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)

        # It replays, move by move and as data, and inverts, all at once and step by step.
        again = replayed(diagram, made.trail)
        assert (again.labels, again.trail) == (made.labels, made.trail)
        labels = made.trail.replay()
        assert labels == ({diagram.name: made.labels} if made.trail.moves else {})
        assert made.trail.invert(labels) == dict.fromkeys(labels, Labels())
        back = made
        while back.trail.moves:
            shorter = back.undo()
            assert len(shorter.trail) < len(back.trail)
            assert shorter.trail.replay().get(diagram.name, Labels()) == shorter.labels
            back = shorter
        assert back.labels == Labels()

    relabelled()


def test_fact_40_recolouring_keeps_the_value() -> None:
    """Scores and weights in the outer level or in the inner one: one value, and trails to both."""

    @nk.diagram("q d, x d, x d -> q d")
    def attention(Q, K, V):
        S = nk.contract(Q, K, over="d")
        P = nk.softmax(S, over="x")
        return nk.contract(P, V, over="x")

    sizes = {"q": 20, "x": 37, "d": 16}
    arrays = arrays_for(attention, sizes)
    for outer in ([], ["P"], ["S", "P"]):
        plan = nk.derive(attention, sizes=sizes, materialise=outer)
        assert sorted(plan.materialised) == sorted(outer)
        known = dict(arrays)
        for kernel in plan.kernels:
            labelled = kernel.choice.kernel
            inputs = {t.tensor: known[kernel.binding[t.tensor]] for t in labelled.reads}
            run = execute(labelled, inputs, sizes, kernel.tiles)
            known |= {kernel.binding[t]: value for t, value in run.outputs.items()}
        wanted = attention.evaluate(*arrays.values())
        np.testing.assert_allclose(known["O"], wanted, rtol=1e-12, atol=1e-12)
        labels = plan.trail.replay()
        assert plan.trail.invert(labels) == dict.fromkeys(labels, Labels())
