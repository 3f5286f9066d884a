"""Chunks ahead: what two kernels compute, what they move, and where they are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

import napkin as nk
from napkin.algebra.rule import LawError
from napkin.derive.kernel import Kernel
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.derive.rules import ahead as rules
from napkin.derive.rules.ahead import AHEAD, why_not_ahead
from napkin.derive.rules.stream import streamed
from napkin.diagram.library import load
from napkin.errors import Refusal
from napkin.settings import choose
from napkin.settings.series import in_chunks_ahead


def labelled(d: nk.Diagram, **how: Any) -> Kernel:
    ready = prepare(d)
    return label("k", ready.outputs, ready.names, streamed="t", **how)


def moved(S: Any, K: Any, V: Any) -> Any:
    """The state of a step of the delta rule, with keys of length 1."""
    unit = K * nk.rsqrt(nk.reduce(K * K, "sum", over="k") + 1e-6)
    return S + unit * (V - nk.contract(S, unit, over="k"))


@nk.diagram("h t k, h t k, h t v -> h t v")
def delta(Q: Any, K: Any, V: Any) -> Any:
    """The delta rule, whose state at a position is of what the one before recalls."""
    return nk.contract(Q, nk.scan(lambda S: moved(S, K, V), 0.5, along="t", axes="k"), over="k")


@nk.diagram("h t k, h t k, h t v, h t k -> h t v")
def gated(Q: Any, K: Any, V: Any, G: Any) -> Any:
    state = nk.scan(lambda h: nk.sigmoid(G) * h + K * V, 0.0, along="t")
    return nk.contract(Q, state, over="k")


@nk.diagram("h t k, h t k, h t v, h t k -> h t v")
def signed(Q: Any, K: Any, V: Any, G: Any) -> Any:
    """Gates without a logarithm."""
    state = nk.scan(lambda h: nk.tanh(G) * h + K * V, 0.0, along="t")
    return nk.contract(Q, state, over="k")


@nk.diagram("h t k, h t k, h t v -> h t v, h t v")
def bent(Q: Any, K: Any, V: Any) -> Any:
    """Outputs that are not linear in the state, and two that read it."""
    S = nk.scan(lambda S: moved(S, K, V), 0.0, along="t", axes="k")
    O = nk.contract(Q, S, over="k")  # noqa: E741
    return nk.tanh(O) * V, nk.contract(K, S, over="k") + O


@nk.diagram("h t k, h t k, h t v -> h t v")
def normed(Q: Any, K: Any, V: Any) -> Any:
    """What follows the products sums along an axis that these leave."""
    S = nk.scan(lambda S: moved(S, K, V), 0.0, along="t", axes="k")
    O = nk.contract(Q, S, over="k")  # noqa: E741
    return O * nk.rsqrt(nk.reduce(O * O, "mean", over="v") + 1e-6)


@nk.diagram("h t k, h t k, h t v, h t k, h t k, h t -> h t v")
def generalised(Q: Any, K: Any, V: Any, W: Any, A: Any, B: Any) -> Any:
    """The step of RWKV-7: what a key recalls of the state before it decays is taken from it, and
    what is added is of another key."""
    unit = A * nk.rsqrt(nk.reduce(A * A, "sum", over="k") + 1e-6)

    def step(S: Any) -> Any:
        recalled = nk.contract(S, unit, over="k")
        return nk.sigmoid(W) * S - recalled * (unit * nk.sigmoid(B)) + V * K

    return nk.contract(Q, nk.scan(step, 0.0, along="t", axes="k"), over="k")


@nk.diagram("h t k, h t k, h t v, h t k, h t v -> h t v")
def beside(Q: Any, K: Any, V: Any, L: Any, U: Any) -> Any:
    """The delta rule, and what is added beside."""
    S = nk.scan(lambda S: moved(S, K, V) + L * U, 0.5, along="t", axes="k")
    return nk.contract(Q, S, over="k")


SCANS = [delta, gated, signed, bent, normed, beside]
SIZES = {"h": 2, "k": 17, "v": 16}


@pytest.mark.parametrize("diagram", SCANS)
@pytest.mark.parametrize("rounded", [False, True])
def test_chunks_ahead_keep_their_law(diagram: nk.Diagram, rounded: bool) -> None:
    """The rule is verified wherever it is applied here, on chunks of any lengths, 0 among them."""
    (found,) = AHEAD.matches(labelled(diagram, pair=16, rounded=rounded), 3)
    first, second = AHEAD.apply(found)
    assert not first.stream.states
    assert first.part == "t_part3"
    assert not rounded or diagram is signed or not second.twins
    assert first.paired
    assert second.paired


def test_what_a_chunk_adds_of_its_own_twice_breaks_the_law(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = rules.Linear.written

    def doubled(self: Any, by: Mapping[Any, Any]) -> Any:
        made = written(self, by)
        return rules.pointwise("add", (made, by[self.free])) if self.free is not None else made

    monkeypatch.setattr(rules.Linear, "written", doubled)
    (found,) = AHEAD.matches(labelled(delta, pair=16), 2)
    with pytest.raises(LawError, match="rule 'ahead' broke its law"):
        AHEAD.apply(found)


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are computed ahead wherever they can be, as they are at large sizes alone."""

    def of(self: choose.Search, kernel: Kernel, bar: float) -> list[Any]:
        pairs = in_chunks_ahead(kernel, self.sizes)
        return self._of_series(pairs, float("inf"), bar)  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(choose.Search, "_of", of)


