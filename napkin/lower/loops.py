"""The loops of a kernel over chunks: what each computes, and where its chunks start."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Sequence

from napkin.algebra.fold import State
from napkin.algebra.terms import is_read
from napkin.ir.key_sets import spec_of
from napkin.ir.node import Node, in_kind, postorder, preorder
from napkin.lower import syntax as sx
from napkin.lower.box_loops import Head, Visiting
from napkin.lower.emit import Emitter
from napkin.lower.emit_memory import store
from napkin.lower.places import Places
from napkin.lower.printer import comment
from napkin.lower.program import Loop, moving_terms
from napkin.lower.syntax import Expr, Operand


class Loops:
    """Writes loops with the statements of an emitter."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter, self.places = emitter, Places(emitter)
        self.program, self.scope, self.lang = emitter.program, emitter.scope, emitter.lang
        self.kernel, self.stream = self.program.kernel, self.program.kernel.stream
        seen = self.kernel.visits
        self.visiting = Visiting(emitter, seen) if seen else None

    # --- what stands before them ------------------------------------------------------------

    def define_invariants(self) -> None:
        """Compute what does not change from chunk to chunk."""
        moving = moving_terms(self.program)
        for loop in self.program.loops:
            for root in (*loop.steps.values(), *loop.emits.values()):
                for n in _invariants(root, moving):
                    self.emitter.define(n)

    def define_found(self, loop: Loop) -> None:
        """Read what stays in a loop of what lies at positions that passes before it found."""
        moving = moving_terms(self.program, loop)
        for n in postorder((*loop.steps.values(), *loop.emits.values())):
            if is_read(n) and n.args and n not in moving:
                self.emitter.define(n)

    def visits(self, whose: str) -> list[ast.stmt]:
        """Where the visits of the group or the like begin and end, if a key set says."""
        if self.visiting is None:
            return []
        keys = spec_of(self.visiting.seen.keys).text
        return [comment(f"the keys that this {whose} visits: {keys}"), *self.visiting.prologue()]

    # --- a loop -----------------------------------------------------------------------------

    def title(self, loop: Loop) -> str:
        """What the comment above a loop says."""
        count = len(self.stream.passes)
        again = "" if count == 1 else f", pass {loop.part + 1} of {count}"
        if loop.box is None or self.visiting is None:
            return f"stream {self.stream.axis}{again}"
        which = f", box {loop.box + 1}" if len(self.visiting.seen.boxes) > 1 else ""
        how = "chunks that every query sees whole" if loop.whole else "chunks seen in part"
        return f"stream {self.stream.axis}{again}{which}: {how}"

    def head(self, loop: Loop) -> Head:
        """How a loop goes over its chunks."""
        if self.visiting is not None:
            return self.visiting.head(loop)
        scope, axes = self.scope, self.stream.axes
        if len(axes) == 1:
            bounds: list[Operand] = [0, scope.length(axes[0])]
            before: list[ast.stmt] = []
            if self.kernel.part:
                bounds, before = self._part(axes[0])
            if self.program.tiles[axes[0]] > 1:
                bounds.append(scope.block(axes[0]))
            return Head(scope.start(axes[0]), bounds, [], before=before)
        return self.boxes(axes)

    def _part(self, axis: str) -> tuple[list[Operand], list[ast.stmt]]:
        """Where this group's part of the streamed axis begins and ends: all parts but the last have
        the same number of whole chunks or units, and those past the end have none."""
        scope, part = self.scope, self.kernel.part
        first, end, length = (scope.corner(axis, what) for what in ("first", "end", "share"))
        unit = self.kernel.unit
        count = self.lang("cdiv", scope.length(axis), unit) if unit else self.count(axis)
        share = self.lang("cdiv", count, scope.size(part))
        share = sx.binary(share, "*", unit or self.emitter.block(axis))
        last = self.lang("minimum", sx.binary(first, "+", length), scope.length(axis))
        found = [
            sx.assign(length, share),
            sx.assign(first, sx.binary(scope.position(part), "*", length)),
            sx.assign(end, last),
        ]
        return [first, end], found

    def boxes(self, axes: Sequence[str]) -> Head:
        """Boxes of several axes, numbered, the last axis fastest."""
        scope = self.scope
        counts = [self.count(a) for a in axes]
        number, out = "_".join(axes) + "_iteration", list[ast.stmt]()
        for i, a in enumerate(axes):
            digit: Expr = sx.name(number)
            if counts[i + 1 :]:
                digit = sx.binary(digit, "//", sx.chain("*", counts[i + 1 :]))
            if i > 0:
                digit = sx.binary(digit, "%", counts[i])
            out.append(sx.assign(scope.start(a), sx.binary(digit, "*", self.emitter.block(a))))
        return Head(number, [sx.chain("*", counts)], out)

    def count(self, axis: str) -> Expr:
        """How many chunks an axis has."""
        size = sx.name(self.scope.length(axis))
        if self.program.tiles[axis] == 1:
            return size
        return self.lang("cdiv", size, self.scope.block(axis))

    def starts(self, axes: Sequence[str] = ()) -> list[ast.stmt]:
        """Where a chunk lies along these axes, or the streamed ones, where it has one value."""
        out: list[ast.stmt] = []
        for a in axes or self.stream.axes:
            if self.program.tiles[a] == 1:
                here = self.lang("cast", self.scope.start(a), "INDEX")
                out.append(sx.assign(self.scope.position(a), here))
        return out

    def chunk(self, loop: Loop) -> list[ast.stmt]:
        """Positions of a chunk's values along the streamed axes."""
        out = self.starts()
        for dim, axes in enumerate(self.program.dims):
            if self.stream.carried(axes):
                out += self.places.lanes(dim, {}, loop)
        return out

    def over(self, head: Head, body: list[ast.stmt], **how: Operand) -> ast.stmt:
        """The loop with this head, which Triton is told to compile so."""
        return sx.loop(head.variable, self.lang("range", *head.bounds, **how), [*body, *head.after])

    def begun(self, name: str, read: Node) -> list[ast.stmt]:
        """A state with which a part begins, read where it is stored."""
        value = self.emitter.value(read)
        return [*self.emitter.drain(), sx.assign(self.scope.state(name), value)]

    def begin(self, s: State, inner: Emitter) -> ast.stmt:
        """A state as it is before the first chunk."""
        dims, value = inner.program.shape(s.leaf("old")), in_kind(s.init, s.kind)
        begun, dtype = sx.const(value), self.lang.word("float32" if s.kind == "real" else "int32")
        if dims:
            filled = () if value == 0 else (value,)
            function = "full" if filled else "zeros"
            begun = self.lang(function, inner.extents(dims), *filled, dtype)
            begun = inner.layouts.laid(begun, dims)
        return sx.assign(self.scope.state(s.name), begun)

    def steps(
        self, loop: Loop, states: Sequence[State], inner: Emitter, others: Iterable[Node]
    ) -> list[ast.stmt]:
        """Write a step of each of these states to `inner`. Where a later step or one of the terms
        `others` still reads the old value, what this returns replaces it in the end."""
        scope = self.scope
        if loop.box is not None:
            inner.recount(self._all_terms(loop))
            inner.inside = set(self.stream.axes) if loop.whole else set()
        for s in self.stream.passes[loop.part].states:
            inner.have.pop(s.leaf("new"), None)
            inner.have[s.leaf("old")] = sx.name(scope.state(s.name))
            self.emitter.have[s.leaf("new")] = sx.name(scope.state(s.name))
        after: list[ast.stmt] = []
        for i, s in enumerate(states):
            value = self._in_type(s, inner.value(loop.steps[s.name]), loop.steps[s.name])
            rest = [*(loop.steps[x.name] for x in states[i + 1 :]), *others]
            target = scope.state(s.name)
            if s.leaf("old") in set(postorder(rest)):
                target = scope.fresh(s.name)
                after.append(sx.assign(scope.state(s.name), target))
            inner.statements.append(sx.assign(target, value))
            inner.have[s.leaf("new")] = sx.name(target)
        return after

    def _in_type(self, s: State, value: sx.Expr, step: Node) -> sx.Expr:
        """The new value of a state in the state's own type: positions have that of offsets, which
        is 64 bits for large arrays, and Triton has one type for each variable of a loop."""
        positions = s.kind == "int" and any(n.op == "index" for n in postorder([step]))
        return sx.method(value, "to", self.lang.word("int32")) if positions else value

    def _all_terms(self, loop: Loop) -> list[Node]:
        """The terms of one loop, of the other passes once each, and of the tail."""
        chosen = {x.part: x for x in self.program.loops}
        chosen[loop.part] = loop
        steps = [n for x in chosen.values() for n in x.steps.values()]
        return [*steps, *self.program.tails.values()]

    # --- what comes after them --------------------------------------------------------------

    def tail(self) -> list[ast.stmt]:
        """What comes after the loops: results computed from the states, and stored."""
        self.emitter.drain()
        for name, n in self.program.tails.items():
            store(self.emitter, name, n)
        return self.emitter.drain()


def _invariants(root: Node, moving: Container[Node]) -> list[Node]:
    """The largest terms under `root` that do not change from chunk to chunk."""

    def computed(n: Node) -> bool:
        return not n.constant and n.op not in {"state", "ones", "index"}

    found = preorder([root], lambda n: computed(n) and n in moving)
    return [n for n in found if computed(n) and n not in moving]
