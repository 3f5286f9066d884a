"""Axes whose parts or blocks have names of their own."""

from __future__ import annotations

import pytest

import napkin as nk


@pytest.mark.parametrize("axis", ["s", "g", "t"])
def test_a_scan_in_blocks_takes_an_axis_of_any_name(axis: str) -> None:
    scanned = nk.diagram(f"a {axis} -> a {axis}")(lambda X: nk.cumsum(X, along=axis))
    plan = nk.derive(scanned, sizes={"a": 1, axis: 2**20}, dtype="fp32")
    assert len(plan.kernels) == 2
    plan.check(sizes={"a": 1, axis: 600}, resources=False).raise_if_wrong()


@pytest.mark.parametrize("other", ["x_part4", "x_block16"])
def test_an_axis_that_is_called_as_parts_of_another_is_refused(other: str) -> None:
    summed = nk.diagram(f"a x, {other} -> a {other}")(lambda X, V: nk.reduce(X, "sum", "x") * V)
    with pytest.raises(nk.InputError, match=f"'{other}' is reserved"):
        nk.derive(summed, sizes={"a": 5, "x": 64, other: 7})


def test_such_a_name_is_free_where_there_is_no_such_axis() -> None:
    summed = nk.diagram("a x_part4 -> a")(lambda X: nk.reduce(X, "sum", "x_part4"))
    nk.derive(summed, sizes={"a": 5, "x_part4": 64})
