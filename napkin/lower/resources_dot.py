"""Which instruction multiplies two tiles, and the register layout of its result.

What Triton picks for `tl.dot(..., input_precision="ieee")`, read off the compiler: wgmma on sm_90
for 16-bit operands of at least 64 rows, mma.sync for other 16-bit operands, and multiply-add on
single values for float32, which no matrix instruction multiplies exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from napkin.derive.terms import multiplies
from napkin.diagram.node import Node, factors, over
from napkin.lower.operands import MIN_DOT, least_depth, splits
from napkin.lower.program import Program
from napkin.lower.resources_layout import LANES, Layout, Mma, blocked

Unit = Literal["wgmma", "mma", "fma"]


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


def unit(capability: int, bits: int, rows: int, warps: int) -> Unit:
    """The instruction for operands of `bits` bits."""
    if bits > 16:
        return "fma"
    return "wgmma" if capability == 90 and rows % 64 == 0 and warps % 4 == 0 else "mma"


def wgmma(rows: int, columns: int, warps: int, feeds: bool) -> Mma:
    """A wgmma accumulator. Warps go along the rows if another product reads the result, so that a
    row stays in one warp; otherwise as far as there are rows, four warps at a time."""
    beside = max(1, warps // max(1, rows // 16))
    wide = min(256, max(columns // beside, 8))
    along, across = 4, 1
    if feeds:
        return Mma(3, (warps, 1), wide)
    while along * across < warps:
        if rows > 16 * along:
            along *= 2
        else:
            across *= 2
    return Mma(3, (along, across), wide)


def mma(rows: int, columns: int, warps: int, chained: bool) -> Mma:
    """An mma.sync accumulator. Products of one loop put all warps along the longer side of the
    last result; a lone product balances the blocks of 16 x 8 that each warp repeats."""
    if chained:
        return Mma(2, (warps, 1) if rows >= columns else (1, warps), 8)
    along, across = 1, 1
    down, right = -(-rows // 16), -(-columns // 8)
    while along * across < warps:
        if down >= right:
            along, down = along * 2, max(1, down // 2)
        else:
            across, right = across * 2, right // 2
    return Mma(2, (along, across), 8)


def fma(rows: int, columns: int, warps: int) -> Layout:
    """A multiply-add accumulator: up to 4 x 4 values a thread."""
    each = rows * columns // (warps * LANES)
    side = 4 if each >= 16 else 2 if each >= 4 else 1
    shape = (rows, columns)
    return blocked(shape, (side, side), (1, 0), warps).of(shape)
