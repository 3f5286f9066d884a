"""Matrix products of a kernel: in which type they are multiplied, how their operands are read, and
which threads issue them together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from napkin.algebra.contraction import Contraction, Key
from napkin.algebra.terms import is_read
from napkin.count.alignment import Alignment
from napkin.count.traffic import ITEM_BYTES
from napkin.derive.kernel import Kernel, tensor_of
from napkin.ir.node import REDUCTIONS, Node, postorder, preorder
from napkin.ir.storage import storage_type
from napkin.ir.types import STORAGE
from napkin.machine.hardware import Machine
from napkin.schedule import WARPS

WARPGROUP_ROWS = 64
"""The fewest rows of a matrix instruction that a warpgroup issues (PTX ISA, wgmma, tcgen05.mma)."""

FRAGMENT_ROWS = 8
"""Rows of an operand that a warp reads at once, as its threads hold them (PTX ISA, mma)."""

WARP_ROWS = 16
"""The rows of a warp in a warpgroup's matrix instruction (PTX ISA, wgmma)."""

COLUMNS = 256
"""The most columns of one (PTX ISA, wgmma)."""

UNROLLED = ((2048, 1.0), (4096, 1.1), (8192, 3.0), (math.inf, 31.0))
"""Multiply-adds of a thread for one tile of a product in float32, at most, and how long they take
then. Triton writes no loop for them, each is an instruction of 16 bytes, and caches of instructions
hold some 128 KB: 4096 x 4096 x 128 takes 131 us with 2,048 of them, 139 us with 4,096, 327 us with
8,192, and 4,073 us with 16,384 (H200, Triton 3.6)."""

ALONG = ((32, 2.0), (math.inf, 4.0))
"""How long a product in float32 takes whose columns lie along the axis that is summed, by how many
of its positions a tile has, at most: the lanes that read them meet in one bank. 4096 x 4096 x 1024
takes 1,256 us with 16 of them, and with columns that lie the other way 842 us (H100, Triton 3.6);
4096 x 4096 x 4096 takes 10,083 us with 64 (H200)."""

LINKED = 2.0
"""How long products in float32 take of which one waits for another in a loop: attention over 4,096
queries and keys, 16 heads of 64, takes 2,460 to 3,250 us, where multiplying takes 1,200 (H200)."""

FEW_VALUES = 32
"""Values of a thread that count, at least: with fewer, sums of 128 products take up to 1.5 times as
long as by their number, of 256 up to 24 times (H200, Triton 3.6)."""


def team(machine: Machine) -> tuple[str, int]:
    """The threads that issue a matrix product together: a warp, or a warpgroup of four where its
    instruction has the rows of four."""
    warp = int(machine.granules["warp"].value)
    high = machine.granules["mma_rows"].value
    return ("warpgroup", 4 * warp) if high >= WARPGROUP_ROWS else ("warp", warp)


def dtype_of(leaf: Node, storage: Mapping[str, str], dtype: str) -> str:
    """The type in which a reading's tensor is stored: that of `storage`, by name, or by default."""
    return storage.get(tensor_of(leaf), storage_type(leaf, dtype))


def product_type(parts: Sequence[Node], storage: Mapping[str, str], dtype: str) -> str:
    """The type in which a product of `parts` is multiplied: the widest of those that are read; what
    is computed is rounded to it."""
    known = [dtype_of(p, storage, dtype) for p in parts if is_read(p)]
    return max(known, key=lambda name: STORAGE[name].bits, default=dtype)


def continued(kernel: Kernel) -> tuple[Contraction[str], ...]:
    """The matrix products of whose result another product of the same loop is computed."""
    inside = {n for c in kernel.products for n in postorder(c.node.args)}
    return tuple(c for c in kernel.products if c.node in inside)


def links(kernel: Kernel) -> int:
    """The matrix products of an iteration of which each waits for the one before."""
    products = {c.node for c in kernel.products}
    found: dict[Node, int] = {}
    for n in postorder(x for p in kernel.stream.passes for x in p.computed):
        found[n] = max((found[a] for a in n.args), default=0) + (n in products)
    return max(found.values(), default=0)


def recurrent(kernel: Kernel) -> bool:
    """Whether a product of a chunk is summed over what the chunk before leaves: a state of its own
    loop is one of its operands."""
    if kernel.stepped:  # position by position: its loads are waited for
        return False
    for loop in kernel.stream.passes:
        own, inside = {s.name for s in loop.states}, {*postorder(loop.computed)}
        for c in (c for c in kernel.products if own and c.node in inside):
            read = postorder(part for side in c.sides for part in side)
            states = (n for n in read if n.op == "state" and n.params[0] in own)
            if any(not {*c.gone}.isdisjoint(n.axes) for n in states):
                return True
    return False


