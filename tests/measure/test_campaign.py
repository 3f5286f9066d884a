"""Steps run in order, each under its limit, and leave what they printed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "measurements"))
import campaign
from campaign import Step

HERE = campaign.ROOT / campaign.HERE
SLOW = "import time; print('begun', flush=True); time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {SLOW}"


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


@pytest.fixture
def short(monkeypatch: Any) -> None:
    monkeypatch.setattr(campaign, "GRACE", 1)


def test_every_command_exists(tmp_path: Path) -> None:
    parts = campaign.steps(tmp_path, 12, 7)
    assert list(parts) == ["tests", "model", "functions"]
    for part in parts.values():
        assert sum(s.seconds for s in part) <= 700  # which the limit of a part cuts
        files = [s.name for s in part] + [c for s in part for c in s.commands[0] if "--json" in c]
        assert len(files) <= 8
        for step in part:
            for command in step.commands:
                script = command[1]
                assert script == "-m" or (campaign.ROOT / script).is_file()


@pytest.mark.parametrize("name", ["model", "counters", "network"])
def test_scripts_take_what_they_are_given(name: str, tmp_path: Path) -> None:
    """Every option of a step is one of its script."""
    given = {
        option
        for part in campaign.steps(tmp_path, 2, 7).values()
        for step in part
        for command in step.commands
        if command[1].endswith(f"bench_{name}.py")
        for option in command[2:]
        if option.startswith("--")
    }
    said = subprocess.run(
        [sys.executable, HERE / f"bench_{name}.py", "--help"],
        capture_output=True, text=True, env=dict(campaign.environment()), check=True,
    ).stdout  # fmt: skip
    assert given
    assert all(option in said for option in given)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("text", [SLOW, STUBBORN])
def test_a_step_that_takes_too_long(text: str, tmp_path: Path, capsys: Any) -> None:
    began = time.monotonic()
    assert not campaign.run(Step("slow", [python(text)] * 2, 2), tmp_path, 2)
    assert time.monotonic() - began < 20
    assert (tmp_path / "slow.txt").read_text().count("begun") == 2
    assert "past its limit" in capsys.readouterr().out


@pytest.mark.usefixtures("short")
def test_what_is_left_runs(monkeypatch: Any, tmp_path: Path, capsys: Any) -> None:
    parts = {
        "one": [Step("bad", [python("print('why'); raise SystemExit(3)")], 30)],
        "two": [
            Step("slow", [python(SLOW)], 30),
            Step("good", [python("import napkin, os; print(os.environ['PYTHONPATH'])")], 30),
        ],
    }
    monkeypatch.setattr(campaign, "steps", lambda *_: parts)
    assert campaign.main(["one", "good", "--out", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "bad" in out
    assert "status 3" in out
    assert "why" in out
    assert str(campaign.ROOT) in (tmp_path / "good.txt").read_text()
    assert campaign.main(["two", "--out", str(tmp_path), "--seconds", "7"]) == 1
    assert "good: no time left" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        campaign.main(["three", "--out", str(tmp_path)])
