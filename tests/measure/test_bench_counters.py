"""The table of counters beside predictions, from what ncu would have counted."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "measurements"))
import bench_counters

from napkin.measure import counters
from napkin.measure.counters import METRICS, Profile

JOBS: list[dict[str, Any]] = [
    {"name": "matmul", "sizes": {"a": 8192, "b": 8192, "c": 8192}},
    {"name": "softmax", "sizes": {"n": 65536, "x": 4096}},
    {
        "name": "decode_attention",
        "parts": {"x": 8},
        "sizes": {"b": 1, "k": 2, "r": 8, "x": 4096, "d": 64},
    },
]

Counted = Callable[[Any, list[int]], list[int]]
"""What is counted of a kernel, from what is predicted: reads and writes of L2, then of memory."""


def rows(monkeypatch: Any, path: Path, change: Counted, spills: int = 0) -> list[dict[str, Any]]:
    asked = list[list[str]]()

    def profiled(command: list[str]) -> Profile:
        asked.append(command)
        launches = list[tuple[str, dict[str, float]]]()
        for job in json.loads(command[-1]):
            for k in bench_counters.planned(job).kernels:
                crossing = k.crossing_at(k.choice.sizes)
                moved = [
                    sum(n for (_, d), n in crossing.items() if d == way)
                    for way in ("read", "write")
                ]
                counted = change(k, [*moved, k.choice.outer["read"], k.choice.outer["write"]])
                launches.append((k.name, dict(zip(METRICS, counted, strict=True))))
        return Profile(tuple(launches))

    monkeypatch.setattr(counters, "profiled", profiled)
    monkeypatch.setattr(bench_counters, "spilled", lambda plan: {"softmax": spills})
    assert bench_counters.main(["--json", str(path)], JOBS) == 0
    assert len(asked) == 1  # one process for all
    return json.loads(path.read_text())


def test_what_holds_needs_no_reason(monkeypatch: Any, tmp_path: Path, capsys: Any) -> None:
    found = rows(monkeypatch, tmp_path / "rows.json", lambda k, n: n)
    assert [r["kernel"] for r in found] == [
        "matmul", "softmax", "decode_attention_parts", "decode_attention_merge",
    ]  # fmt: skip
    assert not any("UNEXPLAINED" in r["why"] for r in found)
    out = capsys.readouterr().out
    assert "of what is predicted in 4; from memory within 10 % in 2 of the 2" in out
    assert "0 unexplained" in out


def test_what_is_between_h_and_the_prediction(monkeypatch: Any, tmp_path: Path) -> None:
    """Later waves of groups of a product, spilled registers, single queries in boxes of 16, and
    single values of states."""
    found = rows(monkeypatch, tmp_path / "rows.json", lambda k, n: n, spills=12)
    matmul, softmax, parts, merge = found
    again = (matmul["from_memory_predicted"] - 2 * 2 * 8192**2) / 1e6
    assert matmul["why"].endswith(f"read again by later waves of groups: {again:,.1f} MB")
    assert "12 bytes a thread of spilled registers: +" in softmax["why"]
    assert "boxes past the end: +" in parts["why"]
    assert "(Q)" in parts["why"]
    assert "sectors used in part: +" in merge["why"]
    assert all(r["read_requested"] <= r["read_predicted"] for r in found)


def test_what_is_left_is_said(monkeypatch: Any, tmp_path: Path, capsys: Any) -> None:
    def change(k: Any, n: list[int]) -> list[int]:
        if k.name == "matmul":
            return [n[0], n[1], n[2], n[3] - 40_000_000]
        if k.name == "softmax":
            return [n[0] * 2, n[1], n[2] * 3, n[3]]
        return n

    matmul, softmax, *_ = rows(monkeypatch, tmp_path / "rows.json", change, spills=12)
    assert "40.0 MB of results were still in L2" in matmul["why"]
    assert softmax["why"].count("UNEXPLAINED") == 3  # what spills was not written, either
    assert "1 unexplained" in capsys.readouterr().out


def test_without_counters(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("PATH", "")
    assert bench_counters.main([], JOBS[1:2]) == 1
    assert "ncu) is not on the PATH" in capsys.readouterr().out
