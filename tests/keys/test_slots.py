"""`compress` and `spread`: values against loops over queries and keys, sizes, and messages."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from in_numpy import execute

import napkin as nk
from napkin.count.traffic import Traffic
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.derive.rules.part import PARTED
from napkin.ir.slotted import filling
from napkin.settings.labels import labellings

LINE = [
    nk.neighborhood(3),
    nk.neighborhood(5, 2, 2),
    nk.neighborhood(4, 3, is_causal=True),
    nk.neighborhood(20, clip=True),
    nk.sliding(3, 1),
    nk.sliding(4) & nk.causal(),
    nk.dilated(2, 2, 3),
    nk.blocked(4, 1),
    nk.sinks(3),
]
PLANE = [
    nk.neighborhood((3, 3)),
    nk.neighborhood((3, 2), (2, 1), (1, 2), (True, False)),
    nk.neighborhood((9, 2), clip=True),
]


def line(keys: nk.KeySet) -> nk.Diagram:
    """Scores, weights and product of attention over one axis."""

    @nk.diagram("q d, x d, x d -> q d, q w")
    def unfused(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        A = nk.softmax(nk.compress(S, keys, over="x", into="w"), over="w")
        return nk.contract(nk.spread(A, keys, over="w", into="x"), V, over="x"), A

    return unfused


def plane(keys: nk.KeySet) -> nk.Diagram:
    """The same over two axes."""
    keys = keys.over("i j", "k l")

    @nk.diagram("i j d, k l d, k l d -> i j d, i j u v")
    def unfused(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        A = nk.softmax(nk.compress(S, keys, into="u v"), over="u v")
        return nk.contract(nk.spread(A, keys, over="u v"), V, over="k l"), A

    return unfused


def weights(Q: np.ndarray, K: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The weights of dense masked attention, queries by keys, both flattened."""
    q, k = (A.reshape(-1, A.shape[-1]) for A in (Q, K))
    e = np.exp(q @ k.T / np.sqrt(q.shape[1])) * mask
    return e / e.sum(1, keepdims=True)


def slotted(P: np.ndarray, keys: nk.KeySet, layout: tuple[int, ...]) -> np.ndarray:
    """`P` query by query, the keys of each in the order of its window."""
    out = np.zeros((*layout, *keys.slots))
    grid = P.reshape(*layout, *layout)
    for query in itertools.product(*map(range, layout)):
        seen = [k if isinstance(k, tuple) else (k,) for k in keys.keys(query, layout)]
        along = [sorted({k[a] for k in seen}) for a in range(len(layout))]
        for k in seen:
            slot = tuple(along[a].index(k[a]) for a in range(len(layout)))
            out[query + slot] = grid[query + k]
    return out


