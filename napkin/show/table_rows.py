"""Rows of numbers as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from napkin.errors import InputError
from napkin.show.files import check_file, write_file


def check_csv(path: Path) -> None:
    """Check the name of a CSV file, before the work whose result it is for.

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