def serial(kernel: Kernel) -> tuple[Contraction[str], ...]:
    """The matrix products of a loop whose every instruction is waited for before the next, where
    warpgroups issue them: all, once the rows of one are computed before the loop. Its threads read
    these from shared memory into registers in every iteration, and ptxas takes the instructions of
    a pipelined loop one by one (as Triton 3.6 and 3.9 compile them for sm_90)."""
    carried = kernel.stream.carried
    inside = tuple(c for c in kernel.products if carried(c.axes))
    before = [c for c in inside if not any(carried(p.axes) for p in c.sides[0])]
    return () if all(c.lies(0) for c in before) else inside


def turns(p: Contraction[Key], lengths: Mapping[Key, int]) -> bool:
    """Whether a product is written as that of its operands transposed, the right one first.

    Its rows are computed from tiles that lie the other way, and its columns are read as they are. A
    warpgroup takes rows that are computed from registers, which Triton fills from shared memory in
    pieces, and it copies what they are computed from value by value (3.6 and 3.9, sm_90). Columns
    that are computed pass through shared memory once, as they lie.
    """
    if not p.lies(1) or not _other_way(p, lengths):
        return False
    return math.prod([lengths[k] for k in p.columns]) >= WARPGROUP_ROWS


def in_pieces(p: Contraction[Key], side: int, lengths: Mapping[Key, int]) -> bool:
    """Whether an operand passes to a warpgroup's registers in pieces (see `turns`)."""
    if side or not _other_way(p, lengths) or turns(p, lengths):
        return False
    return math.prod([lengths[k] for k in p.rows]) >= WARPGROUP_ROWS


def held(p: Contraction[Key], side: int, lengths: Mapping[Key, int]) -> bool:
    """Whether a warpgroup takes an operand from the registers in which it is computed."""
    if side or _other_way(p, lengths) or not forms(p, 0):
        return False
    return math.prod([lengths[k] for k in p.rows]) >= WARPGROUP_ROWS


def _other_way(p: Contraction[Key], lengths: Mapping[Key, int]) -> bool:
    """Whether rows are computed from tiles that lie the other way."""
    if p.dtype or p.lies(0):
        return False
    own = [k for k in p.spans[0] if lengths[k] > 1]
    return own != [k for k in (*p.rows, *p.gone) if lengths[k] > 1]


def forms(p: Contraction[Key], side: int) -> bool:
    """Whether an operand is computed value by value from readings."""
    if p.dtype or p.lies(side):
        return False
    return not any(n.op in REDUCTIONS for n in postorder(p.sides[side]))


def as_written(p: Contraction[str], tiles: Mapping[str, int]) -> tuple[int, int, int]:
    """Rows, columns and depth of a product as its instructions take them."""
    rows, columns, gone = p.lengths(tiles)
    return (columns, rows, gone) if turns(p, tiles) else (rows, columns, gone)


