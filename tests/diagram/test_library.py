"""Finding diagrams: shipped pages, the user's files, and what is said when one is wrong."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from napkin.diagram import library
from napkin.errors import InputError

PAGE = """
import napkin as nk

@nk.diagram("q d, x d -> q x")
def scores(Q, K):
    return nk.contract(Q, K, over="d")
"""
SECOND = """
@nk.diagram("q x -> q")
def top(S):
    return nk.reduce(S, "max", over="x")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(name: str) -> str:
    with pytest.raises(InputError) as caught:
        library.load(name)
    assert caught.value.__cause__ is None
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_names_are_sorted() -> None:
    assert list(library.names()) == sorted(library.names())
    assert {"attention", "matmul", "layernorm_linear"} <= set(library.names())


@pytest.mark.parametrize("name", library.names())
def test_a_page_imports_only_napkin(name: str) -> None:
    text = (library._shelf() / f"{name}.py").read_text()
    tree = ast.parse(text)
    imports = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    assert [ast.unparse(n) for n in imports] == ["import napkin as nk"]
    assert ast.get_docstring(tree)
    assert text.count("\n") < 40  # one page


def test_pages_inside_a_wheel(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "napkin" / "_diagrams").mkdir(parents=True)
    (here / "napkin" / "_diagrams" / "scores.py").write_text(PAGE)
    monkeypatch.setattr(library, "_PACKAGE", here / "napkin")
    assert library.names() == ("scores",)
    assert library.load("scores").name == "scores"


def test_no_pages_at_all(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_PACKAGE", here / "napkin")
    assert library.names() == ()
    assert "there is no diagram 'scores'; there are none" in refusal("scores")


def test_a_file_and_a_name(here: Path) -> None:
    (here / "mine.py").write_text(PAGE + SECOND)
    assert library.load("mine.py:scores").name == "scores"
    assert library.load("mine.py:top").name == "top"
    assert library.load(f"{here}/mine.py:top").name == "top"


def test_a_file_alone(here: Path) -> None:
    (here / "mine.py").write_text(PAGE + "again = scores\n")
    assert library.load("mine.py").name == "scores"
    (here / "scores.py").write_text(PAGE + SECOND)
    assert library.load("scores.py").name == "scores"
    (here / "both.py").write_text(PAGE + SECOND)
    assert refusal("both.py") == (
        "both.py has several diagrams (scores, top); name one, as in both.py:scores"
    )


def test_an_edited_file_is_read_again(here: Path) -> None:
    (here / "mine.py").write_text(PAGE)
    library.load("mine.py")
    (here / "mine.py").write_text(PAGE.replace("q d, x d -> q x", "p d, x d -> p x"))
    assert "p" in library.load("mine.py").axes
    assert not (here / "__pycache__").exists()


def test_a_file_runs_as_a_module_in_its_folder(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "parts.py").write_text("AXIS = 'd'\n")
    (here / "sub" / "mine.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from typing import ClassVar\n"
        "from parts import AXIS\n"
        "@dataclass\nclass Sizes:\n    d: ClassVar[int] = 1\n"
        "assert __name__ != '__main__' and __file__.endswith('mine.py')\n"
        "print('hello')\n" + PAGE.replace('"d"', "AXIS")
    )
    before, modules = list(sys.path), set(sys.modules)
    assert library.load("sub/mine.py:scores").name == "scores"
    assert sys.path == before
    assert set(sys.modules) - modules <= {"parts"}
    sys.modules.pop("parts", None)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "hello\n")  # stdout is the command's


def test_unknown_name(here: Path) -> None:
    assert refusal("atention") == (
        "there is no diagram 'atention'; did you mean 'attention'? "
        "(your own is path/to/file.py:diagram)"
    )
    assert f"; known: {', '.join(library.names())} (your own is " in refusal("zzz")
    assert "there is no diagram ''" in refusal("")
    (here / "mine.py").write_text(PAGE)
    assert refusal("mine").endswith("(for the file in this folder, write mine.py)")


def test_no_such_file(here: Path) -> None:
    assert refusal("no/such.py:f") == "there is no file no/such.py; check the path"
    assert refusal("attention.py") == (
        "there is no file attention.py (attention is shipped: write attention); check the path"
    )


def test_not_a_python_file(here: Path) -> None:
    (here / "notes.txt").write_text(PAGE)
    assert refusal("notes.txt:scores") == (
        "notes.txt is not a Python file; a diagram stands in a .py file"
    )
    (here / "folder").mkdir()
    assert refusal("folder/") == "folder is a folder; name a file in it, as in folder/file.py"
    assert "is not a Python file" in refusal("/dev/null:f")
    assert "cannot be read" in refusal("a" * 5000 + ".py")
    assert "cannot be read" in refusal("nul\0.py") or "no file" in refusal("nul\0.py")


