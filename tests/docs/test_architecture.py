"""docs/architecture.md and docs/glossary.md: short, and true of the files that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import napkin

ROOT = Path(__file__).parents[2]
PACKAGE = Path(napkin.__file__).parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_page_is_short() -> None:
    assert sum(any(c.isalnum() for c in word) for word in PAGE.split()) < 1500


def test_every_room_has_a_paragraph() -> None:
    rooms = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    assert not rooms - {*re.findall(r"^\*\*(\w+)\*\*", PAGE, re.M)}


@pytest.mark.parametrize("page", ["architecture", "glossary"])
def test_files_that_are_named_exist(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    named = {*re.findall(r"`([\w/*]+\.py)`", text)}
    assert len(named) > 30
    lacking = [n for n in named if not [*PACKAGE.rglob(n), *ROOT.glob(n)]]
    assert not lacking


def test_no_room_but_lower_is_large() -> None:
    lines = {
        room.parent.name: sum(len(f.read_text(encoding="utf-8").splitlines()) for f in files)
        for room in PACKAGE.glob("*/__init__.py")
        for files in [list(room.parent.rglob("*.py"))]
    }
    assert {room for room, n in lines.items() if n > 4500} == {"lower"}
