"""Sums over key sets away from borders, whatever operators their bounds are written with."""

from __future__ import annotations

from typing import Any

import pytest

import napkin as nk
from napkin.count.interior import read_sum, visited_symbol
from napkin.derive.label import label
from napkin.derive.prepare import prepare

later = nk.operator(
    "later", 2, kind="int", operands="int", evaluate=lambda xp, a, b: xp.maximum(a, b),
    triton="tl.maximum(a, b)", meaning=lambda sp, a, b: sp.Max(a, b),
)  # fmt: skip
back = nk.operator(
    "back", 2, kind="int", operands="int", evaluate=lambda xp, a, b: a - 2 * b, triton="a - 2 * b",
    meaning=lambda sp, a, b: a - 2 * b,
)  # fmt: skip
eighths = nk.operator(
    "eighths", 1, kind="int", operands="int", evaluate=lambda xp, a: xp.floor_divide(a, 8),
    triton="x // 8", meaning=lambda sp, a: sp.floor(a / 8),
)  # fmt: skip
opaque = nk.operator(
    "opaque", 1, kind="int", operands="int", evaluate=lambda xp, a: a, triton="x"
)  # fmt: skip


def keys_read(name: str, bounds: Any) -> Any:
    """The keys that the groups of queries read, in symbols."""
    seen = nk.key_set(name, bounds)

    @nk.diagram("q d, x d, x d -> q d", sizes={"q": 64, "x": 64, "d": 4})
    def made(Q, K, V):
        S = nk.contract(Q, K, over="d")
        return nk.contract(nk.softmax(S, over="x", keys=seen), V, over="x")

    ready = prepare(made)
    kernel = label("made", ready.outputs, ready.names, streamed="x")
    assert kernel.visits is not None
    return read_sum(kernel, kernel.visits)


SAME = {
    "an extremum": (
        lambda i, size: [(nk.maximum(i - 12, 0), i + 1)],
        lambda i, size: [(later(i - 12, 0), i + 1)],
    ),
    "a polynomial": (
        lambda i, size: [(i - 12, i + 1)],
        lambda i, size: [(back(i, 6), i + 1)],
    ),
    "a floor": (
        lambda i, size: [(i // 8 * 8, i + 1)],
        lambda i, size: [(eighths(i) * 8, i + 1)],
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_bounds_by_an_operator_of_ones_own_count_the_same(name: str) -> None:
    own, users = (keys_read(f"{name} {i}", bounds) for i, bounds in enumerate(SAME[name]))
    assert own == users
    assert not own.has(visited_symbol(("x",)))


def test_bounds_without_a_meaning_have_no_sum_in_symbols() -> None:
    read = keys_read("opaque", lambda i, size: [(opaque(i) - 12, i + 1)])
    assert read.has(visited_symbol(("x",)))


def test_a_test_in_arithmetic_is_not_taken_for_0() -> None:
    read = keys_read("steps", lambda i, size: [(i - 12 - (i > 20) * 4, i + 1)])
    assert read.has(visited_symbol(("x",)))


def test_keys_that_no_query_in_the_middle_sees_are_none() -> None:
    """Of the first three keys those that are near: their number fell below 0 off the border."""
    near = keys_read("near", lambda i, size: [(i - 12, i + 1)])
    some = keys_read(
        "some", lambda i, size: [(nk.maximum(i - 12, 0), nk.minimum(i - 12, 3)), (i - 12, i + 1)]
    )
    assert some == near


def test_the_middle_is_no_place_of_its_own() -> None:
    """There a query is its own mirror image, and sees keys that no other near it sees."""
    block = keys_read("block", lambda i, size: [(i // 4 * 4, i + 1)])
    both = keys_read(
        "both",
        lambda i, size: [
            (i // 4 * 4, i + 1),
            (nk.maximum(i // 4 * 4, size - 2 - i), nk.minimum(i // 4 * 4 + 4, size - i + 1)),
        ],
    )
    assert both == block
