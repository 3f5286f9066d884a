"""Which sums of a loop program are matrix products, and which factors are their operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from napkin.derive.terms import multiplies
from napkin.diagram.node import Node, factors, over
from napkin.lower.operands import MIN_DOT, least_depth, splits
from napkin.lower.program import Program


@dataclass(frozen=True, eq=False)
class Dot:
    """One matrix product of a loop program.

    Attributes:
        node: the sum.
        sides: the factors of the left and the right operand.
        spans: the tile dimensions of each operand, in order.
        gone: the reduced dimensions.
        rows, columns: the dimensions that stay.
    """

    node: Node
    sides: tuple[tuple[Node, ...], tuple[Node, ...]]
    spans: tuple[tuple[int, ...], tuple[int, ...]]
    gone: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @property
    def flat(self) -> bool:
        """Whether the operands are tiles of two dimensions as they are."""
        return len(self.spans[0]) == 2 and len(self.spans[1]) == 2

    @property
    def parts(self) -> tuple[Node, ...]:
        """The factors of both operands."""
        return (*self.sides[0], *self.sides[1])

    def turned(self, side: int) -> bool:
        """Whether an operand's dimensions are in the other order than the product takes them."""
        wanted = [*self.rows, *self.gone] if side == 0 else [*self.gone, *self.columns]
        return list(self.spans[side]) != wanted


def dot_of(program: Program, n: Node) -> Dot | None:
    """The matrix product that a sum becomes, if it does: the cheapest split of its factors into two
    operands whose tiles are large enough."""
    if n.op != "sum":
        return None
    reduced = frozenset(d for d, axes in enumerate(program.dims) if axes[0] in over(n))
    dots = _dots(n, tuple(map(program.shape, factors(n.args[0]))), reduced)
    if not dots:
        return None
    if program.span(dots[0].gone) < least_depth(dots[0].parts):
        return None
    sides = [d for d in dots if all(program.span(x) >= MIN_DOT for x in (d.rows, d.columns))]
    return min(sides, key=lambda d: sum(map(program.span, d.spans)), default=None)


@lru_cache(maxsize=4096)
def _dots(n: Node, shapes: Sequence[tuple[int, ...]], reduced: frozenset[int]) -> Sequence[Dot]:
    """The matrix products that a sum may become, at any lengths of its factors' tile dimensions."""
    parts = list(zip(factors(n.args[0]), map(frozenset[int], shapes), strict=True))
    gone = reduced & frozenset[int]().union(*(dims for _, dims in parts))
    parts = [(p, dims) for p, dims in parts if dims & gone]
    if len(parts) < 2 or not gone or not multiplies(n, [p for p, _ in parts]):
        return ()
    found = (_parted(n, parts, chosen, gone) for chosen in splits([d for _, d in parts], gone))
    return tuple(dot for dot in found if dot)


def _parted(
    n: Node,
    parts: Sequence[tuple[Node, frozenset[int]]],
    chosen: Sequence[int],
    gone: frozenset[int],
) -> Dot | None:
    """A sum as a product of the factors that are chosen and the others; None where it is none."""
    sides = [[x for x, c in zip(parts, chosen, strict=True) if c == side] for side in (0, 1)]
    a, b = (frozenset[int]().union(*(dims for _, dims in side)) for side in sides)
    rows, columns = a - gone, b - gone
    if not sides[1] or not rows or not columns or rows & columns or not gone <= (a & b):
        return None
    if min(rows) > min(columns):
        sides, a, b, rows, columns = sides[::-1], b, a, columns, rows
    first, second = (tuple(p for p, _ in side) for side in sides)
    spans = tuple(sorted(a)), tuple(sorted(b))
    return Dot(n, (first, second), spans, *(tuple(sorted(x)) for x in (gone, rows, columns)))
