"""The sizes that make an algorithm of a pseudocode diagram, and the types of its arrays.

A team is the threads that issue a matrix product together: a warpgroup from Hopper on, a warp
before. Several teams of a thread block lie side by side along one grouped axis and share what does
not carry it (arXiv 2412.03317, section 5: w_q for a warpgroup, g_q = N w_q for the block).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from napkin.count.alignment import Alignment, alignments, combined
from napkin.count.matrix_products import dtype_of, names_of, row_alignments, team
from napkin.count.residency import batched
from napkin.derive.kernel import Kernel
from napkin.errors import InputError, Refusal, check_known
from napkin.ir.storage import storage_type
from napkin.ir.types import STORAGE
from napkin.machine.chain import chains
from napkin.machine.machines import Machine

CHUNK = 64
"""Positions of a streamed axis in one chunk, where nobody says how many."""

COLUMNS = 128
"""Columns of a product along a grouped axis, where nobody says how many."""


@dataclass(frozen=True)
class Setting:
    """Sizes and types.

    Attributes:
        tiles: what one team holds of each axis: w_a of a grouped axis, s_a of a streamed one, and
            the whole of the others.
        along: the grouped axis along which teams lie side by side.
        inner: u_a, what the body computes of each streamed axis at once.
        cuts: pieces in which an array is computed, by its name and an axis.
        storage: types of tensors in memory, by name; `dtype` for the others.
        dtype: how tensors are stored that `storage` does not name.
        computed: the type of what is computed in registers.
        buffers: copies of each streamed array that lie in shared memory.
    """

    tiles: Mapping[str, int]
    along: str
    inner: Mapping[str, int]
    cuts: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    storage: Mapping[str, str] = field(default_factory=dict[str, str])
    dtype: str = "fp16"
    computed: str = "fp16"
    buffers: int = 2

    def symbol(self, kernel: Kernel, axis: str, read: bool) -> str:
        """How the size of an axis of an array is written: of a reading, or of what is computed."""
        if axis in kernel.group:
            return f"w_{axis}"
        if axis in kernel.stream.axes:
            return f"s_{axis}" if read or self.inner[axis] == self.tiles[axis] else f"u_{axis}"
        return axis

    def piece_symbol(self, axis: str, size: int) -> str:
        """How a piece of an axis is written: d' for the largest, d'' for the next."""
        sizes = sorted({n for (_, a), n in self.cuts.items() if a == axis}, reverse=True)
        return axis + "'" * (sizes.index(size) + 1)


def setting(
    kernel: Kernel,
    machine: Machine,
    sizes: Mapping[str, int],
    *,
    tiles: Mapping[str, int] | None = None,
    inner: Mapping[str, int] | None = None,
    cuts: Mapping[tuple[str, str], int] | None = None,
    storage: Mapping[str, str] | None = None,
    dtype: str = "fp16",
    computed: str = "fp16",
    buffers: int = 2,
    wide: int = 0,
) -> Setting:
    """The setting of a kernel: what is given, and for the rest rows for every thread.

    Args:
        sizes: of every axis.
        tiles: of grouped and streamed axes. Teams lie along the first grouped one of them that is
            among the rows of a product.
        inner, cuts, storage, dtype, computed, buffers: see `Setting`.
        wide: rows of a team where `tiles` does not say; by default as many as it has threads.

    Raises:
        Refusal: there is no matrix product.
        InputError: a size is of an axis that is not cut, does not divide what it should, or a type
            or a tensor is unknown.
    """
    given, storage = dict(tiles or {}), dict(storage or {})
    along = _along(kernel, given)
    _known("tiles", given, (*kernel.group, *kernel.stream.axes), kernel.name)
    _known("inner chunks", inner or {}, kernel.stream.axes, kernel.name)
    tensors = [*(r.tensor for r in kernel.reads), *(o.name for o in kernel.outputs)]
    _known("storage", storage, tuple(dict.fromkeys(tensors)), kernel.name)
    types = {"dtype": dtype, "computed": computed}
    for what, name in (types | {f"storage of {t}": n for t, n in storage.items()}).items():
        check_known(name, STORAGE, f"{what}: no type {name!r}")
    held = _filled(kernel, sizes, given, along, wide or team(machine)[1])
    chunk = {a: held[a] for a in kernel.stream.axes}
    for a, n in (inner or {}).items():
        if chunk[a] % n:
            raise InputError(f"inner chunks: {a}={n} does not divide the chunk {a}={chunk[a]}")
    made = Setting(
        held, along, chunk | dict(inner or {}), dict(cuts or {}), storage, dtype, computed, buffers
    )
    _check_alignments(kernel, machine, made, {*given, *(inner or {})})
    return made


