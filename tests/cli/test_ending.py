"""How commands end when something other than the input goes wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from napkin.diagram import library
from napkin.plan.plan import Plan
from napkin.run.worker import KernelError


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_a_bug_is_called_one(napkin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "load", failing(ZeroDivisionError("division\nby zero")))
    monkeypatch.delenv("NAPKIN_TRACEBACK", raising=False)
    found = napkin("derive", "attention")
    assert (found.status, found.out) == (70, "")
    assert found.err == (
        "napkin: this is a bug in napkin: ZeroDivisionError: division ... by zero "
        "(NAPKIN_TRACEBACK=1 shows the traceback)\n"
    )
    monkeypatch.setenv("NAPKIN_TRACEBACK", "1")
    found = napkin("derive", "attention")
    assert found.status == 70
    assert found.err.startswith("Traceback (most recent call last)")


def test_the_trace_of_another_process_is_not_shown(
    napkin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    far = "in the process that runs the kernel:\nTraceback (most recent call last):\nKeyError: 1"
    monkeypatch.setattr(library, "load", failing(RuntimeError(far)))
    found = napkin("derive", "attention")
    assert "in the process that runs the kernel: ... KeyError: 1" in found.err
    assert "Traceback (" not in found.err


def test_interrupted(napkin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "load", failing(KeyboardInterrupt()))
    found = napkin("derive", "attention")
    assert (found.status, found.out, found.err) == (130, "", "napkin: interrupted\n")


def test_a_kernel_that_goes_wrong_is_a_failed_check(
    napkin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Plan, "check", failing(KernelError("matmul: out of bounds")))
    found = napkin("check", "matmul", "--json")
    assert (found.status, found.out, found.err) == (1, "", "napkin: matmul: out of bounds\n")


def test_interrupted_from_outside(command: list[str]) -> None:
    child = subprocess.Popen(
        [*command, "generate", "--check"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell's background jobs ignore it, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    time.sleep(2)
    os.killpg(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (130, "")
    assert err == "napkin: interrupted\n"


def test_a_reader_who_leaves(command: list[str]) -> None:
    child = subprocess.Popen(
        [*command, "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout
    assert child.stderr
    child.stdout.close()
    assert (child.wait(60), child.stderr.read()) == (141, "")
    child.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["derive", "matmul", "--json"]])
def test_a_full_disk(command: list[str], arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*command, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 2
    assert done.stderr == "napkin: the output cannot be written: No space left on device\n"


def test_a_closed_stdout(command: list[str]) -> None:
    line = " ".join(f"'{part}'" if " " not in part else f'"{part}"' for part in command[:2])
    done = subprocess.run(
        ["sh", "-c", f'{line} "$0" list >&-', command[2]],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stdout_that_knows_no_unicode(command: list[str]) -> None:
    done = subprocess.run(
        [*command, "derive", "matmul"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"kernel matmul" in done.stdout


def test_no_arguments_show_the_help(napkin: Callable[..., Any]) -> None:
    bare, asked = napkin(), napkin("--help")
    assert (bare.status, bare.out) == (0, asked.out)
    for name in ("list", "machines", "derive", "cost", "draw", "check", "generate"):
        assert f"  {name} " in bare.out
        assert napkin(name, "--help").status == 0


def test_version(napkin: Callable[..., Any]) -> None:
    assert napkin("--version").out.startswith("napkin ")
