"""docs/reprint.py: what commands print in the documents, printed anew."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]

TEXT = """Text with $ napkin in it.

```
$ napkin cost a --sizes q=1

a on h100

  time    9.9 us   12%

...

  last    1

...

$ napkin list
one
```
"""


@pytest.fixture(scope="module")
def reprint() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("reprint", ROOT / "docs" / "reprint.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_parts_are_found_and_the_rest_stays_left_out(reprint: ModuleType) -> None:
    asked: list[list[str]] = []

    def run(arguments: list[str]) -> str:
        asked.append(arguments)
        if arguments == ["list"]:
            return "one\n"
        return "a on h100\n\n  more\n  time   10.0 us   9%\n\n  else\n\n  last   2\n\nnote\n"

    found = reprint.reprinted(TEXT, run)
    assert asked == [["cost", "a", "--sizes", "q=1"], ["list"]]
    new = "a on h100\n\n  more\n  time   10.0 us   9%\n\n...\n\n  last   2\n\n...\n\n"
    assert f"{new}$ napkin list\none\n" in found
    assert reprint.reprinted(found, run) == found


def test_a_line_that_is_gone_is_said(reprint: ModuleType) -> None:
    with pytest.raises(LookupError, match=r"\$ napkin cost a .*: no line like 'time    9.9 us"):
        reprint.reprinted(TEXT, lambda _: "a on h100\n")
