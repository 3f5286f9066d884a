"""Linear recurrences by pairs of positions: states that only products read are never formed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fold_law import breach
from hypothesis import given, settings
from hypothesis import strategies as st

import napkin as nk
from napkin.algebra.rule import LawError
from napkin.derive.kernel import Kernel
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.ir.node import inside_sums, node, number, postorder
from napkin.rewrite import pair as rules
from napkin.rewrite import solve

CUTS = st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any)
SIZES = {"h": 2, "k": 3, "v": 2}
INPUTS = "h x k, h x k, h x v, h x, h x k, h"


def of(step: Callable[..., Any], signature: str = "h x v") -> nk.Diagram:
    """Queries that read the states of a step."""

    def attended(Q: Any, K: Any, V: Any, A: Any, G: Any, C: Any) -> Any:
        S = nk.scan(lambda s: step(s, K, V, A, G, C), 0.0, along="x")
        return nk.contract(Q, S, over="k") * 0.5 + 0.0 * (nk.reduce(G, "sum", over="k") * A * C)

    return nk.diagram(f"{INPUTS} -> {signature}")(attended)


STEPS: dict[str, Callable[..., Any]] = {
    "a gate": lambda s, K, V, A, G, C: A * s + K * V,
    "a gate that is fed, too": lambda s, K, V, A, G, C: A * (s + K * V),
    "a gate for each key number": lambda s, K, V, A, G, C: G * s + A * K * V,
    "a gate for each head": lambda s, K, V, A, G, C: C * s + K * V,
    "no gate": lambda s, K, V, A, G, C: s + K * V * A,
}


def moved(c: Any, sign: float = -1.0) -> Callable[..., Any]:
    """A step that moves what a key recalls to its value, as the delta rule does."""

    def step(s: Any, K: Any, V: Any, A: Any, G: Any, C: Any) -> Any:
        left = s if c is None else c(A, G, C) * s
        return left + A * K * (V + sign * nk.contract(left, K, over="k"))

    return step


CORRECTED: dict[str, Callable[..., Any]] = {
    "the delta rule": moved(None),
    "with a gate": moved(lambda A, G, C: A),
    "with a gate for each key number": moved(lambda A, G, C: G),
    "with a gate for each head, added": moved(lambda A, G, C: C, 1.0),
    "moved by a mean": lambda s, K, V, A, G, C: s + K * (V - nk.reduce(s * K, "mean", over="k")),
    "with a factor of what is read": lambda s, K, V, A, G, C: (
        s + K * (0.5 * V - A * (C * nk.contract(s, G * K, over="k")) - V * V)
    ),
}


def paired(d: nk.Diagram, rounded: bool = False) -> Kernel:
    ready = prepare(d)
    return label("k", ready.outputs, ready.names, streamed="x", pair=8, rounded=rounded)


@pytest.mark.parametrize("step", [*STEPS.values(), *CORRECTED.values()], ids=[*STEPS, *CORRECTED])
@settings(deadline=None, max_examples=20)
@given(CUTS, st.integers(0, 9))
def test_chunks_continue_where_the_last_ended(step: Any, cut: list[int], seed: int) -> None:
    d, sizes = of(step), {**SIZES, "x": sum(cut)}
    rng = np.random.default_rng(seed)
    arrays = {str(n.params[0]): rng.normal(size=[sizes[a] for a in n.axes]) for n in d.inputs}
    assert breach(paired(d), arrays, sizes, cut) is None


@pytest.mark.parametrize("before", [False, True])
def test_a_gate_that_is_infinite_breaks_no_law(before: bool) -> None:
    """Positions before it have NaN, as pairs that do not count are multiplied by 0."""

    def step(s: Any, K: Any, V: Any, A: Any, G: Any, C: Any) -> Any:
        left = nk.exp(A) * s
        return left + K * (V - nk.contract(s if before else left, K, over="k"))

    paired(of(step), rounded=True)


@pytest.mark.parametrize(
    "gate",
    [
        lambda A, G: nk.sigmoid(A),
        lambda A, G: nk.exp(-100.0 * G * G),
        lambda A, G: nk.where(A > 0, 0.0, 0.9),
    ],
)
@settings(deadline=None, max_examples=20)
@given(CUTS, st.integers(0, 9))
def test_gates_that_are_never_negative_are_logarithms(gate: Any, cut: list[int], seed: int) -> None:
    """Of plans in 16 bits. A gate of 0 leaves nothing of what was before."""
    d = of(lambda s, K, V, A, G, C: gate(A, G) * s + K * V)
    sizes, rng = {**SIZES, "x": sum(cut)}, np.random.default_rng(seed)
    arrays = {str(n.params[0]): rng.normal(size=[sizes[a] for a in n.axes]) for n in d.inputs}
    kernel = paired(d, rounded=True)
    assert "log" in {n.op for n in postorder(kernel.terms)}
    assert breach(kernel, arrays, sizes, cut) is None


@settings(deadline=None, max_examples=20)
@given(CUTS, st.integers(0, 9))
def test_other_scans_go_on_beside_pairs(cut: list[int], seed: int) -> None:
    @nk.diagram("x k, x k, x v, x, x -> x v, x v")
    def d(Q: Any, K: Any, V: Any, A: Any, B: Any) -> Any:
        first = nk.contract(Q, nk.scan(lambda s: A * s + K * V, 0.0, along="x"), over="k")
        second = nk.cumsum(V, along="x")
        other = nk.scan(lambda s: B * s + A * K * V, 0.0, along="x")
        return first * second, nk.contract(K, other, over="k")

    rng, sizes = np.random.default_rng(seed), {"k": 3, "v": 2, "x": sum(cut)}
    arrays = {str(n.params[0]): rng.normal(size=[sizes[a] for a in n.axes]) for n in d.inputs}
    assert breach(paired(d), arrays, sizes, cut) is None


def test_no_array_has_all_axes_of_a_state_and_the_position() -> None:
    terms = paired(of(STEPS["a gate"])).terms
    formed = set(postorder(terms)) - inside_sums(terms)
    assert not [n for n in formed if {"x", "k", "v"} <= {*n.axes}]


@pytest.mark.parametrize(
    ("step", "signature"),
    [
        (lambda s, K, V, A, G, C: A * s + nk.exp(K * V), "h x v"),  # no product
        (lambda s, K, V, A, G, C: G * V * s + K * V, "h x v"),  # a gate of every number
        (lambda s, K, V, A, G, C: s + K * (V - G * nk.contract(s, K, over="k")), "h x v"),
        (lambda s, K, V, A, G, C: nk.tanh(s) + K * V, "h x v"),
        (lambda s, K, V, A, G, C: s + K * nk.tanh(V - nk.contract(s, K, over="k")), "h x v"),
        (lambda s, K, V, A, G, C: A * s + K * (V - nk.contract(s, K, over="k")), "h x v"),
    ],
)
def test_what_has_no_smaller_parts_is_not_paired(step: Any, signature: str) -> None:
    with pytest.raises(nk.Refusal, match="no states that sums of products alone read"):
        paired(of(step, signature))


@pytest.mark.parametrize(
    "read",
    [
        lambda Q, S: nk.contract(Q, S, over="k") + nk.reduce(S, "max", over="k"),
        lambda Q, S: nk.contract(S, S, over="k") + 0.0 * nk.reduce(Q, "sum", over="k"),
        lambda Q, S: nk.reduce(nk.exp(S), "sum", over="k") + 0.0 * nk.reduce(Q, "sum", over="k"),
    ],
)
def test_states_that_others_read_are_formed(read: Any) -> None:
    @nk.diagram("x k, x k, x v -> x v")
    def d(Q: Any, K: Any, V: Any) -> Any:
        return read(Q, nk.scan(lambda s: 0.5 * s + K * V, 0.0, along="x"))

    with pytest.raises(nk.Refusal, match="no states that sums of products alone read"):
        paired(d)


def test_whole_numbers_are_not_paired() -> None:
    @nk.diagram("x k:int, x k:int, x v:int -> x v")
    def d(Q: Any, K: Any, V: Any) -> Any:
        return nk.contract(Q, nk.cumsum(K * V, along="x"), over="k")

    with pytest.raises(nk.Refusal, match="no states that sums of products alone read"):
        paired(d)


def test_an_empty_axis_has_no_state() -> None:
    plan = nk.derive(of(GATED["a gate"]), sizes={"h": 64, "x": 4096, "k": 64, "v": 64})
    shapes = [[{"h": 1, "x": 0, "k": 4, "v": 4}[a] for a in n.axes] for n in plan.diagram.inputs]
    assert plan(*(np.zeros(s, np.float32) for s in shapes)).shape == (1, 0, 4)


def test_a_system_of_other_pairs_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solve, "end_of", lambda axis: number(1))
    with pytest.raises(LawError, match="rule 'solve' broke its law"):
        paired(of(CORRECTED["with a gate"]))


def test_a_chunk_that_ends_elsewhere_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "first_of", lambda axis: node("size", params=(axis,), kind="int"))
    with pytest.raises(LawError, match="rule 'pair' broke its law"):
        paired(of(STEPS["a gate"]))


GATED = {
    "a gate": lambda s, K, V, A, G, C: nk.sigmoid(A) * s + K * V,
    "a gate for each key number": lambda s, K, V, A, G, C: nk.sigmoid(G) * s + K * V,
    "no gate": STEPS["no gate"],
    "moved to its value": lambda s, K, V, A, G, C: moved(lambda *_: nk.sigmoid(A))(
        s, K * nk.rsqrt(nk.reduce(K * K, "sum", over="k")), V, nk.sigmoid(A), G, C
    ),
}


@pytest.mark.parametrize("x", [1, 16, 53])
@pytest.mark.parametrize("step", GATED.values(), ids=GATED)
def test_kernels(step: Any, x: int) -> None:
    """The planner takes pairs, and its kernel gives the value at whole and ragged lengths."""
    d = of(step)
    plan = nk.derive(d, sizes={"h": 64, "x": 4096, "k": 64, "v": 64})
    assert "pair x = " in str(plan)
    plan.check(sizes={"h": 2, "x": x, "k": 5, "v": 7}, resources=False).raise_if_wrong()


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_gates_of_zero(dtype: str) -> None:
    """After many of them float32 has all of its digits, too."""
    d = of(lambda s, K, V, A, G, C: nk.where(A > 0, 0.0, 0.95) * s + K * V)
    plan = nk.derive(d, sizes={"h": 64, "x": 4096, "k": 64, "v": 64}, dtype=dtype)
    assert "pair x = " in str(plan)
    plan.check(sizes={"h": 2, "x": 300, "k": 8, "v": 8}, resources=False).raise_if_wrong()


def test_a_derivation_by_hand_says_so() -> None:
    made = of(GATED["a gate"]).stream("x", pair=32)
    assert [m.value for m in made.trail if m.rule == "pair"] == [32]
    assert made.trail.invert(made.trail.replay())


def test_no_pairs_beside_a_state_that_is_taken_position_by_position() -> None:
    """A chunk is one position there, and pairs want more."""

    @nk.diagram("h x k, h x k, h x v, h x -> h x v, h x")
    def both(Q: Any, K: Any, V: Any, A: Any) -> Any:
        S = nk.scan(lambda s: 0.5 * s + K * V, 0.0, along="x")
        other = nk.scan(lambda s: nk.tanh(s + A), 0.0, along="x")
        return nk.contract(Q, S, over="k"), other

    with pytest.raises(nk.Refusal, match="from one position of x to the next, and others are read"):
        both.stream("x", pair=8)
