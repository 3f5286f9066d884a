"""Where napkin keeps what outlives a process: launch recipes, and settings that were measured.

The folder is `$NAPKIN_CACHE`, or `napkin` in `$XDG_CACHE_HOME` or in `~/.cache`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from functools import lru_cache
from pathlib import Path


def folder() -> Path:
    """The folder; it need not exist. A user without a home has one of this process alone."""
    if chosen := os.environ.get("NAPKIN_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):  # a user without a home
        return (Path(base) if base else Path.home() / ".cache") / "napkin"
    return temporary()


@lru_cache(maxsize=1)
def temporary() -> Path:
    """A folder of this process alone."""
    return Path(tempfile.mkdtemp(prefix="napkin-"))
