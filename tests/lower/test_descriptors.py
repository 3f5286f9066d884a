"""Chunks read through tensor descriptors: the same values, whole boxes across the boundary."""

from __future__ import annotations

from typing import Any

import pytest

import napkin as nk


@nk.diagram("q d, x d, x d -> q d")
def window(Q: Any, K: Any, V: Any) -> Any:
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    return nk.contract(nk.softmax(S, over="x", keys=nk.neighborhood(9)), V, over="x")


def plan(dtype: str = "bf16", on: str = "h100") -> nk.Plan:
    return nk.derive(window, on=on, sizes={"q": 96, "x": 96, "d": 64}, dtype=dtype)


def test_values_and_bytes() -> None:
    made = plan().with_descriptors()
    assert "K.load(" in made.source
    verdict = made.check(resources=False)
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize(("dtype", "on"), [("fp32", "h100"), ("bf16", "a100")])
def test_where_there_are_none(dtype: str, on: str) -> None:
    made = plan(dtype, on)
    assert made.with_descriptors() is made


def test_a_plan_reads_by_addresses_unless_asked() -> None:
    assert "DESCRIPTORS" not in plan().source
