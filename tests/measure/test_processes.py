"""Tools that watch a process: how they are called, and what the process does."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.measure import counters, driver
from napkin.measure.counters import METRICS, counted
from napkin.measure.sanitize import sanitized

SCRIPT = """#!{python}
import json, os, sys
said = {{"arguments": sys.argv[1:], "cache": os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING")}}
with open({log!r}, "a") as log:
    log.write(json.dumps(said) + "\\n")
print(open({text!r}).read())
sys.exit({status})
"""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a program on the PATH that prints a text; gives what it was called with."""

    def make(name: str, text: str, status: int = 0) -> Any:
        log, out = tmp_path / f"{name}.log", tmp_path / f"{name}.txt"
        out.write_text(text)
        path = tmp_path / name
        given = {"python": sys.executable, "log": str(log), "text": str(out), "status": status}
        path.write_text(SCRIPT.format(**given))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        return lambda: [json.loads(line) for line in log.read_text().splitlines()]

    return make


def test_counters_are_asked_for_between_start_and_stop(tool: Any) -> None:
    plan = nk.derive(load("matmul"), sizes={"a": 512, "b": 512, "c": 512})
    (k,) = plan.kernels
    read = sum(n for (_, d), n in k.bytes.items() if str(d) == "read")
    head = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
    rows = [f'"0","matmul","{m}","byte","{read}"' for m in METRICS]
    calls = tool("ncu", "\n".join(["==PROF== text", head, *rows]))
    job = {"name": "matmul", "on": "h100", "sizes": dict(plan.sizes), "dtype": "bf16", "seed": 1}
    found = counted(plan, driver.command([job]))
    assert found.ok
    assert found.rows[0].read == read
    (call,) = calls()
    arguments = call["arguments"]
    assert arguments[arguments.index("--profile-from-start") + 1] == "off"
    assert arguments[arguments.index("--clock-control") + 1] == "none"
    assert arguments[arguments.index("--cache-control") + 1] == "all"
    assert arguments[arguments.index("--metrics") + 1] == ",".join(METRICS)
    assert arguments[-4:-1] == [sys.executable, "-m", "napkin.measure.driver"]
    assert json.loads(arguments[-1]) == [job]


def test_a_tool_that_does_not_end_is_left(tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = nk.derive(load("matmul"), sizes={"a": 512, "b": 512, "c": 512})
    tool("ncu", "")

    def late(*_: Any, **settings: Any) -> None:
        raise counters.subprocess.TimeoutExpired("ncu", settings["timeout"])

    monkeypatch.setattr(counters.subprocess, "run", late)
    assert counted(plan, ["true"], timeout=7).note == "ncu did not end within 7 s"


def test_the_sample_runs_under_both_tools(tool: Any) -> None:
    text = "========= ERROR SUMMARY: 0 errors\n========= RACECHECK SUMMARY: 1 hazard displayed "
    calls = tool("compute-sanitizer", text + "(1 error, 0 warnings)")
    found = sanitized("a100", 3, [{"name": "softmax", "sizes": {"n": 2, "x": 3}, "dtype": "fp32"}])
    assert [(t.tool, t.status) for t in found] == [("memcheck", "ok"), ("racecheck", "wrong")]
    first, second = sorted(calls(), key=lambda call: call["arguments"])  # they run at once
    assert first["arguments"][:4] == ["--tool", "memcheck", "--report-api-errors", "no"]
    assert second["arguments"][:2] == ["--tool", "racecheck"]
    assert first["cache"] == "1"
    (job,) = json.loads(first["arguments"][-1])
    assert (job["name"], job["on"], job["seed"]) == ("softmax", "a100", 3)


def test_the_process_launches_once_under_the_profiler(device: Any, monkeypatch: Any) -> None:
    torch = pytest.importorskip("torch")
    seen: list[int] = []
    profiler = SimpleNamespace(
        cudaProfilerStart=lambda: seen.append(device.launches),
        cudaProfilerStop=lambda: seen.append(device.launches),
    )
    monkeypatch.setattr(torch.cuda, "cudart", lambda: profiler)
    sizes = {"n": 4, "x": 8}
    job = {"name": "softmax", "on": "h100", "sizes": sizes, "dtype": "fp32", "seed": 1}
    driver.main(json.dumps([job, {**job, "tuned": True}]))
    assert seen == [1, 2, 3, 4]
