"""Long statements go over several lines, and mean what they meant."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin.lower.printer import WIDTH, statement

GENERATED = sorted((Path(__file__).parents[2] / "generated").glob("*/*/*.py"))
SIGNS = ("+", "-", "*", "//", "%", "<<", "&", "|", "**")
NAMES = ["a_stride_of_some_tensor", "BLOCK_OF_AN_AXIS", "x[:, None]", "1", "-y"]
LEAVES: st.SearchStrategy[str] = st.sampled_from(NAMES)


FORMS = (
    *(f"({{0}}) {sign} ({{1}})" for sign in SIGNS),
    "tl.where({0} < {1}, {0}, other={1})",
    "[({0}, {1}), {1}]",
    "({0} if {1} else {0})",
    "({0}).to(tl.float32) + {1}",
    "(not ({0})) & ({1})",
    "({0}) < ({1})",
)


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """An expression of operators in all orders, longer than a line as often as not."""
    made = draw(st.lists(LEAVES, min_size=2, max_size=9))
    while len(made) > 1:
        i = draw(st.integers(0, len(made) - 2))
        made[i : i + 2] = [draw(st.sampled_from(FORMS)).format(*made[i : i + 2])]
    return made[0]


@given(
    expressions(), st.integers(1, 4), st.sampled_from(("value = {}", "{}", "for a in {}:\n    b"))
)
def test_a_statement_in_lines_is_the_statement(text: str, depth: int, form: str) -> None:
    (wanted,) = ast.parse(form.format(text)).body
    laid = "if True:\n" + statement(wanted, depth)
    (found,) = ast.parse(laid).body[0].body  # type: ignore[attr-defined]
    assert ast.unparse(found) == ast.unparse(wanted)


def test_a_long_sum_has_a_term_to_a_line() -> None:
    (s,) = ast.parse("place = " + " + ".join(f"position_{i} * stride_{i}" for i in range(6))).body
    lines = statement(s, 1).splitlines()
    assert (lines[0], lines[-1]) == ("    place = (", "    )")
    assert lines[2] == "        + position_1 * stride_1"


@pytest.mark.parametrize("path", GENERATED, ids=lambda p: "/".join(p.parts[-3:]))
def test_kernels_keep_to_the_width_and_to_names(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= WIDTH
    names = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
    assert not {n for n in names if n[:2] == "t_" and n[2:].isdigit()}
