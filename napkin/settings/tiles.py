"""The tiles that are tried for a labelled kernel: powers of two, as Triton needs, large enough for
matrix instructions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from napkin.algebra.contraction import MIN_DOT, NARROW_DEPTH
from napkin.count.residency import batched, live_set, summed_beside
from napkin.count.shares import visiting
from napkin.count.traffic import transfers
from napkin.derive.kernel import Kernel
from napkin.ir.key_sets import query_axes
from napkin.ir.node import over, postorder
from napkin.ir.slots import slots_of
from napkin.lower.program import packed_axes
from napkin.settings.axis_roles import ends_of, only_summed, scanned

Array = np.ndarray[Any, Any]

MAX_TILE = 2**16
"""Values of the largest tile that registers are asked to hold."""

MAX_GROUP = 256
"""Values of the largest group along one axis: beyond it, no tile fits registers."""

MAX_ROW = 1024
"""Values of the largest group along axes that every tensor carries: all of them cross once."""

ROW = 4096
"""Values of a chunk of which no fewer are tried, where one position of the streamed axis has as
many along axes that are held whole."""

SECTOR = 32
"""Values that memory moves for one of them, at most: where a tensor's values lie side by side along
the streamed axis, but rows of others are longer than so many of its own, it moves next to nothing.
"""

FILL = 64
"""Slots without a key that are stored at once, at most."""

LONG = 32
"""Values of a tile along each axis that ends some array, at least, of shapes that suit them all."""
SHAPES = 3
"""Shapes of a box of queries and keys that are priced, for each number of both."""

MOST = 3000
"""Settings of a kernel that are priced, about. Kernels of `diagrams/` have 2,840 at most; of one
with seven axes that is 1 in 60."""

FEWEST = 40
"""Settings of a kernel below which not all numbers of values of a group and of a chunk are priced.
"""

LISTED = 6
"""Settings that are listed for each that is priced, at most about: of most, products are too small
for matrix instructions (11,200 of the 14,040 of conv2d)."""


def power_of_two(size: int) -> int:
    """The least power of two that is at least `size`."""
    return 1 << max(0, size - 1).bit_length()


def waste(kernel: Kernel, sizes: Mapping[str, int], axis: str, tile: Any) -> Any:
    """Lanes computed over lanes wanted along an axis, for one tile or an array of them: padded ones
    do work that nobody reads. None past a window, whose slots are read and stored as keys are."""
    size = sizes[axis]
    return -(-size // tile) * tile / size if axis not in kernel.slots and size else 1.0


class Tiles:
    """The tiles to try for a kernel.

    Args:
        sizes: of every axis of the kernel.
        rows, chunks: values of a group and of a chunk that are asked for, where others are not.
        most: settings that are wanted, about; by default `MOST`.

    Attributes:
        left_out: whether settings were left out because there are more than `most`.
        columns: the axes of an array of settings, which has a row for each.
        every: the array of those that can be computed with; of more than `most`, see `few`.
    """

    def __init__(
        self,
        kernel: Kernel,
        sizes: Mapping[str, int],
        rows: Collection[int] = (),
        chunks: Collection[int] = (),
        most: int | None = None,
    ) -> None:
        self.most = MOST if most is None else most
        self.kernel, self.sizes, self.live = kernel, sizes, live_set(kernel)
        self.rows, self.chunks = rows, chunks
        self.batched = batched(kernel)
        self.packed = packed_axes(kernel)
        self.in_product = {a for p in self.live.products for role in p for a in role}
        self.one_by_one = summed_beside(kernel).intersection(kernel.stream.axes) - self.in_product
        self.ends = ends_of(kernel)
        self.summed = only_summed(kernel)
        self.scanned = scanned(kernel)
        self.columns = list(kernel.axes)
        listed = self._settings()
        self.every = self.few(taken := listed[self._taken(listed)], self.most)
        self.left_out = len(self.every) < len(taken)

    def settings(self, places: Iterable[int] | None = None) -> Iterator[dict[str, int]]:
        """The settings at some places of `every`, by default all."""
        found = self.every if places is None else self.every[list(places)]
        return (dict(zip(self.columns, tiles, strict=True)) for tiles in found.tolist())

    def _taken(self, found: Array) -> Array:
        """Which settings have products that are large enough for matrix instructions, as many
        values of a group and of a chunk as is asked for, and not one axis alone cut of those that
        are only summed over together: to stream one is a labelling of its own."""
        taken, kernel = np.ones(len(found), bool), self.kernel
        for roles in self.live.products:
            depth = NARROW_DEPTH if roles[2] in self.live.narrow else MIN_DOT
            for role, fewest in zip(roles, (MIN_DOT, MIN_DOT, depth), strict=True):
                taken &= self.values(found, role) >= fewest
        for some, axes in ((self.rows, kernel.group), (self.chunks, kernel.stream.axes)):
            if some:
                taken &= np.isin(self.values(found, axes), list(some))
        if self.summed:
            sizes = [max(self.sizes[a], 2) for a in self.summed]  # one position counts as cut
            taken &= (found[:, self._at(self.summed)] < sizes).sum(axis=1) > 1
        return taken

    def _at(self, axes: Iterable[str]) -> list[int]:
        """The columns of axes in an array of settings."""
        return [self.columns.index(a) for a in axes]

    def values(self, found: Array, axes: Iterable[str]) -> Array:
        """Values of a tile with some axes, in each of some settings."""
        return found[:, self._at(axes)].prod(axis=1, dtype=float)

    def _settings(self) -> Array:
        """Tiles to try: every combination, but of axes that only their product matters for, the
        few shapes that waste least, and of boxes of keys and queries, those that visit least."""
        seen = self.kernel.visits
        boxed = seen is not None and len(seen.key_axes) > 1
        box_axes = (*query_axes(seen.keys), *seen.key_axes) if boxed and seen else ()
        box_axes = tuple(a for a in box_axes if a not in self.kernel.residues)
        rest = [self._fewest(axes) for axes in self._in_same_arrays(box_axes)]
        parts = [self._boxes(box_axes), *rest] if boxed else rest
        if not all(parts):
            return np.ones((0, len(self.kernel.axes)), int)
        self.columns = [a for part in parts for a in part[0]]
        found = np.array([[min(shape[a] for shape in part) for part in parts for a in part[0]]])
        for part in parts:
            found = self._with(self.few(found, LISTED * MOST), part)
        return found

    def _with(self, found: Array, part: Sequence[dict[str, int]]) -> Array:
        """Every setting in each of some shapes, where no array of a chunk becomes too large."""
        at, own = self._at(part[0]), np.array([list(shape.values()) for shape in part])
        fits = np.ones((len(found), len(part)), bool)
        ones, shapes = found.copy(), np.ones((len(part), found.shape[1]), int)
        ones[:, at], shapes[:, at] = 1, own
        for axes in self.live.chunk:
            if not part[0].keys().isdisjoint(axes):  # larger tiles along others make none larger
                fits &= np.outer(self.values(ones, axes), self.values(shapes, axes)) <= MAX_TILE
        which, shape = np.nonzero(fits)
        out = found[which]
        out[:, at] = own[shape]
        return out

    def few(self, found: Array, most: int) -> Array:
        """At most about so many of some settings, in their order: as many for each number of values
        of a group and of a chunk, those for which all groups ask for the fewest values."""
        if len(found) <= most:
            return found
        kernel = self.kernel
        cuts = {a: np.ceil(self.sizes[a] / found[:, i]) for i, a in enumerate(self.columns)}
        shares = self._shares(found)
        requested = sum(
            t.once(self.sizes) * math.prod([cuts[a] for a in t.again]) * (shares if t.kernel else 1)
            for t in transfers(kernel)
        )
        group, chunk = (self.values(found, axes) for axes in (kernel.group, kernel.stream.axes))
        order = np.lexsort((np.broadcast_to(requested, len(found)), chunk, group))
        new = np.diff(group[order], prepend=0) + abs(np.diff(chunk[order], prepend=0)) != 0
        begins = np.flatnonzero(new)
        place = np.arange(len(found)) - begins[np.cumsum(new) - 1]
        kept = order[place < max(1, most // len(begins))]
        if most < FEWEST:  # of each is too many
            kept = kept[:: -(-len(kept) // most)]
        return found[np.sort(kept)]

    def _shares(self, found: Array) -> Array:
        """The part of the keys that a group visits, in each of some settings."""
        seen = self.kernel.visits
        if seen is None:
            return np.ones(len(found))
        axes = [a for a in self.columns if a in query_axes(seen.keys)]
        each, of = np.unique(found[:, self._at(axes)], axis=0, return_inverse=True)
        groups = [dict(zip(axes, tiles, strict=True)) for tiles in each.tolist()]
        return visiting(self.kernel, self.sizes, groups, [{}])[of.ravel(), 0]

    def _in_same_arrays(self, box_axes: Collection[str]) -> list[list[str]]:
        """The axes but those in `box_axes`; together, those that the same arrays carry."""
        carried = [set(n.axes) | set(over(n)) for n in postorder(self.kernel.terms)]
        carried += [set(x.leaf.axes) for x in self.kernel.reads]
        together: dict[tuple[object, ...], list[str]] = {}
        for a in self.kernel.axes:
            if a not in box_axes:
                role = (a in self.kernel.group, a in self.kernel.stream.axes, a in self.batched)
                role = (*role, a in self.kernel.alone)
                key = (*role, *(a in c for c in carried if c))
                together.setdefault(key, []).append(a)
        return list(together.values())

    def _fewest(self, axes: Sequence[str]) -> list[dict[str, int]]:
        """Tiles of axes that the same arrays carry: for each number of values, the few shapes
        with the fewest padded lanes, and of equal ones those that are long along the last axis;
        where arrays lie along several of these axes, as both sides of a transpose do, also the few
        that are long along each of those."""
        ends = {a for a in axes if a in self.ends}
        found = self._least_padded(axes)
        found += self._least_padded(axes, ends) if len(ends) > 1 else []
        return [dict(zip(axes, shape, strict=True)) for shape in dict.fromkeys(found)]

    def _least_padded(
        self, axes: Sequence[str], long: Collection[str] = ()
    ) -> list[tuple[int, ...]]:
        """The few shapes for each number of values, with no fewer than `LONG` along some axes."""
        best: dict[int, list[tuple[float, tuple[int, ...]]]] = {1: [(1.0, ())]}
        for a in axes:  # what is best of all axes is best of the first ones, too
            longer: dict[int, list[tuple[float, tuple[int, ...]]]] = {}
            every = self._candidates(a)
            least = min(LONG, max(every, default=1)) if a in long else 1
            tiles = [(n, waste(self.kernel, self.sizes, a, n)) for n in every if n >= least]
            for (values, shapes), (n, padded) in itertools.product(best.items(), tiles):
                found = longer.setdefault(values * n, [])
                found += ((wasted * padded, (-n, *order)) for wasted, order in shapes)
            best = {values: sorted(found)[:SHAPES] for values, found in longer.items()}
        return [tuple(-n for n in order[::-1]) for found in best.values() for _, order in found]

    def _boxes(self, axes: tuple[str, ...]) -> list[dict[str, int]]:
        """Tiles of the query and key axes: for each number of queries and of keys, the few
        shapes that visit the fewest keys."""
        stream = self.kernel.stream.axes
        queries, keys = ([a for a in axes if (a in stream) is side] for side in (False, True))
        groups = list(self._shapes(queries, MAX_GROUP, self.rows))
        # A chunk has positions of axes beside the key axes, too.
        chunks = list(self._shapes(keys, 256, self.chunks if len(keys) == len(stream) else ()))
        wasted = np.ones((len(groups), len(chunks)))
        for a in axes:
            tiles, other = (groups, 1) if a in queries else (chunks, 0)
            along = [waste(self.kernel, self.sizes, a, t[a]) for t in tiles]
            wasted *= np.expand_dims(along, other)
        lanes = visiting(self.kernel, self.sizes, groups, chunks) * wasted
        out: list[dict[str, int]] = []
        for g, c in itertools.product(_as_many(groups), _as_many(chunks)):
            best = np.argsort(lanes[np.ix_(g, c)], axis=None, kind="stable")[:SHAPES]
            out += [groups[g[k // len(c)]] | chunks[c[k % len(c)]] for k in best]
        return out

    def _shapes(
        self, axes: Sequence[str], most: int, wanted: Collection[int]
    ) -> Iterator[dict[str, int]]:
        """Tiles of axes that only their product matters for; those held whole are not cut."""
        whole = {a: self._lengths(a)[-1] for a in axes if a in self.kernel.whole}
        cut = [a for a in axes if a not in whole]
        tops = [power_of_two(self.sizes[a]) for a in cut]
        uncut = math.prod(whole.values())
        for values in itertools.product(*(_powers(1, min(top, most)) for top in tops)):
            found = math.prod(values)
            some = not wanted or found in wanted
            if some and min(MIN_DOT, math.prod(tops) * uncut) <= found * uncut and found <= most:
                yield {**whole, **dict(zip(cut, values, strict=True))}

    def _deep_without(self, axis: str) -> bool:
        """Whether what a group holds whole beside a streamed axis is depth enough for its products:
        then one position of it is a chunk, and tiles need not be flattened."""
        roles = [role for p in self.live.products for role in p if axis in role]
        rest = [[a for a in role if a in self.kernel.whole] for role in roles]
        least = NARROW_DEPTH if self.live.narrow else MIN_DOT
        return bool(roles) and all(
            math.prod(power_of_two(self.sizes[a]) for a in axes) >= least for axes in rest
        )

    def _deep_with_others(self, axis: str) -> bool:
        """Whether axes that are streamed jointly are depth of one product: a chunk of one or the
        other is enough."""
        stream = set(self.kernel.stream.axes)
        roles = [role for p in self.live.products for role in p if axis in role]
        return bool(roles) and all(len(stream & set(role)) > 1 for role in roles)

    def _shortest(self, axis: str) -> int:
        """Positions of a chunk along a streamed axis, at least: of many that are streamed jointly
        fewer, as a chunk has as many values as all of them together, and of long rows that are
        held whole one, where values side by side lie in one row."""
        fewest = min(32 if len(self.kernel.stream.axes) < 3 else 8, self._seen(axis))
        longest = max((self._row(n) for n in self.live.chunk if axis in n), default=1)
        if any(SECTOR * self._row(axes) >= longest for axes in self.ends.get(axis, ())):
            return fewest
        return max(1, min(fewest, ROW // power_of_two(longest)))

    def _seen(self, axis: str) -> int:
        """Positions that a query sees along a streamed axis which a key set governs alone, on
        average; all of them of another axis."""
        seen = self.kernel.visits
        if seen is None or seen.axes != (axis,):
            return self.sizes[axis]
        (share,) = visiting(self.kernel, self.sizes, [{}], [{}])[0]
        return power_of_two(math.ceil(share * self.sizes[axis]))

    def _row(self, axes: Iterable[str]) -> int:
        """Values of an array for one position of the axes that are not held whole."""
        return math.prod(self.sizes[a] for a in axes if a in self.kernel.whole)

    def _lacking(self, axis: str, least: int, short: bool = False) -> int:
        """Positions that a product needs along an axis, padded ones among them: where several make
        up its rows, columns or depth and are held whole, only the last of them is padded, and none
        where tiles along the others may be long enough; with `short` these are of one position.
        """
        found = 1
        for role in (role for p in self.live.products for role in p if axis in role):
            whole = [a for a in role if a in self.kernel.whole]
            if axis in whole[:-1]:
                continue
            beside = role if axis in whole and not short else whole
            others = math.prod(power_of_two(self.sizes[a]) for a in beside if a != axis)
            found = max(found, -(-least // others))
        return found

    def _candidates(self, axis: str) -> list[int]:
        """Tiles to try of an axis; two values that share a byte are in one tile."""
        found = self._lengths(axis)
        return [n for n in found if n > 1] or [2] if axis in self.packed else found

    def _lengths(self, axis: str) -> list[int]:
        if axis in {*self.kernel.single, *self.one_by_one}:
            return [1]
        if (twin := self.kernel.stream.twin) and axis in {twin.axis, *twin.names}:
            return [twin.length]
        if block := next((b.step for b in self.kernel.blocks if b.axis == axis), 0):
            return [block]
        least = NARROW_DEPTH if any(axis in gone for gone in self.live.narrow) else MIN_DOT
        own = power_of_two(self.sizes[axis])
        alike = next((x for x in self.kernel.renamed if axis in x), (axis,))
        scanned = max(self.scanned.get(a, 1) for a in alike)
        top = max(own, scanned, *(self._lacking(a, least) for a in alike))
        padded = max(own, scanned, *(self._lacking(a, least, short=True) for a in alike))
        if axis in self.kernel.slots:
            last = {slots_of(e.node).slots[-1] for e in self.kernel.fills}
            return [min(top, FILL) if axis in last else 1]
        if axis in self.kernel.whole:
            # With a lane to mask, an empty axis is read as nothing.
            return sorted({max(top, 2), max(padded, 2)})
        if axis in self.kernel.stream.axes:
            low = max(scanned, min(top, self._shortest(axis)))
            low = least if axis in self.in_product else low
            if axis in self.batched or self._deep_without(axis):
                return [1]
            if self._deep_with_others(axis):
                return _powers(1, min(own, 256))
            high = min(top, 256 if axis in self.in_product else 4096)
            return [n for n in _powers(low, max(low, high)) if n <= (self.kernel.unit or n)]
        # A single number is read again by every group, and no tile changes that much.
        read = [x.leaf.axes for x in self.kernel.reads if x.leaf.axes]
        read += [o.axes for o in self.kernel.outputs if o.name in self.kernel.added]
        lacking = {a for axes in read for a in self.kernel.lacking(axes)}
        reused = [a for a in self.kernel.group if a in lacking]
        # A matrix product has no axis that both of its sides carry into the result.
        if axis in reused and axis not in self.batched:
            return _powers(1, min(top, MAX_GROUP))
        if not self.live.products and axis in (*self._inner(reused), *self.ends):
            return _powers(1, min(top, MAX_ROW))
        return [1]

    def _inner(self, reused: Collection[str]) -> list[str]:
        """The last grouped axes that every tensor carries, as many as a large tile may need."""
        own = [a for a in self.kernel.group if a not in reused]
        return [
            a for i, a in enumerate(own) if math.prod(self.sizes[b] for b in own[i + 1 :]) < MAX_ROW
        ]


def _as_many(shapes: Sequence[Mapping[str, int]]) -> list[list[int]]:
    """The places of the shapes that have as many values, for each number of values."""
    found: dict[int, list[int]] = {}
    for place, shape in enumerate(shapes):
        found.setdefault(math.prod(shape.values()), []).append(place)
    return list(found.values())


def _powers(low: int, high: int) -> list[int]:
    return [1 << i for i in range(low.bit_length() - 1, high.bit_length())]
