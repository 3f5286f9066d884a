"""Matrix products of a kernel: their rows, columns and reduced axes, in which type they are
multiplied, and which threads issue them together."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from napkin.cost.hardware import Machine
from napkin.cost.levels import product_shape
from napkin.cost.marks import Mark
from napkin.cost.traffic import ITEM_BYTES
from napkin.derive.kernel import Kernel, tensor_of
from napkin.derive.terms import is_operand, is_read
from napkin.diagram.node import Node, factors, postorder
from napkin.diagram.storage import storage_type

Axes = tuple[str, ...]

WARPGROUP_ROWS = 64
"""The fewest rows of a matrix instruction that a warpgroup issues (PTX ISA, wgmma, tcgen05.mma)."""

COLUMNS = 256
"""The most columns of one (PTX ISA, wgmma)."""


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
    return max(known, key=ITEM_BYTES.__getitem__, default=dtype)


@dataclass(frozen=True, eq=False)
class Product:
    """One matrix product.

    Attributes:
        name: that of its result, or of the state that it is added to.
        node: the sum.
        parts: its factors that carry reduced axes.
        rows, columns, gone: its axes; the rows have the output's first axis of both.
    """

    name: str
    node: Node
    parts: tuple[Node, ...]
    rows: Axes
    columns: Axes
    gone: Axes

    @property
    def sides(self) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
        """The factors on the side of the rows, and of the columns; a factor that carries neither
        goes where something is multiplied already, or else to the rows."""
        right = [p for p in self.parts if set(self.columns) & set(p.axes)]
        left = [p for p in self.parts if p not in right and set(self.rows) & set(p.axes)]
        rest = [p for p in self.parts if p not in left and p not in right]
        busy = right if len(right) > 1 >= len(left) else left
        busy += rest
        return tuple(left), tuple(right)


def as_product(n: Node, name: str, order: Axes, whole: Container[Node] = ()) -> Product | None:
    """`n` as a matrix product, if it is one.

    Args:
        order: the axes of the output.
        whole: arrays that are factors as they are, though they are products of others.
    """
    factored = [p for p in factors(n.args[0], whole) if p.axes] if n.op == "sum" else []
    shape = product_shape(n, factored)
    if shape is None:
        return None
    rows, columns, gone = shape
    if _earliest(columns, order) < _earliest(rows, order):
        rows, columns = columns, rows
    parts = tuple(p for p in factored if set(gone) & set(p.axes))
    return Product(name, n, parts, rows, columns, gone)


def _earliest(axes: Axes, order: Axes) -> int:
    return min((order.index(a) for a in axes if a in order), default=len(order))


def matrix_products(kernel: Kernel) -> tuple[Product, ...]:
    """Every matrix product of a kernel, each once, in an order in which they can run."""
    s = kernel.stream
    named = [(x.name, x.step) for p in s.passes for x in p.states]
    named += [(e.output, e.node) for p in s.passes for e in p.emits]
    named += [(e.output, e.node) for e in s.tails]
    out: dict[Node, Product] = {}
    for name, root in named:
        for n in postorder([root]):
            found = as_product(n, kernel.names.get(n, name), kernel.outputs[0].axes)
            if found is not None:
                out.setdefault(n, found)
    return tuple(out.values())


def fed(p: Product, machine: Machine, dtype: str, tiles: Mapping[str, int]) -> float:
    """Times that a product in `dtype` takes for reading its operands, where multiplying takes 1.

    An instruction that a warpgroup issues reads its columns from shared memory for every
    `mma_rows` rows, and its rows, where they lie there, for every `COLUMNS` columns: with few
    columns the rows take longer to read than to multiply. Where warps issue it, it reads registers.
    """
    rows, columns, gone = (
        math.prod(tiles[a] for a in axes) for axes in (p.rows, p.columns, p.gone)
    )
    high = int(machine.granules["mma_rows"].value) if "mma_rows" in machine.granules else 0
    if dtype == "fp32" or high < WARPGROUP_ROWS or rows < high:
        return 1.0
    left, _ = p.sides
    lies = len(left) == 1 and is_operand(left[0], p.parts)
    values = columns * -(-rows // high) + (rows * -(-columns // COLUMNS) if lies else 0)
    reading = values * gone * ITEM_BYTES[dtype] / machine.register_rate
    return max(1.0, reading / (2 * rows * columns * gone / machine.peak(dtype)))


def row_marks(kernel: Kernel, machine: Machine, tiles: Mapping[str, int]) -> tuple[Mark, ...]:
    """The marks where the threads that issue a product compute on with rows of it: whole rows for
    each, or a row for a whole number of threads."""
    name, threads = team(machine)
    out: list[Mark] = []
    for p in matrix_products(kernel):
        last = p.rows[-1]  # as in other marks, of packed axes the last carries it
        rows = math.prod(tiles[a] for a in p.rows)
        if rows >= threads:
            reason = f"whole rows of {p.name} for each of the {threads} threads of a {name}"
            out.append(Mark(last, threads, "registers", reason))
        elif threads % rows:
            reason = f"rows of {p.name}, each for as many of the {threads} threads of a {name}"
            out.append(Mark(last, 1 << rows.bit_length(), "registers", reason))
    return tuple(out)
