"""`napkin report`: one page with everything, and its plots."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GIVEN = ("report", "attention", "--sizes", "q=1024,x=1024,d=64")


def test_a_page_with_everything(napkin: Callable[..., Any], here: Path) -> None:
    pytest.importorskip("matplotlib")
    found = napkin(*GIVEN, "-o", "page")
    assert (found.status, found.out) == (0, "Written: page/report.md\n")
    text = (here / "page" / "report.md").read_text()
    assert text.startswith("# attention on h100, bf16, q=1024,d=64,x=1024\n")
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert titles == [
        "Derivation", "Strategies", "Costs and rooflines", "Levels of memory", "Plots",
    ]  # fmt: skip
    for said in (
        "stream x",
        "compulsory: every input read once",
        "roof, TFLOP/s",
        "tiles from dram inwards",
    ):
        assert said in text
    drawn = re.findall(r"!\[.*\]\((.*)\)", text)
    assert {*drawn, "report.md"} == {f.name for f in (here / "page").iterdir()}
    assert len(drawn) == 4
    assert "\x1b" not in text
    napkin(*GIVEN, "-o", "again")
    assert (here / "again" / "report.md").read_text() == text


def test_inputs_with_a_type_of_their_own(napkin: Callable[..., Any], here: Path) -> None:
    pytest.importorskip("matplotlib")
    assert napkin(*GIVEN, "--storage", "K=fp8,V=fp8", "-o", "page").status == 0
    text = (here / "page" / "report.md").read_text()
    assert "kernel attention: in bytes, with Q bf16, K fp8, V fp8, O bf16" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*GIVEN, "-o", "page", "--storage", "W=fp8"), "attention has no input 'W'"),
        ((*GIVEN, "-o", "page", "--on", "h101"), "unknown machine 'h101'; did you mean 'h100'?"),
        (("report", "attention", "--sizes", "z=1", "-o", "page"), "attention has no axis 'z'"),
        (GIVEN, "missing option '--output'"),
    ],
)
def test_wrong_input(
    napkin: Callable[..., Any], here: Path, arguments: tuple[str, ...], message: str
) -> None:
    found = napkin(*arguments)
    assert (found.status, found.out) == (2, "")
    assert message in found.err
    assert not (here / "page").exists()


def test_matplotlib_is_missing(
    napkin: Callable[..., Any], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    found = napkin(*GIVEN, "-o", "page")
    assert found.status == 2
    assert "report needs matplotlib, which is not installed" in found.err
