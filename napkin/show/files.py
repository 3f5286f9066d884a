"""Writing files: whole or not at all; rows of numbers as CSV."""

from __future__ import annotations

import contextlib
import csv
import io
import os
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from napkin.errors import InputError


def write_file(path: Path, content: bytes) -> None:
    """Write `content` to `path`: to a temporary file beside it, which then takes its name.

    What is there and is no regular file (/dev/null, a pipe) is written to as it is.

    Raises:
        InputError: it cannot be written; a file that was there before is untouched.
    """
    with _refusing(path):
        if path.is_dir():
            raise InputError(f"{path} is a folder; remove it, or write to another place")
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        target = path.resolve()
        beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            with beside.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise


def remove_file(path: Path, mark: str) -> None:
    """Remove a file, where it is there and its text has `mark`.

    Raises:
        InputError: it cannot be removed.
    """
    with _refusing(path):
        if path.is_file() and mark.encode() in path.read_bytes():
            path.unlink()


def writable_folder(path: Path) -> None:
    """Make `path` a folder that files can be written into.

    Raises:
        InputError: it cannot be one.
    """
    with _refusing(path):
        path.mkdir(parents=True, exist_ok=True)
        _probe(path / f".napkin.{os.getpid()}.tmp")


def check_folder(path: Path) -> None:
    """Check that files can be written into a folder, before the work whose results they are for.
    A folder that is not there yet is not made.

    Raises:
        InputError: they cannot be.
    """
    missing = [p for p in (path, *path.parents) if not p.exists()]
    try:
        writable_folder(path)
    finally:
        for made in missing:
            with contextlib.suppress(OSError):
                made.rmdir()


def check_file(path: Path | None) -> None:
    """Check that a file, where one is asked for, can be written, before the work whose result it
    is for.

    Raises:
        InputError: it cannot be.
    """
    if path is None:
        return
    with _refusing(path):
        if path.is_dir():
            raise InputError(f"{path} is a folder; name a file in it, as in {path / 'name.svg'}")
        if not path.exists() or path.is_file():
            _probe(path.resolve().with_name(f".{path.name}.{os.getpid()}.tmp"))


def check_drawing(path: Path, option: str, *endings: str) -> None:
    """Check that a drawing can be written, before the work that it shows. A name without an ending
    will do.

    Raises:
        InputError: the name's ending is that of another format, or the file cannot be written.
    """
    if path.suffix.lower() not in ("", *endings):
        raise InputError(f"{option} {path}: the drawing's name ends in {' or '.join(endings)}")
    check_file(path)


def check_csv(path: Path) -> None:
    """Check that a CSV file can be written, before the work whose result it is for.

    Raises:
        InputError: its ending is another, or it cannot be written.
    """
    if path.suffix.lower() != ".csv":
        raise InputError(f"--csv {path}: the file's name ends in .csv")
    check_file(path)


def csv_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """Rows under these names, by default those of the first; what is None is empty."""
    out = io.StringIO()
    names = list(rows[0]) if columns is None and rows else columns or []
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a CSV file, whole or not at all.

    Raises:
        InputError: it cannot be written.
    """
    write_file(path, csv_text(rows).encode())


def _probe(path: Path) -> None:
    """Make an empty file, and delete it."""
    path.touch(exist_ok=False)
    path.unlink()


@contextlib.contextmanager
def _refusing(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(
            f"{path} cannot be written: {reason}; name a place where you may write"
        ) from None
