"""Rooms import each other where import-linter sees it, and never by a string."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import napkin

ROOT = Path(napkin.__file__).parent
FILES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


def imported_by_string(tree: ast.AST) -> Iterator[str]:
    """The arguments of calls that import a module of the package by its name."""
    for n in ast.walk(tree):
        name = getattr(n.func, "attr", getattr(n.func, "id", "")) if isinstance(n, ast.Call) else ""
        if isinstance(n, ast.Call) and name in {"import_module", "__import__"} and n.args:
            text = ast.unparse(n.args[0])
            if "napkin" in text:
                yield text


def test_a_string_is_found() -> None:
    text = "import_module('napkin.plan'), importlib.import_module(f'napkin.{x}'), f('napkin')"
    assert list(imported_by_string(ast.parse(text))) == ["'napkin.plan'", "f'napkin.{x}'"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_room_imports_another_by_a_string(path: Path) -> None:
    assert not list(imported_by_string(ast.parse(path.read_text(encoding="utf-8"))))


def test_no_room_imports_the_face_of_the_package() -> None:
    """It stands above them all, and would hide what they import."""
    for path in FILES:
        if path.relative_to(ROOT).parts[0] in {"cli", "__main__.py"}:
            continue
        for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(n, ast.ImportFrom):
                assert n.module != "napkin", path
            elif isinstance(n, ast.Import):
                assert all(a.name != "napkin" for a in n.names), path
