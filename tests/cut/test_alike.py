"""Kernels of segments that are alike run under other names, and that keeps what they compute."""

from __future__ import annotations

from typing import Any

import pytest

import napkin as nk
from napkin.algebra import rule as rules
from napkin.algebra.rule import LawError
from napkin.cut.segments import Memo
from napkin.ir.node import Node


@nk.diagram("n a -> n, n")
def twice(X: Any) -> Any:
    return nk.reduce(X * 2.0, "max", over="a"), nk.reduce(X * 3.0, "max", over="a")


def planned() -> nk.Plan:
    return nk.derive(twice, on="h100", sizes={"n": 64, "a": 64}, materialise="every")


def test_segments_that_only_seem_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "VERIFYING", True)
    planned()

    def without_numbers(self: Memo, n: Node) -> int:
        return self._number(n.op, (), n)

    monkeypatch.setattr(Memo, "_operator", without_numbers)
    with pytest.raises(LawError, match="run what is alike"):
        planned()


@nk.diagram("a c, (), () -> c")
def after_each_other(X: Any, s: Any, t: Any) -> Any:
    below = nk.softmax(nk.reduce(X, "sum", over="a"), over="c")
    first = nk.scan(lambda h: nk.tanh(0.5 * h + below), s, along="c")
    above = nk.softmax(first, over="c")
    return nk.scan(lambda h: nk.tanh(0.75 * h + above), t, along="c")


def test_scans_by_steps_with_other_numbers_are_not_alike() -> None:
    """The step is a parameter of its scan, and no argument."""
    plan = nk.derive(after_each_other, "h100", {"a": 64, "c": 64}, "fp32")
    sources = "".join(k.written.source for k in plan.kernels)
    assert "0.5 *" in sources
    assert "0.75 *" in sources
