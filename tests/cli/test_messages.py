"""Wrong input: exit status 2, one message that says what to write instead, and nothing done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PAGES = {
    "broken.py": "import napkin as nk\n1 / 0\n",
    "twice.py": """
import napkin as nk
@nk.diagram("q d, x d -> q")
def twice(Q, K):
    S = nk.contract(Q, K, over="d")
    return nk.contract(S, over="d x")
""",
    "repeated.py": """
import napkin as nk
@nk.diagram("q d, x d -> q x")
def repeated(Q, K):
    return nk.contract(Q, K, over="d d")
""",
    "numbered.py": """
import napkin as nk
@nk.diagram("q d, x d -> q x")
def numbered(Q, K):
    return nk.contract(Q, K, over=1)
""",
    "half.py": """
import napkin as nk
@nk.diagram("q -> q", sizes={"q": 1.5})
def f(Q):
    return Q
""",
    "scores.py": """
import napkin as nk
@nk.diagram("q d, x d -> q x")
def scores(Q, K):
    return nk.contract(Q, K, over="d")
""",
    "sorted.py": """
import napkin as nk
@nk.diagram("q x, q x -> q x", sizes={"q": 64, "x": 4194304})
def order(A, B):
    return nk.softmax(nk.sort(A, "x") + B, over="x")
""",
    "noise.py": "print('noise')\nimport napkin as nk\n"
    "@nk.diagram('q x -> q', sizes={'q': 64, 'x': 64})\n"
    "def noise(A):\n    return nk.reduce(A, 'max', over='x')\n",
}

PAGES["picky.py"] = """
import napkin as nk
def few(xp, x):
    if x.size > 1000:
        raise ValueError("too many")
    return x + 1.0
more = nk.operator("at_most_a_thousand", 1, evaluate=few, triton="x + 1.0")
@nk.diagram("n -> n", sizes={"n": 4096})
def picky(A):
    return more(A)
"""

CASES: list[tuple[list[str], str]] = [
    # what is asked for
    (["derive", "attenton"], "there is no diagram 'attenton'; did you mean 'attention'?"),
    (["derive", "nothing.py:f"], "there is no file nothing.py"),
    (["derive", "broken.py:f"], "broken.py, line 2: the file raised ZeroDivisionError"),
    (["derive", ":scores"], ":scores: nothing stands before the colon; write path/to/file.py"),
    (["derive", "numbered.py"], "numbered.py, line 5: over=1 is no name of an axis: axes are"),
    (["derive", "half.py"], "half.py, line 3: sizes: q=1.5 is not a whole number"),
    (["derive", "scores.py:score"], "scores.py has no diagram 'score'; did you mean 'scores'?"),
    (["derive", "twice.py"], "twice.py, line 6: "),
    (["derive", "repeated.py"], "repeated.py, line 5: over='d d': axis 'd' stands twice"),
    (["cost", "attention", "--on", "h101"], "unknown machine 'h101'; did you mean 'h100'?"),
    (["check", "attention", "--on", "my.toml"], "my.toml: cannot read the machine file"),
    (["machines", "h101"], "unknown machine 'h101'; did you mean 'h100'?"),
    (["derive", "attention", "--dtype", "bf17"], "dtype 'bf17': kernels store bf16, fp16, fp32"),
    (["derive", "attention", "--dtype", "fp8"], "fp32; for inputs alone, --storage NAME=fp8"),
    (
        ["check", "picky.py", "--sizes", "n=4096"],
        "operator at_most_a_thousand: evaluate of arrays of shape (4096,) raised ValueError: too",
    ),
    # sizes
    (["derive", "scores.py"], "scores needs a size for q, d, x; write q=1024,d=1024,x=1024"),
    (["derive", "attention", "--sizes", "z=1"], "attention has no axis 'z'; known: q, d, x"),
    (["check", "attention", "--sizes", "q=0"], "q=0 is too small; write a whole number from 1"),
    (["cost", "attention", "--sizes", "q=-4"], "q=-4 is too small; write a whole number from 1"),
    (["derive", "attention", "--sizes", "q=9999999999999"], "is larger than 2**40"),
    (["derive", "attention", "--sizes", "q=many"], "q='many' is not a whole number"),
    (["derive", "attention", "--sizes", "q"], "'q' has no '='"),
    (["derive", "attention", "--sizes", "q=__import__('os')"], "is not a whole number"),
    (["derive", "attention", "--sizes", "q=1", "--sizes", "q=2"], "q is given twice"),
    # where it goes
    (["draw", "attention", "-o", "none/a.svg"], "none/a.svg cannot be written: No such file"),
    (["draw", "attention", "-o", "a.png"], "--output a.png: the drawing's name ends in .svg"),
    (
        ["draw", "attention", "--dot", "-o", "a.svg"],
        "a.svg: the drawing's name ends in .dot or",
    ),
    (["draw", "attention", "-o", "."], ". is a folder; name a file in it, as in name.svg"),
    (["generate", "matmul", "--out", "scores.py/x"], "scores.py/x cannot be written: Not a dir"),
    (["generate", "matmul", "matmul"], "matmul is given twice"),
    (["generate", "matmull", "--out", "new"], "there is no diagram 'matmull'"),
    (["generate", "--check"], "there is no folder generated to compare with"),
    # how it is asked
    (["derive"], "missing argument 'NAME' (see napkin derive --help)"),
    (["deriv", "attention"], "no such command 'deriv'"),
    (["derive", "attention", "--onn", "h100"], "no such option: --onn"),
    (["derive", "attention", "h100"], "(h100) (see napkin derive --help)"),
    (["derive", "attention", "--on"], "option '--on' requires an argument"),
]


@pytest.fixture
def pages(here: Path) -> Path:
    for name, text in PAGES.items():
        (here / name).write_text(text)
    return here


@pytest.mark.parametrize(("arguments", "said"), CASES, ids=lambda x: " ".join(x)[:60])
def test_wrong_input(
    pages: Path, napkin: Callable[..., Any], arguments: list[str], said: str
) -> None:
    found = napkin(*arguments)
    assert found.err.startswith("napkin: ")
    assert said in found.err
    assert found.err.count("\n") == 1
    assert "Traceback" not in found.err
    assert (found.status, found.out) == (2, "")
    assert sorted(p.name for p in pages.iterdir()) == sorted(PAGES)


def test_a_refusal_says_rule_place_and_reason(pages: Path, napkin: Callable[..., Any]) -> None:
    found = napkin("derive", "sorted.py")
    assert (found.status, found.out) == (2, "")
    assert "refused" in found.err
    assert "sort" in found.err


def test_what_a_page_prints_stays_out_of_the_json(pages: Path, napkin: Callable[..., Any]) -> None:
    found = napkin("derive", "noise.py", "--json")
    assert (found.status, found.out[:1], found.err) == (0, "{", "noise\n")


def test_a_process_ends_the_same_way(pages: Path, process: Callable[..., Any]) -> None:
    found = process("derive", "broken.py")
    assert (found.status, found.out) == (2, "")
    assert found.err.startswith("napkin: broken.py, line 2: the file raised ZeroDivisionError")
    assert "Traceback" not in found.err
