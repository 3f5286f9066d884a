"""The loops over the chunks that a key set asks for, as statements.

For each box of the set, along each key axis: where the keys of the group's queries begin and end
together, how many chunks that makes, and which run of chunks every query sees whole. The whole
chunks have a loop without tests; the others are numbered past them.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from napkin.derive.kernel import Kernel
from napkin.ir.key_sets import Box, bounds_of
from napkin.ir.node import INT32, Node, postorder
from napkin.keys.visits import Visits
from napkin.lower import syntax as sx
from napkin.lower.corners import at_corner, rises
from napkin.lower.emit import Emitter
from napkin.lower.emit_memory import within
from napkin.lower.masks import masked
from napkin.lower.program import Loop
from napkin.lower.syntax import Expr, Operand


@dataclass(frozen=True)
class Head:
    """How a loop goes over its chunks.

    Attributes:
        variable: the loop's variable.
        bounds: the arguments of its range.
        find: statements at the head of its body that say where the chunk starts.
        before, after: statements before the loop and at the end of its body, which count along.
    """

    variable: str
    bounds: Sequence[Operand]
    find: list[ast.stmt]
    before: list[ast.stmt] = field(default_factory=list[ast.stmt])
    after: list[ast.stmt] = field(default_factory=list[ast.stmt])


class Visiting:
    """Writes what the loops of one kernel visit."""

    def __init__(self, emitter: Emitter, seen: Visits) -> None:
        self.emitter, self.program, self.scope = emitter, emitter.program, emitter.scope
        self.seen, self.axes, self.lang = seen, seen.axes, emitter.lang
        self.still, self._name, self._block = (
            self.program.kernel.residues,
            self.scope.visit,
            emitter.block,
        )
        self.split = {x.box for x in self.program.loops if x.whole}  # with a loop of whole chunks
        self.vacant = self._vacant()

    def _vacant(self) -> list[str]:
        """The query axes along which a group that runs may have no query: places of a residue, of
        which some have fewer, and axes held whole that an output lacks, whose size may be 0."""
        kernel = self.program.kernel
        asked = {a for n in bounds_of(self.seen.boxes) for a in n.axes} & set(kernel.whole)
        lacked = [a for a in asked if any(a not in o.axes for o in kernel.outputs)]
        return [*dict.fromkeys([*(s.place for s in self.seen.splits), *sorted(lacked)])]

    def _chunks(self, span: Expr, axis: str) -> Expr:
        return span if self.program.tiles[axis] == 1 else self.lang("cdiv", span, self._block(axis))

    # --- before the loops -------------------------------------------------------------------

    def prologue(self) -> list[ast.stmt]:
        """Where the visits of every box begin and end."""
        out: list[ast.stmt] = []
        for i, box in enumerate(self.seen.boxes):
            for axis, interval in zip(self.axes, box.intervals, strict=True):
                first = self._extreme(interval.first, "first", "min")
                out += self._reach(axis, i, first, self._extreme(interval.end, "last", "max"))
            if i in self.split:
                out += self._whole(i, box)
        # Corners and bounds are computed on the way, so they stand before what uses them.
        found = self.emitter.drain()
        return [*self._corners(bounds_of(self.seen.boxes)), *found, *out]

    def _corners(self, roots: Sequence[Node]) -> list[ast.stmt]:
        below = postorder(n for n in roots if rises(n, self.still))
        moving = [n.axes[0] for n in below if n.op == "index" and n.axes[0] not in self.still]
        out, scope = list[ast.stmt](), self.scope
        for axis in dict.fromkeys([*(s.place for s in self.seen.splits), *moving]):
            if self.program.tiles[axis] == 1:
                at = scope.position(axis)
                out += [sx.assign(scope.corner(axis, w), at) for w in ("first", "last")]
                continue
            block = scope.spanned(axis)
            grouped = axis in self.program.kernel.group
            first, last = (scope.corner(axis, which) for which in ("first", "last"))
            begin = sx.binary(scope.group_id(axis), "*", block) if grouped else 0
            end = self.lang("minimum", sx.binary(first, "+", block), scope.length(axis))
            out += [sx.assign(first, begin), sx.assign(last, sx.binary(end, "-", 1))]
        return out

    def _extreme(self, bound: Node, which: str, how: str) -> Expr:
        """The least or the greatest ("min", "max") of a bound over the queries of the group, which
        has it at its first or last corner if the bound rises."""
        if not self.program.shape(bound):
            return self.emitter.value(bound)
        if rises(bound, self.still):
            return self.emitter.value(at_corner(bound, which, self.still))
        dims = self.program.shape(bound)
        value = self.emitter.value(self._masked(bound))
        inside = within(self.emitter, bound.axes, dims)
        assert inside is not None  # a padded lane asks for no key of its own
        value = self.lang("where", inside, value, INT32[-1] if how == "min" else INT32[0])
        for _ in dims:
            value = self.lang(how, value, axis=0)
        return value

    def _masked(self, bound: Node) -> Node:
        """A bound for every query of the group, with the masks that its own reductions need."""
        kernel, tiles = self.program.kernel, self.program.tiles
        padded = [a for a in kernel.axes if tiles[a] > 1 and a not in kernel.stream.axes]
        return masked([bound], padded)[bound]

    def _reach(self, axis: str, box: int, first: Expr, end: Expr) -> list[ast.stmt]:
        """The keys that some query of the group sees, and the chunks that hold them."""
        if self.seen.prefix and box > 0:
            first = self.lang("maximum", first, self._name(axis, 0, "end"))
        if self.vacant:
            occupied = self._occupied()
            first, end = (self.lang("where", occupied, x, 0) for x in (first, end))
        names = self._name(axis, box, "first"), self._name(axis, box, "end")
        made = [sx.assign(names[0], first), sx.assign(names[1], end)]
        if box in self.split or len(self.axes) > 1:
            span = self.lang("maximum", sx.binary(names[1], "-", names[0]), 0)
            count = self._chunks(span, axis)
            made.append(sx.assign(self._name(axis, box, "tiles"), count))
        return made

    def _occupied(self) -> Expr:
        """Whether the group has a query."""
        scope, whole = self.scope, self.program.kernel.whole
        firsts = [(a, 0 if a in whole else scope.corner(a, "first")) for a in self.vacant]
        return sx.chain("&", [sx.less(first, scope.length(a)) for a, first in firsts])

    def _whole(self, box: int, at: Box) -> list[ast.stmt]:
        """The run of chunks that every query of the group sees whole."""
        out: list[ast.stmt] = []
        for axis, interval in zip(self.axes, at.intervals, strict=True):
            first, tiles, skip, run = (
                self._name(axis, box, what) for what in ("first", "tiles", "skip", "whole")
            )
            begin = self._extreme(interval.first, "last", "max")
            stop = self._extreme(interval.end, "first", "min")
            before = self.lang("maximum", sx.binary(begin, "-", first), 0)
            inside = self.lang("maximum", sx.binary(stop, "-", first), 0)
            upto = sx.binary(inside, "//", self._block(axis))
            if self.vacant:  # of a group without a query, none
                upto = self.lang("minimum", upto, tiles)
            count = self.lang("maximum", sx.binary(upto, "-", skip), 0)
            for other in range(1 if self.seen.prefix else 0, box):
                count = self.lang("where", self._disjoint(box, other), count, 0)
            skipped = self.lang("minimum", self._chunks(before, axis), tiles)
            out += [sx.assign(skip, skipped), sx.assign(run, count)]
        return out

    def _disjoint(self, box: int, other: int) -> Expr:
        """Whether the keys of two boxes lie apart: a key of both counts with the first only."""
        pairs = [(axis, *pair) for axis in self.axes for pair in ((box, other), (other, box))]
        ends = [(self._name(axis, a, "end"), self._name(axis, b, "first")) for axis, a, b in pairs]
        return sx.chain("|", [sx.compared(end, ast.LtE(), first) for end, first in ends])

    # --- a loop -----------------------------------------------------------------------------

    def head(self, loop: Loop) -> Head:
        """The range of a loop, and where each of its chunks starts."""
        assert loop.box is not None
        if len(self.axes) == 1:
            return self._line(self.axes[0], loop.box, loop.whole)
        return self._grid(loop.box, loop.whole)

    def _line(self, axis: str, box: int, whole: bool) -> Head:
        scope = self.scope
        start, block = scope.start(axis), self._block(axis)
        first, end = self._name(axis, box, "first"), self._name(axis, box, "end")
        if box not in self.split:
            return Head(start, [first, end, block], [])
        skip, run = self._name(axis, box, "skip"), self._name(axis, box, "whole")
        tile = self._tile(axis)
        at = sx.binary(first, "+", sx.binary(tile, "*", block))
        if whole:
            return Head(tile, [skip, sx.binary(skip, "+", run)], [sx.assign(start, at)])
        number = self._name(axis, 0, "iteration")
        left = sx.binary(self._name(axis, box, "tiles"), "-", run)
        find = sx.assign(tile, self._past(number, skip, run))
        return Head(number, [left], [find, sx.assign(start, at)])

    def _grid(self, box: int, whole: bool) -> Head:
        """Several key axes: one iteration for each tile of the box, the last axis fastest.

        The tile along each axis is counted along: dividing its number would cost every warp as much
        as a tenth of a chunk's other work.
        """
        number = "_".join(self.axes) + "_iteration"
        if not whole and box in self.split:
            return self._shell(box, number)
        what = "whole" if whole else "tiles"
        run = [self._name(a, box, what) for a in self.axes]
        tiles: list[Operand] = [self._tile(a) for a in self.axes]
        if whole:
            tiles = [sx.binary(self._tile(a), "+", self._name(a, box, "skip")) for a in self.axes]
        find = self._starts(box, tiles)
        return Head(number, [sx.chain("*", run)], find, self._counters(), self._count(run))

    def _shell(self, box: int, number: str) -> Head:
        """The tiles of a box around the run of whole ones, slab by slab.

        The slab of an axis has the tiles outside the run of that axis and inside those of the axes
        before it. In each slab, tiles are counted from 0 along all axes.
        """
        tiles, runs = ([self._name(a, box, of) for a in self.axes] for of in ("tiles", "whole"))
        slabs = [
            [*runs[:i], sx.binary(tiles[i], "-", runs[i]), *tiles[i + 1 :]]
            for i in range(len(self.axes))
        ]
        before, find = self._counters(), list[ast.stmt]()
        ends = self._ends(before, slabs[:-1])
        within = [sx.less(number, e) for e in ends]
        widths = [
            self._set(find, f"{a}_width", self._pick(within, along))
            for a, along in zip(self.axes, zip(*slabs, strict=True), strict=True)
        ]
        places = [
            self._set(find, f"{a}_at", self._place(box, i, within)) for i, a in enumerate(self.axes)
        ]
        total = sx.binary(sx.chain("*", tiles), "-", sx.chain("*", runs))
        after = [*self._count(widths), self._restart(number, ends)]
        return Head(number, [total], [*find, *self._starts(box, places)], before, after)

    def _ends(self, out: list[ast.stmt], slabs: Sequence[Sequence[Operand]]) -> list[str]:
        """The iterations with which slabs end, of these widths along each axis."""
        ends: list[str] = []
        for i, slab in enumerate(slabs):
            count = sx.chain("*", slab)
            end = sx.binary(ends[-1], "+", count) if ends else count
            ends.append(self._set(out, f"slab_{i}", end))
        return ends

    def _place(self, box: int, i: int, within: Sequence[Expr]) -> Operand:
        """The tile along axis `i` that its count stands for: of all in the slabs before its own, of
        those outside the run in its own, of those inside in later ones."""
        axis = self.axes[i]
        tile, skip = self._tile(axis), self._name(axis, box, "skip")
        outside = self._past(tile, skip, self._name(axis, box, "whole"))
        inside = [] if axis == self.axes[-1] else [sx.binary(tile, "+", skip)]
        return self._pick(within[: i + len(inside)], [*[tile] * i, outside, *inside])

    def _restart(self, number: str, ends: Sequence[str]) -> ast.stmt:
        """The count along the first axis, from 0 where a slab has ended, as the others are then."""
        following, first = sx.binary(number, "+", 1), self._tile(self.axes[0])
        over = sx.chain("|", [sx.compared(following, ast.Eq(), e) for e in ends])
        return sx.assign(first, self.lang("where", over, 0, first))

    def _set(self, out: list[ast.stmt], name: str, value: Operand) -> str:
        target = self._name(self.axes[0], 0, name)
        out.append(sx.assign(target, value))
        return target

    def _tile(self, axis: str) -> str:
        return self._name(axis, 0, "tile")

    def _counters(self) -> list[ast.stmt]:
        return [sx.assign(self._tile(a), 0) for a in self.axes]

    def _count(self, widths: Sequence[Operand]) -> list[ast.stmt]:
        """The tile along each axis counted on by one iteration, the last axis fastest."""
        out: list[ast.stmt] = []
        on = ""
        for i, axis in reversed(list(enumerate(self.axes))):
            tile = self._tile(axis)
            step = sx.binary(tile, "+", 1)
            out.append(sx.assign(tile, self.lang("where", on, step, tile) if on else step))
            if i > 0:
                on = self._set(out, f"{axis}_over", sx.compared(tile, ast.Eq(), widths[i]))
                out.append(sx.assign(tile, self.lang("where", on, 0, tile)))
        return out

    def _starts(self, box: int, tiles: Sequence[Operand]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for a, tile in zip(self.axes, tiles, strict=True):
            offset = sx.binary(tile, "*", self._block(a))
            start = sx.binary(self._name(a, box, "first"), "+", offset)
            out.append(sx.assign(self.scope.start(a), start))
        return out

    def _past(self, number: Operand, skip: Operand, run: Operand) -> Expr:
        """The tile of this number among those outside a run."""
        return self.lang("where", sx.less(number, skip), number, sx.binary(number, "+", run))

    def _pick(self, tests: Sequence[Expr], cases: Sequence[Operand]) -> Operand:
        """The case of the first test that holds, or the last case."""
        out = cases[-1]
        for test, case in reversed(list(zip(tests, cases[:-1], strict=True))):
            out = self.lang("where", test, case, out)
        return out


def grows(seen: Visits, axis: str) -> bool:
    """Whether later queries along an axis see more keys, never fewer: their groups are started
    first, so that short ones are left for the end and no multiprocessor waits for a long one."""
    intervals = [i for box in seen.boxes for i in box.intervals]
    ends = [i.end for i in intervals if axis in i.end.axes]
    begin = any(axis in i.first.axes for i in intervals)
    return bool(ends) and not begin and all(map(rises, ends))


def rising(kernel: Kernel) -> tuple[str, ...]:
    """The grouped axes along which later groups see more keys."""
    seen = kernel.visits
    return tuple(a for a in kernel.group if grows(seen, a)) if seen else ()
