"""Where Triton cannot be installed, all but checks and launches work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HIDE = """
import sys
from importlib.machinery import PathFinder

class Hidden(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == "triton" else super().find_spec(name, path, target)

sys.meta_path = [Hidden if f is PathFinder else f for f in sys.meta_path]
"""


@pytest.fixture
def without(tmp_path: Path):
    """Runs a command in a process that finds no Triton, nor do its children."""
    (tmp_path / "sitecustomize.py").write_text(HIDE)
    paths = os.pathsep.join([str(tmp_path), *sys.path])

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "napkin", *command],
            capture_output=True, text=True, cwd=tmp_path, check=False,
            env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip

    return run


@pytest.mark.parametrize(
    "command",
    [
        ("derive", "matmul"),
        ("cost", "attention"),
        ("draw", "attention", "--output", "a.svg"),
        ("report", "attention", "--output", "report"),
        ("simulate", "64x64", "--kernel", "7x7", "--q-tile", "8x8", "--kv-tile", "8x8"),
    ],
    ids=lambda c: c[0],
)
def test_what_needs_no_triton_works(without, command: tuple[str, ...]) -> None:
    found = without(*command)
    assert found.returncode == 0, found.stderr


def test_a_check_says_what_it_needs(without) -> None:
    found = without("check", "softmax", "--sizes", "n=4,x=16")
    assert found.returncode != 0
    assert found.stderr.strip() == (
        "napkin: kernels run and compile with Triton, which is not installed: pip install triton "
        "(it is built for Linux alone); derive, cost, draw, report and simulate work without it"
    )
