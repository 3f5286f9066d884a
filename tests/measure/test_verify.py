"""`napkin verify`: verdicts as they are reached, and what was found at the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from napkin.measure import matrix

torch = pytest.importorskip("torch")

Napkin = Callable[..., tuple[int, str, str]]


@pytest.fixture
def few(monkeypatch: Any) -> list[matrix.Problem]:
    """A matrix of a few small problems, run in this process, which has the stand-in."""
    from napkin.measure.trials import outcome

    every = matrix.problems(quick=True)
    attention = [p for p in every if p.group == "attention"][1:3]
    sizes = {"b": 1, "g": 2, "r": 2, "q": 40, "x": 40, "d": 16}
    small = [replace(p, sizes=sizes) for p in attention]
    golden = next(p for p in every if p.title == "logsumexp")
    large = next(p for p in every if p.bytes)
    found = [*small, golden, large]
    monkeypatch.setattr(matrix, "problems", lambda quick: found)

    def here(problem: matrix.Problem, machine: str, seed: int, slot: int) -> Any:
        return outcome(problem, machine, seed)

    monkeypatch.setattr("napkin.measure.verify.in_child", here)
    monkeypatch.setattr("napkin.measure.verify.PROCESSES", 1)
    return found


def test_verify(napkin: Napkin, device: Any, few: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "verified.json"
    status, out, _ = napkin("verify", "--gpu", "--quick", "-o", str(path))
    data = json.loads(path.read_text())
    assert status == 0, out
    assert [o["status"] for o in data["problems"]] == ["ok"] * 3 + ["skipped"]
    assert data["machine"] == "h100"
    assert "3 problems run: all hold" in out
    assert "needs 24 GiB, 8 are free" in out


def test_verify_prints_each_verdict_as_it_is_reached(
    napkin: Napkin, device: Any, few: list[Any], monkeypatch: Any, capsys: Any
) -> None:
    from napkin.measure import verify

    printed: list[str] = []
    in_child = verify.in_child

    def told_before(*job: Any) -> Any:
        printed.append(capsys.readouterr().out)
        return in_child(*job)

    monkeypatch.setattr(verify, "in_child", told_before)
    assert napkin("verify", "--gpu", "--quick")[0] == 0
    assert len(printed) == 4
    assert "OK attention: " in "".join(printed[:3])
    assert "OK generated: logsumexp" in "".join(printed)
    assert napkin("verify", "--gpu", "--quick", "--json")[1].startswith("{")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA device")
def test_problems_run_in_processes_of_their_own() -> None:
    """Here each child says that it has no device. Such a child takes no further problem."""
    from napkin.measure import verify
    from napkin.run import worker

    few = [p for p in matrix.problems(quick=True) if p.how == "call"][:2]
    children: list[worker.Worker] = []
    for p in few:
        found = verify.in_child(p, "h100", 0, 0)
        assert (found.group, found.status) == ("call", "wrong")
        assert "CUDA" in found.note or "NVIDIA" in found.note
        children.append(worker._workers["napkin.measure.trials/0"])
    assert children[0] is not children[1]
    assert not any(child.usable for child in children)


def test_verify_finds_what_is_wrong(napkin: Napkin, device: Any, few: list[Any]) -> None:
    device.change = lambda t, launch: t * 1.5
    status, out, _ = napkin("verify", "--gpu", "--only", "generated", "--json")
    assert status == 1
    assert [o["status"] for o in json.loads(out)["problems"]] == ["wrong"]
    device.change = lambda t, launch: t * (1 + 1e-3 * (launch % 3))
    status, out, _ = napkin("verify", "--gpu", "--only", "attention")
    assert status == 1
    assert "results differ from run to run" in out
    assert "2 do NOT hold" in out


def test_verify_goes_on_after_a_failed_launch(napkin: Napkin, device: Any, few: list[Any]) -> None:
    device.refuse = lambda plan: RuntimeError("CUDA error: an illegal memory access")
    status, out, _ = napkin("verify", "--gpu", "--only", "attention", "--json")
    found = json.loads(out)["problems"]
    assert (status, [o["status"] for o in found]) == (1, ["wrong"] * 2)


def test_nothing_run_is_not_good(napkin: Napkin, device: Any, few: list[Any]) -> None:
    status, out, _ = napkin("verify", "--gpu", "--only", "over 2**31")
    assert status == 1
    assert "nothing could be run" in out


def test_verify_with_a_sanitizer(
    napkin: Napkin, device: Any, few: list[Any], monkeypatch: Any
) -> None:
    from napkin.measure.verify import Tool

    tools = [Tool("memcheck", "ok", "ERROR SUMMARY: 0 errors"), Tool("racecheck", "wrong", "2")]
    monkeypatch.setattr("napkin.measure.sanitize.sanitized", lambda *_: tools)
    status, out, _ = napkin("verify", "--gpu", "--only", "generated", "--sanitize")
    assert status == 1
    assert "compute-sanitizer racecheck: wrong. 2" in out
