"""The first and the last position of a chunk or a block are scalars, which no reduction finds."""

from __future__ import annotations

from typing import Any

import pytest

import napkin as nk

SIZES = {"n": 3, "t": 2**16}


@nk.diagram("n t, n t -> n t", sizes=SIZES)
def decayed(A: Any, X: Any) -> Any:
    return nk.scan(lambda h: nk.sigmoid(A) * h + X, 0.0, along="t")


@pytest.mark.parametrize(("sizes", "begin"), [({}, "t_id * BLOCK_T"), ({"n": 2**16}, "t_start")])
def test_ends_of_a_tile_are_scalars(sizes: dict[str, int], begin: str) -> None:
    plan = nk.derive(decayed, sizes=sizes)
    assert f"tl.minimum({begin} + BLOCK_T, size_t) - 1" in plan.source
    assert "tl.max(index" not in plan.source
    assert plan.check(sizes={"n": 2, "t": 777}, resources=False).ok
