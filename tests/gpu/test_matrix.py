"""The matrix of `napkin verify --gpu`, a test for each problem; and the commands that measure."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from typing import Any

import pytest

from napkin.cli import app
from napkin.cli.ending import run
from napkin.measure.matrix import Problem, problems

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


@pytest.mark.parametrize("problem", problems(), ids=str)
def test_problem(problem: Problem, large_memory: Any) -> None:
    from napkin.measure.trials import outcome
    from napkin.torch.device_machine import shipped

    with large_memory() if problem.bytes else nullcontext():
        found = outcome(problem, shipped().name, 0)
    if found.status in {"skipped", "refused"}:
        pytest.skip(found.note)
    assert found.status == "ok", f"off by {found.relative_error}; {found.note}"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    status = run(app, arguments)
    out, err = capsys.readouterr()
    assert status == 0, f"{' '.join(arguments)}: {' '.join((err + out).split())[-300:]}"
    return json.loads(out)


def test_check_with_counters(capsys: pytest.CaptureFixture[str], alone: bool) -> None:
    sizes = ("--sizes", "b=1,h=16,q=2048,x=2048,d=128")
    data = said(capsys, "check", "multi_head_attention", *sizes, "--gpu", "--json")["device"]
    assert data["repeats"]
    assert data["counters"] or data["counters_note"]
    if shutil.which("ncu") is None:
        assert "not on the PATH" in data["counters_note"]
    if alone:
        for row in data["counters"]:
            assert abs(row["read"] / row["read_predicted"] - 1) <= 0.01
        assert 0.3 < data["time"]["measured_over_predicted"] < 3


def test_bench_beside_torch(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--sizes", "q=2048,x=2048,d=128")
    data = said(capsys, "bench", "attention", *sizes, "--against", "torch,sdpa,flex", "--json")
    rows = {r["name"]: r for r in data["rows"]}
    for name in ("napkin", "torch", "sdpa", "flex"):
        assert rows[name]["median_us"] > 0, rows[name]["note"]
        assert rows[name]["relative_error"] < 2e-2
        assert rows[name]["low_us"] <= rows[name]["median_us"] <= rows[name]["high_us"]


def test_the_fastest_setting_is_remembered(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path))
    data = said(capsys, "derive", "attention", "--tune", "4", "--json")
    (ranking,) = data["tuned"]["kernels"]
    places = sorted(c["measured_rank"] for c in ranking["candidates"] if c["measured_rank"])
    assert places == list(range(1, len(places) + 1))
    assert len(places) >= 2
    later = said(capsys, "derive", "attention", "--tuned", "--json")
    best = next(c for c in ranking["candidates"] if c["measured_rank"] == 1)
    assert later["kernels"][0]["tiles"] == best["tiles"]
    assert later["kernels"][0]["stages"] == best["stages"]
