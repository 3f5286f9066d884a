"""BigBird: global blocks, a window of blocks, and blocks that are listed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import napkin as nk

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def mask(size: int, block: int, window: int, globals_: int, lists: list[list[int]]) -> Mask:
    """Which keys a query sees, block by block."""
    blocks = -(-size // block)
    seen = np.zeros((blocks, blocks), dtype=bool)
    for i in range(blocks):
        seen[i, max(i - window, 0) : i + window + 1] = True
        for table in lists:
            number = table[min(i, len(table) - 1)]
            if 0 <= number < blocks:
                seen[i, number] = True
    seen[:globals_] = seen[:, :globals_] = True
    return seen.repeat(block, 0).repeat(block, 1)[:size, :size]


tables = st.lists(st.integers(-1, 9), min_size=1, max_size=8)


@settings(max_examples=150)
@given(
    st.integers(1, 20),
    st.integers(1, 5),
    st.integers(0, 2),
    st.integers(0, 3),
    st.lists(tables, max_size=6),
)
def test_every_query_sees_its_blocks(
    size: int, block: int, window: int, globals_: int, lists: list[list[int]]
) -> None:
    wanted = mask(size, block, window, globals_, lists)
    found = nk.bigbird(block, window, globals_, lists)
    assert np.array_equal(found.mask(size), wanted)
    assert found.keys(size - 1, size) == np.flatnonzero(wanted[-1]).tolist()
    rows = found.picture(size).splitlines()
    assert rows[0] == "".join("#" if k else "." for k in wanted[0])


def attention(keys: Any, signature: str = "h q d, h x d, h x d, m:int, m:int -> h q d") -> Any:
    @nk.diagram(signature)
    def made(Q, K, V, *tables):
        seen = keys(tables)
        return nk.contract(
            nk.softmax(nk.contract(Q, K, over="d"), over="x", keys=seen), V, over="x"
        )

    return made


def dense(Q: Any, K: Any, V: Any, seen: Any) -> Any:
    e = np.exp(Q @ K.swapaxes(-1, -2)) * seen
    return e / e.sum(-1, keepdims=True) @ V


def test_lists_that_are_inputs() -> None:
    made = attention(lambda t: nk.bigbird(3, 1, 1, t, "q", "x"))
    Q, K, V = np.random.default_rng(0).normal(size=(3, 2, 16, 4))
    lists = [[0, 5, 3, 1, 1, -1], [2, 2, 9, 0, 4, 3]]
    found = made.evaluate(Q, K, V, *map(np.array, lists))
    np.testing.assert_allclose(found, dense(Q, K, V, mask(16, 3, 1, 1, lists)), rtol=1e-10)


def test_lists_that_are_computed() -> None:
    made = attention(lambda t: nk.bigbird(3, 1, 1, [t[0] + 1, t[1]], "q", "x"))
    Q, K, V = np.random.default_rng(0).normal(size=(3, 2, 16, 4))
    lists = [[0, 5, 3, 1, 1, -1], [2, 2, 9, 0, 4, 3]]
    found = made.evaluate(Q, K, V, *map(np.array, lists))
    lists[0] = [b + 1 for b in lists[0]]
    np.testing.assert_allclose(found, dense(Q, K, V, mask(16, 3, 1, 1, lists)), rtol=1e-10)


def test_a_list_for_each_head() -> None:
    signature = "h q d, h x d, h x d, h m:int -> h q d"
    made = attention(lambda t: nk.bigbird(4, 0, 0, t, "q", "x"), signature)
    Q, K, V = np.random.default_rng(0).normal(size=(3, 2, 16, 4))
    lists = np.array([[3, 2, 1, 0], [1, 1, 3, 0]])
    seen = np.stack([mask(16, 4, 0, 0, [row]) for row in lists.tolist()])
    found = made.evaluate(Q, K, V, lists)
    np.testing.assert_allclose(found, dense(Q, K, V, seen), rtol=1e-10)


def test_joined_with_another_set() -> None:
    found = nk.bigbird(2, 0, 0, [[3, 0, 1, 1]]) & nk.causal()
    wanted = mask(8, 2, 0, 0, [[3, 0, 1, 1]]) & np.tri(8, dtype=bool)
    assert np.array_equal(found.mask(8), wanted)


def test_written_out_lists_are_for_looking() -> None:
    with pytest.raises(nk.InputError) as caught:
        attention(lambda _: nk.bigbird(4, 1, 1, [[1, 0]], "q", "x"), "h q d, h x d, h x d -> h q d")
    assert str(caught.value) == (
        "keys=bigbird(4, 1, 1, 1 random): lists of numbers are for looking at a set; in a diagram "
        "they are inputs of whole numbers, as in 'm:int'"
    )


def test_lists_that_are_inputs_are_known_when_the_diagram_is_called() -> None:
    with pytest.raises(nk.InputError, match="depends on the values of tables0, which are given"):
        attention(lambda t: nk.bigbird(4, 1, 1, t, "q", "x").mask(16))


def test_what_cannot_be() -> None:
    with pytest.raises(nk.InputError, match=r"bigbird: block=0 is not a whole number from 1"):
        nk.bigbird(0, 1, 1, [])
    with pytest.raises(nk.InputError, match=r"bigbird: window=-1 is not a whole number from 0"):
        nk.bigbird(4, -1, 1, [])
    with pytest.raises(nk.InputError, match=r"blocks\[0\]\[1\]=-2 is not a whole number from -1"):
        nk.bigbird(4, 1, 1, [[0, -2]])
    with pytest.raises(nk.InputError, match="bigbird: 7 random blocks are more than 6"):
        nk.bigbird(4, 1, 1, [[0]] * 7)
    with pytest.raises(nk.InputError, match=r"blocks\[0\] must be an input of whole numbers"):
        attention(lambda t: nk.bigbird(4, 1, 1, t), "h q d, h x d, h x d, m -> h q d")
