"""Kernels over key sets: every parameter of a neighborhood, and what else goes on the scores.

Each plan is made for sizes at which it streams, run in the interpreter at sizes that are ragged,
and compared with attention in numpy under the mask of a definition written here; its bytes are
compared with the prediction.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.run.arrays import to_device
from napkin.run.interpreted import run_recipe

Array = np.ndarray[Any, Any]
LONG = {"q": 2048, "x": 2048, "d": 32}
PLANE = {"q0": 48, "q1": 48, "x0": 48, "x1": 48, "d": 32}
SPACE = {f"{a}{i}": 12 for a in "qx" for i in range(3)} | {"d": 32}


def numbers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def window(size: int, k: int, s: int = 1, d: int = 1, causal: bool = False) -> Array:
    """Queries by keys of one axis (Hassani et al., 2025, section 3)."""
    out = np.zeros((size, size), bool)
    for i in range(size):
        group, place = i % d, i // d
        length = -(-(size - group) // d)
        ahead = s - 1 if causal else s // 2
        leader = min(place // s * s + ahead, length - 1)
        if causal:
            first, end = max(leader - k + 1, 0), place + 1
        else:
            first = min(max(leader - k // 2, 0), max(length - k, 0))
            end = min(first + k, length)
        out[i, [group + j * d for j in range(first, end)]] = True
    return out


def reference(Q: Array, K: Array, V: Array, mask: Array, change: Any = None) -> tuple[Array, Array]:
    """Attention and its log-sum-exp, tokens flat; `change` is applied to the scores."""
    S = Q @ K.T / math.sqrt(Q.shape[1])
    S = np.where(mask, change(S) if change else S, -np.inf)
    top = np.where(mask.any(1), S.max(1), 0.0)
    e = np.exp(S - top[:, None])
    z = e.sum(1)
    with np.errstate(divide="ignore"):
        return e / np.where(z == 0, 1, z)[:, None] @ V, top + np.log(z)


def run(diagram: nk.Diagram, *arrays: Array, axes: tuple[str, ...]) -> list[Array]:
    """The outputs of the one kernel of a plan, whose bytes are those predicted."""
    plan = nk.derive(diagram, dtype="fp32")
    (kernel,) = plan.kernels
    chosen = kernel.choice.kernel
    split = {s.place: s.axis for s in chosen.splits}  # where a set is dilated
    assert tuple(split.get(a, a) for a in chosen.stream.axes) == axes
    assert kernel.choice.kernel.visits is not None
    types = {"real": "fp32", "int": "i32", "bool": "i8"}
    given = {
        str(n.params[0]): to_device(a, types[n.kind])
        for n, a in zip(diagram.inputs, arrays, strict=True)
    }
    sizes = diagram.sizes_of([a.shape for a in arrays])
    ran = run_recipe(plan.recipe, given, sizes, diagram.check_scalars({}))
    counted = {key: n for key, n in ran.moved[0].items() if n}
    predicted = {key: n for key, n in kernel.bytes_at(sizes).items() if n}
    assert {(t, str(d)): n for (t, d), n in counted.items()} == {
        (kernel.binding[t], str(d)): n for (t, d), n in predicted.items()
    }
    return [ran.tensors[o.name].to_float64() for o in diagram.outputs]


def line(keys: nk.KeySet) -> nk.Diagram:
    @nk.diagram("q d, x d, x d -> q d, q", sizes=LONG)
    def made(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        out = nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")
        return out, nk.reduce(S, "logsumexp", over="x", keys=keys)

    return made


def box(keys: nk.KeySet, dims: int) -> nk.Diagram:
    q, x = (" ".join(f"{a}{i}" for i in range(dims)) for a in "qx")

    @nk.diagram(f"{q} d, {x} d, {x} d -> {q} d, {q}", sizes=PLANE if dims == 2 else SPACE)
    def made(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        seen = keys.over(q, x)
        out = nk.contract(nk.softmax(S, over=x, keys=seen), V, over=x)
        return out, nk.reduce(S, "logsumexp", over=x, keys=seen)

    return made


def close(found: list[Array], wanted: tuple[Array, ...]) -> None:
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(f.reshape(w.shape), w, rtol=1e-4, atol=1e-5)


# --- one axis ------------------------------------------------------------------------------------

AXES = [
    (101, (7,)),  # ragged against any tile
    (96, (8,)),  # even: one more key on the left
    (101, (40, 1, 1, True)),
    (150, (33, 8)),
    (150, (33, 33)),  # blocks, the last of them shifted back
    (150, (32, 7, 1, True)),
    (151, (9, 1, 4)),  # dilated, residues of different lengths
    (151, (10, 3, 7)),
    (151, (9, 4, 3, True)),
    (64, (64,)),
    (60, (12, 5, 5)),  # every key of the residue
    (37, (1,)),
]


@pytest.mark.parametrize(("size", "params"), AXES, ids=str)
def test_one_axis(size: int, params: tuple[Any, ...]) -> None:
    Q, K, V = numbers(size, 3, size, 16)
    found = run(line(nk.neighborhood(*params)), Q, K, V, axes=("x",))
    close(found, reference(Q, K, V, window(size, *params)))


def test_the_first_causal_query_returns_its_own_value() -> None:
    """Fact 6, of a kernel."""
    Q, K, V = numbers(6, 3, 50, 16)
    out, lse = run(line(nk.neighborhood(3, is_causal=True)), Q, K, V, axes=("x",))
    np.testing.assert_array_equal(out[0], V[0].astype(np.float32))
    assert lse[0] == pytest.approx(Q[0] @ K[0] / 4, rel=1e-5)


@pytest.mark.parametrize("k", [3, 4])
def test_uniform_scores_give_means_and_the_logarithm_of_the_window(k: int) -> None:
    """Fact 7, of a kernel: the log-sum-exp is natural."""
    V = np.arange(8.0)[:, None] * np.ones(16)
    out, lse = run(line(nk.neighborhood(k)), 0 * V, 0 * V, V, axes=("x",))
    means = {3: [1, 1, 2, 3, 4, 5, 6, 6], 4: [1.5, 1.5, 1.5, 2.5, 3.5, 4.5, 5.5, 5.5]}
    np.testing.assert_allclose(out[:, 0], means[k], rtol=1e-6)
    np.testing.assert_allclose(lse, math.log(k), rtol=1e-6)


@pytest.mark.parametrize("size", [5, 9, 64])
def test_a_window_larger_than_the_axis_where_that_is_allowed(size: int) -> None:
    Q, K, V = numbers(7, 3, size, 16)
    found = run(line(nk.neighborhood(20, clip=True)), Q, K, V, axes=("x",))
    close(found, reference(Q, K, V, window(size, 20)))
    if size < 20:
        with pytest.raises(nk.InputError, match="does not fit"):
            nk.derive(line(nk.neighborhood(20)), dtype="fp32")(Q, K, V)


# --- several axes --------------------------------------------------------------------------------

PLANES = [
    ((13, 17), ((5, 1, 1, False), (4, 1, 1, False))),
    ((13, 17), ((5, 2, 1, True), (6, 1, 1, False))),
    ((13, 17), ((5, 1, 1, False), (6, 3, 1, True))),
    ((14, 18), ((3, 2, 2, True), (4, 1, 3, True))),
    ((9, 20), ((9, 1, 1, False), (7, 7, 1, False))),
    ((11, 16), ((2, 1, 3, False), (8, 4, 2, False))),
]


@pytest.mark.parametrize(("layout", "params"), PLANES, ids=str)
def test_two_axes(layout: tuple[int, int], params: tuple[tuple[int, int, int, bool], ...]) -> None:
    keys = nk.neighborhood(*map(list, zip(*params, strict=True)))
    Q, K, V = (numbers(i, *layout, 16) for i in range(3))
    found = run(box(keys, 2), Q, K, V, axes=("x0", "x1"))
    mask = np.kron(window(layout[0], *params[0]), window(layout[1], *params[1]))
    close(found, reference(*(A.reshape(-1, 16) for A in (Q, K, V)), mask))


def test_swapping_two_axes_with_their_parameters_swaps_the_result() -> None:
    """Fact 9, of a kernel."""
    k, s, d, causal = (3, 4), (2, 1), (1, 3), (True, False)
    Q, K, V = (numbers(i, 10, 17, 16) for i in range(3))
    found = run(box(nk.neighborhood(k, s, d, causal), 2), Q, K, V, axes=("x0", "x1"))
    turned = box(nk.neighborhood(k[::-1], s[::-1], d[::-1], causal[::-1]), 2)
    swapped = run(turned, *(A.swapaxes(0, 1) for A in (Q, K, V)), axes=("x0", "x1"))
    for a, b in zip(found, swapped, strict=True):
        np.testing.assert_allclose(a, b.swapaxes(0, 1), rtol=1e-4, atol=1e-5)


def test_three_axes() -> None:
    layout, params = (5, 6, 7), ((3, 1, 1, True), (4, 2, 1, False), (3, 1, 2, False))
    keys = nk.neighborhood(*map(list, zip(*params, strict=True)))
    Q, K, V = (numbers(i, *layout, 16) for i in range(3))
    found = run(box(keys, 3), Q, K, V, axes=("x0", "x1", "x2"))
    mask = np.ones((1, 1), bool)
    for size, p in zip(layout, params, strict=True):
        mask = np.kron(mask, window(size, *p))
    close(found, reference(*(A.reshape(-1, 16) for A in (Q, K, V)), mask))


# --- heads ---------------------------------------------------------------------------------------


def test_shared_heads_equal_repeated_keys_and_values() -> None:
    """Fact 9, of a kernel: query head h uses head h // 3 of keys and values."""
    seen = nk.neighborhood(12, 4, queries="q", keys="x")

    @nk.diagram("g r q d, g x d, g x d -> g r q d, g r q", sizes=LONG | {"g": 2, "r": 3})
    def grouped(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        out = nk.contract(nk.softmax(S, over="x", keys=seen), V, over="x")
        return out, nk.reduce(S, "logsumexp", over="x", keys=seen)

    Q, K, V = numbers(0, 6, 53, 16), numbers(1, 2, 53, 16), numbers(2, 2, 53, 16)
    out, lse = run(grouped, Q.reshape(2, 3, 53, 16), K, V, axes=("x",))
    out, lse = out.reshape(6, 53, 16), lse.reshape(6, 53)
    for h in range(6):
        close([out[h], lse[h]], reference(Q[h], K[h // 3], V[h // 3], window(53, 12, 4)))


# --- the log-sum-exp -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys", [nk.causal(), nk.sliding(30), nk.sinks(3) | nk.sliding(9)], ids=str
)
def test_log_sum_exp(keys: nk.KeySet) -> None:
    Q, K, V = numbers(3, 3, 131, 16) * 3
    close(run(line(keys), Q, K, V, axes=("x",)), reference(Q, K, V, keys.mask(131)))


def test_rows_that_see_nothing() -> None:
    """Weights 0 and a log-sum-exp of -inf: queries before the first key, and masked scores."""

    @nk.diagram("q d, x d, x d, x -> q d, q", sizes=LONG)
    def late(Q, K, V, B):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5 + B
        seen = nk.sliding(20, 0, "q", "x", at=nk.index("q") - 10)
        out = nk.contract(nk.softmax(S, over="x", keys=seen), V, over="x")
        return out, nk.reduce(S, "logsumexp", over="x", keys=seen)

    Q, K, V = numbers(4, 3, 90, 16)
    B = np.where((np.arange(90) < 50) | (np.arange(90) > 75), 0.0, -np.inf)
    back = np.subtract.outer(np.arange(90) - 10, np.arange(90))
    mask = (back >= 0) & (back <= 20) & np.isfinite(B)
    out, lse = run(late, Q, K, V, B, axes=("x",))
    nothing = ~mask.any(1)
    assert nothing.sum() > 12
    assert (out[nothing] == 0).all()
    assert (lse[nothing] == -np.inf).all()
    close([out, lse], reference(Q, K, V, mask))


# --- what is added to scores ---------------------------------------------------------------------


@pytest.mark.parametrize("keys", [nk.causal(), nk.neighborhood(24), nk.sliding(40)], ids=str)
def test_slopes_and_a_softcap(keys: nk.KeySet) -> None:
    """ALiBi (arXiv 2108.12409) and a softcap on scores that a key set masks."""

    @nk.diagram("q d, x d, x d -> q d, q", sizes=LONG)
    def biased(Q, K, V, slope=0.25, cap=2.0):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        S = cap * nk.tanh(S / cap) - slope * nk.abs(nk.index("q") - nk.index("x"))
        out = nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")
        return out, nk.reduce(S, "logsumexp", over="x", keys=keys)

    Q, K, V = numbers(5, 3, 117, 16)
    far = abs(np.subtract.outer(np.arange(117), np.arange(117)))
    mask = keys.mask(117)
    wanted = reference(Q, K, V, mask, lambda S: 2 * np.tanh(S / 2) - 0.25 * far)
    close(run(biased, Q, K, V, axes=("x",)), wanted)


def test_a_table_of_relative_positions_on_a_line() -> None:
    @nk.diagram("q d, x d, x d, p -> q d, q", sizes=LONG | {"p": 33})
    def biased(Q, K, V, B):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        S = S + nk.take(B, p=nk.index("x") - nk.index("q") + 16)
        seen = nk.sliding(16, 16, "q", "x")
        out = nk.contract(nk.softmax(S, over="x", keys=seen), V, over="x")
        return out, nk.reduce(S, "logsumexp", over="x", keys=seen)

    Q, K, V = numbers(8, 3, 83, 16)
    B = numbers(9, 33)
    i = np.arange(83)
    at = i - i[:, None] + 16
    mask = abs(i - i[:, None]) <= 16
    wanted = reference(Q, K, V, mask, lambda S: S + B[np.clip(at, 0, 32)])
    plan = nk.derive(biased, dtype="fp32")
    plan.check(sizes={"q": 83, "x": 83, "d": 16, "p": 33}, resources=False).raise_if_wrong()
    close(list(biased.evaluate(Q, K, V, B)), wanted)


def test_a_table_of_relative_positions_on_a_plane() -> None:
    sizes = PLANE | {"u": 9, "v": 9}

    @nk.diagram("q0 q1 d, x0 x1 d, x0 x1 d, u v -> q0 q1 d", sizes=sizes)
    def biased(Q, K, V, B):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        S = S + nk.take(
            B,
            u=nk.index("x0") - nk.index("q0") + 4,
            v=nk.index("x1") - nk.index("q1") + 4,
        )
        seen = nk.neighborhood((5, 5), queries="q0 q1", keys="x0 x1")
        return nk.contract(nk.softmax(S, over="x0 x1", keys=seen), V, over="x0 x1")

    Q, K, V = (numbers(i, 11, 14, 16) for i in range(3))
    B = numbers(3, 9, 9)
    i, j = (A.reshape(-1) for A in np.indices((11, 14)))
    bias = B[np.clip(i - i[:, None] + 4, 0, 8), np.clip(j - j[:, None] + 4, 0, 8)]
    mask = np.kron(window(11, 5), window(14, 5))
    tokens = [A.reshape(-1, 16) for A in (Q, K, V)]
    wanted, _ = reference(*tokens, mask, lambda S: S + bias)
    np.testing.assert_allclose(biased.evaluate(Q, K, V, B).reshape(154, 16), wanted, rtol=1e-10)
    plan = nk.derive(biased, dtype="fp32")
    plan.check(
        sizes={"q0": 11, "q1": 14, "x0": 11, "x1": 14, "d": 16}, resources=False
    ).raise_if_wrong()


# --- whole numbers -------------------------------------------------------------------------------

WHOLE = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}


@pytest.mark.parametrize("how", WHOLE)
def test_whole_numbers_stay_whole(how: str) -> None:
    @nk.diagram("q x:int -> q:int", sizes={"q": 64, "x": 64})
    def reduced(X):
        return nk.reduce(X, how, over="x", keys=nk.sliding(3, 0, "q", "x"))

    X = np.random.default_rng(0).integers(-9, 10, size=(40, 40))
    wanted = [WHOLE[how](row[max(0, i - 3) : i + 1]) for i, row in enumerate(X)]
    for found in (reduced.evaluate(X), nk.derive(reduced)(X)):
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, wanted)


def test_counts_and_the_whole_number_of_nothing() -> None:
    """A sum of conditions counts; a maximum of no whole number is the least one of 32 bits."""

    @nk.diagram("q x:int -> q:int, q:int", sizes={"q": 64, "x": 512})
    def counted(X):
        seen = nk.sliding(3, 0, "q", "x", at=nk.index("q") - 5)
        return (
            nk.reduce(X > 0, "sum", over="x", keys=seen),
            nk.reduce(X, "max", over="x", keys=seen),
        )

    X = np.random.default_rng(1).integers(-9, 10, size=(30, 30))
    rows = [row[max(0, i - 8) : max(0, i - 4)] for i, row in enumerate(X)]
    for count, top in (counted.evaluate(X), nk.derive(counted)(X)):
        assert count.tolist() == [int((r > 0).sum()) for r in rows]
        assert top.tolist() == [int(r.max()) if len(r) else -(2**31) for r in rows]


@pytest.mark.parametrize("spelled", ["contract", "reduce"])
def test_a_sum_without_a_softmax_is_a_matrix_product_over_the_keys_seen(spelled: str) -> None:
    """Retention (arXiv 2307.08621): decay grows without bound at keys that no query may see."""

    @nk.diagram("q d, x d, x d, () -> q d", sizes=LONG)
    def retention(Q, K, V, gamma):
        decay = nk.exp(nk.log(gamma) * (nk.index("q") - nk.index("x")))
        S, keys = nk.contract(Q, K, over="d") * decay, nk.causal("q", "x")
        if spelled == "contract":
            return nk.contract(S, V, over="x", keys=keys)
        return nk.reduce(S * V, "sum", over="x", keys=keys)

    assert nk.derive(retention).source.count("tl.dot(") % 2 == 0  # both, in every loop
    Q, K, V, gamma = numbers(0, 300, 32), numbers(1, 300, 32), numbers(2, 300, 32), 0.6
    gap = np.subtract.outer(np.arange(300), np.arange(300))
    D = np.where(gap >= 0, gamma ** np.maximum(gap, 0), 0.0)
    (found,) = run(retention, Q, K, V, np.array(gamma), axes=("x",))
    wanted = (Q @ K.T * D) @ V
    assert np.allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    exact = retention.evaluate(Q, K, V, gamma)
    assert np.allclose(exact, wanted)


@pytest.mark.parametrize("keys", [nk.causal("q", "x"), nk.sliding(5, 2, "q", "x")])
def test_means_over_the_keys_seen(keys: nk.KeySet) -> None:
    """How many there are is counted in the same loop, where all lanes are seen, too."""

    @nk.diagram("x d, q d -> q d", sizes=LONG)
    def averaged(X, Y):
        return nk.reduce((X - Y) ** 2, "mean", over="x", keys=keys)

    X, Y = numbers(0, 300, 32), numbers(1, 300, 32)
    (found,) = run(averaged, X, Y, axes=("x",))
    exact = averaged.evaluate(X, Y)
    assert np.allclose(found, exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max())
