"""Moves that a room offers but that rooms above it make, such as drawing a `Diagram`.

Imports run one way, so no room imports those that build on it. The face of the package
(`napkin.face`), which stands above the rooms, says here how each move is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_offered: dict[str, Callable[..., Any]] = {}


def offer(**moves: Callable[..., Any]) -> None:
    """Say how moves are made, by their names."""
    _offered.update(moves)


def made(move: str, /, *args: Any, **settings: Any) -> Any:
    """What a move gives."""
    return _offered[move](*args, **settings)
