"""Rooms import each other where import-linter sees it, and never by a string."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
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


def edges() -> nx.DiGraph[str]:
    """Which file imports which, wherever in it: in a function, or for types alone, too; and which
    names another by a string, as those do that start processes to run it."""
    names = {".".join(p.relative_to(ROOT.parent).with_suffix("").parts): p for p in FILES}
    graph: nx.DiGraph[str] = nx.DiGraph()
    for name, path in names.items():
        for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found = [a.name for a in n.names] if isinstance(n, ast.Import) else []
            if isinstance(n, ast.ImportFrom) and n.module:
                inside = (f"{n.module}.{a.name}" for a in n.names)
                found = [x if x in names else n.module for x in inside]
            found += [n.value] if isinstance(n, ast.Constant) and isinstance(n.value, str) else []
            graph.add_edges_from((name, x) for x in found if x in names)
    return graph


def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports in functions and for types alone count, too, and names in strings."""
    assert ("napkin.measure.verify", "napkin.measure.trials") in edges().edges
    assert not [sorted(c) for c in nx.strongly_connected_components(edges()) if len(c) > 1]


def test_no_two_files_have_one_name() -> None:
    """But files of the command line, whose names are its verbs."""
    names = [p.name for p in FILES if p.name != "__init__.py" and p.parent.name != "cli"]
    twice = {name for name, n in Counter(names).items() if n > 1}
    assert not twice


def test_no_file_is_longer_than_400_lines() -> None:
    """A longer one has more than one thing to say."""
    lines = {p: p.read_text(encoding="utf-8").count("\n") for p in FILES}
    assert not {str(p.relative_to(ROOT)): n for p, n in lines.items() if n > 400}


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
