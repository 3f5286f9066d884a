"""Plots as files: by matplotlib, the same picture for the same numbers."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Generator
from pathlib import Path
from typing import Any

from napkin.errors import InputError, check_known
from napkin.show.files import check_file, write_file

_FORMATS = ("svg", "png", "pdf")


def check_plot(path: Path) -> None:
    """Check that a plot can be made, before the work that it shows.

    Raises:
        InputError: the file's ending is none that can be written, matplotlib is missing, or the
            file cannot be written.
    """
    ending = path.suffix.removeprefix(".").lower()
    check_known(ending, _FORMATS, f"--plot {path}: the ending says what to write")
    figure_class()
    check_file(path)


def figure_class(what: str = "--plot") -> Any:
    """matplotlib's Figure, which `what` needs.

    Raises:
        InputError: matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError(
            f"{what} needs matplotlib, which is not installed; pip install 'napkin[report]'"
        ) from None
    return Figure


@contextlib.contextmanager
def figure(path: Path, width: float, height: float) -> Generator[Any]:
    """A figure to draw, of so many inches, that is then written, without dates and with names in
    it that no chance picks.

    Raises:
        InputError: see `check_plot`; or the file cannot be written.
    """
    check_plot(path)
    import matplotlib

    ending = path.suffix.removeprefix(".").lower()
    dated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    with matplotlib.rc_context({"svg.hashsalt": "napkin", "svg.fonttype": "none"}):
        made, out = figure_class()(figsize=(width, height), layout="constrained"), io.BytesIO()
        yield made
        made.savefig(out, format=ending, metadata=dated[ending])
    write_file(path, out.getvalue())
