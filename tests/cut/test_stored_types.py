"""In which type a kernel stores what another one reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from napkin.cut.pieces import Pieces
from napkin.ir.infer import pointwise
from napkin.ir.storage import leaf, own_type, storage_type
from napkin.ir.taking import read_table, take


@pytest.mark.parametrize("dtype", ["", "fp32", "fp16"])
@pytest.mark.parametrize("plan", ["bf16", "fp32"])
def test_a_take_of_an_array_in_a_type_of_its_own_is_stored_as_it_is_read(
    dtype: str, plan: str
) -> None:
    """A kernel that does no more than take of it stored fp32, and the next one read bf16."""
    array = leaf("X", ("q", "h"), "real")
    array = pointwise("cast", (array,), (dtype,)) if dtype else array
    at = leaf("I", ("d",), "int")
    found = take(array, (at,), ("h",))
    made = read_table(found, (leaf("L", ("q", "h"), "real", own_type(array)), at))
    assert made is not None
    pieces: Any = object.__new__(Pieces)
    pieces.memo = SimpleNamespace(dtype=plan)
    pieces.frontier = SimpleNamespace(results={made})
    kept = pieces._own(pieces._as_read(found, made))
    assert storage_type(kept, plan) == storage_type(found, plan)
    assert pieces._as_read(made, made) is made  # results of the diagram keep theirs
