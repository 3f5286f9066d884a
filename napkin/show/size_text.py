"""Sizes of axes, as they are written."""

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


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Sizes as the command line takes them."""
    return ",".join(f"{a}={n}" for a, n in sizes.items())
