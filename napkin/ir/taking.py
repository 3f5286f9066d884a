"""Gathers: an input read at computed whole-number positions along some of its axes.

`take` is an operator whose first argument is the table and whose others are the positions. In a
kernel it is a reading as any other, at addresses of its own: a leaf whose arguments are the
positions, or where the table is computed, of what an earlier kernel stored. Arithmetic and other
readings are moved out of the table first (`napkin.ir.behind`). Positions are clamped into the
axis, as numpy's take with mode="clip"; those of a window (`napkin.ir.windows`) lie within it
by the sizes, or hold 0 where it is padded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from napkin.errors import InputError
from napkin.ir.node import Node, node, union_axes
from napkin.ir.windows import Span

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"
Spans: TypeAlias = "tuple[Span | None, ...]"

TABLES = frozenset({"input", "listed"})
"""Leaves that a take reads: inputs, and numbers that are written out."""


@dataclass(frozen=True)
class Taken:
    """How a reading at computed positions goes over its tensor.

    Attributes:
        under: for each axis of the tensor, the axis that it is read under, or which argument of
            the reading says where along it.
        spans: for each of these arguments, how far it reaches if it is a window.
        stored: whether a kernel stores the tensor: an axis of it may be empty, and 0 is read then.
    """

    under: tuple[str | int, ...]
    spans: Spans
    stored: bool = False

    def renamed(self, table: Mapping[str, str]) -> Taken:
        """The same reading under other axis names."""
        under = (table.get(u, u) if isinstance(u, str) else u for u in self.under)
        return replace(self, under=tuple(under))


# --- in diagrams --------------------------------------------------------------------------------


def take(
    table: Node, positions: Sequence[Node], axes: tuple[str, ...], spans: Spans | None = None
) -> Node:
    """`table` at `positions` along `axes`; `spans` says which of them are windows.

    Raises:
        InputError: a position is no whole number.
    """
    for axis, at in zip(axes, positions, strict=True):
        if at.kind != "int":
            raise InputError(
                f"take {axis}=...: positions are whole numbers, as from nk.index and nk.size or "
                f"an input such as 'q:int', not {at.kind}; nk.cast(..., 'int32') makes them so"
            )
    # Axes of positions stand where the axis does that they replace, as the values lie in memory.
    places = dict(zip(axes, positions, strict=True))
    every = dict.fromkeys(b for a in table.axes for b in (places[a].axes if a in places else (a,)))
    spans = (None,) * len(axes) if spans is None else spans
    return node("take", (table, *positions), (axes, spans), every, table.kind)


def taken_axes(n: Node) -> tuple[str, ...]:
    """The axes of the table along which a take has positions."""
    return cast("tuple[str, ...]", n.params[0])


def spans_of(n: Node) -> Spans:
    """Which positions of a take are windows."""
    return cast("Spans", n.params[1])


def still(n: Node) -> tuple[str, ...]:
    """The axes of the table that a take leaves as they are: its positions do not go along them."""
    inner, *positions = n.args
    moved = {*taken_axes(n), *union_axes(positions)}
    return tuple(a for a in inner.axes if a not in moved)


def slid(table: Node, axis: str, at: Node, span: Span) -> Node:
    """`table` read along `axis` at the positions of a window; of a table that is read along other
    axes already, and not at positions that go along this one, one reading."""
    if table.op == "take" and axis in still(table):
        axes, spans = (*taken_axes(table), axis), (*spans_of(table), span)
        return take(table.args[0], (*table.args[1:], at), axes, spans)
    return take(table, (at,), (axis,), (span,))


def take_text(inner: Sequence[str], n: Node) -> str:
    """A take as it is written, from the texts of its table and of its positions."""
    table, *positions = inner
    at = ", ".join(f"{a}={p}" for a, p in zip(taken_axes(n), positions, strict=True))
    return f"{'slide' if any(spans_of(n)) else 'take'}({table}, {at})"


# --- in kernels ---------------------------------------------------------------------------------


def read_table(old: Node, args: tuple[Node, ...]) -> Node | None:
    """For `rewrite`: a take as a reading of its table, where that lies in memory."""
    if old.op != "take" or args[0].op not in TABLES or args[0].args:
        return None

    table, *positions = args
    taken = taken_axes(old)
    under = tuple(taken.index(a) if a in taken else a for a in table.axes)
    spans = spans_of(old)
    rebuilt = take(table, positions, taken, spans)
    params = (table.params[0], own_axes(table), Taken(under, spans))
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


def of_stored(leaf: Node) -> Node:
    """A reading at computed positions as that of a tensor which a kernel stores."""
    taken = taken_of(leaf)
    assert taken is not None
    params = (*leaf.params[:2], replace(taken, stored=True))
    return node("input", leaf.args, params, leaf.axes, leaf.kind)


def perhaps_empty(leaf: Node) -> tuple[str, ...]:
    """The axes of a reading's tensor of which positions are computed, and there may be none: those
    of a stored one that the reading does not go along. Sizes of 0 are refused of axes along which a
    diagram takes, and rules take of others."""
    taken = taken_of(leaf)
    if taken is None or not taken.stored:
        return ()
    read = zip(own_axes(leaf), read_axes(leaf), strict=True)
    return tuple(a for a, at in read if clamped(leaf, at) and a not in leaf.axes)


def gathered(leaf: Node) -> Node | None:
    """The positions along the last axis of a reading's tensor, where they are computed: values that
    follow each other in a tile need not do so in memory. None of a window, in which they do."""
    taken = taken_of(leaf)
    if taken is None or not taken.under:
        return None
    last = taken.under[-1]
    return None if isinstance(last, str) or taken.spans[last] is not None else leaf.args[last]


def position_of(leaf: Node, axis: str) -> Node | None:
    """The positions that stand for one of `read_axes`, if they are computed."""
    return leaf.args[int(axis[1:])] if axis.startswith("?") else None


def clamped(leaf: Node, axis: str) -> bool:
    """Whether positions along one of `read_axes` are clamped into the tensor's axis: those that
    are computed, but of windows, which lie within it."""
    taken = taken_of(leaf)
    return taken is not None and axis.startswith("?") and taken.spans[int(axis[1:])] is None


def table_of(leaf: Node) -> Node:
    """The tensor of a reading as a leaf, under its own axes where positions are computed."""
    if taken_of(leaf) is None:
        return leaf
    own = cast("tuple[str, ...]", leaf.params[1])
    return node("input", params=leaf.params[:2], axes=own, kind=leaf.kind)


# --- values -------------------------------------------------------------------------------------


def reading_of(n: Node) -> tuple[Node, Sequence[Node], Taken]:
    """The table of a take, or of a reading at computed positions, the positions, and how it goes
    over the table."""
    taken = taken_of(n)
    if taken is not None:
        return table_of(n), n.args, taken
    names, (table, *positions) = taken_axes(n), n.args
    under = tuple(names.index(a) if a in names else a for a in table.axes)
    return table, positions, Taken(under, spans_of(n))


def own_axes(leaf: Node) -> tuple[str, ...]:
    """The tensor's own names for the axes of an input leaf."""
    return cast("tuple[str, ...]", leaf.params[1]) if len(leaf.params) > 1 else leaf.axes
