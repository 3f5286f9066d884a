"""Scans by any step: a state that is taken from one position to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fold_law import breach
from hypothesis import given, settings
from hypothesis import strategies as st

import napkin as nk
from napkin.derive.kernel import Kernel
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.derive.rules.part import why_not_cut
from napkin.diagram.fingerprint import fingerprint
from napkin.diagram.stepping import SHIFT

Numbers = np.ndarray[Any, Any]
CUTS = st.lists(st.integers(0, 4), min_size=1, max_size=5).filter(any)


def positive(x: Numbers) -> Numbers:
    return 1 / (1 + np.exp(-x))


@nk.diagram("b t d, d e -> b t d")
def elman(X: Any, W: Any) -> Any:
    """A network with a matrix in its step (Elman, 1990)."""

    def step(h: Any) -> Any:
        return nk.tanh(nk.contract(h, W, over="d").rename(e="d") + X)

    return nk.scan(step, 0.0, along="t", axes="d")


@nk.diagram("b t d, b t d, b d -> b t d, b t d")
def memory(X: Any, F: Any, c0: Any) -> Any:
    """Two states that read each other, one with a start of its own (LSTM, 1997)."""

    def step(h: Any, c: Any) -> Any:
        c = nk.sigmoid(F + h) * c + nk.tanh(X)
        return nk.tanh(c) * nk.sigmoid(X + h), c

    return nk.scan(step, (0.0, c0), along="t")


@nk.diagram("b t k, b t k, b t v, b t -> b t v")
def delta(Q: Any, K: Any, V: Any, B: Any) -> Any:
    """The delta rule: a key's value in a matrix is moved to a new one (arXiv 2102.11174)."""

    def step(S: Any) -> Any:
        return S + B * K * (V - nk.contract(S, K, over="k"))

    return nk.contract(Q, nk.scan(step, 0.0, along="t", axes="k"), over="k")


@nk.diagram("b t -> b t")
def largest(X: Any) -> Any:
    return nk.scan(lambda h: nk.maximum(h, X), float("-inf"), along="t")


@nk.diagram("b t, b t, b -> b t, b t")
def passed(X: Any, A: Any, h0: Any) -> Any:
    """A state after each position, and the one before it."""
    return nk.scan(lambda h, before: (A * h + X, h), (h0, 0.0), along="t")


@nk.diagram("b t:int -> b t")
def parity(X: Any) -> Any:
    """A state of whole numbers, of which a step takes a remainder."""
    return nk.scan(lambda h: (h + X) % 2, 1, along="t")


@nk.diagram("b t d -> b t d")
def attended(X: Any) -> Any:
    """A softmax and a running sum of the state, along an axis of its own."""

    def step(h: Any) -> Any:
        return nk.softmax(h * X, over="d") + nk.cumsum(0.1 * h, along="d") + X

    return nk.scan(step, 0.0, along="t", axes="d")


def elman_by_hand(X: Numbers, W: Numbers) -> Numbers:
    h, found = np.zeros_like(X[:, 0]), list[Numbers]()
    for t in range(X.shape[1]):
        h = np.tanh(h @ W + X[:, t])
        found.append(h)
    return np.stack(found, 1)


def memory_by_hand(X: Numbers, F: Numbers, c0: Numbers) -> list[Numbers]:
    h, c, found = np.zeros_like(c0), c0, list[tuple[Numbers, Numbers]]()
    for t in range(X.shape[1]):
        c = positive(F[:, t] + h) * c + np.tanh(X[:, t])
        h = np.tanh(c) * positive(X[:, t] + h)
        found.append((h, c))
    return [np.stack(x, 1) for x in zip(*found, strict=True)]


def passed_by_hand(X: Numbers, A: Numbers, h0: Numbers) -> list[Numbers]:
    states = [h0]
    for t in range(X.shape[1]):
        states.append(A[:, t] * states[-1] + X[:, t])
    return [np.stack(states[1:], 1), np.stack(states[:-1], 1)]


