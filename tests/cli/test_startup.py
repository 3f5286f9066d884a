"""What a start costs: nothing heavy is imported before it is needed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

HEAVY = {"sympy", "numpy", "torch", "triton", "networkx", "matplotlib", "rich", "graphviz", "scipy"}


def modules(command: list[str], *arguments: str, status: int = 0) -> set[str]:
    """The packages that a command imported, by python -X importtime."""
    timed = [command[0], "-X", "importtime", *command[1:], *arguments]
    done = subprocess.run(timed, capture_output=True, text=True, timeout=60)
    assert done.returncode == status
    rows = [row for row in done.stderr.splitlines() if row.startswith("import time:")]
    return {row.split("|")[-1].strip().split(".")[0] for row in rows}


@pytest.mark.parametrize("arguments", [["--help"], ["derive", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(command: list[str], arguments: list[str]) -> None:
    found = modules(command, *arguments)
    assert "typer" in found
    assert not found & HEAVY


def test_plain_output_needs_no_more_than_it_uses(command: list[str]) -> None:
    assert not modules(command, "machines", "--json") & {"sympy", "numpy", "rich", "triton"}
    assert not modules(command, "list", "--json") & {"sympy", "rich", "triton"}
    assert not modules(command, "derive", "matmul", "--json") & {"torch", "triton", "rich"}


def test_what_is_written_wrong_is_said_before_any_work(command: list[str]) -> None:
    for wrong in (("--on", "h101"), ("--sizes", "q=0"), ("--sweep", "q=1"), ("--csv", "x.csv")):
        assert not modules(command, "cost", "attention", *wrong, status=2) & {"sympy", "scipy"}


def test_help_is_quick(process: Callable[..., Any]) -> None:
    process("--help")  # from here on there is bytecode
    took: list[float] = []
    for _ in range(3):
        start = time.perf_counter()
        assert process("--help").status == 0
        took.append(time.perf_counter() - start)
    assert min(took) < 1.5  # 0.25 s on an idle machine; test machines are not idle


def test_importing_napkin_is_light() -> None:
    check = f"import napkin, sys; sys.exit(bool({HEAVY!r} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], timeout=60).returncode == 0
