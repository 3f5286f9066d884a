"""Sums of products: which are matrix products, and which factors are their operands.

A sum of products is a matrix product where its factors split into two sides that both carry what is
reduced, and each of which has something that the other lacks. What a sum can be is known of its
axes (`in_axes`). What it is depends on a tile (`Contraction.at`): instructions need enough
rows, columns and depth. Kernels, counts and prices all read it here: kernels in the dimensions of
their tiles, the others in axes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Generic, TypeVar

from napkin.algebra.terms import is_operand, multiplies, narrow_type, reads_bytes
from napkin.ir.node import Node, factors, over, union_axes

MOST_SPLIT = 12
"""Factors of a product of which every split into two operands is tried."""

MIN_DOT = 16
"""Smallest dimension of a tile that Triton's `tl.dot` takes on every target."""

NARROW_DEPTH = 32
"""Smallest depth of a product of 8-bit operands: that of one instruction (PTX ISA, mma). So it is
where 8 bits are converted to 16: Triton gives a thread four such values along the depth, and sums
over a depth of 16 came out twice as large as they are (H200, Triton 3.6)."""

EXACT_SUM = 128
"""Products of fp8 that Hopper's tensor cores add up before the sum goes on in float32: they keep
some 14 bits of it (arXiv 2412.19437, section 3.3.2, which takes 128 too)."""

Key = TypeVar("Key", str, int)
"""An axis, or a dimension of tiles."""


@dataclass(frozen=True, eq=False)
class Contraction(Generic[Key]):
    """A sum of products, in axes or in dimensions of tiles.

    Attributes:
        node: the sum.
        order: every axis or dimension, as tensors lie in memory.
        parts: the factors that carry something that is reduced.
        outside: the others, which scale the sum.
        gone: what is reduced.
        sides: the factors of the left and the right operand; none where it is no matrix product.
        spans: what each operand carries, in order.
        rows, columns: what stays of each operand; the rows lie first in memory.
        single: what has one position on a tile, or else it is no product: what both operands carry
            into the result, and what is reduced and only one of them carries.
    """

    node: Node
    order: tuple[Key, ...]
    parts: tuple[Node, ...]
    outside: tuple[Node, ...]
    gone: tuple[Key, ...]
    sides: tuple[tuple[Node, ...], tuple[Node, ...]] = ((), ())
    spans: tuple[tuple[Key, ...], tuple[Key, ...]] = ((), ())
    rows: tuple[Key, ...] = ()
    columns: tuple[Key, ...] = ()
    single: frozenset[Key] = frozenset()

    @property
    def is_product(self) -> bool:
        """Whether it is a matrix product; of axes alone, whether it is one on some tiles."""
        return bool(self.sides[1])

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The axes of the product of its parts, which is summed."""
        return union_axes(self.parts)

    @cached_property
    def dtype(self) -> str:
        """The type of 8 bits in which it is multiplied; "" where that is the plan's."""
        return narrow_type(self.parts)

    @cached_property
    def least_depth(self) -> int:
        """The smallest depth of a matrix product of its factors."""
        return NARROW_DEPTH if reads_bytes(self.parts) else MIN_DOT

    @property
    def flat(self) -> bool:
        """Whether the operands are tiles of two dimensions as they are."""
        return len(self.spans[0]) == 2 and len(self.spans[1]) == 2

    def lies(self, side: int) -> bool:
        """Whether an operand is one reading, multiplied as it lies in memory."""
        return self._lie[side]

    @cached_property
    def _lie(self) -> tuple[bool, ...]:
        return tuple(len(s) == 1 and is_operand(s[0], self.parts) for s in self.sides)

    def transposed(self, side: int) -> bool:
        """Whether an operand's dimensions are in the other order than the product takes them."""
        wanted = (*self.rows, *self.gone) if side == 0 else (*self.gone, *self.columns)
        return self.spans[side] != wanted

    def lengths(self, tiles: Mapping[Key, int]) -> tuple[int, int, int]:
        """Rows, columns and depth of the product on tiles of these lengths."""
        rows = math.prod([tiles[a] for a in self.rows])
        columns = math.prod([tiles[a] for a in self.columns])
        return rows, columns, math.prod([tiles[a] for a in self.gone])

    def at(self: Contraction[str], tiles: Mapping[str, int]) -> Contraction[str]:
        """What it is on tiles of these lengths; along an axis of one position there is nothing."""
        parts = (*self.parts, *self.outside)
        shapes = tuple(tuple(a for a in p.axes if tiles[a] > 1) for p in parts)
        return on_tile(self.node, parts, shapes, over(self.node), self.order, tiles)


