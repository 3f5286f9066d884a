"""A test that spoils a device's process fails by itself, and not those after it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]
TESTS = """
import os
import pytest
import torch
from napkin.measure import trials

@pytest.fixture(autouse=True, scope="session")
def device():
    patch = pytest.MonkeyPatch()
    works = [True]
    patch.setattr(torch.cuda, "is_available", lambda: True)
    patch.setattr(torch.cuda, "empty_cache", lambda: None)
    patch.setattr(trials, "usable", lambda: works[0])
    yield works
    patch.undo()

def test_before():
    pass

def test_spoils(device):
    device[0] = False
    assert False, "an illegal memory access"

@pytest.mark.parametrize("i", range(4))
def test_after(i, device):
    assert device[0]
"""


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "worker"])
def test_tests_after_one_that_spoils_the_process(workers: list[str], tmp_path: Path) -> None:
    if workers:
        pytest.importorskip("xdist")
    shutil.copy(ROOT / "tests" / "gpu" / "conftest.py", tmp_path)
    (tmp_path / "test_some.py").write_text(TESTS)
    settings = ["-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path)]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *settings, *workers, str(tmp_path)],
        capture_output=True, text=True, env=env | {"PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    last = done.stdout.strip().splitlines()[-1]
    if workers:
        assert "5 passed" in last, done.stdout
        assert "test_some.py::test_spoils" in done.stdout
    else:
        assert "1 failed, 1 passed, 4 skipped" in last, done.stdout
        assert "rror at teardown" not in done.stdout
