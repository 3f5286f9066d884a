"""B5: key sets seen from their keys, and the tiles that a stream of queries visits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.ir.evaluate import aligned_to, evaluate
from napkin.ir.key_sets import bounds_of, boxes_of, member, spec_of
from napkin.ir.node import Node
from napkin.ir.whole_numbers import length
from napkin.keys.transposed import transposed
from napkin.lower.corners import rises

SETS = [
    nk.causal(), nk.sliding(2, 1), nk.sliding(3, 0), nk.blocked(3, 1, 0), nk.blocked(2, 1, 1),
    nk.sinks(2) | nk.sliding(1, 0), nk.causal() & (nk.sinks(1) | nk.sliding(2, 0)),
    *(nk.neighborhood(k, stride=s, is_causal=c) for k in range(1, 6) for s in range(1, k + 1)
      for c in (False, True)),
]  # fmt: skip


def matrix(keys: Node, axes: tuple[str, ...], size: int) -> Any:
    sizes = dict.fromkeys(axes, size)
    test = member(keys)
    held = {a: range(size) for a in axes}
    return aligned_to(evaluate([test], {}, sizes)[0], test.axes, axes, held)


@pytest.mark.parametrize("keys", SETS, ids=str)
def test_b5_the_pairs_are_the_same_at_every_size(keys: nk.KeySet) -> None:
    own = keys.over("q", "x")
    turned = transposed(own.node, ("q",))
    assert turned is not None
    assert spec_of(turned).keys == ("q",)
    least = max([n.least for n in own.needs], default=1)
    for size in range(least, 17):
        assert np.array_equal(matrix(own.node, ("q", "x"), size), matrix(turned, ("q", "x"), size))


@pytest.mark.parametrize("keys", SETS, ids=str)
def test_bounds_that_rise_by_their_operators_never_fall(keys: nk.KeySet) -> None:
    """Those of queries that see a key do, where those of the keys that a query sees do."""
    own = keys.over("q", "x")
    turned = transposed(own.node, ("q",))
    assert turned is not None
    assert all(map(rises, bounds_of(boxes_of(turned))))
    least = max([n.least for n in own.needs], default=1)
    for size in range(least, 17):
        for bound in bounds_of(boxes_of(turned)):
            (values,) = evaluate([bound], {}, {"q": size, "x": size})
            assert (np.diff(np.atleast_1d(values)) >= 0).all()


def test_b5_several_axes_are_solved_one_by_one() -> None:
    own = nk.neighborhood((3, 2), stride=(2, 1), queries="a b", keys="x y").node
    turned = transposed(own, ("b", "a"))
    assert turned is not None
    for size in range(3, 8):
        axes = ("a", "b", "x", "y")
        assert np.array_equal(matrix(own, axes, size), matrix(turned, axes, size))


def test_b5_the_queries_of_a_key_are_not_the_mirrored_window() -> None:
    own = nk.neighborhood(3, queries="q", keys="x").node
    turned = transposed(own, ("q",))
    assert turned is not None
    seen = matrix(turned, ("q", "x"), 7)
    assert seen[0, 2]
    assert not seen[2, 0]


def test_no_test_says_that_positions_begin_at_0() -> None:
    turned = transposed(nk.causal().over("q", "x").node, ("q",))
    assert turned is not None
    (box,) = boxes_of(turned)
    assert box.intervals[0].end is length("q")


@pytest.mark.parametrize("keys", [nk.dilated(2, 1, 2), nk.strided(3), nk.neighborhood(3, 1, 2)],
                         ids=str)  # fmt: skip
def test_bounds_that_cannot_be_solved_are_left(keys: nk.KeySet) -> None:
    assert transposed(keys.over("q", "x").node, ("q",)) is None
