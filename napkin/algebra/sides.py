"""The two sides of a body: what a chunk has, and what results have."""

from __future__ import annotations

from typing import Any, Literal

Side = Literal["x", "r", "mixed"]


class NotSeparable(Exception):
    """The body has no form sum_k a_k(x) b_k(r) that the rules can find and prove."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(reason)
        self.place, self.reason = place, reason


def by_side(expression: Any) -> tuple[set[Any], set[Any]]:
    """The x symbols and the r symbols of an expression, told apart by their names."""
    xs, rs = set[Any](), set[Any]()
    for s in expression.free_symbols:
        (rs if s.name.startswith("r") else xs).add(s)
    return xs, rs