def delta_by_hand(Q: Numbers, K: Numbers, V: Numbers, B: Numbers) -> Numbers:
    S, found = np.zeros((len(Q), K.shape[2], V.shape[2])), list[Numbers]()
    for t in range(Q.shape[1]):
        k, v, b = K[:, t], V[:, t], B[:, t, None, None]
        S = S + b * k[:, :, None] * (v - np.einsum("bkv,bk->bv", S, k))[:, None]
        found.append(np.einsum("bk,bkv->bv", Q[:, t], S))
    return np.stack(found, 1)


def parity_by_hand(X: Numbers) -> Numbers:
    return (1 + np.cumsum(X, 1)) % 2


def attended_by_hand(X: Numbers) -> Numbers:
    h, found = np.zeros_like(X[:, 0]), list[Numbers]()
    for t in range(X.shape[1]):
        w = np.exp(h * X[:, t])
        h = w / w.sum(-1, keepdims=True) + np.cumsum(0.1 * h, -1) + X[:, t]
        found.append(h)
    return np.stack(found, 1)


@nk.diagram("b t d, b t n -> b t d")
def levelled(X: Any, Y: Any) -> Any:
    """A difference from a log-sum-exp that reads no state, on either side."""
    level = nk.reduce(Y, "logsumexp", over="n")
    return nk.scan(lambda h: nk.tanh(level - h) + (X * h - level), 0.0, along="t")


def levelled_by_hand(X: Numbers, Y: Numbers) -> Numbers:
    h, found, level = np.zeros_like(X[:, 0]), list[Numbers](), np.log(np.exp(Y).sum(-1))
    for t in range(X.shape[1]):
        h = np.tanh(level[:, t, None] - h) + X[:, t] * h - level[:, t, None]
        found.append(h)
    return np.stack(found, 1)


@nk.diagram("b t d -> b t d")
def paired(X: Any) -> Any:
    """Pairs of values of a state, along an axis that only the step names."""

    def step(h: Any) -> Any:
        return nk.tanh(nk.reduce(h * h.rename(d="e"), "max", over="e") + X)

    return nk.scan(step, 0.0, along="t", axes="d")


def paired_by_hand(X: Numbers) -> Numbers:
    h, found = np.zeros_like(X[:, 0]), list[Numbers]()
    for t in range(X.shape[1]):
        h = np.tanh((h[:, :, None] * h[:, None]).max(-1) + X[:, t])
        found.append(h)
    return np.stack(found, 1)


CASES: list[tuple[nk.Diagram, Callable[..., Any]]] = [
    (elman, elman_by_hand),
    (memory, memory_by_hand),
    (delta, delta_by_hand),
    (passed, passed_by_hand),
    (largest, lambda X: np.maximum.accumulate(X, 1)),
    (parity, parity_by_hand),
    (attended, attended_by_hand),
    (levelled, levelled_by_hand),
    (paired, paired_by_hand),
]
cases = pytest.mark.parametrize(("diagram", "by_hand"), CASES, ids=lambda x: getattr(x, "name", ""))


def drawn(diagram: nk.Diagram, seed: int, **sizes: int) -> dict[str, Numbers]:
    """Random inputs by name."""
    rng, every = np.random.default_rng(seed), {a: 3 for a in diagram.axes} | sizes
    found = dict[str, Numbers]()
    for n in diagram.inputs:
        shape = [every[a] for a in n.axes]
        values = rng.normal(size=shape) if n.kind == "real" else rng.integers(0, 9, size=shape)
        found[str(n.params[0])] = values
    return found


def streamed(diagram: nk.Diagram, **how: Any) -> Kernel:
    ready = prepare(diagram)
    return label("k", ready.outputs, ready.names, streamed="t", **how)


def each(found: Any) -> list[Numbers]:
    return list(found) if isinstance(found, tuple | list) else [found]