def _along(kernel: Kernel, given: Mapping[str, int]) -> str:
    """The grouped axis along which teams lie side by side."""
    if not kernel.products:
        raise Refusal(
            "a pipeline", kernel.name, "it has no matrix product, so tensor cores have no part",
            "run napkin cost in the place of napkin pipeline: that tells what it costs to move",
        )  # fmt: skip
    first = kernel.products[0]
    grouped = [a for a in first.rows if a in kernel.group]
    if not grouped:
        rows, streamed = " ".join(first.rows), set(first.rows) <= set(kernel.stream.axes)
        raise Refusal(
            "a pipeline", kernel.name,
            f"the rows {rows} of {names_of(kernel)[first.node]} are not cut into groups, so teams"
            " have nothing to lie along",
            f"stream another axis than {rows}" if streamed else "",
        )  # fmt: skip
    return next((a for a in given if a in grouped), grouped[-1])


def _known(what: str, given: Iterable[str], known: tuple[str, ...], name: str) -> None:
    for key in given:
        check_known(key, known, f"{what}: {name} has no {key!r} to set")


def _filled(
    kernel: Kernel, sizes: Mapping[str, int], given: Mapping[str, int], along: str, wide: int
) -> dict[str, int]:
    """Tiles for every axis: `wide` rows, columns, one of what is batched, a chunk of a stream."""
    rows = {a for p in kernel.products for a in p.rows}
    columns = {a for p in kernel.products for a in p.columns} - rows
    alone = batched(kernel)
    other = math.prod(n for a, n in given.items() if a in rows and a != along)
    out: dict[str, int] = {}
    for a in kernel.axes:
        if a in given:
            out[a] = given[a]
        elif a == along:
            out[a] = max(1, wide // other)
        elif a in kernel.group:
            out[a] = min(COLUMNS, sizes[a]) if a in columns and a not in alone else 1
        else:
            out[a] = sizes[a]
    open_axes = [a for a in kernel.stream.axes if a not in given]
    left = max(1, CHUNK // math.prod(n for a, n in given.items() if a in kernel.stream.axes))
    for i, a in enumerate(open_axes):
        # A box of keys is as square as powers of two make it.
        wide = 1 << ((left.bit_length() - 1) // (len(open_axes) - i))
        out[a] = min(wide, sizes[a])
        left = max(1, left // out[a])
    return out


def all_alignments(kernel: Kernel, machine: Machine, s: Setting) -> tuple[Alignment, ...]:
    """The alignments of a kernel in a setting: those of memory and instructions, and of rows."""
    stored = {r.tensor: dtype_of(r.leaf, s.storage, s.dtype) for r in kernel.reads}
    for o in kernel.outputs:
        stored[o.name] = s.storage.get(o.name, storage_type(o.node, s.dtype))
    chain = next(chains(machine, ("dram", "shared")))
    items = {name: Fraction(STORAGE[dtype].bits, 8) for name, dtype in stored.items()}
    found = alignments(kernel, chain, items)
    return (*found, *row_alignments(kernel, machine, s.tiles))


def size_of(kernel: Kernel, s: Setting, axis: str) -> int:
    """What a team computes on at once along an axis; of axes that are packed into one side of a
    product, whose alignments the last carries, along all of them."""
    sides = [side for p in kernel.products for side in (p.rows, p.columns)]
    axes = next((side for side in sides if side[-1] == axis), (axis,))
    return math.prod(s.inner.get(a, s.tiles[a]) for a in axes)


def _check_alignments(kernel: Kernel, machine: Machine, s: Setting, given: set[str]) -> None:
    """Refuse a size that was asked for and breaks an alignment; others are only reported."""
    every = all_alignments(kernel, machine, s)
    for axis, multiple in combined(every).items():
        size = size_of(kernel, s, axis)
        if axis in given and size % multiple:
            reasons = dict.fromkeys(m.reason for m in every if m.axis == axis and size % m.multiple)
            raise InputError(
                f"{axis}={size} is not a multiple of {multiple}: {'; '.join(reasons)}; "
                f"write {axis}={multiple * max(1, size // multiple)}"
            )
