"""Children that hold Triton leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from napkin.run import worker
from napkin.run.worker import KernelError, Worker

CHILD = """
import os, tempfile

def handle(request):
    folder = tempfile.mkdtemp()
    if request == "die":
        os._exit(3)
    return folder
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "child_that_writes.py").write_text(CHILD)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return "child_that_writes"


def left(tmp_path: Path) -> list[str]:
    return [p.name for p in tmp_path.iterdir() if p.name.startswith("napkin-")]


def test_a_child_that_is_ended_leaves_no_files(module: str, tmp_path: Path) -> None:
    child = Worker(module, {})
    folder = Path(child.call("write"))
    assert folder.is_dir()
    assert tmp_path in folder.parents
    child.close()
    assert not left(tmp_path)


def test_a_child_that_dies_leaves_no_files(module: str, tmp_path: Path) -> None:
    child = Worker(module, {})
    with pytest.raises(KernelError, match="died"):
        child.call("die")
    assert not left(tmp_path)


def test_a_child_whose_parent_is_killed_leaves_no_files(module: str, tmp_path: Path) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from napkin.run.worker import Worker\n"
        f"child = Worker({module!r}, {{}})\n"  # whose pipe is open as long as it is known
        "child.call('write'); print('ready', flush=True); input()"
    )
    given = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=given
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        assert len(left(tmp_path)) == 1
        parent.kill()
    ends = time.monotonic() + 60
    while left(tmp_path) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not left(tmp_path)


def test_a_child_that_died_unseen_leaves_no_files(module: str, tmp_path: Path) -> None:
    first = worker.worker(module, {}, slot=9)
    os.kill(first._process.pid, 9)
    first._process.wait()
    second = worker.worker(module, {}, slot=9)
    assert second is not first
    assert len(left(tmp_path)) == 1
    second.close()
    assert not left(tmp_path)
