"""Axes of key sets: what they are called, with or without a name, and what sizes they take."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.errors import InputError
from napkin.ir.array import Array, lifted
from napkin.ir.key_sets import spec_of
from napkin.ir.names import axis_names
from napkin.ir.node import Node
from napkin.ir.selecting import position


def placeholder(role: str, i: int) -> str:
    """An axis that is not yet named: no user's axis begins with a question mark."""
    return f"?{role}{i}"


def unnamed(axis: str) -> bool:
    """Whether an axis is a placeholder."""
    return axis.startswith("?")


def called(axis: str) -> str:
    """An axis in a message; one without a name goes by its place in the layout."""
    return f"axis {axis[2:]} of the layout" if unnamed(axis) else f"axis {axis}"


def _sized(axis: str, sizes: Mapping[str, int]) -> str:
    return f"{called(axis)} has {sizes[axis]}" if unnamed(axis) else f"{axis}={sizes[axis]}"


def axes_of(
    queries: str | None, keys: str | None, dims: int, what: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Named axes of a pattern, or placeholders."""
    if (queries is None) != (keys is None):
        raise InputError(f"{what}: name both queries and keys, or neither")
    if queries is None or keys is None:
        q = tuple(placeholder("q", i) for i in range(dims))
        return q, tuple(placeholder("x", i) for i in range(dims))
    pair = (
        axis_names(queries, f"{what} queries='{queries}'"),
        axis_names(keys, f"{what} keys='{keys}'"),
    )
    for names, role in zip(pair, ("queries", "keys"), strict=True):
        if len(names) != dims:
            raise InputError(
                f"{what}: {role}='{' '.join(names)}' names {len(names)} axes, the set has {dims}"
            )
    both = [a for a in pair[0] if a in pair[1]]
    if both:
        raise InputError(
            f"{what}: {both[0]!r} stands in queries and in keys; the keys are another axis, as in "
            "nk.rename(X, t='x')"
        )
    return pair


def place_of(at: Array | None, query: str, what: str) -> Node:
    """Where a query lies among the keys: at its own position, if nothing else is said."""
    place = position(query) if at is None else lifted(at)
    if place.kind != "int":
        raise InputError(f"{what}: at=... must be whole positions, as from nk.index and nk.size")
    return place


def check_sizes(keys: Node, sizes: Mapping[str, int]) -> None:
    """Check sizes against the node of a key set.

    Raises:
        InputError: queries and keys disagree, or an axis is too short.
    """
    spec = spec_of(keys)
    for q, x in spec.tied:
        if q in sizes and x in sizes and sizes[q] != sizes[x]:
            raise InputError(
                f"{spec.text}: queries and keys share one layout, but {_sized(q, sizes)} and "
                f"{_sized(x, sizes)}; give one size, or say where each query lies among the keys "
                "with at=..., of a set that takes it"
            )
    for need in spec.needs:
        if need.axis in sizes and sizes[need.axis] < need.least:
            raise InputError(
                f"{spec.text}: {need.why}, but {_sized(need.axis, sizes)}; "
                f"it must be at least {need.least}"
            )
