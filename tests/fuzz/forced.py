"""Plans that are drawn, and not taken by their price: cuts, labels, tiles as for large sizes."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import candidates
from candidates import H100, Term

from napkin.count.residency import live_set
from napkin.cut.frontier import Frontier, orders
from napkin.cut.pieces import Piece, Pieces, Segment, agreeing, uniquely_named
from napkin.cut.segments import Known, Memo
from napkin.derive.kernel import Kernel
from napkin.derive.rules.ahead import ahead, why_not_ahead
from napkin.derive.rules.block import blocked
from napkin.derive.rules.part import handed, part_axis, parted, why_not_parted
from napkin.derive.rules.resume import RESUMED
from napkin.derive.rules.scan_parts import scanned
from napkin.diagram.diagram import Diagram
from napkin.errors import Refusal
from napkin.ir.node import postorder
from napkin.lower.build import build
from napkin.lower.descriptors import may_persist
from napkin.lower.group_order import Launching
from napkin.lower.printer import function_name
from napkin.moves.trail import Trail
from napkin.plan.fitting import formed
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel
from napkin.schedule import Schedule
from napkin.settings.best import resolved
from napkin.settings.choice import Choice
from napkin.settings.labelled import described_bytes
from napkin.settings.series import Series, adding_in_groups, adding_in_parts, why_not_in_parts
from napkin.settings.specialised import may_specialise, specialised_choices
from napkin.settings.specialised import written as written_specialised
from napkin.settings.tiles import Tiles, power_of_two

SETTINGS = 400
"""Tiles of a kernel among which one is drawn."""

LANES = 2**17
"""Values of a tile, at most: more take an interpreter long."""

SORTED = 2**9
"""The same where they are sorted, by one value after another."""

HELD = 128
"""Values of one tensor that a thread holds, at most: more it keeps in memory, by code that takes
minutes to compile."""

TURNS = 48
"""Groups and chunks, at most: an interpreter takes milliseconds for each."""

REDRAWN = 6
"""Times that tiles are drawn of which threads hold too much."""

WARPS = 8
"""Warps of a group, at most."""

LARGE = 64
"""What the tiles of an axis that is cut are chosen for, at least."""


SPECIALISED = 0.7
"""How often a kernel that may run as warpgroups does."""

WIDE = 512
"""What the tiles of warpgroups are chosen for, at least."""

TRIED = 6
"""Kernels of warpgroups that are written until one can be."""

FUSED = 0.3
"""How often one kernel computes as much as one may, where kinds are drawn."""

T = TypeVar("T")


class Forcing:
    """Draws plans of a diagram.

    Args:
        sizes: what the plans will run at.
        kinds: whether rare kinds of labels and tiles are drawn as often as common ones, and groups
            may add in memory.
        patient: whether other kernels are tried where some that were drawn have no small tiles.

    Attributes:
        fused: whether one kernel computes as much as one may, and no two compute a term.
    """

    def __init__(
        self,
        diagram: Diagram,
        sizes: Mapping[str, int],
        dtype: str,
        rng: random.Random,
        kinds: bool = False,
        patient: bool = False,
    ) -> None:
        self.diagram, self.sizes, self.dtype, self.rng = diagram, dict(sizes), dtype, rng
        self.kinds, self.fused, self.patient = kinds, False, patient
        self.alike = Memo(dtype, H100)
        rounded = dtype != "fp32"
        self.terms = list(candidates.terms(diagram, squared=False, rounded=rounded))
        if kinds:
            self.terms += candidates.split(diagram, sizes, rounded)

    def plan(self, fused: bool = False) -> Plan | None:
        """A plan; None where what was drawn is none."""
        self.fused = fused
        term = self.rng.choice(self.terms)
        sizes = term.sizes({a: max(1, n) for a, n in self.sizes.items()})
        points = candidates.drawn_points(term, sizes, self.rng)
        order = self.rng.choice(list(orders(term.outputs, points)))
        frontier = Frontier(term.outputs, sizes, order, points)
        pieces = Pieces(self.diagram.name, term.outputs, term.names, frontier, self.alike)
        kernels = self._cut(pieces, term, sizes)
        if kernels is None:
            return None
        apart = uniquely_named([Piece(k.choice, k.binding, 0.0) for k in kernels])
        apart = agreeing(apart, self.dtype)
        kernels = tuple(PlannedKernel(p.choice, p.binding, self.dtype, H100) for p in apart)
        node_of = candidates.node_of(pieces)
        stored = {k.binding[o.name] for k in kernels for o in k.choice.origin}
        between = {t: pieces.axes_of(node_of[t]) for t in stored if t in node_of}
        parts = {k.choice.kernel.part: k.choice.sizes for k in kernels if k.choice.kernel.part}
        number = {axis: own[axis] for axis, own in parts.items()}
        known_sizes = {a: sizes[a] for a in self.diagram.axes}
        given = {k.name: c for k in kernels if (c := self._specialised(k.choice)) is not None}
        blocks = tuple(dict.fromkeys(b for k in kernels for b in k.choice.kernel.blocks))
        return Plan(self.diagram, H100, self.dtype, known_sizes, kernels, between, Trail(()),
                    _same(term), number, blocks, specialised=False, given=given)  # fmt: skip

    def of(self, kernel: Kernel) -> Plan | None:
        """A plan of one kernel that computes the whole diagram; None where tiles are too large, or
        registers would change the name of an axis."""
        if any(n.op == "rename" for n in postorder(kernel.terms)):
            return None
        every = {t: t for t in (*kernel.tensors, *(o.name for o in kernel.origin))}
        named = replace(kernel, name=function_name(kernel.name))
        planned = self._planned(named, every, self.sizes)
        if planned is None:
            return None
        return Plan(self.diagram, H100, self.dtype, self.sizes, (planned,), {}, Trail(()),
                    specialised=False)  # fmt: skip

    def _specialised(self, alone: Choice) -> Choice | None:
        """A kernel of warpgroups in the place of one; None where there is none, or rarely."""
        kernel = alone.kernel
        if self.rng.random() > SPECIALISED or not may_specialise(kernel, self.dtype, H100):
            return None
        sizes = self._long(kernel, alone.sizes, WIDE)
        if self.kinds and self.rng.random() < 0.7:  # a group holds columns whole, if few
            columns = {a for _, columns, _ in live_set(kernel).products for a in columns}
            sizes |= {a: alone.sizes[a] for a in columns.intersection(alone.sizes)}
        found = [c for part in specialised_choices(kernel, sizes, self.dtype, H100) for c in part]
        self.rng.shuffle(found)
        return next((c for c in found[:TRIED] if _writes(c)), None)

    def _cut(self, pieces: Pieces, term: Term, sizes) -> list[PlannedKernel] | None:
        """The kernels of runs of points, drawn from the last; None where some run has none."""
        frontier = pieces.frontier
        found: list[PlannedKernel] = []
        i = len(frontier.points) - 1
        while i >= 0:
            begins = list(range(max(0, i - candidates.LONGEST + 1), i + 1))
            self.rng.shuffle(begins)
            if self.fused or self.rng.random() < 0.5:
                begins.sort()
            for j in begins:
                if not frontier.wanted(j, i):
                    break
                segment = candidates.segment_of(pieces, j, i)
                if segment is None or not all(self._runs(known) for known, _ in segment.runs):
                    continue
                made = self._made(segment, sizes)
                if made is not None:
                    found = [*made, *found]
                    break
                if not self.patient:
                    return None
            else:
                return None
            i = j - 1
        light = dict.fromkeys(o.node for o in term.outputs if frontier.level[o.node] < 0)
        for n in light:
            segment = pieces.segment([n], -1)
            made = None if segment is None else self._made(segment, sizes)
            if made is None:
                return None
            found = [*made, *found]
        return found

    def _made(self, segment: Segment, sizes) -> list[PlannedKernel] | None:
        """The kernels of a segment; None where it has none at small tiles."""
        found: list[PlannedKernel] = []
        for known, names in segment.runs:
            kernels = self._kernels(known, names, sizes)
            if None in kernels:
                return None
            found += kernels
        return found

    def _runs(self, known: Known) -> bool:
        """Whether there are kernels for a run of points."""
        return bool(known.search.kernels or next(self._adding(known), None))

    def _adding(self, known: Known) -> Iterator[Series]:
        """The kernels whose groups add in memory."""
        if self.kinds:
            yield from adding_in_groups(*known.search.terms, H100, math.inf)
            for kernel in known.search.kernels:
                if not why_not_parted(kernel):
                    yield from adding_in_parts(kernel, known.search.sizes, [2, 3])

    def _kernels(self, known: Known, names: Sequence[str], sizes) -> list[PlannedKernel | None]:
        """One kernel for a run, or two that pass the states of parts or add in memory."""
        ours = dict(zip(known.first, names, strict=True))
        adding = [] if self.fused and known.search.kernels else list(self._adding(known))
        for _ in range(4):
            if adding and (not known.search.kernels or self.rng.random() < 0.5):
                pair = self.rng.choice(adding)
                made = self._all(pair.kernels, ours, {**sizes, **pair.sizes})
                if all(made):
                    return made
                continue
            kernel = self._drawn(known.search.kernels, _labelled)
            if self.fused:
                made = [self._planned(kernel, ours, sizes)]
            elif kernel.stream.twin and self.rng.random() < 0.3 and not why_not_ahead(kernel):
                made = self._ahead(kernel, ours, sizes)
            elif self.rng.random() < 0.3 and not why_not_in_parts(kernel):
                made = self._in_parts(kernel, ours, sizes)
            elif both := self._blocked(kernel) or self._resumed(kernel, sizes):
                made = self._all(both, ours, sizes)
            else:
                made = [self._planned(kernel, ours, sizes)]
            if all(made):
                return made
        return [None]

    def _in_parts(self, kernel: Kernel, ours: Mapping[str, str], sizes):
        number = self.rng.choice((2, 3, 4))
        sizes = {**sizes, part_axis(kernel.stream.axis, number): number}
        if not why_not_parted(kernel):
            return self._all(parted(kernel, number), ours, sizes)
        return self._all(scanned(kernel, number, self.rng.choice((16, 16, 32))), ours, sizes)

    def _ahead(self, kernel: Kernel, ours: Mapping[str, str], sizes):
        number = self.rng.choice((1, 2, 3, 4))
        sizes = {**sizes, part_axis(kernel.stream.axis, number): number}
        return self._all(ahead(kernel, number), ours, sizes)

    def _blocked(self, kernel: Kernel) -> tuple[Kernel, Kernel] | None:
        """The kernels of blocks of a stream, if an axis that is held can be streamed in them."""
        if why_not_parted(kernel):
            return None
        inner = self.rng.choice(kernel.whole) if kernel.whole else ""
        length = self.rng.choice((2, 8, 16, 16, 32))
        return blocked(kernel, inner, length) if inner else None

    def _resumed(self, kernel: Kernel, sizes) -> tuple[Kernel, Kernel] | None:
        """The kernels that scan a stream in blocks, now and then, if it can be scanned so."""
        often = sizes.get(kernel.stream.axis, 0) > 1 and self.rng.random() < 0.5
        found = RESUMED.matches(kernel, self.rng.choice((2, 2, 4, 8))) if often else ()
        return next((RESUMED.apply(made) for made in found), None)

    def _all(self, kernels: Sequence[Kernel], ours: Mapping[str, str], sizes):
        """Kernels of which each stores states, or sums, for those after it."""
        result = ours[kernels[-1].origin[0].name]
        passed = (o for k in kernels[:-1] for o in handed(k))
        ours = {**ours, **{o.name: f"{result}_{o.name}" for o in passed}}
        return [self._planned(k, ours, sizes) for k in kernels]

    def _planned(self, kernel: Kernel, ours: Mapping[str, str], sizes) -> PlannedKernel | None:
        drawn = (self._tiles(kernel, sizes) for _ in range(REDRAWN if self.kinds else 1))
        held = ((t, _warps(kernel, t)) for t in drawn if t is not None)
        tiles, least = next((x for x in held if x[1] <= WARPS), (None, 0))
        if tiles is None:
            return None
        often = 0.5 if self.kinds else 0.3
        item = described_bytes(self.dtype, H100) if self.rng.random() < often else 0
        blocks = Launching(kernel, 4).in_blocks(tiles)
        rows = 4 if blocks is not None and self.rng.random() < 0.2 else 0
        warps = max(self.rng.choice((1, 2, 4, 4, 8)), least)
        plain = kernel.visits is None and len(kernel.stream.passes) == 1 and not kernel.part
        lasting = self.rng.choice((0, 1, 3)) if item and plain else 0
        for programs in (lasting, 0):
            asked = Schedule(tiles, warps, 2, rows, item, per_thread=True, persistent=programs)
            program = build(kernel, asked)
            if not programs or may_persist(program):
                break
        choice = resolved(Choice(kernel, asked, sizes, 0, None, 0, None))
        names = {*kernel.tensors, *(o.name for o in kernel.origin)}
        return PlannedKernel(choice, {t: ours[t] for t in names}, self.dtype, H100)

    def _tiles(self, kernel: Kernel, sizes: Mapping[str, int]) -> dict[str, int] | None:
        """Tiles of the planner's own list, as if the axes that are cut were long."""
        known = kernel.sized(sizes)
        grown = self._long(kernel, sizes, LARGE)
        listed = itertools.islice(Tiles(kernel, grown).settings(), SETTINGS)
        found = [t for t in listed if self._small(kernel, t, known)]
        cut = [t for t in found if any(t[a] < known[a] for a in kernel.stream.axes)]
        if not found:
            return None
        among = cut if cut and self.rng.random() < 0.6 else found
        return dict(self._drawn(among, lambda t: _cut(kernel, t, known)))

    def _drawn(self, among: Sequence[T], kind: Callable[[T], Hashable]) -> T:
        """One of several; where kinds are drawn, one of a kind that is drawn first."""
        if self.kinds:
            sorts: dict[Hashable, list[T]] = {}
            for x in among:
                sorts.setdefault(kind(x), []).append(x)
            among = self.rng.choice(list(sorts.values()))
        return self.rng.choice(among)

    def _long(self, kernel: Kernel, sizes: Mapping[str, int], least: int) -> dict[str, int]:
        """Sizes of which the axes that are cut are long."""
        known = kernel.sized(sizes)
        fixed = {*kernel.whole, *kernel.slots, *kernel.residues, kernel.part, kernel.merges}
        fixed |= {s.axis for s in kernel.splits if s.place in fixed}
        own = {a: n if a in fixed else max(n, least) for a, n in sizes.items()}
        return {**kernel.sized(own), **{a: known[a] for a in fixed if a in known}}

    def _small(self, kernel: Kernel, tiles: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
        """Whether an interpreter runs it in moments: few lanes, few groups, few chunks."""
        if math.prod([-(-sizes[a] // tiles[a]) for a in kernel.axes]) > TURNS:
            return False
        # where kinds are drawn, no tile has all axes
        tiled = _together(kernel) if self.kinds else [kernel.axes]
        lanes = max(math.prod([tiles[a] for a in axes]) for axes in tiled)
        return lanes <= (SORTED if _sorts(kernel) else LANES)


@lru_cache(maxsize=64)
def _sorts(kernel: Kernel) -> bool:
    """Whether a kernel sorts."""
    return any(n.op == "sort" for n in postorder(o.node for o in kernel.outputs))


@lru_cache(maxsize=64)
def _together(kernel: Kernel) -> frozenset[tuple[str, ...]]:
    """The axes of each term of a kernel."""
    return frozenset(tuple(a for a in n.axes if a in kernel.axes) for n in postorder(kernel.terms))


def _labelled(kernel: Kernel) -> Hashable:
    """What kind of labels a kernel has."""
    stream, seen = kernel.stream, kernel.visits
    boxes = 0 if seen is None else len(seen.boxes)
    rest = bool(kernel.residues), bool(kernel.slots), stream.twin is not None
    return len(stream.axes), len(stream.passes), boxes, *rest


def _cut(kernel: Kernel, tiles: Mapping[str, int], sizes: Mapping[str, int]) -> Hashable:
    """How tiles cut what a kernel streams: each axis in chunks or not, and in single positions."""
    return tuple((tiles[a] < sizes[a], tiles[a] == 1) for a in kernel.stream.axes)


def _writes(choice: Choice) -> bool:
    try:
        written_specialised(choice)
    except Refusal:
        return False
    return True


def _warps(kernel: Kernel, tiles: Mapping[str, int]) -> int:
    """The warps that hold the largest tensor of a kernel at some tiles, a power of two."""
    program = build(kernel, Schedule(tiles))
    terms = (n for n in postorder(program.roots) if not n.constant)
    values = max((program.span(formed(program, n)) for n in terms), default=1)
    return power_of_two(-(-values // (32 * HELD)))


def _same(term: Term) -> dict[str, str]:
    out: dict[str, str] = {}
    for new, old in term.same_size.items():
        out[new] = " ".join(out.get(a, a) for a in old.split())
    return out


def plans(
    diagram: Diagram,
    sizes: Mapping[str, int],
    dtype: str,
    rng: random.Random,
    most: int,
    kinds: bool = False,
    patient: bool = False,
) -> Sequence[Plan]:
    """Some plans of a diagram (see `Forcing`)."""
    forcing = Forcing(diagram, sizes, dtype, rng, kinds, patient)
    found = (forcing.plan(kinds and rng.random() < FUSED) for _ in range(2 * most))
    return list(itertools.islice((p for p in found if p is not None), most))
