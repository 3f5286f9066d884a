"""Scans along a streamed axis: the state of all chunks before, joined with the scan of a chunk."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest
from fold_law import breach
from hypothesis import given, settings
from hypothesis import strategies as st

import napkin as nk
from napkin.algebra.fold import Pass, Stream
from napkin.algebra.law import advance, chunk_of, chunks, merged, ranges, start
from napkin.algebra.rule import LawError
from napkin.derive.folding import Folding
from napkin.derive.kernel import Kernel
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.derive.rules import resume as rules
from napkin.derive.rules.resume import RESUMED, why_not_resumed
from napkin.ir.node import node

CUTS = st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any)


def streamed(d: nk.Diagram, passes: int = 1) -> Kernel:
    ready = prepare(d)
    return label("k", ready.outputs, ready.names, streamed="x", passes=passes)


def of_rows(body: Callable[[Any], Any]) -> nk.Diagram:
    return nk.diagram("q x -> q x")(body)


def running(X: Any) -> Any:
    return nk.cumsum(X, along="x")


def of_squares(X: Any) -> Any:
    return nk.exp(-nk.cumsum(X * X, along="x")) + X


def twice(X: Any) -> Any:
    return nk.cumsum(nk.cumsum(X, along="x") * X, along="x")


def centred(X: Any) -> Any:
    return nk.cumsum(X - nk.reduce(X, "mean", over="x"), along="x")


def shares(X: Any) -> Any:
    return nk.cumsum(nk.softmax(X, over="x"), along="x")


@settings(deadline=None)
@given(CUTS, st.sampled_from([running, of_squares]), st.integers(0, 9))
def test_chunks_continue_where_the_last_ended(cut: list[int], body: Any, seed: int) -> None:
    X = np.random.default_rng(seed).normal(size=(3, sum(cut)))
    assert breach(streamed(of_rows(body)), {"X": X}, {"q": 3, "x": sum(cut)}, cut) is None


@settings(deadline=None)
@given(CUTS, st.sampled_from([centred, shares]), st.integers(0, 9))
def test_what_is_summed_may_need_a_pass_before(cut: list[int], body: Any, seed: int) -> None:
    kernel = streamed(of_rows(body), passes=2)
    X = np.random.default_rng(seed).normal(size=(3, sum(cut)))
    assert breach(kernel, {"X": X}, {"q": 3, "x": sum(cut)}, cut) is None
    with pytest.raises(nk.Refusal, match="needs a reduction over it to finish"):
        streamed(of_rows(body))


def test_whole_numbers_and_tests_are_counted() -> None:
    d = nk.diagram("x -> x")(lambda X: nk.cumsum(X > 0, along="x"))
    X = np.array([1.0, -1.0, 2.0, 3.0, -4.0])
    assert breach(streamed(d), {"X": X}, {"x": 5}, [2, 0, 3]) is None
    assert d.evaluate(X).tolist() == [1, 1, 2, 3, 3]


# --- recurrences ----------------------------------------------------------------------------


@nk.diagram("q x, q x, q -> q x, q x")
def linear(A: Any, X: Any, init: Any) -> Any:
    """Two recurrences beside each other, one with a state before the first position."""
    H = nk.scan(lambda h: A * (h - X) + nk.where(X > 0, 2.0 * h, h / 3.0), init, along="x")
    return H * X, nk.scan(lambda h: 0.5 * h - X, 0.0, along="x")


def one_by_one(A: Any, X: Any, init: Any) -> tuple[Any, Any]:
    h, g, found = init, 0.0 * init, list[Any]()
    for t in range(X.shape[1]):
        a, x = A[:, t], X[:, t]
        h, g = a * (h - x) + np.where(x > 0, 2.0 * h, h / 3.0), 0.5 * g - x
        found.append((h * x, g))
    return np.stack([p for p, _ in found], 1), np.stack([p for _, p in found], 1)


@settings(deadline=None)
@given(CUTS, st.integers(0, 9))
def test_recurrences_continue_where_the_last_chunk_ended(cut: list[int], seed: int) -> None:
    rng, n = np.random.default_rng(seed), sum(cut)
    shapes = {"A": (3, n), "X": (3, n), "init": (3,)}
    arrays = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    for found, wanted in zip(linear.evaluate(*arrays.values()), one_by_one(**arrays), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert breach(streamed(linear), arrays, {"q": 3, "x": n}, cut) is None


@given(CUTS, st.integers(0, 9))
def test_parts_of_a_recurrence_merge_by_the_product_of_what_it_is_multiplied_by(
    cut: list[int], seed: int
) -> None:
    d = nk.diagram("x, x -> x")(lambda A, X: nk.scan(lambda h: A * h + X, 0.0, along="x"))
    root = d.outputs[0].node
    folding = Folding([root], ["x"], {root: "O"}, 1)
    folding.current(root, 0)
    step, sizes = Pass(tuple(folding.states[0]), ()), {"x": sum(cut)}
    s = Stream(("x",), (step,), (), ())
    rng = np.random.default_rng(seed)
    A, X = rng.normal(size=(2, sum(cut)))
    bind = dict(zip(d.inputs, (A, X), strict=True))
    nothing = start(step, sizes)
    parts = [
        advance(step, nothing, chunk_of(bind, c), c, sizes)[0]
        for c in chunks(s, ranges(cut), sizes)
    ]
    joined = reduce(lambda a, b: merged(step, a, b, sizes), parts, nothing)
    np.testing.assert_allclose(joined["O_before"], d.evaluate(A, X)[-1], rtol=1e-12, atol=1e-12)


def test_torch_evaluates_recurrences() -> None:
    torch = pytest.importorskip("torch")
    from napkin.torch.reference import evaluation

    rng = np.random.default_rng(0)
    arrays = rng.normal(size=(3, 5)), rng.normal(size=(3, 5)), rng.normal(size=3)
    found = evaluation(linear, {"q": 3, "x": 5})(*map(torch.tensor, arrays))
    for value, wanted in zip(found, linear.evaluate(*arrays), strict=True):
        np.testing.assert_allclose(value.numpy(), wanted, rtol=1e-12)


def test_a_step_that_only_adds_is_a_running_sum() -> None:
    d = nk.diagram("q x, q -> q x")(lambda X, s: nk.scan(lambda h: X + h, s, along="x"))
    X = np.arange(6.0).reshape(2, 3)
    assert d.evaluate(X, np.array([1.0, 2.0])).tolist() == [[1, 2, 4], [5, 9, 14]]
    assert "cumsum" in str(d)


@pytest.mark.parametrize("step", [lambda h, X: h + X, lambda h, X: nk.maximum(h, X)])
def test_states_that_begin_beyond_int32_are_real(step: Any) -> None:
    d = nk.diagram("t:int -> t")(lambda X: nk.scan(lambda h: step(h, X), 2**40, along="t"))
    X = np.array([1, 2, 3])
    found = nk.derive(d, "h100", {"t": 3}, "fp32")(X)
    np.testing.assert_allclose(found, d.evaluate(X), rtol=1e-6)


def test_states_with_axes_of_their_own() -> None:
    """A selective state-space layer: a state for each channel and each of its n dimensions."""

    @nk.diagram("x d, d n, x n, x n, x d -> x d")
    def selective(D: Any, A: Any, B: Any, C: Any, X: Any) -> Any:
        H = nk.scan(lambda h: nk.exp(-D * D * A * A) * h + D * B * X, 0.0, along="x")
        return nk.contract(C, H, over="n")

    plan = nk.derive(selective, sizes={"x": 300, "d": 64, "n": 4}, dtype="fp32")
    assert len(plan.kernels) == 1
    plan.check().raise_if_wrong()


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda X: nk.scan(lambda h: h + X, 0.0, along="q x"), "write the one axis that the state"),
        (lambda X: nk.scan(lambda: (), (), along="x"), "scan init has no state; write one, such"),
        (lambda X: nk.scan(lambda h: h + X, 0.0, along="x", axes=3), "axes='3': axes are named"),
        (
            lambda X: nk.scan(lambda h: h + 1.0, 0.0, along="x"),
            "no array in the step has this",
        ),
        (lambda X: nk.scan(lambda h: h + X, X, along="x"), "scan init has axis 'x', which the"),
    ],
)
def test_messages(made: Any, message: str) -> None:
    with pytest.raises(nk.InputError, match=message):
        of_rows(made)


# --- refusals and kernels -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda X: nk.sort(X, along="x"), "sort mixes positions along x and its output carries"),
        (
            lambda X: X + nk.reduce(nk.cumsum(X, along="x"), "max", over="x"),
            "it reduces a scan along x: no merge of it is known",
        ),
        (twice, "it scans a scan along x: no merge of it is known"),
    ],
)
def test_refusals(body: Any, reason: str) -> None:
    with pytest.raises(nk.Refusal, match=reason):
        streamed(of_rows(body), passes=2)


def of_keys(X: Any) -> Any:
    seen = nk.reduce(X, "sum", over="x", keys=nk.causal("q", "x"))
    return nk.cumsum(nk.where(seen > 0, X, 0.0), along="x")


def of_weights(X: Any) -> Any:
    return nk.cumsum(nk.softmax(X, over="x", keys=nk.sliding(5, 0, "q", "x")), along="x")


def largest_weights(X: Any) -> Any:
    P = nk.softmax(X, over="x", keys=nk.causal("q", "x"))
    return nk.scan(lambda h: nk.maximum(h, P), 0.0, along="q")


@pytest.mark.parametrize("n", [7, 40, 65_536])
@pytest.mark.parametrize("body", [of_keys, of_weights, largest_weights])
def test_a_scan_goes_over_all_chunks_of_a_key_set(body: Any, n: int) -> None:
    """It is a test of each position there, along its queries and along its keys."""
    plan = nk.derive(of_rows(body), "a100", {"q": n, "x": n}, "fp32")
    plan.check(sizes={"q": min(n, 70), "x": min(n, 70)}, resources=False).raise_if_wrong()
    *_, last = plan.kernels
    assert last.choice.kernel.visits is None
    assert last.choice.kernel.stream.axes or n < 65_536


@pytest.mark.parametrize("n", [9, 65_536])
@pytest.mark.parametrize("along", ["q", "x"])
def test_scans_beside_the_slots_of_a_key_set(along: str, n: int) -> None:
    keys = nk.neighborhood(5, is_causal=True, queries="q", keys="x")
    sizes = {"q": n, "x": n, "w": 5}

    @nk.diagram("q x -> q w, q x")
    def stored(X: Any) -> Any:
        states = nk.cumsum(X, along=along)
        return nk.compress(states, keys, into="w"), states * nk.exp(X)

    @nk.diagram("q w, q x -> q x")
    def read(W: Any, X: Any) -> Any:
        return nk.cumsum(nk.spread(W, keys, over="w") * X, along=along)

    for d in (stored, read):
        plan = nk.derive(d, "a100", sizes, "fp32")
        small = {"q": min(n, 67), "x": min(n, 67), "w": 5}
        plan.check(sizes=small, resources=False).raise_if_wrong()


@pytest.mark.parametrize("signature", ["q x -> q x", "x q -> x q"])
def test_kernels_of_long_rows(signature: str) -> None:
    d = nk.diagram(signature)(of_squares)
    plan = nk.derive(d, sizes={"q": 3, "x": 100_001}, dtype="fp32", parts={"x": 1})
    plan.check().raise_if_wrong()


@pytest.mark.parametrize("signature", ["q x, q x, q -> q x, q x", "x q, x q, q -> x q, x q"])
@pytest.mark.parametrize("x", [1, 37])
def test_kernels_of_recurrences(signature: str, x: int) -> None:
    def decayed(A: Any, X: Any, init: Any) -> Any:
        H = nk.scan(lambda h: nk.sigmoid(A) * h + X, init, along="x")
        return H * X, nk.scan(lambda h: 0.5 * h - X, 0.0, along="x")

    d = nk.diagram(signature)(decayed)
    nk.derive(d, sizes={"q": 3, "x": x}, dtype="fp32").check().raise_if_wrong()


def test_kernels_of_long_recurrences() -> None:
    d = nk.diagram("q x -> q x")(lambda X: nk.scan(lambda h: 0.9 * h + X, 0.0, along="x"))
    plan = nk.derive(d, sizes={"q": 1, "x": 20_001}, dtype="fp32", parts={"x": 1})
    assert "stream x" in str(plan)
    X = np.random.default_rng(0).normal(size=(1, 20_001))
    np.testing.assert_allclose(plan(X), d.evaluate(X), rtol=1e-4, atol=1e-4)


# --- in blocks ------------------------------------------------------------------------------


def gates(A: Any, X: Any, init: Any) -> Any:
    """A recurrence and one with a decay that no row has of its own."""
    H = nk.scan(lambda h: nk.sigmoid(A) * h + X, init, along="x")
    return H * X, nk.scan(lambda h: 0.5 * h - X, 0.0, along="x")


def counted(X: Any) -> Any:
    return nk.cumsum(X > 0, along="x")


BLOCKED = [
    (of_rows(running), {"q": 1}),
    (nk.diagram("x q -> x q")(of_squares), {"q": 2}),
    (nk.diagram("q x, q x, q -> q x, q x")(gates), {"q": 2}),
    (nk.diagram("x -> x")(counted), {}),
]


@pytest.mark.parametrize("diagram", [d for d, _ in BLOCKED] + [linear])
def test_scans_in_blocks_keep_their_law(diagram: nk.Diagram) -> None:
    """The rule is verified wherever it is applied here, on blocks of 1, 2 and 3 positions."""
    (found,) = RESUMED.matches(streamed(diagram), 4)
    first, second = RESUMED.apply(found)
    assert first.partial == second.merges == "x_block4"
    assert "x" in first.group
    assert "x" in second.group


def test_rows_at_positions_found_in_a_scan_keep_its_law() -> None:
    """The law reads the table of these positions, which no output of the scan reads by itself."""
    positions = nk.diagram("q k x, k c -> q x c")(
        lambda X, N: nk.take(N, k=nk.argmax(nk.cumsum(X, along="x"), over="k"))
    )
    (found,) = RESUMED.matches(streamed(positions), 4)
    RESUMED.apply(found)


def test_a_block_that_begins_elsewhere_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "first_of", lambda axis: node("size", params=(axis,), kind="int"))
    (found,) = RESUMED.matches(streamed(of_rows(running)), 4)
    with pytest.raises(LawError, match="rule 'resume' broke its law"):
        RESUMED.apply(found)


@pytest.mark.parametrize(("diagram", "rows"), BLOCKED[1:])
def test_kernels_of_few_rows_scan_in_blocks(diagram: nk.Diagram, rows: dict[str, int]) -> None:
    plan = nk.derive(diagram, sizes={**rows, "x": 70_001}, dtype="fp32")
    assert [k.name.rsplit("_", 1)[1] for k in plan.kernels] == ["blocks", "resumed"]
    plan.check(sizes={**rows, "x": 700}).raise_if_wrong()


def test_blocks_of_no_positions_and_of_one() -> None:
    plan = nk.derive(of_rows(running), sizes={"q": 1, "x": 70_001}, dtype="fp32")
    assert plan(np.zeros((1, 0))).shape == (1, 0)
    assert plan(np.full((1, 1), 3.0)).tolist() == [[3.0]]


def test_one_long_row_is_scanned_by_all_of_a_machine() -> None:
    sizes = {"q": 1, "x": 2**20}
    plan = nk.derive(of_rows(running), sizes=sizes)
    alone = nk.derive(of_rows(running), sizes=sizes, parts={"x": 1})
    assert plan.seconds < alone.seconds / 20
    assert "block x = " in str(plan)
    assert "resume x = " in str(plan)


def test_many_rows_are_scanned_as_they_are() -> None:
    plan = nk.derive(of_rows(running), sizes={"q": 512, "x": 4096})
    assert len(plan.kernels) == 1


def never(X: Any) -> Any:
    """Zeros, by a mask that is only known where it is evaluated."""
    return nk.dropout(X, 1.0, 1)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda X: nk.reduce(X, "sum", over="x"), "output O is what x is folded to"),
        (lambda X: X + nk.reduce(X, "sum", over="q"), "nothing is folded over x"),
        (lambda X: nk.cumsum(never(nk.softmax(X, over="x")), along="x"), "x is reduced, too"),
    ],
)
def test_what_is_not_scanned_in_blocks(body: Any, reason: str) -> None:
    d = nk.diagram("q x -> q" if "folded to" in reason else "q x -> q x")(body)
    kernel = streamed(d)
    assert why_not_resumed(kernel).startswith(reason)
    assert not list(RESUMED.matches(kernel, 4))


def test_blocks_have_two_positions_or_more() -> None:
    """Kernels have no group of a block that is one position."""
    assert not list(RESUMED.matches(streamed(of_rows(running)), 1))
