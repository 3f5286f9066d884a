"""Which Triton compiles the kernels here: what is kept of one is not taken for another."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from pathlib import Path

Version = tuple[int, int]

NEWEST: Version = (3, 9)
"""The newest Triton that was read; later ones are taken for it."""


@functools.cache
def installed() -> Version:
    """The version of the Triton that an import gives, without importing it: `NEWEST` where none is
    installed."""
    loaded = getattr(sys.modules.get("triton"), "__version__", None)
    spec = None if loaded else importlib.util.find_spec("triton")
    text = f'__version__ = "{loaded}"' if loaded else ""
    if spec is not None and spec.origin:
        text = Path(spec.origin).read_text(encoding="utf-8")
    found = re.search(r"__version__ = ['\"](\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else NEWEST
