"""A rewrite rule in one file outside the package, as docs/extending.md has it."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import napkin as nk
from napkin.algebra import rule as rules
from napkin.derive.rules.table import ADDED, TABLE

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
NAME = "sum differences apart"


def blocks(language: str) -> list[str]:
    """The blocks of the section on rules in a language."""
    section = PAGE.read_text("utf-8").partition("\n## A rewrite rule\n")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the page."""
    path = tmp_path_factory.mktemp("mine") / "mine.py"
    path.write_text(blocks("python")[0], "utf-8")
    return path


@pytest.fixture
def page(mine: Path) -> Iterator[dict[str, Any]]:
    """What the file defines; its rule is there while the test lasts."""
    yield runpy.run_path(str(mine))
    ADDED.clear()


@nk.diagram("q d, k d, d -> q k", sizes={"q": 32, "k": 48, "d": 16})
def other(X: Any, Y: Any, w: Any) -> Any:
    return nk.exp(nk.contract(w, X - Y, over="d"))


def test_the_planner_takes_it_where_it_is_faster(page: dict[str, Any]) -> None:
    diagram, rule = page["linear"], ADDED.pop(NAME)
    written = nk.derive(diagram)
    ADDED[NAME] = rule
    plan = nk.derive(diagram)
    assert plan.seconds < written.seconds / 4
    assert [m.note for m in plan.trail if m.rule == "refactor"] == [
        "sum((X - Y) * w, over d) = sum(X * w, over d) - sum(Y * w, over d)"
    ]
    assert not [m for m in written.trail if m.rule == "refactor"]
    told = PAGE.read_text("utf-8")
    assert f"{written.seconds * 1e6:.0f} us for `linear` as it is written, and" in told
    assert f"{plan.seconds * 1e6:.0f} us with the rule" in told


def test_what_it_makes_is_lowered_and_checked(page: dict[str, Any]) -> None:
    plan = nk.derive(page["linear"])
    assert "X" in plan.source
    plan.check(sizes={"q": 33, "k": 17, "d": 16}, resources=False).raise_if_wrong()


def test_it_applies_in_other_diagrams(page: dict[str, Any]) -> None:
    terms = nk.derive(other, sizes={"q": 4096, "k": 4096, "d": 64}, dtype="fp32")
    assert "refactor" in [m.rule for m in terms.trail]


def test_explain_prints_it_from_its_file(mine: Path) -> None:
    env = {**os.environ, "NAPKIN_VERIFY": "1"}
    run = [sys.executable, "-m", "napkin", "explain", f"{mine}:linear", "--after", NAME]
    found = subprocess.run(run, env=env, capture_output=True, text=True, check=True)
    assert blocks("text")[0] in found.stdout
    assert "considered term: sum((X - Y) * w, over d) = " in found.stdout


def test_later_applications_are_verified(
    page: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[str] = []
    hold = rules._hold

    def noted(rule: rules.Rule, *args: Any) -> None:
        held.append(rule.name)
        hold(rule, *args)

    monkeypatch.setattr(rules, "VERIFYING", True)
    monkeypatch.setattr(rules, "_HELD", set())
    monkeypatch.setattr(rules, "_hold", noted)
    nk.derive(page["linear"])
    assert NAME in held


def test_a_wrong_rule_is_refused_with_a_counterexample(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile("import napkin as nk\n" + blocks("python")[1], "page", "exec"), {})
    assert capsys.readouterr().out == blocks("text")[1]
    assert not ADDED


def added(page: dict[str, Any], **other: Any) -> None:
    given = {"name": "tried", "law": "a = b", "matches": page["difference"]}
    nk.rule(**{**given, "apply": page["two_sums"], "examples": [page["linear"]], **other})


def test_a_side_that_is_another_value_is_refused(page: dict[str, Any]) -> None:
    def swapped(x: Any, y: Any, w: Any, axes: str) -> Any:
        return page["two_sums"](y, x, w, axes)

    with pytest.raises(nk.InputError, match=r"rule 'tried' broke its law, a = b(.|\n)*at normal"):
        added(page, apply=swapped)
    assert "tried" not in ADDED


def test_a_side_with_other_axes_is_refused(page: dict[str, Any]) -> None:
    said = r"gave X \[q d\] of real items for sum\(.* \[q k\] of real items; both need the same"
    with pytest.raises(nk.InputError, match=said):
        added(page, apply=lambda x, *_: x)
    with pytest.raises(nk.InputError, match=r"apply gave 1\.0; return an array"):
        added(page, apply=lambda *_: 1.0)


def test_a_rule_that_applies_nowhere_is_refused(page: dict[str, Any]) -> None:
    with pytest.raises(nk.InputError, match="it applies in no diagram among the examples; give"):
        added(page, matches=lambda _: None)


def test_terms_and_examples_are_lists(page: dict[str, Any]) -> None:
    said = r"matches gave <.*>; return what apply needs in a list"
    with pytest.raises(nk.InputError, match=said):
        added(page, matches=lambda n: n)
    with pytest.raises(nk.InputError, match=r"examples are a list, as in \[linear\]"):
        added(page, examples=page["linear"])


@pytest.mark.parametrize("name", ["separate", "order contractions"])
def test_a_name_of_napkins_own_is_refused(page: dict[str, Any], name: str) -> None:
    with pytest.raises(nk.InputError, match=f"rule '{name}': napkin has a rule of that name"):
        added(page, name=name)
    assert name in TABLE


def test_without_examples_those_of_napkin_are_looked_through() -> None:
    """A product turned round, which occurs in many of them."""

    def product(term: Any) -> Any:
        return term.args if term.op == "mul" and term.args[0].axes != term.args[1].axes else None

    nk.rule(name="turned round", law="a b = b a", matches=product, apply=lambda a, b: b * a)
    assert ADDED.pop("turned round").alternative
    with pytest.raises(nk.InputError, match="it applies in no diagram of napkin"):
        nk.rule(name="never", law="a = a", matches=lambda _: None, apply=lambda a: a)
