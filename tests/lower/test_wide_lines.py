"""Lines of generated files have at most 100 columns."""

from __future__ import annotations

import ast
from pathlib import Path

from napkin.lower.printer import WIDTH, statement

GENERATED = Path(__file__).parents[2] / "generated"


def test_no_generated_file_has_a_longer_line() -> None:
    files = [p for p in GENERATED.rglob("*.py")]
    lines = {p: max(map(len, p.read_text(encoding="utf-8").splitlines())) for p in files}
    assert lines
    assert not {str(p.relative_to(GENERATED)): n for p, n in lines.items() if n > WIDTH}


def test_what_is_indexed_is_laid_out_by_itself() -> None:
    terms = " + ".join(f"some_long_name_{i} * another_one_{i}" for i in range(4))
    for text in (f"x = ({terms})[None, :]", f"x = load({terms}, other)[None, :, None]"):
        (made,) = ast.parse(text).body
        found = statement(made, 1)
        assert max(map(len, found.splitlines())) <= WIDTH
        (again,) = ast.parse("if True:\n" + found).body
        assert isinstance(again, ast.If)
        assert ast.dump(again.body[0]) == ast.dump(made)
