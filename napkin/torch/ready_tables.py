"""Tables of prepared launches, by the tensors and the scalars of a call."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")

MOST = 4096
"""Launches that are remembered for one kind of call; then it starts again."""


def remember(table: dict[Any, T], key: Any, prepared: T) -> T:
    """Keep `prepared` in a table, which is emptied first where it has `MOST` launches."""
    if len(table) >= MOST:
        table.clear()
    table[key] = prepared
    return prepared
