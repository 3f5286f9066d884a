"""ACSR: a sparse matrix as one progression of columns for each row (SPLAT, arXiv 2407.16847).

Row r of the flattened mask, queries by keys, holds the columns first + step * t, t < count: three
whole numbers in place of the list of columns that CSR has. One-dimensional windows have that form;
windows over several axes have not, since their rows jump at the end of each line of the layout.
`napkin.ir.slotted` keeps the axes apart instead.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from napkin.errors import Refusal
from napkin.ir.evaluate import at_positions
from napkin.ir.key_sets import Box, boxes_of, member, spec_of
from napkin.ir.node import Node
from napkin.ir.slotted import lengths

Array = np.ndarray[Any, Any]
Axes = tuple[str, ...]

SHOWN = 12
"""Keys of a row that a message names."""


@dataclass(frozen=True, eq=False)
class ACSR:
    """The rows of a key set, flattened row-major over the layouts of queries and keys.

    Attributes:
        first, step, count: whole numbers, one of each for every row.
        columns: keys of the layout.
    """

    first: Array
    step: Array
    count: Array
    columns: int

    @property
    def rows(self) -> int:
        """Queries of the layout."""
        return len(self.first)

    @property
    def width(self) -> int:
        """Values that are stored of each row."""
        return int(self.count.max(initial=0))

    def keys(self, row: int) -> list[int]:
        """The columns of one row."""
        first, step, count = (int(x[row]) for x in (self.first, self.step, self.count))
        return [first + step * t for t in range(count)]

    def pack(self, dense: Array, fill: float = 0.0) -> Array:
        """The values [rows, width] of a matrix [rows, columns]; `fill` past the end of a row."""
        place, held = self._places()
        found = np.take_along_axis(np.asarray(dense), np.where(held, place, 0), axis=1)
        return np.where(held, found, fill)

    def unpack(self, values: Array) -> Array:
        """The matrix [rows, columns] of values [rows, width]; 0 where a row has no column."""
        place, held = self._places()
        out = np.zeros((self.rows, self.columns), dtype=np.asarray(values).dtype)
        row = np.broadcast_to(np.arange(self.rows)[:, None], held.shape)
        out[row[held], place[held]] = np.asarray(values)[held]
        return out

    def _places(self) -> tuple[Array, Array]:
        """The column of every stored value, and whether there is one."""
        t = np.arange(self.width)
        return self.first[:, None] + self.step[:, None] * t, t < self.count[:, None]


def acsr(keys: Node, queries: Axes, sizes: Mapping[str, int]) -> ACSR:
    """The rows of a key set, a row for each place along `queries`, for these sizes of its axes.

    Raises:
        Refusal: some row is no progression.
    """
    found = boxes_of(keys)
    if len(found) == 1:
        return _of_box(keys, found[0], queries, sizes)
    return _of_rows(keys, queries, sizes)


def _of_box(keys: Node, box: Box, queries: Axes, sizes: Mapping[str, int]) -> ACSR:
    """The rows of one box, from its bounds: axes are joined from the last one outwards."""
    bounds = [i.first for i in box.intervals]
    starts = [_flat(n, queries, sizes) for n in bounds]
    counts = [_flat(n, queries, sizes) for n in lengths(keys)]
    stride = 1
    first, count, step = np.zeros_like(starts[0]), np.ones_like(starts[0]), np.ones_like(starts[0])
    broken = np.zeros(len(first), dtype=bool)
    rows = list(zip(spec_of(keys).keys, box.intervals, starts, counts, strict=True))
    for axis, interval, start, n in reversed(rows):
        hop = interval.step * stride
        alone, short = n <= 1, count <= 1
        broken |= ~(alone | short | (hop == step * count))
        first = first + start * stride
        step = np.where(alone, step, np.where(short, hop, step))
        count = count * n
        stride *= sizes[axis]
    broken &= count > 0
    if broken.any():
        raise _refusal(keys, int(np.argmax(broken)), queries, sizes)
    empty = count == 0
    return ACSR(np.where(empty, 0, first), np.where(count > 1, step, 1), count, stride)


def _of_rows(keys: Node, queries: Axes, sizes: Mapping[str, int]) -> ACSR:
    """The rows of a union of boxes, each looked at."""
    columns = math.prod(sizes[a] for a in spec_of(keys).keys)
    found: list[tuple[int, int, int]] = []
    for row, place in enumerate(_queries(queries, sizes)):
        seen = _row(keys, place, queries, sizes)
        steps = np.diff(seen)
        if len(steps) and (steps != steps[0]).any():
            raise _refusal(keys, row, queries, sizes)
        found.append(
            (int(seen[0]) if len(seen) else 0, int(steps[0]) if len(steps) else 1, len(seen))
        )
    first, step, count = np.array(found, dtype=np.int64).reshape(-1, 3).T
    return ACSR(first, step, count, columns)


def _flat(n: Node, axes: Sequence[str], sizes: Mapping[str, int]) -> Array:
    """A term over the queries, one value for each, row-major."""
    return at_positions(n, axes, sizes).reshape(-1).astype(np.int64)


def _queries(queries: Axes, sizes: Mapping[str, int]) -> itertools.product[tuple[int, ...]]:
    return itertools.product(*(range(sizes[a]) for a in queries))


def _row(keys: Node, place: Sequence[int], queries: Axes, sizes: Mapping[str, int]) -> Array:
    """The columns of one query."""
    box = {a: range(i, i + 1) for a, i in zip(queries, place, strict=True)}
    axes = (*queries, *spec_of(keys).keys)
    return np.flatnonzero(at_positions(member(keys), axes, sizes, box))


def _refusal(keys: Node, row: int, queries: Axes, sizes: Mapping[str, int]) -> Refusal:
    place = next(itertools.islice(_queries(queries, sizes), row, None))
    seen = _row(keys, place, queries, sizes).tolist()
    shown = ", ".join(map(str, seen[:SHOWN])) + (", ..." if len(seen) > SHOWN else "")
    steps = [b - a for a, b in itertools.pairwise(seen)]
    other = next(s for s in steps if s != steps[0])
    query = f" (query {', '.join(map(str, place))})" if len(place) > 1 else ""
    return Refusal(
        "store as ACSR",
        f"row {row}{query} of {spec_of(keys).text}",
        f"its keys {shown} are no progression: they are {steps[0]} apart and then {other}, and "
        "ACSR holds one first key, step and count for each flattened row",
        "keep the key axes apart with nk.compress"
        if len(spec_of(keys).keys) > 1
        else "give each box an array of its own",
    )
