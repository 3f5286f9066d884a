"""Rows that positions pick: reduced first, all of them, where that is no more work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import napkin as nk
from napkin.algebra.rule import Instance
from napkin.derive.prepare import prepare
from napkin.ir.node import postorder
from napkin.rewrite.take_out import TAKEN_OUT

SIZES = {"h": 2, "q": 8, "x": 8, "d": 4, "p": 6, "n": 3}


def instances(signature: str, body: Callable[..., Any], **sizes: int) -> list[Instance]:
    roots = [o.node for o in prepare(nk.diagram(signature)(body)).outputs]
    return list(TAKEN_OUT.matches(roots, SIZES | sizes))


def product(Q: Any, E: Any, at: Any) -> Any:
    return nk.contract(Q, nk.take(E, p=at), over="d")


def scaled_distance(Q: Any, E: Any, S: Any, at: Any) -> Any:
    """Two tensors at the same rows, and a reduction that is no contraction."""
    return nk.reduce((Q - nk.take(E, p=at)) * nk.take(S, p=at), "max", over="d")


def own_rows(Q: Any, E: Any, at: Any) -> Any:
    """The rows have the name of an axis of the result."""
    return nk.contract(Q, nk.take(E, q=at), over="d")


def of_two_axes(Q: Any, E: Any, at: Any, there: Any) -> Any:
    return nk.contract(Q, nk.take(E, p=at, n=there), over="d")


@pytest.mark.parametrize(
    ("signature", "body", "axes"),
    [
        ("h q d, h p d, q x:int -> h q x", product, "h q p"),
        ("q d, p d, p, q x:int -> q x", scaled_distance, "q p"),
        ("q d, q d, q x:int -> q x", own_rows, "q q2"),
        ("q d, p n d, q x:int, q x:int -> q x", of_two_axes, "q p n"),
    ],
)
def test_rows_are_picked_last(signature: str, body: Callable[..., Any], axes: str) -> None:
    """The rule is verified where it is applied here."""
    (found,) = instances(signature, body, p=2)
    made = TAKEN_OUT.apply(found)
    assert made.op == "take"
    assert set(made.args[0].axes) == set(axes.split())


@pytest.mark.parametrize(
    ("signature", "body", "sizes"),
    [
        ("q d, p d, q d:int -> q", product, {}),  # positions along what is reduced
        ("q d, p d, q:int -> q", product, {}),  # one row for each of 8, of 6
        ("q d, p d, q x:int -> q x", product, {"p": 9}),  # more rows than are picked
    ],
)
def test_rows_stay_where_that_is_less_work(
    signature: str, body: Callable[..., Any], sizes: dict[str, int]
) -> None:
    assert not instances(signature, body, **sizes)


def test_rows_stay_where_their_positions_are_reduced_inside() -> None:
    """Without the axis of the positions there is nothing to reduce along it."""

    def normalised(Q: Any, E: Any, at: Any) -> Any:
        return nk.contract(Q, nk.softmax(nk.take(E, p=at), over="x"), over="d")

    assert not instances("q d, p d, x:int -> q x", normalised, p=2)


def test_rows_stay_where_what_they_are_in_is_picked_again() -> None:
    """All rows of T are summed, and some sums picked: T[at] is no row of these sums."""

    def of_sums(T: Any, at: Any, there: Any) -> Any:
        rows = nk.take(T, p=at)
        sums = nk.take(nk.reduce(rows, "sum", over="d"), q=there)
        return nk.reduce(rows * sums, "max", over="d")

    found = instances("p d, q:int, q:int -> q", of_sums, p=2)
    assert [i.where for i in found] == ["sum [q]"]


def test_rows_stay_where_a_sum_of_them_is_compared_with_another_of_it() -> None:
    """p = max p holds of one p: two kernels may add up in two orders, so the position would be that
    of no value. The position itself, and the sum in both, may be picked last."""

    def likeliest(T: Any, at: Any) -> Any:
        return nk.argmax(nk.softmax(nk.take(T, p=at), over="q"), over="q")

    found = instances("q p, x:int -> x:int", likeliest, p=2)
    assert [i.where for i in found] == ["max [x]", "sum [x]", "min [x]"]
    (scores,) = [i for i in found if i.where == "max [x]"]  # of numbers that are read: as they are
    assert "sum" not in {n.op for n in postorder([scores.made])}