@cases
@pytest.mark.parametrize("t", [1, 2, 5])
def test_a_state_is_taken_from_position_to_position(diagram: Any, by_hand: Any, t: int) -> None:
    given_ = drawn(diagram, t, t=t).values()
    for found, wanted in zip(each(diagram.evaluate(*given_)), each(by_hand(*given_)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@cases
@settings(deadline=None, max_examples=20)
@given(CUTS, st.integers(0, 9))
def test_chunks_continue_where_the_last_ended(
    diagram: Any, by_hand: Any, cut: list[int], seed: int
) -> None:
    sizes = {a: 3 for a in diagram.axes} | {"t": sum(cut)}
    assert breach(streamed(diagram), drawn(diagram, seed, t=sum(cut)), sizes, cut) is None


@nk.diagram("t d, t n -> t d", sizes={"t": 7, "d": 7, "n": 3})
def of_spread(X, Y):
    """Each position of t is a query, and the keys are no positions of it."""
    seen = nk.spread(Y, nk.neighborhood(3, is_causal=True, queries="t", keys="d"), over="n")
    return nk.scan(lambda h: nk.tanh(h * X) + seen, 0.0, along="t")


def test_an_axis_of_a_step_alone_is_an_axis_of_the_diagram() -> None:
    assert paired.axes == ("b", "t", "d", "e")
    assert nk.derive(paired, sizes={"b": 2, "t": 3, "d": 5}).sizes["e"] == 5
    with pytest.raises(nk.InputError, match="has an axis 'e' already"):
        paired.weave("e")


def test_a_scan_goes_over_the_queries_of_a_key_set() -> None:
    nk.derive(of_spread, dtype="fp32").check().raise_if_wrong()


@cases
def test_torch_evaluates_steps(diagram: Any, by_hand: Any) -> None:
    torch = pytest.importorskip("torch")
    from napkin.torch.reference import evaluation

    arrays = drawn(diagram, 0, t=4)
    sizes = {a: 3 for a in diagram.axes} | {"t": 4}
    found = evaluation(diagram, sizes)(*map(torch.tensor, arrays.values()))
    for value, wanted in zip(found, each(diagram.evaluate(*arrays.values())), strict=True):
        np.testing.assert_allclose(value.numpy(), wanted, rtol=1e-12, atol=1e-12)


@cases
@pytest.mark.parametrize("large", [False, True])
def test_kernels_step_along_the_axis(diagram: Any, by_hand: Any, large: bool) -> None:
    """Plans for large sizes, too, at sizes that fill no tile."""
    sizes = {a: 64 if large else 5 for a in diagram.axes}
    plan = nk.derive(diagram, on="h100", dtype="fp32", sizes=sizes)
    if diagram is not delta:  # which is solved in chunks (test_pairs)
        assert all(k.tiles.get("t", 1) == 1 for k in plan.kernels)
    small = {a: 17 if large and a != "t" else 5 for a in diagram.axes}
    plan.check(sizes=small, resources=False).raise_if_wrong()


def test_an_empty_axis_has_no_state() -> None:
    assert largest.evaluate(np.zeros((3, 0))).shape == (3, 0)
    plan = nk.derive(largest, sizes={"b": 3, "t": 8}, dtype="fp32")
    assert plan(np.zeros((3, 0), np.float32)).shape == (3, 0)


def test_a_product_in_a_step_is_one_of_the_state_and_no_position() -> None:
    plan = nk.derive(elman, on="h100", sizes={"b": 64, "t": 32, "d": 64}, dtype="bf16")
    assert plan.source.count("tl.dot(") == 1
    plan.check(sizes={"b": 19, "t": 3, "d": 21}, resources=False).raise_if_wrong()


def test_what_reads_the_state_is_computed_beside_it() -> None:
    plan = nk.derive(delta, sizes={"b": 128, "t": 2048, "k": 64, "v": 64}, dtype="bf16")
    assert len(plan.kernels) == 1


def test_states_are_cut_in_no_parts() -> None:
    reason = "a step takes the state along t, and no two parts of it are joined"
    assert why_not_cut(streamed(largest)) == reason
    with pytest.raises(nk.Refusal, match="no two parts of it are joined"):
        nk.derive(largest, sizes={"b": 1, "t": 4096}, parts={"t": 4})


def test_an_axis_of_steps_is_streamed() -> None:
    ready = prepare(largest)
    with pytest.raises(nk.Refusal, match="its state is taken from one position of t to the next"):
        label("k", ready.outputs, ready.names)
    with pytest.raises(nk.Refusal, match="steps works along t, so the algorithm is not weaved"):
        label("k", ready.outputs, ready.names, group=["t"])


@pytest.mark.parametrize("computed", ["product", "scaled", "cast"])
def test_steps_along_an_axis_of_which_two_positions_share_a_byte(computed: str) -> None:
    """What they take in of such values is stored by a kernel that reads them by twos."""

    def made(Z: Any, A: Any, X: Any) -> Any:
        ways = {
            "product": lambda: nk.contract(A, Z, over="q"),
            "scaled": lambda: 0.5 * Z * A,
            "cast": lambda: nk.cast(Z, "int32") * A,
        }
        scaled = ways[computed]()
        return nk.scan(lambda h: nk.tanh(scaled * h + X), 0.0, along="t")

    out = "t" if computed == "product" else "q t"
    plan = nk.derive(nk.diagram(f"q t:int4, q, () -> {out}")(made), sizes={"q": 5, "t": 8})
    assert len(plan.kernels) == 2
    plan.check(resources=False).raise_if_wrong()


def test_steps_that_take_in_one_value_of_a_byte_are_refused() -> None:
    def made(Z: Any, X: Any) -> Any:
        return nk.scan(lambda h: nk.tanh(Z * h + X), 0.0, along="t")

    said = r"share a byte along t, along which a scan .* instead, scan nk.cast\(Z, 'int32'\)"
    with pytest.raises(nk.Refusal, match=said):
        nk.derive(nk.diagram("q t:int4, q -> q t", name="packed")(made), sizes={"q": 5, "t": 8})


def test_an_axis_that_the_step_reduces_is_held_whole() -> None:
    assert streamed(elman).group == ("b",)
    assert streamed(delta).group == ("b", "v")


def test_texts_and_fingerprints_tell_steps_apart() -> None:
    def by(step: Any) -> nk.Diagram:
        made = lambda X: nk.scan(lambda h: step(h, X), 0.0, along="t")  # noqa: E731
        return nk.diagram("b t -> b t", name="d")(made)

    steps = [lambda h, X: nk.tanh(h + X), lambda h, X: nk.tanh(h) + X, lambda h, X: nk.exp(h - X)]
    assert len({fingerprint(by(step)) for step in steps}) == 3
    assert fingerprint(by(steps[0])) == fingerprint(by(steps[0]))
    assert "scan(h: tanh(h + X), 0.0, along t)" in str(by(steps[0]))
    assert "along t)[1]" in str(memory)
    kept = nk.diagram("b t, b t -> b t")(
        lambda X, Y: nk.scan(lambda h, g: (nk.tanh(h) * g + X, Y + 3), (1.0, 0.0), along="t")[0]
    )
    assert "scan(h0, h1: (tanh(h0) * h1 + X, Y + 3), (1.0, 0.0), along t)[0]" in str(kept)


def test_a_step_reads_another_position_of_its_state_as_its_refusal_says() -> None:
    @nk.diagram("b t d -> b t d", sizes={"b": 2, "t": 5, "d": 4})
    def moving(X: Any) -> Any:
        def step(h: Any) -> Any:
            before = nk.index("e") == nk.index("d") - 1
            return nk.maximum(X, nk.reduce(nk.where(before, h.rename(d="e"), 0.0), "sum", over="e"))

        return nk.scan(step, 0.0, along="t", axes="b d")

    x = np.random.default_rng(0).normal(size=(2, 5, 4))
    h, wanted = np.zeros((2, 4)), []
    for t in range(5):
        h = np.maximum(x[:, t], np.pad(h, ((0, 0), (1, 0)))[:, :-1])
        wanted.append(h)
    assert np.array_equal(moving.evaluate(x), np.stack(wanted, 1))
    assert nk.derive(moving).check(resources=False).ok
    said = SHIFT.partition(", as in ")[2]
    before = "nk.index('e') == nk.index('d') - 1"
    assert said.startswith(f"nk.reduce(nk.where({before}, h.rename(d='e'), 0.0), 'sum', over='e')")


@pytest.mark.parametrize(
    ("made", "error", "message"),
    [
        (
            lambda X: nk.scan(lambda h: nk.maximum(h, nk.reduce(h * X, "sum", over="t")), 0.0, "t"),
            nk.Refusal,
            "the step is at one position of t, and this takes in all of them",
        ),
        (
            lambda X: nk.scan(
                lambda h: nk.exp(nk.take(h, d=nk.index("d") // 2) - X), 0.0, "t", axes="d"
            ),
            nk.Refusal,
            r"take\(h, d=index\(d\) // 2\): a step does no take of its state, .* h at d - 1",
        ),
        (
            lambda X: nk.scan(
                lambda h: nk.exp(nk.scan(lambda g: nk.tanh(g + h * X), 0.0, "d")), 0.0, "t"
            ),
            nk.Refusal,
            "a step does no scan by a step that is not linear of its state",
        ),
        (
            lambda X: nk.scan(lambda h: nk.maximum(h, X) > 0, 0.0, along="t"),
            nk.InputError,
            "the step of scan gives a test",
        ),
        (
            lambda X: nk.scan(lambda h, g: nk.maximum(h, X), (0.0, 0.0), along="t"),
            nk.InputError,
            "the step of scan gives 1 states, and init has 2",
        ),
        (
            lambda X: nk.scan(lambda h: nk.tanh(h), 0.0, along="t"),
            nk.InputError,
            "no array in the step has this axis",
        ),
        (
            lambda X: nk.scan(lambda h: nk.softmax(h, over="d") + X, 0.0, along="t"),
            nk.InputError,
            r"in a step of scan, whose state has axes ''; scan\(..., axes='d'\) gives a state axes",
        ),
        (
            lambda X: nk.scan(lambda h: nk.tanh(h + X), 0.0, along="t", axes=("d", "d")),
            nk.InputError,
            "scan has axes of 2 states, and init has 1",
        ),
    ],
)
def test_messages(made: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        nk.diagram("b t d -> b t d")(made)


def test_a_state_keeps_its_axes_where_its_next_value_lacks_one() -> None:
    """The next value of the adjoint of `c` is that of the result at every `b`: Triton refused a
    loop whose row of values became one value."""

    @nk.diagram("b t s, s r -> b t s, b")
    def forward_pass(E: Any, A: Any) -> Any:
        def step(a: Any, c: Any) -> Any:
            u = nk.rename(nk.contract(a, A, over="s"), r="s") * E
            n = nk.reduce(u, "sum", over="s")
            return u / n, nk.log(n)

        a, c = nk.scan(step, (1.0, 0.0), along="t", axes=("b s", "b"))
        return a, nk.reduce(c, "sum", over="t")

    gradient = nk.gradient(forward_pass)
    plan = nk.derive(gradient, "h100", dict(b=128, t=64, s=32, r=32), "fp32")
    passes = [p for k in plan.kernels for p in k.choice.kernel.stream.passes]
    states = [s for p in passes for s in p.states if s.held == "stepped"]
    assert any(s.axes == ("b",) for s in states)
    assert all(set(s.step.axes) == set(s.axes) for s in states)
    inputs = {"E": np.random.default_rng(0).random((3, 5, 4)) + 0.5}
    inputs["A"] = np.random.default_rng(1).random((4, 4)) + 0.5
    assert plan.check(sizes=dict(b=3, t=5, s=4, r=4), inputs=inputs, resources=False).ok
