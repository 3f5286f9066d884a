"""`--gradient`: commands on the gradient of a diagram in place of the diagram."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = """
import napkin as nk

@nk.diagram("n v, n:int -> n", sizes={"n": 16, "v": 24})
def loss(S, T):
    return nk.reduce(S, "logsumexp", over="v") - nk.take(S, v=T)

@nk.diagram("n d -> n d", sizes={"n": 8, "d": 8})
def ordered(X):
    return nk.sort(X, along="d")

@nk.diagram("n, n -> n", sizes={"n": 8})
def clashing(X, dO):
    return X * dO

@nk.diagram("n:int -> n", sizes={"n": 8})
def counted(N):
    return nk.exp(-1.0 * N)
"""
SMALL = {
    "attention": "q=16,x=24,d=16",
    "rmsnorm": "n=16,d=32",
}


@pytest.fixture
def page(here: Path) -> Path:
    (here / "loss.py").write_text(PAGE)
    return here


@pytest.mark.parametrize("name", SMALL)
def test_a_check_of_a_gradient(napkin: Callable[..., Any], name: str) -> None:
    how = ("--gradient", "--sizes", SMALL[name], "--on", "a100", "--dtype", "fp32", "--json")
    found = napkin("check", name, *how)
    data = json.loads(found.out)
    assert (found.status, data["ok"]) == (0, True)
    outputs = {r["output"] for r in data["values"]["rows"]}
    beside = {(r["case"], r["output"]) for r in data["derivatives"]}
    sides = ("central differences", "torch's autograd")
    assert beside == {(side, o) for side in sides for o in outputs}
    assert all(r["relative_error"] <= r["tolerance"] == 1e-6 for r in data["derivatives"])
    assert data["traffic"]


def test_a_check_of_a_gradient_as_text(page: Path, napkin: Callable[..., Any]) -> None:
    """Of a diagram with whole numbers, by its real input alone, at the sizes of given inputs."""
    np.savez(page / "in.npz", T=np.array([0, 23, 5, 5, 1]))
    found = napkin("check", "loss.py:loss", "--gradient", "--dtype", "fp32",
                   "--inputs", "in.npz", "--range", "S=-3..3,dO=0..1")  # fmt: skip
    assert found.status == 0
    assert "derivatives, in float64" in found.out
    assert "central differences   dS" in found.out
    assert "torch's autograd      dS" in found.out
    assert found.out.endswith("loss_gradient: every prediction holds\n")
    assert "derivatives" not in napkin("check", "loss.py:loss", "--dtype", "fp32").out


@pytest.mark.parametrize("command", ["derive", "cost", "explain"])
def test_other_commands_take_the_gradient_too(
    page: Path, napkin: Callable[..., Any], command: str
) -> None:
    found = napkin(command, "loss.py:loss", "--gradient")
    assert found.status == 0
    assert "loss_gradient" in found.out


def test_names_that_are_taken(page: Path, napkin: Callable[..., Any]) -> None:
    found = napkin("check", "loss.py:clashing", "--gradient", "--range", "dO2=1..2")
    assert found.status == 0, found.err
    assert "ddO" in found.out


def test_a_report_of_a_gradient(page: Path, napkin: Callable[..., Any]) -> None:
    found = napkin("report", "loss.py:loss", "--gradient", "-o", "page")
    assert found.status == 0
    assert "loss_gradient" in (page / "page" / "report.md").read_text()


CASES = [
    (["check", "greedy_token"], "gradient is refused at greedy_token: no output holds real"),
    (["cost", "sample_token"], "gradient is refused at sample_token: no output holds real"),
    (["check", "loss.py:ordered"], "sort: its transpose puts each value back where it came from"),
    (["explain", "loss.py:counted"], "refused at counted: no input holds real numbers"),
    (["check", "loss.py:loss", "--range", "dQ=0..1"], "loss_gradient has no input 'dQ'"),
    (["check", "loss.py:loss", "--storage", "dO=fp16"], "loss has no input 'dO'"),
    (["check", "loss.py:loss", "--sizes", "z=1"], "loss_gradient has no axis 'z'"),
]


@pytest.mark.parametrize(("arguments", "said"), CASES, ids=lambda x: " ".join(x)[:50])
def test_what_has_none_is_refused(
    page: Path, napkin: Callable[..., Any], arguments: list[str], said: str
) -> None:
    found = napkin(*arguments, "--gradient")
    assert (found.status, found.out) == (2, "")
    assert said in found.err
    assert found.err.count("\n") == 1
