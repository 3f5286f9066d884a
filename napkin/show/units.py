"""Numbers as a person reads them; JSON and CSV have them whole."""

from __future__ import annotations


def bytes_text(count: float) -> str:
    """Bytes in the largest unit that leaves a whole number before the point."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,.0f} B"


def us_text(seconds: float) -> str:
    """Seconds as microseconds."""
    return f"{1e6 * seconds:,.1f} us"
