"""One softmax over several arrays: the keys of a window beside extra keys that every query sees.

NATTEN's additional_keys and additional_values, as one kernel: values against numpy, and bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fold_law import assert_law

import napkin as nk
from napkin.run.arrays import to_device
from napkin.run.interpreted import run_recipe

Array = np.ndarray[Any, Any]


def attend(Q: Any, K: Any, V: Any, E: Any, F: Any, axes: str, keys: nk.KeySet | None) -> Any:
    """Attention over `axes` and over the extra keys a, and its log-sum-exp."""
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    T = nk.contract(Q, E, over="d") * nk.size("d") ** -0.5
    P, R = nk.softmax([S, T], over=[axes, "a"], keys=[keys, None])
    out = nk.contract(P, V, over=axes) + nk.contract(R, F, over="a")
    return out, nk.reduce([S, T], "logsumexp", over=[axes, "a"], keys=[keys, None])


def line(keys: nk.KeySet | None) -> nk.Diagram:
    @nk.diagram("q d, x d, x d, a d, a d -> q d, q", sizes={"q": 1024, "x": 1024, "d": 32, "a": 5})
    def extra(Q, K, V, E, F):
        return attend(Q, K, V, E, F, "x", keys)

    return extra


def plane(keys: nk.KeySet) -> nk.Diagram:
    sizes = {"q0": 32, "q1": 32, "x0": 32, "x1": 32, "d": 32, "a": 7}

    @nk.diagram("q0 q1 d, x0 x1 d, x0 x1 d, a d, a d -> q0 q1 d, q0 q1", sizes=sizes)
    def extra(Q, K, V, E, F):
        return attend(Q, K, V, E, F, "x0 x1", keys)

    return extra


def grouped(keys: nk.KeySet) -> nk.Diagram:
    sizes = {"g": 2, "r": 4, "q": 512, "x": 512, "d": 32, "a": 3}

    @nk.diagram("g r q d, g x d, g x d, g a d, g a d -> g r q d, g r q", sizes=sizes)
    def extra(Q, K, V, E, F):
        return attend(Q, K, V, E, F, "x", keys.over("q", "x"))

    return extra


def reference(Q: Array, K: Array, V: Array, E: Array, F: Array, mask: Array) -> tuple[Array, Array]:
    """Keys and values side by side, tokens flat."""
    scores = np.where(mask, Q @ K.T, -np.inf)
    e = np.exp(np.concatenate([scores, Q @ E.T], axis=1) / np.sqrt(Q.shape[1]))
    total = e.sum(1, keepdims=True)
    return e / total @ np.concatenate([V, F]), np.log(total[:, 0])


def numbers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def kernel_of(diagram: nk.Diagram, axes: tuple[str, ...]) -> Callable[..., tuple[Array, ...]]:
    """The one kernel of a plan for larger sizes, as a function."""
    plan = nk.derive(diagram, dtype="fp32")
    (kernel,) = plan.kernels
    chosen = kernel.choice.kernel
    split = {s.place: s.axis for s in chosen.splits}  # where a set is dilated
    assert tuple(split.get(a, a) for a in chosen.stream.axes) == axes

    def run(*arrays: Array) -> tuple[Array, ...]:
        given = {str(n.params[0]): to_device(a, "fp32")
                 for n, a in zip(diagram.inputs, arrays, strict=True)}  # fmt: skip
        ran = run_recipe(plan.recipe, given, diagram.sizes_of([a.shape for a in arrays]), {})
        return tuple(ran.tensors[o.name].to_float64() for o in diagram.outputs)

    return run


# --- values --------------------------------------------------------------------------------------

LINES = [None, nk.neighborhood(30), nk.neighborhood(9, 4, 3), nk.sliding(20), nk.causal()]


@pytest.mark.parametrize("keys", LINES, ids=str)
def test_a_line(keys: nk.KeySet | None) -> None:
    Q, K, V, E, F = (numbers(i, n, 16) for i, n in enumerate((151, 151, 151, 5, 5)))
    mask = np.ones((151, 151), bool) if keys is None else keys.mask(151)
    diagram = line(keys)
    for found in (kernel_of(diagram, ("x",))(Q, K, V, E, F), diagram.evaluate(Q, K, V, E, F)):
        for f, w in zip(found, reference(Q, K, V, E, F, mask), strict=True):
            np.testing.assert_allclose(f, w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "keys",
    [nk.neighborhood((5, 6)), nk.neighborhood((4, 3), (2, 1), (1, 3), (False, True))],
    ids=str,
)
def test_a_plane(keys: nk.KeySet) -> None:
    Q, K, V = (numbers(i, 13, 11, 16) for i in range(3))
    E, F = numbers(3, 7, 16), numbers(4, 7, 16)
    tokens = [A.reshape(143, 16) for A in (Q, K, V)]
    out, lse = kernel_of(plane(keys), ("x0", "x1"))(Q, K, V, E, F)
    wanted = reference(*tokens, E, F, keys.mask((13, 11)))
    np.testing.assert_allclose(out.reshape(143, 16), wanted[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(lse.reshape(143), wanted[1], rtol=1e-5, atol=1e-5)


def test_grouped_heads() -> None:
    keys = nk.neighborhood(12, 2)
    Q, K, V = numbers(0, 2, 4, 90, 16), numbers(1, 2, 90, 16), numbers(2, 2, 90, 16)
    E, F = numbers(3, 2, 3, 16), numbers(4, 2, 3, 16)
    out, lse = kernel_of(grouped(keys), ("x",))(Q, K, V, E, F)
    for g, r in np.ndindex(2, 4):
        wanted = reference(Q[g, r], K[g], V[g], E[g], F[g], keys.mask(90))
        np.testing.assert_allclose(out[g, r], wanted[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(lse[g, r], wanted[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("level", [-2000.0, 2000.0])
@pytest.mark.parametrize("which", ["window", "extra"])
def test_one_maximum_for_both(which: str, level: float) -> None:
    """Scores far from 0 on one side: the other side's weights vanish, or are all there is."""

    @nk.diagram("q x, q a, x d, a d -> q d", sizes={"q": 4096, "x": 4096, "a": 4, "d": 16})
    def weighted(S, T, V, F):
        P, R = nk.softmax([S, T], over=["x", "a"], keys=[nk.sliding(40, 0, "q", "x"), None])
        return nk.contract(P, V, over="x") + nk.contract(R, F, over="a")

    S, T, V, F = numbers(0, 64, 64), numbers(1, 64, 4), numbers(2, 64, 16), numbers(3, 4, 16)
    S, T = (S + level, T) if which == "window" else (S, T + level)
    (found,) = kernel_of(weighted, ("x",))(S, T, V, F)
    np.testing.assert_allclose(found, weighted.evaluate(S, T, V, F), rtol=2e-3, atol=1e-4)
    assert np.isfinite(found).all()


