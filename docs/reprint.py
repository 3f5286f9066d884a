"""Print anew what the commands in a Markdown file print: `python docs/reprint.py docs/cost.md`.

In a code block, what follows a line `$ napkin ...` is what that prints, up to the next such line; a
line `...` stands for lines left out. What is printed between two of those is found again by its
first and its last line, whatever numbers are in them.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

LEFT_OUT = "..."


def reprinted(text: str, run: Callable[[Sequence[str]], str]) -> str:
    """The text with what its commands print now.

    Args:
        run: what a command with these arguments prints.

    Raises:
        LookupError: a command no longer prints a line by which a part is found.
    """
    out: list[str] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        out.append(line)
        at += 1
        if line.startswith("$ napkin "):
            end = at
            while not lines[end].startswith(("```", "$ ")):
                end += 1
            printed = run(shlex.split(line)[2:]).rstrip("\n").split("\n")
            out += _parts(lines[at:end], printed, line)
            at = end
    return "\n".join(out)


def _parts(old: Sequence[str], printed: Sequence[str], command: str) -> list[str]:
    out: list[str] = []
    found = 0
    for left_out, part in ((k, list(p)) for k, p in groupby(old, lambda x: x == LEFT_OUT)):
        said = [i for i, line in enumerate(part) if line.strip()]
        if left_out or not said:
            out += part
            continue
        first = _line(printed, part[said[0]], found, command)
        last = _line(printed, part[said[-1]], first, command)
        out += [*part[: said[0]], *printed[first : last + 1], *part[said[-1] + 1 :]]
        found = last + 1
    return out


def _line(printed: Sequence[str], like: str, start: int, command: str) -> int:
    """The next line that is like an older one but for its numbers."""
    for i in range(start, len(printed)):
        if _form(printed[i]) == _form(like):
            return i
    raise LookupError(f"{command}: no line like {like.strip()!r} any more; print it by hand")


def _form(line: str) -> str:
    return re.sub(r"[\s\d.,%]+", " ", line).strip()


def main() -> None:
    """Reprint the files that are named."""
    for path in map(Path, sys.argv[1:]):
        path.write_text(reprinted(path.read_text(), _napkin))


def _napkin(arguments: Sequence[str]) -> str:
    command = [sys.executable, "-m", "napkin", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