@pytest.mark.parametrize("keys", LINE, ids=str)
def test_a_line(keys: nk.KeySet) -> None:
    Q, K, V = np.random.default_rng(0).normal(size=(3, 13, 4))
    out, A = line(keys).evaluate(Q, K, V)
    P = weights(Q, K, keys.mask(13))
    np.testing.assert_allclose(out, P @ V, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(A, slotted(P, keys, (13,)), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("keys", PLANE, ids=str)
def test_a_plane(keys: nk.KeySet) -> None:
    Q, K, V = np.random.default_rng(1).normal(size=(3, 5, 6, 4))
    out, A = plane(keys).evaluate(Q, K, V)
    P = weights(Q, K, keys.mask((5, 6)))
    np.testing.assert_allclose(out.reshape(30, 4), P @ V.reshape(30, 4), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(A, slotted(P, keys, (5, 6)), rtol=1e-12, atol=1e-14)


def test_batch_axes_pass_through() -> None:
    keys, arrays = nk.neighborhood(3), np.random.default_rng(2).normal(size=(3, 2, 7, 4))
    one, many = line(keys), line(keys).weave("b")
    found = many.evaluate(*arrays)
    for b in range(2):
        for whole, part in zip(found, one.evaluate(*arrays[:, b]), strict=True):
            np.testing.assert_allclose(whole[b], part, rtol=1e-12)


def test_there_and_back_leaves_what_is_seen() -> None:
    keys = nk.neighborhood(4, is_causal=True)

    @nk.diagram("q x -> q x, q w")
    def both(S):
        C = nk.compress(S, keys, over="x", into="w", fill=7.0)
        return nk.spread(C, keys, over="w", into="x"), C

    S = np.random.default_rng(3).normal(size=(6, 6))
    back, C = both.evaluate(S)
    assert np.array_equal(back, np.where(keys.mask(6), S, 0.0))
    assert C[0].tolist() == [S[0, 0], 7.0, 7.0, 7.0]
    assert np.array_equal(C[4], S[4, 1:5])


def test_whole_numbers_and_booleans() -> None:
    keys = nk.sliding(1)

    @nk.diagram("q x:int, q x:bool -> q w:int, q w:bool")
    def both(N, B):
        return [nk.compress(A, keys, over="x", into="w") for A in (N, B)]

    N, B = both.evaluate(np.ones((3, 3)), np.ones((3, 3)))
    assert N.tolist() == [[1, -(2**31)], [1, 1], [1, 1]]
    assert B.tolist() == [[True, False], [True, True], [True, True]]


def test_the_window_gives_the_size_of_its_slots() -> None:
    made = plane(nk.neighborhood((3, 5)))
    assert made.counted == {
        "u": (3, "u is the slots of neighborhood((3, 5)), which has 3"),
        "v": (5, "v is the slots of neighborhood((3, 5)), which has 5"),
    }
    sizes = made.check_sizes({"i": 8, "j": 9, "d": 4})
    assert sizes == {"i": 8, "j": 9, "d": 4, "k": 8, "l": 9, "u": 3, "v": 5}
    assert made.check_sizes({**sizes, "u": 3}) == sizes
    with pytest.raises(nk.InputError) as caught:
        made.check_sizes({**sizes, "u": 4})
    said = "sizes: u=4, but u is the slots of neighborhood((3, 5)), which has 3"
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("keys", "slots"),
    [
        (nk.neighborhood((3, 5), 2, 2), (3, 5)),
        (nk.neighborhood(4, is_causal=True, clip=True), (4,)),
        (nk.sliding(3, 2), (6,)),
        (nk.dilated(3, 2, 4), (6,)),
        (nk.blocked(4, 1, 1), (12,)),
        (nk.sinks(5), (5,)),
        (nk.sliding(7) & nk.causal(), (8,)),
        (nk.sliding(7) & nk.sliding(2, 2), (5,)),
        (nk.causal(), (None,)),
        (nk.global_tokens(2), (None,)),
        (nk.strided(4), (None,)),
        (nk.sinks(2) | nk.sliding(2), (None,)),
    ],
    ids=str,
)
def test_slots_of_a_set(keys: nk.KeySet, slots: tuple[int | None, ...]) -> None:
    assert keys.slots == slots
    assert keys.over("a b"[: 2 * len(slots) - 1], "c d"[: 2 * len(slots) - 1]).slots == slots


def test_only_windows_that_may_be_short_are_filled() -> None:
    def node(keys: nk.KeySet) -> object:
        return filling(line(keys).roots[1].args[0])

    for full in (nk.neighborhood(3), nk.neighborhood(5, 3, 2)):
        assert node(full) is None
    for short in (nk.neighborhood(3, is_causal=True), nk.sliding(2), nk.neighborhood(3, clip=True)):
        assert node(short) is not None


def test_a_listing() -> None:
    found = str(line(nk.neighborhood(3)))
    assert "= compress(S, neighborhood(3), x into w)" in found
    assert "= spread(A, neighborhood(3), w into x)" in found
    assert "maximum" not in found  # the bounds are what the set's name stands for


# --- messages -----------------------------------------------------------------------------------


def made(signature: str, body: Callable[[nk.Array], nk.Array]) -> nk.Diagram:
    """A diagram of one array."""

    @nk.diagram(signature)
    def one(S):
        return body(S)

    return one


near, named = nk.neighborhood(3), nk.neighborhood(3, queries="q", keys="x")
MESSAGES: list[tuple[Callable[[], object], str]] = [
    (
        lambda: made("q x -> q w", lambda S: nk.compress(S, nk.causal(), over="x", into="w")),
        "compress: no number bounds the keys of a query in causal; bound them with a window, as in "
        "sliding(255) & causal()",
    ),
    (
        lambda: made("q x -> q w", lambda S: nk.compress(S, nk.strided(4), over="x", into="w")),
        "compress: strided(4) is a union of 2 boxes, so its keys are not one progression along "
        "each axis; give each box an array of its own",
    ),
    (
        lambda: made("q x -> q w", lambda S: nk.compress(S, near, into="w")),
        "compress: neighborhood(3) has no names; write over='...' with its key axes",
    ),
    (
        lambda: made("q w -> q x", lambda S: nk.spread(S, near, over="w")),
        "spread: neighborhood(3) has no names; write into='...' with its key axes",
    ),
    (
        lambda: made("q x y -> q w y", lambda S: nk.compress(S, named, over="y", into="w")),
        "compress over 'y': neighborhood(3) has key axes 'x'",
    ),
    (
        lambda: made("q x -> q w", lambda S: nk.compress(S, named, into="u v")),
        "compress: neighborhood(3) has 1 key axes; 'u v' names 2",
    ),
    (
        lambda: made("q x -> q q", lambda S: nk.compress(S, named, into="q")),
        "signature 'q x -> q q': axis 'q' stands twice in 'q q'",
    ),
    (
        lambda: made("q x -> q x", lambda S: nk.compress(S, named, into="x")),
        "compress into x: the array has an axis 'x' already; choose another name for the slots",
    ),
    (
        lambda: made("x -> w", lambda S: nk.compress(S, named, into="w")),
        "keys=neighborhood(3): query axis 'q' is not an axis that the result keeps; the array has "
        "'x' and over='x'; name one that it has, or add this one with X + 0 * nk.index('q')",
    ),
    (
        lambda: made("q w -> q x", lambda S: nk.spread(S, named, over="u")),
        "spread over 'u': the array has axes 'q w'; known: q, w",
    ),
    (
        lambda: made("w y -> x y", lambda S: nk.spread(S, named, over="w")),
        "spread: query axis 'q' of neighborhood(3) is not an axis of the array, which has 'w y'",
    ),
    (
        lambda: made("q w x -> q x", lambda S: nk.spread(S, named, over="w")),
        "spread into 'x': the array has that axis already",
    ),
    (
        lambda: made("q x -> q z", lambda S: nk.compress(S, named, into="w")),
        "signature 'q x -> q z': output axis 'z' is on no input, so its size would be unknown; "
        "give an array with it, such as a table of what the function makes of nk.index('z')",
    ),
    (
        lambda: made(
            "q x -> q w",
            lambda S: (
                nk.compress(S, named, into="w")
                + nk.compress(S, nk.neighborhood(5, queries="q", keys="x"), into="w")
            ),
        ),
        "one: axis 'w' stands for 3 slots and for 5; name the slots of each window",
    ),
]


@pytest.mark.parametrize(("wrong", "said"), MESSAGES, ids=[said[:50] for _, said in MESSAGES])
def test_wrong_input(wrong: Callable[[], object], said: str) -> None:
    with pytest.raises(nk.InputError) as caught:
        wrong()
    assert str(caught.value) == said


def test_slots_are_found_from_positions_alone() -> None:
    with pytest.raises(nk.InputError) as caught:

        @nk.diagram("q x, q:int -> q w")
        def moved(S, N):
            keys = nk.sliding(3, queries="q", keys="x", at=nk.index("q") + N)
            return nk.compress(S, keys, into="w")

    assert str(caught.value) == (
        "sliding(3, 0) depends on the value of N; slots are found from positions and sizes alone"
    )


def test_fills_are_counted_where_slots_stand_in_an_order_of_their_own() -> None:
    keys = nk.neighborhood((2, 3)).over("i j", "k l")

    @nk.diagram("i j k l -> v i u j")
    def turned(S):
        return nk.compress(S, keys, into="u v", fill=7.0)

    sizes = {"i": 4, "j": 3, "k": 4, "l": 3, "u": 2, "v": 3}
    ready = prepare(turned)
    (kernel, *_) = labellings("turned", ready.outputs, ready.names, sizes)
    S = np.random.default_rng(0).normal(size=[sizes[a] for a in "ijkl"])
    tiles = {a: 2 for a in kernel.axes}
    (found,) = execute(kernel, {"S": S}, sizes, tiles).outputs.values()
    np.testing.assert_array_equal(found, turned.evaluate(S))


@nk.diagram("q s, x -> ()", sizes={"q": 2048, "x": 2048, "s": 2})
def folded_rows(P: Any, V: Any) -> Any:
    """Queries are streamed, and what their slots hold is read for each of them."""
    keys = nk.sliding(0, 1, queries="q", keys="x")
    weights = nk.spread(P, keys, over="s", into="x")
    return nk.reduce(nk.contract(weights, V, over="x"), "max", over="q")


def test_slots_of_streamed_queries_are_counted_as_their_keys() -> None:
    """Their key set was seen from the keys, and each value counted once for each of these."""
    ready = prepare(folded_rows)
    kernel = label("rows", ready.outputs, ready.names, streamed="q")
    sizes, rng = {"q": 17, "x": 17, "s": 2}, np.random.default_rng(0)
    P, V = rng.normal(size=(17, 2)), rng.normal(size=17)
    tiles = {"q": 4, "x": 17, "s": 2}
    ran = execute(kernel, {"P": P, "V": V}, sizes, tiles)
    np.testing.assert_allclose(ran.outputs["O"], folded_rows.evaluate(P, V))
    assert ran.total == Traffic(kernel).values(sizes, tiles)


@pytest.mark.parametrize("size", [5, 1024])
def test_slots_that_are_repeated_along_an_axis_of_no_other_result(size: int) -> None:
    """A weave repeats T along w, and a later kernel reads T once. The kernel of T holds w whole."""

    @nk.diagram("q d, k d, z y -> q s, q, z")
    def slots(X, Y, Z):
        S = nk.contract(X, Y, over="d")
        T = nk.compress(S, nk.sliding(1, 1, queries="q", keys="k"), into="s", fill=1.0)
        mean = nk.reduce(nk.softmax(T, over="s") * T, "sum", over="s")
        return T, mean, nk.reduce(nk.softmax(Z, over="y"), "max", over="y")

    small = {"q": 5, "k": 5, "d": 3, "z": 4, "y": 4, "w": 3}
    sizes = {a: max(n, size) if a != "w" else n for a, n in small.items()}
    plan = nk.derive(slots.weave("w", into="Z"), sizes=sizes, dtype="fp32")
    plan.check(sizes=small, resources=False).raise_if_wrong()


@nk.diagram("q d, x d -> q, q s")
def squares_and_slots(Q: Any, K: Any) -> Any:
    S = nk.contract(Q, K, over="d")
    keys = nk.neighborhood(3, queries="q", keys="x")
    return nk.reduce(S * S, "sum", over="x"), nk.compress(S, keys, into="s", fill=0.0)


def test_slots_that_parts_store_are_counted_once() -> None:
    """Each part stores the slots of its own keys, and together they store each slot."""
    ready = prepare(squares_and_slots)
    kernel = label("k", ready.outputs, ready.names, streamed="x")
    (part,) = PARTED.matches(kernel, 2)
    first = PARTED.apply(part)
    transfers = {t.tensor: t.total for t in Traffic(first).parts if t.direction == "write"}
    assert str(transfers["O2"]) == "q*s"
