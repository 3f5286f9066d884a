"""Where output goes: tables and trees by rich, JSON as it is, progress beside them on stderr."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from napkin.progress import Progress, silent

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
else:  # slow to import, so that each command does where it prints
    RenderableType: TypeAlias = Any
    Table: TypeAlias = Any

Rows: TypeAlias = Iterable[Sequence[str]]

_PIPED_WIDTH = 120
"""Columns where nobody said how wide the output is."""

_HEIGHT = 25
"""Lines of a screen: no output depends on them, but rich would read LINES, whatever is in it."""


def console(stream: Any = None) -> Console:
    """A console that writes texts as they are: no markup, no emoji, no guessing of colours."""
    from rich.console import Console

    file = sys.stdout if stream is None else stream
    return Console(file=file, width=_width(file), height=_HEIGHT, markup=False, emoji=False,
                   highlight=False)  # fmt: skip


def _width(file: Any) -> int:
    """The columns of a stream: as COLUMNS says, or else those of its terminal."""
    said = os.environ.get("COLUMNS", "")
    with contextlib.suppress(ValueError, OSError):
        own = int(said) if re.fullmatch("[0-9]*[1-9][0-9]*", said) else 0
        return own or os.get_terminal_size(file.fileno()).columns or _PIPED_WIDTH
    return _PIPED_WIDTH


def emit(*things: RenderableType) -> None:
    """Print to stdout.

    Rendered first and written at once, so that a reader who left is an error of ours to handle.
    """
    sys.stdout.write(_rendered(console(), things))


def emit_plain(text: str) -> None:
    """Print text to stdout as it is, lines of any length."""
    sys.stdout.write(text)


def plain_text(*things: RenderableType) -> str:
    """What `emit` prints where nobody said how wide the output is, and in no colours."""
    from rich.console import Console

    made = Console(file=io.StringIO(), width=_PIPED_WIDTH, height=_HEIGHT, markup=False,
                   emoji=False, highlight=False, color_system=None)  # fmt: skip
    return _rendered(made, things)


def _rendered(made: Console, things: Sequence[RenderableType]) -> str:
    with made.capture() as caught:
        for thing in things:
            made.print(thing)
    lines = caught.get().strip("\n").split("\n")
    return "".join(line.rstrip() + "\n" for line in lines)


def table(*columns: str, title: str = "", rows: Rows = ()) -> Table:
    """A table; the columns whose names begin with ">" hold numbers."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # A title that is longer than its table goes on beside it, rather than on in a second line.
    above = Text(title, no_wrap=True, overflow="ignore") if title else None
    made = Table(title=above, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for name in columns:
        side = "right" if name.startswith(">") else "left"
        made.add_column(name.removeprefix(">"), justify=side, overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def pairs(title: str, rows: Rows) -> Table:
    """A table of names and texts without a head."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, title_justify="left", title_style="bold",
                 box=box.SIMPLE, show_header=False)  # fmt: skip
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def json_text(data: Any) -> str:
    """`data` as JSON text; a number that JSON cannot write (NaN, an infinity) becomes null."""
    return json.dumps(_writable(data), indent=2, allow_nan=False) + "\n"


def _writable(data: Any) -> Any:
    if isinstance(data, dict):
        return {k: _writable(v) for k, v in cast("dict[Any, Any]", data).items()}
    if isinstance(data, list | tuple):
        return [_writable(v) for v in cast("list[Any]", data)]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return data


def emit_json(data: Any) -> None:
    """Print `data` to stdout as JSON."""
    sys.stdout.write(json_text(data))


def answer(
    json: bool, data: Callable[[], Any], view: Callable[[], Sequence[RenderableType]]
) -> None:
    """Print what a command found: its plain data as JSON, or as it is read."""
    if json:
        emit_json(data())
    else:
        emit(*view())


@contextlib.contextmanager
def progress() -> Generator[Progress]:
    """A progress bar on stderr, or nothing where stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=console(sys.stderr), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda text, done, total: bar.update(
            task, description=text, completed=done, total=total
        )
