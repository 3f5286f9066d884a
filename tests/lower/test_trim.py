"""Kernels hold no value that nothing uses, and take no argument that they do not read."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from napkin.lower.trim import loaded, trimmed

GENERATED = sorted((Path(__file__).parents[2] / "generated").glob("*/*/*.py"))


def left(text: str) -> str:
    """What is left of statements."""
    return "\n".join(
        ast.unparse(ast.fix_missing_locations(s)) for s in trimmed(ast.parse(text).body)
    )


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a = 1\nb = a\nstore(c)", "store(c)"),
        ("a = 1\nb = a\nstore(b)", "a = 1\nb = a\nstore(b)"),
        ("a = a // 8 * 8\nstore(c)", "store(c)"),
        ("if x:\n    a = 1\nelse:\n    store(c)", "if x:\n    pass\nelse:\n    store(c)"),
        (
            "for i in range(n):\n    a = a + i\nstore(a)",
            "for i in range(n):\n    a = a + i\nstore(a)",
        ),
        ("a = b\nb = a\nstore(c)", "a = b\nb = a\nstore(c)"),  # two that keep each other
    ],
)
def test_values_that_nothing_uses_are_left_out(text: str, kept: str) -> None:
    assert left(text) == kept


@pytest.mark.parametrize("path", GENERATED, ids=lambda p: "/".join(p.parts[-3:]))
def test_kernels_read_each_argument(path: Path) -> None:
    functions = [
        n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.FunctionDef)
    ]
    for f in functions:
        read = {name for s in f.body for name in loaded(s)}
        assert {a.arg for a in f.args.args} <= read, f.name
