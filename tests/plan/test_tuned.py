"""What is remembered of a device is never trusted to have the form of what was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import napkin as nk
from napkin.plan.tuned import FORMAT, entry_of, file_of, key_of, remember, remembered


@nk.diagram("n x -> n", sizes={"n": 64, "x": 256})
def total(X: Any) -> Any:
    return nk.reduce(X, "sum", over="x")


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path))
    return nk.derive(total)


BROKEN = {
    "null": None,
    "no plans": {"format": FORMAT},
    "plans that are null": {"format": FORMAT, "plans": None},
    "a list": [1],
    "an entry that is null": lambda key: {"format": FORMAT, "plans": {key: None}},
    "no kernels": lambda key: {"format": FORMAT, "plans": {key: {}}},
    "kernels that are null": lambda key: {"format": FORMAT, "plans": {key: {"kernels": None}}},
    "a kernel that is null": lambda key: {"format": FORMAT, "plans": {key: {"kernels": [None]}}},
    "a kernel without settings": lambda key: {"format": FORMAT, "plans": {key: {"kernels": [{}]}}},
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_of_another_form(name: str, plan: Any) -> None:
    found = BROKEN[name]
    data = found(key_of(plan)) if callable(found) else found
    file_of(plan).write_text(json.dumps(data), encoding="utf-8")
    assert remembered(plan) is plan


@pytest.mark.parametrize("text", ["", "{", "[" * 100000, "\udcff"])
def test_a_file_that_is_not_json(text: str, plan: Any) -> None:
    file_of(plan).write_bytes(text.encode(errors="surrogateescape"))
    assert remembered(plan) is plan
    path = remember(plan, [k.choice for k in plan.kernels], {"device": "naïve"})
    assert entry_of(plan)["device"] == "naïve"
    assert path.stat().st_mode & 0o777 == 0o600
    assert remembered(plan).source == plan.source
