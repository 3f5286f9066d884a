"""What `materialise=` names is stored, or refused."""

from __future__ import annotations

from typing import Any

import pytest

import napkin as nk

SIZES = {"q": 64, "x": 96, "d": 16}


@nk.diagram("q d, x d, x d -> q d", sizes=SIZES)
def attention(Q: Any, K: Any, V: Any) -> Any:
    keys = nk.exp(K * 0.5)
    S = nk.contract(Q, keys, over="d")
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


def test_a_pointwise_array_is_refused() -> None:
    with pytest.raises(nk.Refusal, match=r"refused at keys: .*; instead, name one that .*S"):
        nk.derive(attention, materialise=["keys"])
    with pytest.raises(nk.InputError, match="materialise 'scores': no such array"):
        nk.derive(attention, materialise=["scores"])


def test_what_a_reduction_computes_is_stored() -> None:
    assert list(nk.derive(attention, materialise=["S"]).materialised) == ["S"]
    assert not nk.derive(attention, materialise=[]).materialised


def test_one_name_for_several() -> None:
    with pytest.raises(nk.InputError, match=r"materialise='S' is one text; write a list, \['S'\]"):
        nk.derive(attention, materialise="S")
