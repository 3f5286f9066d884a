"""Gathers: an input read at computed whole-number positions along some of its axes.

`take` is an operator whose first argument is the table and whose others are the positions. In a
kernel it is a reading as any other, at addresses of its own: a leaf whose arguments are the
positions. Positions are clamped into the axis, as numpy's take with mode="clip".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from napkin.diagram.node import Node, node, union_axes
from napkin.errors import InputError

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"

TABLES = frozenset({"input", "listed"})
"""Leaves that a take reads: inputs, and numbers that are written out."""


@dataclass(frozen=True)
class Taken:
    """How a reading at computed positions goes over its tensor.

    Attributes:
        under: for each axis of the tensor, the axis that it is read under, or which argument of
            the reading says where along it.
    """

    under: tuple[str | int, ...]

    def renamed(self, table: Mapping[str, str]) -> Taken:
        """The same under other axis names."""
        return Taken(tuple(table.get(u, u) if isinstance(u, str) else u for u in self.under))


# --- in diagrams --------------------------------------------------------------------------------


def take(table: Node, positions: Sequence[Node], axes: tuple[str, ...]) -> Node:
    """`table` at `positions` along `axes`.

    Raises:
        InputError: the table is computed, or a position is no whole number.
    """
    source = table
    while source.op == "rename":
        source = source.args[0]
    if source.op not in TABLES:
        raise InputError(
            f"take along {' '.join(axes)}: the array is computed (by {source.op}), and only what "
            "lies in memory is read at computed positions; make it an input of the diagram"
        )
    for axis, at in zip(axes, positions, strict=True):
        if at.kind != "int":
            raise InputError(
                f"take {axis}=...: positions are whole numbers, as from nk.index and nk.size or "
                f"an input such as 'q:int', not {at.kind}; nk.cast(..., 'int32') makes them so"
            )
    rest = tuple(a for a in table.axes if a not in axes)
    every = dict.fromkeys((*rest, *union_axes(positions)))
    return node("take", (table, *positions), (axes,), every, table.kind)


def taken_axes(n: Node) -> tuple[str, ...]:
    """The axes of the table along which a take has positions."""
    return cast("tuple[str, ...]", n.params[0])


def take_text(inner: Sequence[str], axes: Sequence[str]) -> str:
    """A take as it is written, from the texts of its table and of its positions."""
    table, *positions = inner
    at = ", ".join(f"{a}={p}" for a, p in zip(axes, positions, strict=True))
    return f"take({table}, {at})"


# --- in kernels ---------------------------------------------------------------------------------


def read_table(old: Node, args: tuple[Node, ...]) -> Node | None:
    """For `rewrite`: a take as a reading of its table."""
    if old.op != "take":
        return None
    from napkin.diagram.expand import own_axes

    table, *positions = args
    taken = taken_axes(old)
    under = tuple(taken.index(a) if a in taken else a for a in table.axes)
    rebuilt = take(table, positions, taken)
    params = (table.params[0], own_axes(table), Taken(under))
    return node("input", positions, params, rebuilt.axes, table.kind)


def taken_of(n: Node) -> Taken | None:
    """How `n` goes over its tensor, if it is a reading at computed positions."""
    found = n.params[2] if n.op == "input" and len(n.params) > 2 else None
    return found if isinstance(found, Taken) else None


def read_axes(leaf: Node) -> tuple[str, ...]:
    """The axis under which each axis of a reading's tensor is read; where that is at computed
    positions, a name that no axis has, for `position_of`."""
    taken = taken_of(leaf)
    if taken is None:
        return leaf.axes
    return tuple(f"?{u}" if isinstance(u, int) else u for u in taken.under)


def position_of(leaf: Node, axis: str) -> Node | None:
    """The positions that stand for one of `read_axes`, if they are computed."""
    return leaf.args[int(axis[1:])] if axis.startswith("?") else None


def table_of(leaf: Node) -> Node:
    """The tensor of a reading as a leaf, under its own axes where positions are computed."""
    if taken_of(leaf) is None:
        return leaf
    own = cast("tuple[str, ...]", leaf.params[1])
    return node("input", params=leaf.params[:2], axes=own, kind=leaf.kind)


# --- values -------------------------------------------------------------------------------------


def gathered(n: Node, values: Mapping[Node, Array]) -> Array:
    """The value of a take, or of a reading at computed positions."""
    taken = taken_of(n)
    if taken is None:
        names, (table, *positions) = taken_axes(n), n.args
        under = tuple(names.index(a) if a in names else a for a in table.axes)
    else:
        table, positions, under = table_of(n), n.args, taken.under
    return _picked(values[table], under, [(values[p], p.axes) for p in positions], n.axes)


def _picked(
    table: Array,
    under: Sequence[str | int],
    positions: Sequence[tuple[Array, tuple[str, ...]]],
    target: Sequence[str],
) -> Array:
    import numpy as np

    from napkin.diagram.evaluate import aligned

    where: list[Array] = []
    for u, size in zip(under, table.shape, strict=True):
        if isinstance(u, str):
            where.append(aligned(np.arange(size), (u,), target))
        else:
            where.append(np.clip(aligned(*positions[u], target), 0, size - 1))
    return table[tuple(where)]
