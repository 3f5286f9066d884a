"""Which instruction multiplies two tiles, and the register layout of its result.

What Triton picks for `tl.dot(..., input_precision="ieee")`, read off the compiler: wgmma on sm_90
for 16-bit operands of at least 64 rows, mma.sync for other 16-bit operands, and multiply-add on
single values for float32, which no matrix instruction multiplies exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from napkin.derive.terms import multiplies, narrow_type
from napkin.diagram.node import Node, factors, over
from napkin.lower.operands import MIN_DOT, NARROW_DEPTH, splits
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
    parts = [(p, frozenset(program.shape(p))) for p in factors(n.args[0])]
    every = frozenset[int]().union(*(dims for _, dims in parts))
    gone = frozenset(d for d in every if program.dims[d][0] in over(n))
    parts = [(p, dims) for p, dims in parts if dims & gone]
    inner = [p for p, _ in parts]
    depth = NARROW_DEPTH if narrow_type(inner) else MIN_DOT
    if len(parts) < 2 or not gone or program.span(gone) < depth or not multiplies(n, inner):
        return None
    best: tuple[int, list[Node], list[Node], frozenset[int], frozenset[int]] | None = None
    for chosen in splits([dims for _, dims in parts], gone):
        left = [x for x, c in zip(parts, chosen, strict=True) if not c]
        right = [x for x, c in zip(parts, chosen, strict=True) if c]
        a = frozenset[int]().union(*(dims for _, dims in left))
        b = frozenset[int]().union(*(dims for _, dims in right))
        rows, columns = a - gone, b - gone
        if not right or not rows or not columns or rows & columns or not gone <= (a & b):
            continue
        if program.span(rows) < MIN_DOT or program.span(columns) < MIN_DOT:
            continue
        work = program.span(a) + program.span(b)
        if best is None or work < best[0]:
            best = (work, [p for p, _ in left], [p for p, _ in right], a, b)
    if best is None:
        return None
    _, first, second, a, b = best
    if min(a - gone) > min(b - gone):
        first, second, a, b = second, first, b, a
    return Dot(
        n,
        (tuple(first), tuple(second)),
        (tuple(sorted(a)), tuple(sorted(b))),
        tuple(sorted(gone)),
        tuple(sorted(a - gone)),
        tuple(sorted(b - gone)),
    )


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