def test_a_state_that_is_read_before_it_decays_is_paired_by_logarithms() -> None:
    """In float32 gates are multiplied, of which none is divided out again."""
    kernel = streamed(labelled(generalised, pair=16, rounded=True))
    (found,) = AHEAD.matches(kernel, 3)
    AHEAD.apply(found)
    with pytest.raises(Refusal, match="no states that sums of products alone read"):
        labelled(generalised, pair=16)


def recalled(S: Any, K: Any) -> Any:
    return nk.contract(S, K, over="k")


REPEATED: dict[str, Callable[..., Any]] = {
    "added twice": lambda S, K, V, L, U: S + K * (V - recalled(S, K)) + L * U + L * U,
    "squares": lambda S, K, V, L, U: S + K * (V - recalled(S, K)) + L * L * U * U,
    "two gates": lambda S, K, V, L, U: L * L * S - K * recalled(L * L * S, K) + V * K * U,
    "one of two gates": lambda S, K, V, L, U: L * L * S - K * recalled(L * S, K) + V * K * U,
    "no gate of two": lambda S, K, V, L, U: L * L * S - K * recalled(S, K) + V * K * U,
    "a key twice": lambda S, K, V, L, U: L * S + K * K * (V - recalled(S * K, K)) + U,
    "a number": lambda S, K, V, L, U: L * S + K * (V * U - recalled(S, K)) + 1.0,
    "less": lambda S, K, V, L, U: L * S - K * (recalled(S, K) - V) - L * U + K * U,
}


@pytest.mark.parametrize("name", REPEATED)
def test_repeated_factors_and_terms_of_steps_count_as_often(name: str) -> None:
    """The laws of the step by pairs, of its stream and of its chunks ahead are verified."""

    def attended(Q: Any, K: Any, V: Any, L: Any, U: Any) -> Any:
        step = partial(REPEATED[name], K=K * 0.2, V=V, L=nk.sigmoid(L), U=U)
        return nk.contract(Q, nk.scan(step, 0.0, along="t", axes="k v"), over="k")

    d = nk.diagram("h t k, h t k, h t v, h t k, h t v -> h t v")(attended)
    (found,) = AHEAD.matches(streamed(labelled(d, pair=16, rounded=True)), 3)
    AHEAD.apply(found)


@pytest.mark.parametrize("diagram", [generalised, beside])
def test_steps_that_add_beside_what_they_recall_run_by_pairs(diagram: nk.Diagram) -> None:
    plan = nk.derive(diagram, "h100", {"h": 16, "t": 1024, "k": 64, "v": 64})
    assert plan.kernels[-1].choice.kernel.stream.twin is not None
    plan.check(sizes={**SIZES, "t": 37}).raise_if_wrong()


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("diagram", SCANS)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_values_and_bytes_of_chunks_ahead(diagram: nk.Diagram, dtype: str) -> None:
    """Of an axis that is shorter than planned, as long, and longer."""
    plan = nk.derive(diagram, "h100", {**SIZES, "t": 40}, dtype)
    assert [k.name.rsplit("_", 1)[1] for k in plan.kernels][-2:] == ["ahead", "chain"]
    for length in (1, 40, 75):
        plan.check(sizes={**SIZES, "t": length}).raise_if_wrong()


def test_a_long_delta_rule_computes_chunks_ahead() -> None:
    """It took 527 us in one kernel on an H200, and 387 in two."""
    plan = nk.derive(load("gated_delta_rule"), "h200")
    assert [k.name for k in plan.kernels] == ["gated_delta_rule_ahead", "gated_delta_rule_chain"]
    assert "ahead t" in str(plan)


def test_what_products_read_passes_in_the_kernels_own_type() -> None:
    (found,) = AHEAD.matches(labelled(delta, pair=16, rounded=True), 2)
    first, _ = AHEAD.apply(found)
    types = {o.name: str(o.node.params[0]) for o in first.outputs}
    own = {o.name for o in first.outputs if getattr(o.node.params[0], "dtype", "") == "fp32"}
    assert own == {name for name in types if name.startswith("alone")}
    assert {name.split("_")[0] for name in types} == {"alone", "factor"}


def test_what_is_not_computed_ahead() -> None:
    assert why_not_ahead(labelled(delta, pair=16)) == ""
    assert why_not_ahead(labelled(gated)) == "no positions of t are paired"
    (found,) = AHEAD.matches(labelled(delta, pair=16), 2)
    first, second = AHEAD.apply(found)
    for kernel in (first, second):
        assert why_not_ahead(kernel) == "it is one of several kernels already"
        assert not list(AHEAD.matches(kernel, 2))


def test_pairs_of_positions_times_many_keys_take_more_warps() -> None:
    """With 128 keys in the place of 64, no chunk fitted: a state was computed for each position,
    at ten times the predicted time."""
    sizes = {"h": 64, "t": 2048, "k": 128, "v": 128}
    plan = nk.derive(gated, "h100", sizes)
    first = plan.kernels[0]
    assert first.choice.kernel.stream.twin is not None
    assert first.schedule.warps == 16
    half = nk.derive(gated, "h100", {**sizes, "k": 64})
    assert plan.seconds < 2.5 * half.seconds
