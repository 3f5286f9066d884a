"""The other patterns against their definitions, as predicates on one query and one key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import napkin as nk
from napkin.errors import InputError
from napkin.ir.evaluate import aligned_to, at_positions, evaluate
from napkin.ir.key_sets import boxes_of

Sees = Callable[[int, int], bool]
"""Whether a query at a place sees a key."""


@dataclass(frozen=True)
class Pattern:
    """A set with its predicate; `make` takes the axis names and the place of a query."""

    make: Callable[..., nk.KeySet]
    sees: Sees


few, some = st.integers(0, 5), st.integers(1, 5)


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    """One pattern with random parameters."""
    a, b, c, d = draw(few), draw(few), draw(some), draw(some)
    c = min(c, d)
    table = {
        "causal": Pattern(nk.causal, lambda i, j: j <= i),
        "sliding": Pattern(
            lambda **axes: nk.sliding(a, b, **axes), lambda i, j: i - a <= j <= i + b
        ),
        "dilated": Pattern(
            lambda **axes: nk.dilated(a, b, d, **axes),
            lambda i, j: (j - i) % d == 0 and i - a * d <= j <= i + b * d,
        ),
        "strided": Pattern(
            lambda **axes: nk.strided(d, **axes),
            lambda i, j: j <= i and (i - j < d or (i - j) % d == 0),
        ),
        "fixed": Pattern(
            lambda **axes: nk.fixed(d, c, **axes),
            lambda i, j: j <= i and (j // d == i // d or j % d >= d - c),
        ),
        "blocked": Pattern(
            lambda **axes: nk.blocked(d, a, b, **axes),
            lambda i, j: i // d - a <= j // d <= i // d + b,
        ),
        "sinks": Pattern(lambda **axes: nk.sinks(c, **axes), lambda i, j: j < c),
        "global": Pattern(lambda **axes: nk.global_tokens(c, **axes), lambda i, j: j < c or i < c),
    }
    return table[draw(st.sampled_from(sorted(table)))]


def either(p: Pattern, q: Pattern) -> Pattern:
    return Pattern(
        lambda **axes: p.make(**axes) | q.make(**axes), lambda i, j: p.sees(i, j) or q.sees(i, j)
    )


def both(p: Pattern, q: Pattern) -> Pattern:
    return Pattern(
        lambda **axes: p.make(**axes) & q.make(**axes), lambda i, j: p.sees(i, j) and q.sees(i, j)
    )


@st.composite
def joined(draw: st.DrawFn) -> Pattern:
    """Up to three patterns, joined and intersected."""
    out = draw(patterns())
    for _ in range(draw(st.integers(0, 2))):
        join = draw(st.sampled_from((either, both)))
        pair = (out, draw(patterns()))
        out = join(*(pair if draw(st.booleans()) else pair[::-1]))
    assume(fits(out))
    return out


def fits(pattern: Pattern) -> bool:
    """Whether the set can be: not too many boxes, and no two steps intersected."""
    try:
        pattern.make()
    except InputError as error:
        return not any(text in str(error) for text in ("both step", "is too large"))
    return True


def matrix(sees: Sees, places: list[int], size: int) -> np.ndarray:
    return np.array([[sees(i, j) for j in range(size)] for i in places], bool).reshape(-1, size)


@settings(max_examples=600)
@given(joined(), st.integers(1, 24))
def test_patterns(pattern: Pattern, size: int) -> None:
    found = pattern.make()
    assert np.array_equal(found.mask(size), matrix(pattern.sees, list(range(size)), size))
    named = pattern.make(queries="q", keys="x")
    assert np.array_equal(named.mask({"q": size, "x": size}), found.mask(size))


@settings(max_examples=400)
@given(joined(), st.integers(1, 12), st.integers(1, 24), st.integers(1, 3), st.integers(-9, 30))
def test_patterns_of_queries_from_another_layout(
    pattern: Pattern, queries: int, keys: int, scale: int, shift: int
) -> None:
    at = nk.index("q") * scale + shift
    sizes = {"q": queries, "x": keys}
    found = pattern.make(queries="q", keys="x", at=at)
    places = [q * scale + shift for q in range(queries)]
    assert np.array_equal(found.mask(sizes), matrix(pattern.sees, places, keys))
    for i in range(queries):
        assert found.keys(i, sizes) == [j for j in range(keys) if pattern.sees(places[i], j)]


def test_the_last_queries_of_a_cache() -> None:
    at = nk.index("q") + nk.size("x") - nk.size("q")
    found = nk.causal("q", "x", at=at).mask({"q": 3, "x": 8})
    assert found.sum(1).tolist() == [6, 7, 8]
    assert nk.causal("q", "x", at=at).mask({"q": 4, "x": 2}).sum(1).tolist() == [0, 0, 1, 2]
    window = nk.neighborhood(3, is_causal=True, queries="q", keys="x", at=[at])
    assert window.keys(0, {"q": 3, "x": 8}) == [3, 4, 5]


@settings(max_examples=400)
@given(joined(), st.integers(1, 12), st.integers(1, 24), st.integers(-9, 30))
def test_bounds_stay_inside_the_axis(pattern: Pattern, queries: int, keys: int, shift: int) -> None:
    """Loops run over the bounds, so they must be in range for every query that sees a key."""
    for found, sizes in (
        (pattern.make(queries="q", keys="x"), {"q": keys, "x": keys}),
        (
            pattern.make(queries="q", keys="x", at=nk.index("q") + shift),
            {"q": queries, "x": keys},
        ),
    ):
        held = {"q": range(sizes["q"])}
        for box in found.boxes:
            (interval,) = box.intervals
            first, end = (
                aligned_to(value, n.axes, ("q",), held)
                for n, value in zip(
                    (interval.first, interval.end),
                    evaluate([interval.first, interval.end], {}, sizes),
                    strict=True,
                )
            )
            seen = end > first
            assert (first[seen] >= 0).all()
            assert (end[seen] <= keys).all()


# --- through a diagram ----------------------------------------------------------------------------


def weights(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Softmax of the scores where the mask holds; a row without keys has weights 0."""
    e = np.where(mask, np.exp(scores), 0.0)
    total = e.sum(-1, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=total > 0)


