"""Sorting along any dimension of a tile."""

from __future__ import annotations

import pytest

import napkin as nk


@pytest.mark.parametrize("over", ["b", "c", "d"])
def test_a_sort_along_any_axis_of_a_tile(over: str) -> None:
    """The values below and beside the sorted axis stay where they are; shared memory, too, is that
    of the compiler."""

    @nk.diagram("b c d -> b c d, ()", sizes={"b": 7, "c": 6, "d": 5})
    def ranked(X):
        ordered = nk.sort(X, along=over)
        return ordered * 2.0, nk.reduce(ordered * nk.index(over), "sum", over="b c d")

    nk.derive(ranked, dtype="fp32").check().raise_if_wrong()
