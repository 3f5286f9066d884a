"""The command line, run in this process or in one of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from napkin.cli import app
from napkin.cli.ending import run

ROOT = Path(__file__).resolve().parents[2]
START = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from napkin.cli import main; main()"


@dataclass(frozen=True)
class Result:
    """How a command ended, and what it said."""

    status: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody said how wide the output is."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def napkin(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run the command line in this process."""

    def call(*arguments: str) -> Result:
        capsys.readouterr()
        status = run(app, arguments)
        said = capsys.readouterr()
        return Result(status, said.out, said.err)

    return call


@pytest.fixture
def command() -> list[str]:
    """The command line as a process: add its arguments."""
    return [sys.executable, "-c", START]


@pytest.fixture
def process(command: list[str]) -> Callable[..., Result]:
    """Run the command line in a process of its own."""

    def call(*arguments: str) -> Result:
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120)
        return Result(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, gone to."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