@settings(max_examples=60)
@given(joined(), st.integers(1, 16), st.integers(0, 10**6))
def test_softmax_over_a_key_set(pattern: Pattern, size: int, seed: int) -> None:
    @nk.diagram("q d, x d, x d -> q d")
    def attention(Q, K, V):
        S = nk.contract(Q, K, over="d")
        return nk.contract(nk.softmax(S, over="x", keys=pattern.make()), V, over="x")

    Q, K, V = np.random.default_rng(seed).normal(size=(3, size, 4))
    mask = matrix(pattern.sees, list(range(size)), size)
    np.testing.assert_allclose(
        attention.evaluate(Q, K, V), weights(Q @ K.T, mask) @ V, rtol=1e-10, atol=1e-12
    )


REDUCED: dict[str, Callable[[np.ndarray], float]] = {
    "sum": np.sum,
    "max": lambda x: max(x, default=-np.inf),
    "min": lambda x: min(x, default=np.inf),
    "prod": np.prod,
    "mean": lambda x: x.mean() if len(x) else np.nan,
    "logsumexp": lambda x: np.log(np.exp(x).sum()) if len(x) else -np.inf,
}


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("how", REDUCED)
@settings(max_examples=25)
@given(joined(), st.integers(1, 12), st.integers(0, 10**6))
def test_reductions_over_a_key_set(how: str, pattern: Pattern, size: int, seed: int) -> None:
    @nk.diagram("q x -> q")
    def reduced(X):
        return nk.reduce(X, how, over="x", keys=pattern.make())

    X = np.random.default_rng(seed).normal(size=(size, size))
    mask = matrix(pattern.sees, list(range(size)), size)
    wanted = [REDUCED[how](row[seen]) for row, seen in zip(X, mask, strict=True)]
    np.testing.assert_allclose(reduced.evaluate(X), wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("how", ["any", "all"])
def test_conditions_over_a_key_set(how: str) -> None:
    @nk.diagram("q x:bool -> q:bool")
    def held(X):
        return nk.reduce(X, how, over="x", keys=nk.sliding(1, 1))

    X = np.random.default_rng(1).random((9, 9)) < 0.5
    mask = nk.sliding(1, 1).mask(9)
    wanted = [getattr(np, how)(row[seen]) for row, seen in zip(X, mask, strict=True)]
    assert held.evaluate(X).tolist() == wanted


def owners(lengths: list[int], size: int) -> np.ndarray:
    """The document of every token; what lies behind the last is one more."""
    ends = np.cumsum(lengths)
    return np.array([int((ends <= t).sum()) for t in range(size)])


documents = st.lists(st.integers(0, 6), min_size=1, max_size=5)


@settings(max_examples=150)
@given(documents, st.integers(1, 16), st.none() | patterns(), st.integers(0, 10**6))
def test_documents(lengths: list[int], size: int, also: Pattern | None, seed: int) -> None:
    """Packed sequences, alone and with another pattern inside each row of tokens."""

    @nk.diagram("q d, x d, x d, n:int -> q d")
    def packed(Q, K, V, N):
        keys = nk.documents(N) if also is None else nk.documents(N) & also.make()
        return nk.contract(
            nk.softmax(nk.contract(Q, K, over="d"), over="x", keys=keys), V, over="x"
        )

    Q, K, V = np.random.default_rng(seed).normal(size=(3, size, 4))
    own = owners(lengths, size)
    mask = own[:, None] == own
    if also is not None:
        mask &= matrix(also.sees, list(range(size)), size)
    found = packed.evaluate(Q, K, V, np.array(lengths))
    np.testing.assert_allclose(found, weights(Q @ K.T, mask) @ V, rtol=1e-10, atol=1e-12)


def test_documents_of_every_row_of_a_batch() -> None:
    @nk.diagram("b q d, b x d, b x d, b n:int -> b q d")
    def packed(Q, K, V, N):
        seen = nk.documents(N, queries="q", keys="x") & nk.causal("q", "x")
        return nk.contract(
            nk.softmax(nk.contract(Q, K, over="d"), over="x", keys=seen), V, over="x"
        )

    Q, K, V = np.random.default_rng(2).normal(size=(3, 2, 10, 4))
    lengths = np.array([[3, 0, 7], [5, 4, 9]])
    found = packed.evaluate(Q, K, V, lengths)
    for b in range(2):
        own = owners(lengths[b].tolist(), 10)
        mask = (own[:, None] == own) & np.tri(10, dtype=bool)
        np.testing.assert_allclose(found[b], weights(Q[b] @ K[b].T, mask) @ V[b], rtol=1e-10)


def test_a_set_on_two_axes_at_once() -> None:
    """Patterns of one axis take part in a diagram of more, once their axes are named."""

    @nk.diagram("h q d, h x d -> h q x")
    def probabilities(Q, K):
        seen = nk.sliding(2, 0, queries="q", keys="x") | nk.sinks(1, queries="q", keys="x")
        return nk.softmax(nk.contract(Q, K, over="d"), over="x", keys=seen)

    Q, K = np.random.default_rng(3).normal(size=(2, 3, 8, 4))
    mask = matrix(lambda i, j: i - 2 <= j <= i or j < 1, list(range(8)), 8)
    found = probabilities.evaluate(Q, K)
    np.testing.assert_allclose(found, weights(Q @ K.swapaxes(1, 2), mask), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        nk.causal,
        partial(nk.strided, 3),
        partial(nk.fixed, 4, 2),
        partial(nk.dilated, 3, 0, 2),
        partial(nk.neighborhood, 5, 2, is_causal=True),
        partial(nk.neighborhood, 3, 2, 2, is_causal=True),
    ],
)
def test_queries_behind_the_last_key_of_a_union(make: Callable[..., nk.KeySet]) -> None:
    """A set that says where its queries lie takes sizes that differ, and so does its union with
    one that does not: no kernel looks for a key behind the last one."""
    axes, sizes = {"queries": "q", "keys": "x"}, {"q": 90, "x": 30}
    keys = nk.sinks(2, "q", "x", at=nk.index("q") - 3)
    own, same = make(**axes), make(**axes, at=nk.index("q"))
    for seen in (own | keys, keys | own, (own | keys) & nk.causal("q", "x")):
        for box in boxes_of(seen.node):
            for i in box.intervals:
                assert at_positions(i.end, ("q",), sizes).max() <= 30
    np.testing.assert_array_equal((own | keys).mask(sizes), (same | keys).mask(sizes))


def test_a_kernel_of_queries_behind_the_last_key() -> None:
    @nk.diagram("q d, x d, x d -> q d", sizes={"q": 900, "x": 300, "d": 64})
    def attention(Q, K, V):
        own = nk.dilated(3, 0, 2, "q", "x")
        keys = own | nk.sinks(2, "q", "x", at=nk.index("q") - 3)
        return nk.contract(
            nk.softmax(nk.contract(Q, K, over="d"), over="x", keys=keys), V, over="x"
        )

    plan = nk.derive(attention, dtype="fp32")
    plan.check(sizes=plan.sizes, resources=False).raise_if_wrong()
