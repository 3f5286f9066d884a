"""A compressed array that is spread, and read under another name of its queries."""

from __future__ import annotations

from typing import Any

import pytest

import napkin as nk
from napkin.errors import InputError

WINDOW = nk.neighborhood(5, stride=5, is_causal=True, queries="n", keys="c")
SIZES = {"n": 7, "c": 7, "q": 5}


@nk.diagram("n q -> m c", sizes={**SIZES, "m": 7})
def renamed(P: Any) -> Any:
    return nk.rename(nk.spread(P, WINDOW, over="q"), n="m")


@nk.diagram("n q -> n c", sizes=SIZES)
def plain(P: Any) -> Any:
    return nk.spread(P, WINDOW, over="q")


def test_a_spread_under_another_name_reads_what_the_spread_reads() -> None:
    one, other = nk.derive(renamed), nk.derive(plain)
    (k,), (same,) = one.kernels, other.kernels
    assert k.bytes["P", "read"] == same.bytes["P", "read"]
    assert str(one.H).replace("m", "n") == str(other.H)
    assert one.check().ok


def test_an_axis_under_the_name_of_the_slots() -> None:
    @nk.diagram("n q -> q c", sizes={**SIZES, "n": 5, "c": 5})
    def slots(P: Any) -> Any:
        return nk.rename(nk.spread(P, WINDOW, over="q"), n="q")

    with pytest.raises(InputError) as caught:
        nk.derive(slots)
    assert str(caught.value) == ("rename n='q': the array is spread over 'q'; choose another name")