def in_axes(
    n: Node,
    order: Sequence[str],
    whole: Collection[str] = (),
    held: Container[Node] = (),
    single: Collection[str] = (),
) -> Contraction[str]:
    """What a sum can be, at any tiles.

    Args:
        order: every axis, as tensors lie in memory.
        whole: axes of which every tile has several positions.
        held: arrays that are factors as they are, though they are products of others.
        single: axes of which no tile has more than one position.
    """
    parts = factors(n.args[0], held)
    shapes = tuple(tuple(a for a in p.axes if a not in single) for p in parts)
    plain, *ways = _ways(n, parts, shapes, over(n), tuple(order))
    can = [w for w in ways if w.single.isdisjoint(whole)]
    return min(can, key=lambda w: (len(w.single), sum(map(len, w.spans))), default=plain)


def on_tile(
    n: Node,
    parts: tuple[Node, ...],
    shapes: tuple[tuple[Key, ...], ...],
    reduced: tuple[Key, ...],
    order: tuple[Key, ...],
    lengths: Mapping[Key, int],
) -> Contraction[Key]:
    """What a sum is on a tile: of all splits of its factors into two operands that are large
    enough, the one whose operands have the fewest values; no product where there is none.

    Args:
        parts: its factors.
        shapes: the dimensions of each, longer than 1.
        reduced: those that are reduced.
    """
    plain, *ways = _ways(n, parts, shapes, reduced, order)

    def span(keys: Sequence[Key]) -> int:
        return math.prod([lengths[k] for k in keys])

    if not ways or span(plain.gone) < plain.least_depth:
        return plain
    large = [w for w in ways if not w.single and min(span(w.rows), span(w.columns)) >= MIN_DOT]
    return min(large, key=lambda w: sum(map(span, w.spans)), default=plain)


@lru_cache(maxsize=4096)
def _ways(
    n: Node,
    parts: tuple[Node, ...],
    shapes: tuple[tuple[Key, ...], ...],
    reduced: tuple[Key, ...],
    order: tuple[Key, ...],
) -> tuple[Contraction[Key], ...]:
    """A sum as no matrix product, and then every matrix product that it may be."""
    known = list(zip(parts, map(frozenset[Key], shapes), strict=True))
    inner = [(p, own) for p, own in known if not own.isdisjoint(reduced)]
    outside = tuple(p for p, own in known if own.isdisjoint(reduced))
    held = [own for _, own in inner]
    gone = frozenset(reduced).intersection(frozenset[Key]().union(*held))
    plain = Contraction(n, order, tuple(p for p, _ in inner), outside, _sorted(gone, order))
    if len(inner) < 2 or not multiplies(n, plain.parts):
        return (plain,)
    found = (_parted(plain, held, chosen) for chosen in splits(held, gone))
    return (plain, *(x for x in found if x))


def _parted(
    plain: Contraction[Key], shapes: Sequence[frozenset[Key]], chosen: Sequence[int]
) -> Contraction[Key] | None:
    """A sum as a product of the factors that are chosen and the others; None where it is none."""
    if not any(chosen):
        return None
    order, gone = plain.order, frozenset(plain.gone)
    sides = [[i for i, c in enumerate(chosen) if c == side] for side in (0, 1)]
    a, b = (frozenset[Key]().union(*(shapes[i] for i in side)) for side in sides)
    rows, columns, both = (_sorted(x, order) for x in (a - b - gone, b - a - gone, a & b & gone))
    if not rows or not columns or not both:
        return None
    if order.index(rows[0]) > order.index(columns[0]):
        sides, a, b, rows, columns = sides[::-1], b, a, columns, rows
    left, right = (tuple(plain.parts[i] for i in side) for side in sides)
    single = (a & b - gone) | (gone - {*both})
    return replace(
        plain, gone=both, sides=(left, right), spans=(_sorted(a, order), _sorted(b, order)),
        rows=rows, columns=columns, single=single,
    )  # fmt: skip


def _sorted(keys: Collection[Key], order: Sequence[Key]) -> tuple[Key, ...]:
    return tuple(k for k in order if k in keys)


def splits(spans: Sequence[Collection[Key]], gone: Collection[Key]) -> Iterator[tuple[int, ...]]:
    """Ways to split factors with these dimensions into two operands: 0 or 1 for each of them, 0 for
    the first. Of more than `MOST_SPLIT` factors, those stay together that share a dimension
    which is not reduced, or have the same ones, and the first 2^`MOST_SPLIT` ways are all."""
    groups = list(range(len(spans))) if len(spans) <= MOST_SPLIT else _together(spans, gone)
    first = [g for g in dict.fromkeys(groups) if g != groups[0]]
    every = itertools.product((0, 1), repeat=len(first))
    for chosen in itertools.islice(every, 2**MOST_SPLIT):
        side = {groups[0]: 0, **dict(zip(first, chosen, strict=True))}
        yield tuple(side[g] for g in groups)


def _together(spans: Sequence[Collection[Key]], gone: Collection[Key]) -> list[int]:
    """A number for each factor, the same for those on one side of any product."""
    groups = list(range(len(spans)))
    for i, mine in enumerate(spans):
        for j, other in enumerate(spans[:i]):
            if set(mine) & set(other) - set(gone) or set(mine) == set(other):
                groups = [groups[j] if g == groups[i] else g for g in groups]
    return groups
