"""Where a group of a kernel stands: its place along every grouped axis, the positions of its tiles,
and where its tensors begin."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from napkin.ir.node import Node
from napkin.ir.slotted import place_of
from napkin.ir.taking import own_axes, read_axes
from napkin.lower import syntax as sx
from napkin.lower.box_loops import rising
from napkin.lower.divisibility import rows, tensor_axes
from napkin.lower.emit import Emitter
from napkin.lower.lanes import EACH, Laned, as_seen
from napkin.lower.printer import comment
from napkin.lower.program import Loop
from napkin.lower.scope import GROUP, SECTION


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
            pid = sx.method(self.lang("program_id", sx.const(0)), "to", sx.name("INDEX"))
            if self.program.schedule.persistent:
                pid = self.lang("cast", sx.name(GROUP), sx.name("INDEX"))
            out.append(sx.assign("pid", pid))
        first = rising(self.kernel)
        others = [a for a in group if a not in first]
        if first and others:
            out += self._longest_first(first, others)
            out += self._places(first, "turn", backwards=True)
        if swizzle := self.program.schedule.swizzle:
            out += self._in_blocks(swizzle)
        else:
            out += self._places(others or first, "pid", backwards=not others)
        return [*out, *self._lengths()]

    def standing(self) -> list[ast.stmt]:
        """The positions of tiles that do not move with the stream."""
        out: list[ast.stmt] = []
        for dim, axes in enumerate(self.program.dims):
            if not self.stream.carried(axes) and not set(axes) & set(self.kernel.slots):
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
                whole = sx.binary(sx.name(n), "//", step)
                out.append(sx.assign(n, sx.binary(whole, "*", step)))
        title = "lengths and strides of rows, as multiples that the compiler sees"
        return [comment(title), *out] if out else []

    def groups(self) -> sx.Expr:
        """How many program instances would have a group each."""
        return sx.chain("*", [self._groups(a) for a in self.kernel.group])

    def _groups(self, axis: str) -> sx.Expr:
        """The program instances along an axis."""
        count: sx.Expr = sx.name(self.scope.size(axis))
        if self.program.tiles[axis] > 1:
            count = self.lang("cdiv", count, self.scope.spanned(axis))
        return count

    def _longest_first(self, rises: Sequence[str], others: Sequence[str]) -> list[ast.stmt]:
        """Groups that see the most keys start first: of a section of the other axes, so large that
        L2 holds what it streams, the last groups along the rising axes, then those before."""
        turns = sx.chain("*", [self._groups(a) for a in rises])
        many = sx.chain("*", [self._groups(a) for a in others])
        pid, section, width = sx.name("pid"), sx.name("section"), sx.name("width")
        first = sx.binary(section, "*", sx.name(SECTION))
        return [
            comment("those that see the most keys start first, section by section"),
            sx.assign("section", sx.binary(pid, "//", sx.chain("*", [sx.name(SECTION), turns]))),
            sx.assign("pid", sx.binary(pid, "-", sx.chain("*", [first, turns]))),
            sx.assign(
                "width",
                self.lang("minimum", sx.name(SECTION), sx.binary(many, "-", first)),
            ),
            sx.assign("turn", sx.binary(pid, "//", width)),
            sx.assign("pid", sx.binary(first, "+", sx.binary(pid, "%", width))),
        ]

    def _in_blocks(self, rows: int) -> list[ast.stmt]:
        """Blocks of so many groups along one axis, the last with what is left, times all along the
        next: a wave of groups reads fewer different tiles."""
        *outer, row, column = self.kernel.group
        out = list[ast.stmt]()
        many, columns = self._groups(row), self._groups(column)
        pid, section, width, turn = map(sx.name, ("pid", "section", "width", "turn"))
        number: sx.Expr = pid
        if outer:
            number = sx.binary(pid, "%", sx.chain("*", [many, columns]))
        block = sx.chain("*", [sx.const(rows), columns])
        first = sx.binary(sx.binary(number, "//", block), "*", sx.const(rows))
        left = sx.binary(many, "-", section)
        out += [
            comment(f"in blocks of {rows} along {row}, times all along {column}"),
            sx.assign("section", first),
            sx.assign("width", self.lang("minimum", left, sx.const(rows))),
            sx.assign("turn", sx.binary(number, "%", block)),
            sx.assign(self._placed(row), sx.binary(section, "+", sx.binary(turn, "%", width))),
            sx.assign(self._placed(column), sx.binary(turn, "//", width)),
        ]
        if outer:
            both = sx.chain("*", [many, columns])
            out.append(sx.assign("pid", sx.binary(pid, "//", both)))
            out += self._places(outer, "pid", backwards=False)
        return out

    def _placed(self, axis: str) -> str:
        """What holds the place of a group along an axis: of one position, the position itself."""
        alone = self.program.tiles[axis] == 1
        return self.scope.position(axis) if alone else self.scope.group_id(axis)

    def _places(self, axes: Sequence[str], number: str, backwards: bool) -> list[ast.stmt]:
        """The place of a group along each of `axes`, from its number, the last axis fastest."""
        out = list[ast.stmt]()
        for i, axis in reversed(list(enumerate(axes))):
            target = self._placed(axis)
            count = self._groups(axis)
            place: sx.Expr = sx.name(number)
            if i > 0:
                place = sx.binary(place, "%", count)
            if backwards:
                place = sx.binary(sx.binary(count, "-", sx.const(1)), "-", place)
            out.append(sx.assign(target, place))
            if i > 0:
                out.append(sx.assign(number, sx.binary(sx.name(number), "//", count)))
        return out

    def _lengths(self) -> list[ast.stmt]:
        """How many places the group's residue has, along the axes that are split by residue."""
        scope = self.scope
        out: list[ast.stmt] = []
        for axis, s in self.kernel.ragged.items():
            rest = sx.binary(sx.name(scope.size(s.axis)), "-", sx.name(scope.position(s.residue)))
            out.append(sx.assign(scope.length(axis), self.lang("cdiv", rest, sx.const(s.step))))
            self.emitter.have[s.length] = sx.name(scope.length(axis))
            if axis in self.kernel.group and self.program.tiles[axis] == 1:
                test = sx.less(sx.name(scope.position(axis)), sx.name(scope.length(axis)))
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
            below = axes[i + 1 :]
            if below:
                inner = sx.chain("*", [sx.name(scope.block(a)) for a in below])
                here = sx.binary(here, "//", inner)
            if i > 0:
                here = sx.binary(here, "%", sx.name(scope.block(axis)))
            if axis in ids:  # already of type INDEX
                first = sx.binary(ids[axis], "*", sx.name(scope.block(axis)))
                here = sx.binary(first, "+", here)
            else:
                here = sx.method(here, "to", sx.name("INDEX"))
            if axis in self.stream.axes or axis in self.kernel.slots:
                here = sx.binary(sx.name(scope.start(axis)), "+", here)
            out.append(sx.assign(scope.position(axis), here))
            if loop is None or not loop.whole:
                out.append(sx.assign(scope.inside(axis), self._inside(dim, axis, loop)))
            if axis in self.program.packed:
                out += self._pairs(axis, ids)
        return out

    def _numbers(self, dim: int, loop: Loop | None) -> sx.Expr:
        """The numbers of a tile dimension's values; those of each lane in a row of their own where
        lanes fold them."""
        seen = as_seen(self.program, loop) if loop else self.program
        if not isinstance(seen, Laned):
            numbers = self.lang("arange", sx.const(0), self.scope.extent(dim))
            return self.emitter.layouts.laid(numbers, (dim,))
        scope, each = self.scope.seen_as(seen), sx.const(EACH)
        dims = (seen.lane, seen.lane + 1)
        lane, value = (self.lang("arange", sx.const(0), scope.extent(d)) for d in dims)
        first = sx.binary(sx.expanded(lane, dims[:1], dims), "*", each)
        return sx.binary(first, "+", sx.expanded(value, dims[1:], dims))

    def _pairs(self, axis: str, ids: dict[str, sx.Expr]) -> list[ast.stmt]:
        """Positions in pairs of values along an axis, and which of them lie inside."""
        scope = self.scope
        half = sx.binary(sx.name(scope.block(axis)), "//", sx.const(2))
        here: sx.Expr = sx.method(self.lang("arange", sx.const(0), half), "to", sx.name("INDEX"))
        if axis in ids:
            here = sx.binary(sx.binary(ids[axis], "*", half), "+", here)
        elif axis in self.stream.axes:  # what the compiler knows of a start is lost in a quotient
            start = sx.binary(sx.name(scope.start(axis)), "//", sx.const(2))
            start = self.lang("cast", start, sx.name("INDEX"))
            here = sx.binary(self.lang("multiple_of", start, half), "+", here)
        full = self.lang("full", sx.tuple_of([half]), sx.const(True), self.lang.word("int1"))
        pair = sx.name(scope.pair(axis))
        test = sx.less(sx.binary(pair, "*", sx.const(2)), sx.name(scope.size(axis)))
        inside = sx.choose(sx.name(scope.even(axis)), full, test)
        return [sx.assign(scope.pair(axis), here), sx.assign(scope.pair_inside(axis), inside)]

    def _inside(self, dim: int, axis: str, loop: Loop | None) -> sx.Expr:
        if loop is not None and loop.box is not None:
            end = self.scope.visit(axis, loop.box, "end")
            return sx.less(sx.name(self.scope.position(axis)), sx.name(end))
        # Where tiles divide the axis this is constant true, and the compiler drops the mask.
        seen = as_seen(self.program, loop) if loop else self.program
        own, scope = seen.shape_of((axis,)), self.scope.seen_as(seen)
        full = self.lang(
            "full",
            sx.tuple_of(scope.extent(d) for d in own),
            sx.const(True),
            self.lang.word("int1"),
        )
        test = sx.less(sx.name(self.scope.position(axis)), sx.name(self.scope.length(axis)))
        return sx.choose(sx.name(self.scope.even(axis)), self.emitter.layouts.laid(full, own), test)

    def bases(self) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """Pointers moved to this group's place along the axes that have no tile dimension: of
        tensors without a descriptor, and of the others."""
        plain: list[ast.stmt] = []
        described: list[ast.stmt] = []
        for x in self.kernel.reads:
            made = self._base(x.tensor, x.leaf, read_axes(x.leaf), own_axes(x.leaf))
            (described if x.leaf in self.program.boxes else plain).extend(made)
        for o in self.kernel.outputs:
            made = self._base(o.name, o.name, o.axes, o.axes)
            (described if o.name in self.program.stores else plain).extend(made)
        return plain, described

    def _base(
        self, tensor: str, key: Node | str, axes: Sequence[str], own: Sequence[str]
    ) -> list[ast.stmt]:
        scope = self.scope
        terms: list[sx.Expr] = [
            sx.binary(sx.name(scope.position(a)), "*", sx.name(scope.stride(tensor, s)))
            for a, s in zip(axes, own, strict=True)
            if a in self.kernel.group and self.program.tiles[a] == 1
            if isinstance(key, str) or place_of(key, a) is None
        ]
        if not terms:
            return []
        target = scope.base(key, tensor)
        return [sx.assign(target, sx.chain("+", [sx.name(scope.tensor(tensor)), *terms]))]
