"""In which type an array is stored."""

from __future__ import annotations

import pytest

from napkin.ir.infer import pointwise
from napkin.ir.storage import leaf, own_type
from napkin.ir.taking import read_table, take


@pytest.mark.parametrize("dtype", ["", "fp32", "fp16"])
def test_what_is_taken_of_an_array_is_stored_as_the_array_is(dtype: str) -> None:
    """A kernel that stores it names the array that it reads by a leaf, and the next kernel names
    what it reads by the term: it read bf16 where fp32 was stored."""
    array = leaf("X", ("q", "h"), "real")
    array = pointwise("cast", (array,), (dtype,)) if dtype else array
    at = leaf("I", ("d",), "int")

    found = take(array, (at,), ("h",))
    stored = leaf("L", ("q", "h"), "real", own_type(array))
    read = read_table(found, (stored, at))
    assert read is not None
    assert own_type(found) == own_type(read) == dtype
