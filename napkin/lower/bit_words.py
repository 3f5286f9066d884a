"""Boxes of several key axes, tested by words of bits: one word for a query, one for a key.

A chunk holds few positions along each key axis, so that a word has a bit for every one of them: a
query's word has the positions that its intervals leave out, a key's word has its own. The key lies
in the box if the two words share no bit: one operation for a score, where there would be two
comparisons for each axis, and one value to hold for a query instead of two bounds for each axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.ir.key_sets import Box, bounds_of, box_member
from napkin.ir.node import Node, node, postorder, union_axes
from napkin.ir.rewrite import rewrite
from napkin.keys.visits import Visits
from napkin.lower import syntax as sx
from napkin.lower.syntax import Expr

OUTSIDE = "outside"
"""Operator: a query's word, from the bounds of its intervals and the start of the chunk."""

PLACE = "place"
"""Operator: a key's word, from its place in the chunk."""

DISJOINT = "disjoint"
"""Operator: whether two words share no bit."""

LEFT_OUT = "left_out"
"""The function of the kernel file that writes the part of one interval in a query's word."""

BITS = 30
"""Bits of a word: with one more for the end of an interval, an int32 stays positive."""


def fits_words(seen: Visits, tiles: Mapping[str, int]) -> bool:
    """Whether a word has a bit for every position of a chunk."""
    axes = seen.key_axes
    return len(axes) > 1 and sum(tiles[a] for a in axes) <= BITS


def in_words(test: Node, seen: Visits) -> Node:
    """`test` with words for every box of `seen` that may have them."""
    axes = seen.key_axes
    worded = {box_member(b, axes): _disjoint(b, axes) for b in seen.key_boxes if _plain(b)}
    return rewrite([test], lambda old, _: worded.get(old))[test]


def _plain(box: Box) -> bool:
    """Whether a box has every position of its intervals, and its bounds are not read."""
    read = any(n.op == "input" for n in postorder(bounds_of([box])))
    return all(i.step == 1 for i in box.intervals) and not read


def _disjoint(box: Box, axes: Sequence[str]) -> Node:
    bounds = tuple(bounds_of([box]))
    query = node(OUTSIDE, bounds, tuple(axes), union_axes(bounds), "int")
    key = node(PLACE, (), tuple(axes), tuple(axes), "int")
    return node(DISJOINT, (query, key), (), union_axes((query, key)), "bool")


def outside(bounds: Sequence[Expr], blocks: Sequence[Expr], starts: Sequence[Expr]) -> Expr:
    """A query's word, from where each interval begins and ends."""
    pairs = zip(bounds[::2], bounds[1::2], starts, blocks, strict=True)
    parts = [
        _shifted(sx.call(LEFT_OUT, first, end, start, block), blocks[:i])
        for i, (first, end, start, block) in enumerate(pairs)
    ]
    return sx.chain("|", parts)


def place(
    positions: Sequence[Expr], blocks: Sequence[Expr], starts: Sequence[Expr], int32: Expr
) -> Expr:
    """A key's word."""
    parts: list[Expr] = []
    for i, (x, start) in enumerate(zip(positions, starts, strict=True)):
        # Places in a chunk are small, though positions may need 64 bits.
        lane = sx.method(sx.binary(x, "-", start), "to", int32)
        parts.append(_shifted(sx.binary(1, "<<", lane), blocks[:i]))
    return sx.chain("|", parts)


def _shifted(word: Expr, below: Sequence[Expr]) -> Expr:
    """Bits moved past those of the axes before."""
    return sx.binary(word, "<<", sx.chain("+", below)) if below else word
