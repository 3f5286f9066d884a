"""Where napkin keeps what outlives a process: launch recipes, kernel files, and settings that
were measured.

The folder is `$NAPKIN_CACHE`, or `napkin` in `$XDG_CACHE_HOME` or in `~/.cache`. Files are replaced
whole, so that a reader sees all of one or nothing. Where others than the user (and root) can write,
nothing is read and nothing is kept: recipes hold code that is run.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import time
import warnings
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from types import ModuleType

_PART = ".part"
_STALE = 3600.0
"""Seconds after which a file that was begun is not being written any more."""


def folder() -> Path:
    """The folder; it need not exist. A user without a home has one of this process alone."""
    if chosen := os.environ.get("NAPKIN_CACHE"):
        return Path(os.path.expanduser(chosen))
    base = os.path.expanduser(os.environ.get("XDG_CACHE_HOME", ""))
    with contextlib.suppress(RuntimeError):  # a user without a home
        return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "napkin"
    return temporary()


@lru_cache(maxsize=1)
def temporary() -> Path:
    """A folder of this process alone, which goes when it ends."""
    made = tempfile.mkdtemp(prefix="napkin-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


@lru_cache(maxsize=1)
def triton_version() -> str:
    """Which Triton compiles kernels here: what is kept of one is not taken for another."""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return ""


def read(path: Path) -> str | None:
    """The text of a file that was kept; None where there is none, or others can write it."""
    try:
        with path.open(encoding="utf-8") as file:
            if not (_own(os.fstat(file.fileno()), path) and _own(path.parent.stat(), path.parent)):
                return None
            return file.read()
    except (OSError, UnicodeDecodeError):
        return None


def write(path: Path, text: str) -> None:
    """Keep a text, in place of what the file has.

    Raises:
        OSError: it cannot be written, or others can write the folder.
    """
    _make(path.parent)
    if not _own(path.parent.stat(), path.parent):
        raise PermissionError(13, "others can write the folder", str(path.parent))
    _clean(path.parent)
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, suffix=_PART, delete=False, encoding="utf-8", newline="\n"
    ) as part:
        try:
            part.write(text)
            part.close()
            os.replace(part.name, path)
        except BaseException:
            os.unlink(part.name)
            raise


@lru_cache(maxsize=1024)
def module_of(source: str) -> ModuleType:
    """The kernel file as a module: the given text is what runs, and Triton reads it from a file."""
    name = f"kernel_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    path = folder() / "kernels" / f"{name}.py"
    try:
        if read(path) != source:
            write(path, source)
    except OSError:
        path = temporary() / f"{name}.py"
        write(path, source)
    made = ModuleType(f"napkin_{name}")
    made.__file__ = str(path)
    sys.modules[made.__name__] = made
    exec(compile(source, str(path), "exec", dont_inherit=True), vars(made))
    return made


def _make(folder: Path) -> None:
    """Make a folder, and those around it, for the user alone."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _own(facts: os.stat_result, path: Path) -> bool:
    """Whether only the user and root can write a file or a folder; warns where others can."""
    if not hasattr(os, "geteuid"):  # not POSIX
        return True
    good = facts.st_uid in (0, os.geteuid()) and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not good:
        warnings.warn(
            f"napkin leaves {path} alone, since others can write it: make it yours, as with "
            "chmod go-w, or set NAPKIN_CACHE to a folder of yours",
            RuntimeWarning,
            stacklevel=2,
        )
    return good


@lru_cache(maxsize=64)
def _clean(folder: Path) -> None:
    """Remove what processes began to write there and did not end; once in a process."""
    for part in folder.glob(f"*{_PART}"):
        with contextlib.suppress(OSError):
            if time.time() - part.stat().st_mtime > _STALE:
                part.unlink()