def issued(p: Contraction[str], warps: int, tiles: Mapping[str, int], depth: int) -> int:
    """Instructions that each warpgroup of a group issues for a product, `depth` values deep."""
    rows, columns, gone = as_written(p, tiles)
    own = max(1, rows // (WARP_ROWS * warps))
    return own * -(-columns // COLUMNS) * -(-gone // depth)


def copies(
    every: Sequence[Contraction[str]], machine: Machine, warps: int, tiles: Mapping[str, int]
) -> dict[frozenset[str], int]:
    """How many of a group's warps hold and compute each value of the results of these products,
    which are `continued`; by their axes, where it is more than one.

    Triton gives such a product's warps rows of their own, so that what is reduced along its columns
    stays in a warp. Where a warpgroup multiplies and there are more warps than rows for them, warps
    compute the same rows (`warpsPerTileV3` of Triton 3.6).
    """
    if not every or not machine.target.has_warpgroups:
        return {}
    rows = {frozenset(c.node.axes): math.prod(tiles[a] for a in c.rows) for c in every}
    own = {axes: warps * WARP_ROWS // n for axes, n in rows.items() if n >= WARPGROUP_ROWS}
    return {axes: n for axes, n in own.items() if n > 1}


def operand_copies(
    every: Sequence[tuple[Contraction[str], int]],
    machine: Machine,
    warps: int,
    tiles: Mapping[str, int],
    together: bool,
) -> dict[frozenset[str], int]:
    """How many of a group's warps hold each value of operands that are computed from readings,
    where each warp issues its own instructions; by their axes.

    Args:
        every: the products, each with the side on which such an operand is.
        together: whether a loop has several products. Triton then gives all warps rows of their
            own, or columns where these are more; else it shares both out evenly
            (`warpsPerTileV2` of Triton 3.6).
    """
    found: dict[frozenset[str], int] = {}
    for p, side in every if warps else ():
        rows, columns, _ = as_written(p, tiles)
        if (machine.target.has_warpgroups and rows >= WARPGROUP_ROWS) or p.single:
            continue  # a warpgroup reads columns from shared memory
        high, wide = max(1, rows // WARP_ROWS), max(1, columns // FRAGMENT_ROWS)
        along = (warps if rows >= columns else 1) if together else _shared_out(warps, high, wide)
        across = warps // along
        right = side != turns(p, tiles)
        n = along * max(1, across // wide) if right else across * max(1, along // high)
        axes = frozenset(p.spans[side])
        found[axes] = max(n, found.get(axes, 1))
    return {axes: n for axes, n in found.items() if n > 1}


def _shared_out(warps: int, high: int, wide: int) -> int:
    """The warps along the rows of a product that has so many pieces of a warp's each way."""
    along = 1
    while warps > 1:
        if high >= wide:
            along, high = 2 * along, max(1, high // 2)
        else:
            wide //= 2
        warps //= 2
    return along


def names_of(kernel: Kernel) -> dict[Node, str]:
    """What the terms of a kernel are called: as in its diagram, or as the first state or output
    that is computed of them."""
    s = kernel.stream
    named = [(x.name, x.step) for p in s.passes for x in p.states]
    named += [(e.output, e.node) for p in s.passes for e in p.emits]
    named += [(e.output, e.node) for e in s.tails]
    out: dict[Node, str] = {}
    for name, root in named:
        for n in postorder([root]):
            out.setdefault(n, kernel.names.get(n, name))
    return out


def crossed(kernel: Kernel) -> frozenset[Node]:
    """Products of which an iteration computes an operand from a reading that something else reads,
    too."""
    every = list(postorder(kernel.terms))
    found = set[Node]()
    for c in (c for c in kernel.products if not c.lies(0)):
        inside = set(postorder([c.node]))
        others = {a for m in every if m not in inside for a in m.args}
        if any(m in others and kernel.stream.carried(m.axes) for m in readings(c.sides[0])):
            found.add(c.node)
    return frozenset(found)


def readings(factors: Sequence[Node]) -> Iterator[Node]:
    """The readings that factors are computed from value by value."""
    return filter(is_read, preorder(factors, lambda m: not is_read(m) and m.op not in REDUCTIONS))


def fed(
    p: Contraction[str],
    machine: Machine,
    dtype: str,
    tiles: Mapping[str, int],
    crossed: bool = False,
    warps: int = 0,
    linked: bool = False,
) -> float:
    """Times that a product in `dtype` takes for reading its operands, where multiplying takes 1; in
    float32, for reading its instructions, too (`UNROLLED`).

    An instruction that a warpgroup issues reads its columns from shared memory for every
    `mma_rows` rows, and its rows, where they lie there, for every `COLUMNS` columns: with few
    columns the rows take longer to read than to multiply. Where warps issue it, it reads registers.

    Args:
        crossed: whether its rows are read in two layouts. Triton then swizzles them for neither,
            and the rows of a fragment lie in the same banks.
        warps: of a group; 0 for those of a warpgroup.
        linked: whether a product of its loop waits for another.
    """
    rows, columns, gone = as_written(p, tiles)
    high = int(machine.granules["mma_rows"].value) if "mma_rows" in machine.granules else 0
    if dtype == "fp32":
        threads = (warps or WARPS) * machine.granules["warp"].value
        each = max(FEW_VALUES, rows * columns / threads) * gone
        longer = _within(UNROLLED, each)
        long = [k for k in p.spans[1] if tiles[k] > 1]
        if p.lies(1) and long[-1:] and long[-1] in p.gone:
            longer *= _within(ALONG, gone)
        return longer * (LINKED if linked else 1)
    if high < WARPGROUP_ROWS or rows < high:
        return 1.0
    turned = turns(p, tiles)
    crossed = crossed and not turned
    own = turned or p.lies(0)
    values = columns * -(-rows // high) + (rows * -(-columns // COLUMNS) if own else 0)
    values += FRAGMENT_ROWS * rows if crossed else 0
    reading = values * gone * ITEM_BYTES[dtype] / machine.register_rate
    return max(1.0, reading / (2 * rows * columns * gone / machine.peak(dtype)))


def _within(prices: Sequence[tuple[float, float]], value: float) -> float:
    """The price of the first bound that a value is within."""
    return next(price for most, price in prices if value <= most)


def row_alignments(
    kernel: Kernel, machine: Machine, tiles: Mapping[str, int]
) -> tuple[Alignment, ...]:
    """The alignments where the threads that issue a product compute on with rows of it: whole rows
    for each, or a row for a whole number of threads."""
    name, threads = team(machine)
    out: list[Alignment] = []
    names = names_of(kernel)
    for p in kernel.products:
        last = p.rows[-1]  # as in other alignments, of packed axes the last carries it
        rows = math.prod(tiles[a] for a in p.rows)
        if rows >= threads:
            reason = f"whole rows of {names[p.node]} for each of the {threads} threads of a {name}"
            out.append(Alignment(last, threads, "registers", reason))
        elif threads % rows:
            reason = (
                f"rows of {names[p.node]}, each for as many of the {threads} threads of a {name}"
            )
            out.append(Alignment(last, 1 << rows.bit_length(), "registers", reason))
    return tuple(out)