def test_rows_without_a_key_on_either_side() -> None:
    @nk.diagram("q x, q a, x d, a d -> q d, q", sizes={"q": 16384, "x": 4096, "a": 4, "d": 16})
    def masked(S, T, V, F):
        P, R = nk.softmax([S, T], over=["x", "a"])
        lse = nk.reduce([S, T], "logsumexp", over=["x", "a"])
        return nk.contract(P, V, over="x") + nk.contract(R, F, over="a"), lse

    S, T, V, F = numbers(0, 4, 64), numbers(1, 4, 4), numbers(2, 64, 16), numbers(3, 4, 16)
    S[0], T[0] = -np.inf, -np.inf
    S[1], T[2] = -np.inf, -np.inf
    for out, lse in (kernel_of(masked, ("x",))(S, T, V, F), masked.evaluate(S, T, V, F)):
        assert (out[0] == 0).all()
        assert lse[0] == -np.inf
        e = np.exp(np.concatenate([S, T], 1)[1:])
        wanted = e / e.sum(1, keepdims=True) @ np.concatenate([V, F])
        np.testing.assert_allclose(out[1:], wanted, rtol=1e-4, atol=1e-5)


def test_two_arrays_over_one_axis() -> None:
    """Two scores for every key: one softmax over both."""

    @nk.diagram("q x, q x, x d, x d -> q d", sizes={"q": 16384, "x": 4096, "d": 16})
    def twice(S, T, V, W):
        P, R = nk.softmax([S, T], over="x")
        return nk.contract(P, V, over="x") + nk.contract(R, W, over="x")

    S, T, V, W = numbers(0, 5, 70), numbers(1, 5, 70), numbers(2, 70, 16), numbers(3, 70, 16)
    e = np.exp(np.concatenate([S, T], 1))
    wanted = e / e.sum(1, keepdims=True) @ np.concatenate([V, W])
    np.testing.assert_allclose(twice.evaluate(S, T, V, W), wanted, rtol=1e-10)
    (found,) = kernel_of(twice, ("x",))(S, T, V, W)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


