"""`napkin list`: the shipped diagrams."""

from __future__ import annotations

from napkin.cli import options


def list_diagrams(json: options.Json = False) -> None:
    """List the shipped diagrams."""
    from napkin.show import console, overview

    console.answer(json, overview.diagrams_json, lambda: [overview.diagrams_table()])
