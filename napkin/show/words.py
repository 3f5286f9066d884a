"""Sizes and numbers as a person reads them; JSON and CSV have them whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """Sizes that axes take together, one after the other.

    Attributes:
        axes: the axes.
        sizes: their sizes, rising.
    """

    axes: tuple[str, ...]
    sizes: tuple[int, ...]


def printable(words: str) -> str:
    """Words with a question mark for each character that no file of text can hold."""
    return "".join(c if c.isprintable() else "?" for c in words)


def sizes_text(sizes: Mapping[str, int], between: str = ",") -> str:
    """Sizes as the command line takes them, or with something else between them."""
    return between.join(f"{a}={n}" for a, n in sizes.items())


def bytes_text(count: float) -> str:
    """Bytes in the largest unit that leaves a whole number before the point."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,.0f} B"


def us_text(seconds: float) -> str:
    """Seconds as microseconds."""
    return f"{1e6 * seconds:,.1f} us"