def test_a_bad_name_after_the_colon(here: Path) -> None:
    (here / "mine.py").write_text(PAGE + SECOND + "SIZE = 3\nnumpy = __import__('numpy')\n")
    assert refusal("mine.py:score") == ("mine.py has no diagram 'score'; did you mean 'scores'?")
    assert refusal("mine.py:zzz") == "mine.py has no diagram 'zzz'; known: scores, top"
    assert refusal("mine.py:SIZE").startswith(
        "mine.py: SIZE is of type int, not a diagram; put @nk.diagram("
    )
    assert "numpy is of type module, not a diagram" in refusal("mine.py:numpy")
    assert refusal("mine.py:") == (
        "mine.py:: nothing stands after the colon; write path/to/file.py:diagram"
    )
    assert refusal(":scores") == (
        ":scores: nothing stands before the colon; write path/to/file.py:diagram"
    )
    assert refusal("mine.py:a.b") == (
        "mine.py:a.b: 'a.b' is not a Python name; write path/to/file.py:diagram"
    )


def test_a_file_without_diagrams(here: Path) -> None:
    (here / "empty.py").write_text("")
    for name in ("empty.py", "empty.py:f"):
        assert refusal(name).startswith("empty.py has no diagram in it; write a function")


def test_a_file_that_raises(here: Path) -> None:
    (here / "bad.py").write_text("import napkin as nk\n\nx = 1 / 0\n")
    assert refusal("bad.py:f") == (
        "bad.py, line 3: the file raised ZeroDivisionError: division by zero; "
        "it has to run before its diagrams can be read"
    )
    (here / "bad.py").write_text("def f():\n    raise KeyError('two\\nlines')\n\nf()\n")
    assert refusal("bad.py").startswith("bad.py, line 2: the file raised KeyError: ")
    (here / "bad.py").write_text("import no_such_module_anywhere\n")
    assert "line 1: the file raised ModuleNotFoundError: No module" in refusal("bad.py")
    (here / "bad.py").write_text("class Odd(BaseException): pass\nraise Odd\n")
    assert "line 2: the file raised Odd; it has to run" in refusal("bad.py")


def test_a_diagram_that_does_not_trace(here: Path) -> None:
    (here / "bad.py").write_text(PAGE.replace('over="d"', 'over="z"'))
    said = refusal("bad.py:scores")
    assert said.startswith("bad.py, line 6: sum over 'z': the array has axes 'q d x', not 'z'")
    (here / "bad.py").write_text(PAGE.replace("q d,", "q D,"))
    assert refusal("bad.py").startswith("bad.py, line 4: signature 'q D, x d -> q x': 'D' is not")
    (here / "bad.py").write_text(PAGE.replace("nk.contract", "nk.contrakt"))
    assert refusal("bad.py").endswith("has no attribute 'contrakt'; did you mean 'contract'?")
    (here / "bad.py").write_text(PAGE.replace("nk.contract(", "int.contract("))
    assert "line 6: the file raised AttributeError" in refusal("bad.py")


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (
            PAGE.replace("over=", "axis="),
            "bad.py, line 6: nk.contract has no argument 'axis'; axes are named, so write over='d'",
        ),
        (
            PAGE.replace('over="d"', "over=-1"),
            "bad.py, line 6: over=-1 is no name of an axis: axes are named, not numbered; "
            "write over='d', or over='h d' for several",
        ),
        (
            "import napkin as nk\n@nk.diagram('q -> q', size={'q': 4})\ndef f(Q):\n    return Q\n",
            "bad.py, line 2: nk.diagram has no argument 'size'; did you mean 'sizes'?",
        ),
        (
            "import napkin as nk\n@nk.diagram()\ndef f(Q):\n    return Q\n",
            "bad.py, line 2: nk.diagram needs 'signature'; its arguments are signature, sizes, "
            "name",
        ),
    ],
)
def test_a_call_that_does_not_fit(here: Path, page: str, said: str) -> None:
    (here / "bad.py").write_text(page)
    assert refusal("bad.py") == said


def test_a_file_that_is_not_python(here: Path) -> None:
    (here / "bad.py").write_text(PAGE + "def f(:\n    pass\n")
    assert refusal("bad.py").startswith("bad.py, line 7: this is not Python (")
    (here / "bad.py").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00")
    assert "this is not Python (" in refusal("bad.py")
    (here / "bad.py").write_bytes(b"x = '\xff'\n")
    assert "this is not Python (" in refusal("bad.py")


def test_a_file_that_ends_the_program(here: Path) -> None:
    (here / "bad.py").write_text(PAGE + "import sys\nsys.exit('done')\n")
    assert refusal("bad.py:scores") == (
        "bad.py, line 8: the file ends the program (SystemExit: done) instead of defining a "
        "diagram; put that under if __name__ == '__main__':"
    )
    (here / "bad.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):  # Ctrl-C while a slow file runs stays Ctrl-C
        library.load("bad.py")