# --- derivation, bytes, text ---------------------------------------------------------------------


CASES = [
    (line(nk.neighborhood(60)), {"q": 301, "x": 301, "a": 3}),
    (line(None), {"q": 40, "x": 301, "a": 13}),
    (plane(nk.neighborhood((5, 6))), {"q0": 13, "q1": 17, "x0": 13, "x1": 17}),
    (grouped(nk.sliding(33)), {"g": 2, "r": 3, "q": 101, "x": 101}),
]


@pytest.mark.parametrize(
    ("diagram", "sizes", "dtype"),
    [(*case, dtype) for case, dtype in zip(CASES, ["bf16", "fp32"] * 2, strict=True)],
    ids=["line", "dense", "plane", "grouped"],
)
def test_values_and_bytes(diagram: nk.Diagram, sizes: dict[str, int], dtype: str) -> None:
    plan = nk.derive(diagram, dtype=dtype)
    assert len(plan.kernels) == 1
    plan.check(sizes={**sizes, "d": 16}, resources=False).raise_if_wrong()


def test_the_recurrence() -> None:
    """One state for the shared maximum, one for the sum and one for the output of the window."""
    made = line(nk.neighborhood(8)).stream("x")
    held = [s.held for s in made.kernel.stream.states]
    assert held.count("running") == 2
    assert len(held) == 4
    assert_law(line(None).stream("x").kernel, trials=10)


def test_as_it_is_written() -> None:
    text = str(line(None))
    assert "softmax(t over x, t2 over a)[1]" in text
    assert "logsumexp(t over x, t2 over a)" in text
    assert line(None).weave("b").roots[0].axes[0] == "b"
    assert line(None).draw()


def test_one_array_in_a_list_is_that_array() -> None:
    @nk.diagram("q x -> q x")
    def listed(S):
        (P,) = nk.softmax([S], over=["x"])
        return P

    @nk.diagram("q x -> q x")
    def plain(S):
        return nk.softmax(S, over="x")

    assert listed.roots == plain.roots


def refused(body: Any, signature: str = "q x, q a -> q x") -> str:
    with pytest.raises(nk.InputError) as error:
        nk.diagram(signature)(body)
    return str(error.value)


def test_messages() -> None:
    assert "over=[...] and keys=[...] name axes and a key set for each" in refused(
        lambda S, T: nk.softmax([S, T], over=["x"])[0]
    )
    assert "name axes and a key set for each" in refused(
        lambda S, T: nk.softmax([S, T], over=["x", "a"], keys=[nk.causal()])[0]
    )
    assert "name axes and a key set for each" in refused(
        lambda S, T: nk.softmax([S, T], over=["x", "a"], keys=nk.causal())[0]
    )
    assert "array 2 keeps; add it to over[1]" in refused(
        lambda S, T: nk.softmax([S, T], over=["x", "q"])[0], "q x, q x -> q x"
    )
    assert "softmax over 'x': the array has axes 'q a'" in refused(
        lambda S, T: nk.softmax([S, T], over="x")[0]
    )
    assert "softmax of no array" in refused(lambda S, T: nk.softmax([], over=[]))
    assert "logsumexp alone goes over several" in refused(
        lambda S, T: nk.reduce([S, T], "max", over=["x", "a"])
    )
