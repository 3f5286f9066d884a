"""Where a group of a kernel stands: its place along every grouped axis, the positions of its tiles,
and where its tensors begin."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from napkin.ir.node import Node
from napkin.ir.slotted import place_of
from napkin.ir.taking import read_axes
from napkin.lower import syntax as sx
from napkin.lower.box_loops import rising
from napkin.lower.divisibility import rows, tensor_axes
from napkin.lower.emit import Emitter
from napkin.lower.per_thread import EACH, PerThread, as_seen
from napkin.lower.printer import comment
from napkin.lower.program import Loop, packed_axes
from napkin.lower.scope import GROUP, GROUPS, SECTION


class Places:
    """Writes positions for the terms of a loop program."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter, self.program, self.scope = emitter, emitter.program, emitter.scope
        self.kernel, self.lang = self.program.kernel, self.scope.lang
        self.stream, self.rows = self.kernel.stream, rows(self.program)

    def numbers(self) -> list[ast.stmt]:
        """The group's place along every grouped axis."""
        out: list[ast.stmt] = []
        group = self.kernel.group
        if group:
            out.append(comment("this group's place"))
            pid = sx.method(self.lang("program_id", 0), "to", "INDEX")
            if self.program.schedule.persistent:
                pid = self.lang("cast", GROUP, "INDEX")
            out.append(sx.assign("pid", pid))
        first = rising(self.kernel)
        others = [a for a in group if a not in first]
        if first and others:
            out += self._longest_first(first, others)
            out += self._places(first, "within", backwards=True)
        if swizzle := self.program.schedule.swizzle:
            out += self._in_blocks(swizzle)
        else:
            out += self._places(others or first, "pid", backwards=not others)
        return [*out, *self._lengths()]

    def standing(self) -> list[ast.stmt]:
        """The positions of tiles that do not move with the stream."""
        out: list[ast.stmt] = []
        moving = {*self.kernel.slots, *self.kernel.twins}
        for dim, axes in enumerate(self.program.dims):
            if not self.stream.carried(axes) and not set(axes) & moving:
                ids = {a: sx.name(self.scope.own(a)) for a in self.kernel.group}
                out += self.lanes(dim, ids)
        return out

    def steps(self) -> list[ast.stmt]:
        """Lengths and strides of rows as multiples of what divides them."""
        scope, own = self.scope, tensor_axes(self.kernel)
        out: list[ast.stmt] = []
        for axis, along in self.rows.items():
            step = sx.name(scope.step(axis))
            strides = [scope.stride(t, a) for t in along for a in own[t][:-1]]
            for n in (scope.size(axis), *strides):
                out.append(sx.assign(n, sx.binary(n, "//", step, "*", step)))
        title = "lengths and strides of rows, as multiples that the compiler sees"
        return [comment(title), *out] if out else []

    def over_groups(self, every: sx.Expr, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """A loop of one program instance over groups."""
        return [
            comment("the groups of this program instance"),
            sx.assign(GROUPS, sx.chain("*", [self._groups(a) for a in self.kernel.group])),
            sx.loop(GROUP, every, body),
        ]

    def _groups(self, axis: str) -> sx.Expr:
        """The program instances along an axis."""
        count: sx.Expr = sx.name(self.scope.size(axis))
        if self.program.tiles[axis] > 1:
            count = self.lang("cdiv", count, self.scope.spanned(axis))
        return count

    def _longest_first(self, rises: Sequence[str], others: Sequence[str]) -> list[ast.stmt]:
        """Groups that see the most keys start first: of a section of the other axes, so large that
        L2 holds what it streams, the last groups along the rising axes, then those before."""
        iterations = sx.chain("*", [self._groups(a) for a in rises])
        many = sx.chain("*", [self._groups(a) for a in others])
        first = sx.binary("section", "*", SECTION)
        return [
            comment("those that see the most keys start first, section by section"),
            sx.assign("section", sx.binary("pid", "//", sx.chain("*", [SECTION, iterations]))),
            sx.assign("pid", sx.binary("pid", "-", sx.chain("*", [first, iterations]))),
            sx.assign("width", self.lang("minimum", SECTION, sx.binary(many, "-", first))),
            sx.assign("within", sx.binary("pid", "//", "width")),
            sx.assign("pid", sx.binary(first, "+", sx.binary("pid", "%", "width"))),
        ]

    def _in_blocks(self, rows: int) -> list[ast.stmt]:
        """Blocks of so many groups along one axis, the last with what is left, times all along the
        next: a wave of groups reads fewer different tiles."""
        *outer, row, column = self.kernel.group
        many, columns = self._groups(row), self._groups(column)
        both, block = sx.binary(many, "*", columns), sx.binary(rows, "*", columns)
        number = sx.binary("pid", "%", both) if outer else sx.name("pid")
        place = sx.binary("section", "+", sx.binary("within", "%", "width"))
        out = [
            comment(f"in blocks of {rows} along {row}, times all along {column}"),
            sx.assign("section", sx.binary(number, "//", block, "*", rows)),
            sx.assign("width", self.lang("minimum", sx.binary(many, "-", "section"), rows)),
            sx.assign("within", sx.binary(number, "%", block)),
            sx.assign(self._placed(row), place),
            sx.assign(self._placed(column), sx.binary("within", "//", "width")),
        ]
        if not outer:
            return out
        rest = sx.assign("pid", sx.binary("pid", "//", both))
        return [*out, rest, *self._places(outer, "pid", backwards=False)]

    def _placed(self, axis: str) -> str:
        """What holds the place of a group along an axis: of one position, the position itself."""
        alone = self.program.tiles[axis] == 1
        return self.scope.position(axis) if alone else self.scope.group_id(axis)

    def _places(self, axes: Sequence[str], number: str, backwards: bool) -> list[ast.stmt]:
        """The place of a group along each of `axes`, from its number, the last axis fastest."""
        out = list[ast.stmt]()
        for i, axis in reversed(list(enumerate(axes))):
            count, place = self._groups(axis), sx.name(number)
            if i > 0:
                place = sx.binary(place, "%", count)
            if backwards:
                place = sx.binary(count, "-", 1, "-", place)
            out.append(sx.assign(self._placed(axis), place))
            if i > 0:
                out.append(sx.assign(number, sx.binary(number, "//", count)))
        return out

    def _lengths(self) -> list[ast.stmt]:
        """How many places the group's residue has, along the axes that are split by residue."""
        scope = self.scope
        out: list[ast.stmt] = []
        for axis, s in self.kernel.ragged.items():
            rest = sx.binary(scope.size(s.axis), "-", scope.position(s.residue))
            out.append(sx.assign(scope.length(axis), self.lang("cdiv", rest, s.step)))
            self.emitter.have[s.length] = sx.name(scope.length(axis))
            if axis in self.kernel.group and self.program.tiles[axis] == 1:
                test = sx.less(scope.position(axis), scope.length(axis))
                out.append(sx.assign(scope.inside(axis), test))
        return [comment("how many places its residue has"), *out] if out else out

    def lanes(self, dim: int, ids: dict[str, sx.Expr], loop: Loop | None = None) -> list[ast.stmt]:
        """Positions of a tile dimension's axes, and which of them lie inside."""
        scope, axes = self.scope, self.program.dims[dim]
        out: list[ast.stmt] = []
        lane = self._numbers(dim, loop)
        if len(axes) > 1:
            out.append(sx.assign(scope.lane(dim), lane))
            lane = sx.name(scope.lane(dim))
        for i, axis in enumerate(axes):
            here = lane
            if below := axes[i + 1 :]:
                here = sx.binary(here, "//", sx.chain("*", map(scope.block, below)))
            if i > 0:
                here = sx.binary(here, "%", scope.block(axis))
            if axis in ids:  # already of type INDEX
                here = sx.binary(ids[axis], "*", scope.block(axis), "+", here)
            else:
                here = sx.method(here, "to", "INDEX")
            if axis in self.stream.axes or axis in self.kernel.slots:
                here = sx.binary(scope.start(axis), "+", here)
            out.append(sx.assign(scope.position(axis), here))
            if loop is None or not loop.whole:
                out.append(sx.assign(scope.inside(axis), self._inside(dim, axis, loop)))
            if axis in packed_axes(self.kernel):
                out += self._pairs(axis, ids)
        return out

    def _numbers(self, dim: int, loop: Loop | None) -> sx.Expr:
        """The numbers of a tile dimension's values; those of each lane in a row of their own where
        lanes fold them."""
        seen = as_seen(self.program, loop) if loop else self.program
        if not isinstance(seen, PerThread):
            numbers = self.lang("arange", 0, self.scope.extent(dim))
            return self.emitter.layouts.laid(numbers, (dim,))
        scope = self.scope.seen_as(seen)
        dims = (seen.lane, seen.lane + 1)
        lane, value = (self.lang("arange", 0, scope.extent(d)) for d in dims)
        lane, value = sx.expanded(lane, dims[:1], dims), sx.expanded(value, dims[1:], dims)
        return sx.binary(lane, "*", EACH, "+", value)

    def _pairs(self, axis: str, ids: dict[str, sx.Expr]) -> list[ast.stmt]:
        """Positions in pairs of values along an axis, and which of them lie inside."""
        scope = self.scope
        half = sx.binary(scope.block(axis), "//", 2)
        here: sx.Expr = sx.method(self.lang("arange", 0, half), "to", "INDEX")
        if axis in ids:
            here = sx.binary(ids[axis], "*", half, "+", here)
        elif axis in self.stream.axes:  # what the compiler knows of a start is lost in a quotient
            start = self.lang("cast", sx.binary(scope.start(axis), "//", 2), "INDEX")
            here = sx.binary(self.lang("multiple_of", start, half), "+", here)
        full = self.lang("full", sx.tuple_of([half]), True, self.lang.word("int1"))
        test = sx.less(sx.binary(scope.pair(axis), "*", 2), scope.size(axis))
        inside = sx.choose(scope.even(axis), full, test)
        return [sx.assign(scope.pair(axis), here), sx.assign(scope.pair_inside(axis), inside)]

    def _inside(self, dim: int, axis: str, loop: Loop | None) -> sx.Expr:
        if loop is not None and loop.box is not None:
            end = self.scope.visit(axis, loop.box, "end")
            return sx.less(self.scope.position(axis), end)
        # Where tiles divide the axis this is constant true, and the compiler drops the mask.
        seen = as_seen(self.program, loop) if loop else self.program
        own, scope = seen.shape_of((axis,)), self.scope.seen_as(seen)
        full = self.lang(
            "full", sx.tuple_of(scope.extent(d) for d in own), True, self.lang.word("int1")
        )
        test = sx.less(self.scope.position(axis), self.scope.length(axis))
        return sx.choose(self.scope.even(axis), self.emitter.layouts.laid(full, own), test)

    def bases(self) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """Pointers moved to this group's place along the axes that have no tile dimension: of
        tensors without a descriptor, and of the others."""
        plain: list[ast.stmt] = []
        described: list[ast.stmt] = []
        for x in self.kernel.reads:
            made = self._base(x.tensor, x.leaf, read_axes(x.leaf))
            (described if x.leaf in self.program.boxed else plain).extend(made)
        for o in self.kernel.outputs:
            made = self._base(o.name, o.name, o.axes)
            (described if o.name in self.program.stores else plain).extend(made)
        return plain, described

    def _base(self, tensor: str, key: Node | str, axes: Sequence[str]) -> list[ast.stmt]:
        scope, own = self.scope, tensor_axes(self.kernel)[tensor]
        terms: list[sx.Expr] = [
            sx.binary(scope.position(a), "*", scope.stride(tensor, s))
            for a, s in zip(axes, own, strict=True)
            if a in self.kernel.group and self.program.tiles[a] == 1
            if isinstance(key, str) or place_of(key, a) is None
        ]
        if not terms:
            return []
        target = scope.base(key, tensor)
        return [sx.assign(target, sx.chain("+", [scope.tensor(tensor), *terms]))]
