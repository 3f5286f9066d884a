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


def rows(
    monkeypatch: Any, path: Path, change: Counted, jobs: list[dict[str, Any]] = JOBS
) -> list[dict[str, Any]]:
    asked = list[list[str]]()

    def profiled(command: list[str]) -> Profile:
        asked.append(command)
        launches = list[tuple[str, dict[str, float]]]()
        for job in json.loads(command[-1]):
            for k in bench_counters.planned(job).kernels:
                moved = [
                    sum(n for (_, d), n in k.bytes.items() if d == way) for way in ("read", "write")
                ]
                counted = change(k, [*moved, k.choice.outer["read"], k.choice.outer["write"]])
                launches.append((k.name, dict(zip(METRICS, counted, strict=True))))
        return Profile(tuple(launches))

    monkeypatch.setattr(counters, "profiled", profiled)
    assert bench_counters.main(["--json", str(path)], jobs) == 0
    assert len(asked) == 1  # one process for all
    return json.loads(path.read_text())


def test_what_holds_needs_no_reason(monkeypatch: Any, tmp_path: Path, capsys: Any) -> None:
    found = rows(monkeypatch, tmp_path / "rows.json", lambda k, n: n)
    assert [r["kernel"] for r in found] == [
        "matmul", "softmax", "decode_attention_parts", "decode_attention_merge",
    ]  # fmt: skip
    assert not any(r["why"] for r in found)
    out = capsys.readouterr().out
    assert "within 1 % of H in 4; reads from memory within 10 % of the model in 2 of the 2" in out
    assert "0 unexplained" in out


def test_reasons_are_computed(monkeypatch: Any, tmp_path: Path, capsys: Any) -> None:
    def change(k: Any, n: list[int]) -> list[int]:
        if k.name == "matmul":  # every wave reads its operands again
            return [n[0], n[1], bench_counters.by_waves(k)[0] * 11 // 10, n[3] - 40_000_000]
        if k.name == "softmax":
            return [n[0] * 2, n[1], n[2] * 3, n[3]]
        return n

    matmul, softmax, *_ = rows(monkeypatch, tmp_path / "rows.json", change)
    assert "read again by waves of groups" in matmul["why"]
    assert "40.0 MB of results were still in L2" in matmul["why"]
    assert softmax["why"].count("UNEXPLAINED") == 2
    assert "1 unexplained" in capsys.readouterr().out


def test_waves_of_a_product() -> None:
    """The columns of a product that passes L2 are read once a wave, its rows once in all but where
    a wave ends inside one."""
    (k,) = bench_counters.planned({**JOBS[0], "on": "h100", "dtype": "bf16"}).kernels
    again, waves = bench_counters.by_waves(k)
    a, c = (-(-8192 // k.tiles[n]) for n in ("a", "c"))
    assert waves == -(-a * c // (132 * k.choice.resident))
    whole = 2 * 8192 * 8192
    assert waves * whole < again <= (waves + 1) * whole + waves * 2 * 8192 * k.tiles["a"]


def test_without_counters(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("PATH", "")
    assert bench_counters.main([], JOBS[1:2]) == 1
    assert "ncu) is not on the PATH" in capsys.readouterr().out
