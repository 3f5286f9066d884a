"""A loop program as a Triton kernel: signature, positions, loops, tail, and the source text."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from napkin.algebra.fold import State
from napkin.algebra.terms import rounds_alike
from napkin.derive.kernel import tensor_of
from napkin.ir.key_sets import spec_of
from napkin.ir.node import Node, in_kind, postorder
from napkin.ir.slots import slots_of
from napkin.ir.taking import taken_of
from napkin.lower import syntax as sx
from napkin.lower.box_loops import Head
from napkin.lower.divisibility import tensor_axes
from napkin.lower.emit import Emitter
from napkin.lower.lanes import as_joined, as_seen
from napkin.lower.launch import Argument, Entry
from napkin.lower.places import Places
from napkin.lower.printer import comment, source
from napkin.lower.program import Loop, Program
from napkin.lower.scope import DESCRIPTORS, SECTION
from napkin.lower.trim import loaded, trimmed


@dataclass(frozen=True, eq=False)
class Written:
    """A kernel's source and how to call it.

    Attributes:
        name: the function's name.
        source: the text of the function (and of helpers it needs), without imports.
        arguments: in the order of the signature.
        grid: the grouped axes; the launch grid is the product of their group counts.
        entry: what a launch needs to know.
    """

    name: str
    source: str
    arguments: tuple[Argument, ...]
    grid: tuple[str, ...]
    entry: Entry


class Writer(Places):
    # --- signature --------------------------------------------------------------------------

    def arguments(self) -> tuple[Argument, ...]:
        scope, tiled = self.scope, [a for a in self.kernel.axes if self.program.tiles[a] > 1]
        axes = self.kernel.axes
        out = [Argument(scope.tensor(t), "tensor", (t,)) for t in scope.tensors]
        out += [Argument(scope.constant(n), "constant", n) for n in self.program.constants]
        out += [Argument(scope.size(a), "size", (a,)) for a in (*axes, *self._other_sizes())]
        for t, own in tensor_axes(self.kernel).items():
            out += [Argument(scope.stride(t, a), "stride", (t, a)) for a in own]
        if self.rising and len(self.rising) < len(self.kernel.group):
            out.append(Argument(SECTION, "section", self.rising))
        out += [Argument(scope.block(a), "block", (a,)) for a in tiled]
        # Chunks that a key set asks for end where its keys do.
        ending = [a for a in tiled if self.visiting is None or a not in self.stream.axes]
        out += [Argument(scope.even(a), "even", (a,)) for a in ending]
        out += [Argument(scope.step(a), "step", (a, *along)) for a, along in self.rows.items()]
        if self.program.boxes:
            out.append(Argument(DESCRIPTORS, "descriptors", ()))
        return (*out, Argument("WIDE", "wide", ()))

    def _other_sizes(self) -> list[str]:
        """Axes that the kernel does not go over, but whose sizes say where it reads."""
        found = [s.axis for s in self.kernel.ragged.values()]
        found += [str(n.params[0]) for n in postorder(self.program.roots) if n.op == "size"]
        for access in self.kernel.reads:
            taken, own = taken_of(access.leaf), Emitter.strides_of(access.leaf)
            for u, a in zip(taken.under, own, strict=True) if taken else ():
                found += [a] if isinstance(u, int) else []
        return [a for a in dict.fromkeys(found) if a not in self.kernel.axes]

    # --- body -------------------------------------------------------------------------------

    def body(self) -> list[ast.stmt]:
        group = self._group()
        turns = self.in_turn(group) if self.program.schedule.persistent else group
        return [self.index_type(), *self.steps(), *turns]

    def _group(self) -> list[ast.stmt]:
        """All that one group does."""
        emitter = self.emitter
        emitter.count(self.program.roots)
        out = [*self.positions(), *self.bases()]
        self._prologue()
        if emitter.statements and self.program.loops:
            out += [comment("held by the group for the whole stream"), *emitter.drain()]
        if self.visiting:
            keys = spec_of(self.visiting.seen.keys).text
            out += [comment(f"the keys that this group visits: {keys}"), *self.visiting.prologue()]
        for i in range(len(self.program.loops)):
            out += self._loop(i)
        tail = self._tail()
        out += [comment("tail"), *tail] if tail and self.program.loops else tail
        for name, n in self.program.fills.items():
            out += self._fill(name, n)
        return out

    # --- what moves -------------------------------------------------------------------------

    def _prologue(self) -> None:
        for loop in self.program.loops:
            for root in (*loop.steps.values(), *loop.emits.values()):
                for n in self._invariants(root):
                    self.emitter.define(n)

    def _invariants(self, root: Node) -> list[Node]:
        out: dict[Node, None] = {}
        stack, seen = [root], set[Node]()
        while stack:
            n = stack.pop()
            if n in seen or n.constant or n.op in {"state", "ones", "index"}:
                continue
            seen.add(n)
            if n not in self.moving:
                out[n] = None
            else:
                stack.extend(reversed(n.args))
        return list(out)

    # --- loops ------------------------------------------------------------------------------

    def _loop(self, index: int) -> list[ast.stmt]:
        scope, loop = self.scope, self.program.loops[index]
        step = self.stream.passes[loop.part]
        first = index == 0 or self.program.loops[index - 1].part != loop.part
        out: list[ast.stmt] = [comment(self._title(loop))]
        inner = self.emitter.seen_as(as_seen(self.program, loop))
        for s in step.states if first else ():
            out.append(sx.assign(scope.state(s.name), self._init(s, inner)))
        head = self._head(loop)
        positions = [*head.find, *self._chunk(loop)]
        late = self._steps(loop, step.states, inner, loop.emits.values())
        for name, n in loop.emits.items():
            self._store(inner, name, n)
        out += [*head.before, _for(head, [*positions, *inner.statements, *late])]
        return [*out, *self._join(loop, step.states)] if loop.joins else out

    def _steps(
        self, loop: Loop, states: Sequence[State], inner: Emitter, others: Iterable[Node]
    ) -> list[ast.stmt]:
        """Write a step of each of these states to `inner`. Where a later step or one of the terms
        `others` still reads the old value, what this returns replaces it in the end."""
        scope = self.scope
        if loop.box is not None:
            inner.recount(self._beside(loop))
            inner.inside = set(self.stream.axes) if loop.whole else set()
        for s in self.stream.passes[loop.part].states:
            inner.have.pop(s.leaf("new"), None)
            inner.have[s.leaf("old")] = sx.name(scope.state(s.name))
            self.emitter.have[s.leaf("new")] = sx.name(scope.state(s.name))
        late: list[ast.stmt] = []
        for i, s in enumerate(states):
            value = inner.value(loop.steps[s.name])
            rest = [*(loop.steps[x.name] for x in states[i + 1 :]), *others]
            target = scope.state(s.name)
            if s.leaf("old") in set(postorder(rest)):
                target = scope.fresh(s.name)
                late.append(sx.assign(scope.state(s.name), sx.name(target)))
            inner.statements.append(sx.assign(target, value))
            inner.have[s.leaf("new")] = sx.name(target)
        return late

    def _join(self, loop: Loop, states: Sequence[State]) -> list[ast.stmt]:
        """The states that lanes have kept by themselves, joined."""
        scope, out = self.scope, [comment("join what lanes have folded")]
        known = {x.leaf("left"): sx.name(scope.state(x.name)) for x in states}
        for x in states:
            join = loop.joins[x.name]
            view = as_joined(self.program, loop, join)
            inner = self.emitter.seen_as(view)
            inner.have |= known
            inner.recount([join.of])
            value = inner.joined(join, view.lane)
            target = scope.joined(x.name)
            out += [*inner.statements, sx.assign(target, value)]
            self.emitter.have[x.leaf("new")] = known[x.leaf("new")] = sx.name(target)
        return out

    def _beside(self, loop: Loop) -> list[Node]:
        """The terms of one loop, of the other passes once each, and of the tail."""
        chosen = {x.part: x for x in self.program.loops}
        chosen[loop.part] = loop
        steps = [n for x in chosen.values() for n in x.steps.values()]
        return [*steps, *self.program.tails.values()]

    def _head(self, loop: Loop) -> Head:
        if self.visiting is not None:
            return self.visiting.head(loop)
        scope, axes = self.scope, self.stream.axes
        if len(axes) == 1:
            bounds: list[sx.Expr] = [sx.const(0), sx.name(scope.length(axes[0]))]
            before: list[ast.stmt] = []
            if self.kernel.part:
                bounds, before = self._part(axes[0])
            if self.program.tiles[axes[0]] > 1:
                bounds.append(sx.name(scope.block(axes[0])))
            return Head(scope.start(axes[0]), bounds, [], before=before)
        return self._turns(axes)

    def _part(self, axis: str) -> tuple[list[sx.Expr], list[ast.stmt]]:
        """Where this group's part of the streamed axis begins and ends: all parts but the last have
        the same number of whole chunks, and those past the end have none."""
        scope, part = self.scope, self.kernel.part
        first, end = scope.corner(axis, "first"), scope.corner(axis, "end")
        share: sx.Expr = sx.call("tl.cdiv", self._count(axis), sx.name(scope.size(part)))
        if self.program.tiles[axis] > 1:
            share = sx.binary(share, "*", sx.name(scope.block(axis)))
        length = scope.corner(axis, "share")
        begin = sx.binary(sx.name(scope.position(part)), "*", sx.name(length))
        last = sx.binary(sx.name(first), "+", sx.name(length))
        found: list[ast.stmt] = [
            sx.assign(length, share),
            sx.assign(first, begin),
            sx.assign(end, sx.call("tl.minimum", last, sx.name(scope.length(axis)))),
        ]
        return [sx.name(first), sx.name(end)], found

    def _turns(self, axes: Sequence[str]) -> Head:
        """Boxes of several axes, numbered, the last axis fastest."""
        scope = self.scope
        counts = [self._count(a) for a in axes]
        turn, out = "_".join(axes) + "_turn", list[ast.stmt]()
        for i, a in enumerate(axes):
            digit: sx.Expr = sx.name(turn)
            if counts[i + 1 :]:
                digit = sx.binary(digit, "//", sx.chain("*", counts[i + 1 :]))
            if i > 0:
                digit = sx.binary(digit, "%", counts[i])
            if self.program.tiles[a] > 1:
                digit = sx.binary(digit, "*", sx.name(scope.block(a)))
            out.append(sx.assign(scope.start(a), digit))
        return Head(turn, [sx.chain("*", counts)], out)

    def _count(self, axis: str) -> sx.Expr:
        size = sx.name(self.scope.length(axis))
        if self.program.tiles[axis] == 1:
            return size
        return sx.call("tl.cdiv", size, sx.name(self.scope.block(axis)))

    def _chunk(self, loop: Loop) -> list[ast.stmt]:
        """Positions of a chunk's values along the streamed axes."""
        out: list[ast.stmt] = []
        for a in self.stream.axes:
            if self.program.tiles[a] == 1:
                here = sx.call("tl.cast", sx.name(self.scope.start(a)), sx.name("INDEX"))
                out.append(sx.assign(self.scope.position(a), here))
        for dim, axes in enumerate(self.program.dims):
            if self.stream.carried(axes):
                out += self.lanes(dim, {}, loop)
        return out

    def _title(self, loop: Loop) -> str:
        count = len(self.stream.passes)
        again = "" if count == 1 else f", pass {loop.part + 1} of {count}"
        if loop.box is None:
            return f"stream {self.stream.axis}{again}"
        seen = self.visiting.seen if self.visiting else None
        which = f", box {loop.box + 1}" if seen and len(seen.boxes) > 1 else ""
        how = "chunks that every query sees whole" if loop.whole else "chunks seen in part"
        return f"stream {self.stream.axis}{again}{which}: {how}"

    def _init(self, s: State, inner: Emitter) -> sx.Expr:
        dims = inner.program.shape(s.leaf("old"))
        value = in_kind(s.init, s.kind)
        dtype = sx.name("tl.float32" if s.kind == "real" else "tl.int32")
        shape = sx.tuple_of(inner.scope.extent(d) for d in dims)
        if not dims:
            made: sx.Expr = sx.const(value)
            return made
        if value == 0:
            return inner.laid(sx.call("tl.zeros", shape, dtype), dims)
        return inner.laid(sx.call("tl.full", shape, sx.const(value), dtype), dims)

    def _tail(self) -> list[ast.stmt]:
        """What comes after the loops: results computed from the states, and stored."""
        self.emitter.drain()
        for name, n in self.program.tails.items():
            self._store(self.emitter, name, n)
        return self.emitter.drain()

    def _store(self, emitter: Emitter, name: str, n: Node) -> None:
        o = next(o for o in self.kernel.outputs if o.name == name)
        emitter.store(name, o.axes, n)

    # --- slots without a key ----------------------------------------------------------------

    def _fill(self, name: str, n: Node) -> list[ast.stmt]:
        """A loop over the slots of an output that stores what those without a key hold; no turn
        of it where every query of the group fills its window."""
        emitter, axes = self.emitter, slots_of(n).slots
        emitter.drain()
        counts = zip(n.args, axes, strict=True)
        short = sx.chain("|", [self._short(c, a) for c, a in counts if not c.constant])
        before = emitter.drain()
        head = self._turns(axes)
        find = head.find
        for a in axes:
            if self.program.tiles[a] == 1:
                here = sx.call("tl.cast", sx.name(self.scope.start(a)), sx.name("INDEX"))
                find.append(sx.assign(self.scope.position(a), here))
        for dim, held in enumerate(self.program.dims):
            if set(held) & set(axes):
                find += self.lanes(dim, {})
        o = next(o for o in self.kernel.outputs if o.name == name)
        emitter.fill(o.name, o.axes, n)
        bounds = [sx.call("tl.where", short, head.bounds[-1], sx.const(0))]
        body = [*find, *emitter.drain()]
        loop = _for(replace(head, bounds=bounds), body)
        return [comment(f"slots of {name} that have no key"), *before, loop]

    def _short(self, count: Node, axis: str) -> sx.Expr:
        """Whether some query of the group has fewer keys than there are slots."""
        value = self.emitter.value(count)
        for _ in self.program.shape(count):
            value = sx.call("tl.min", value, axis=sx.const(0))
        return sx.less(value, sx.name(self.scope.size(axis)))

    # --- the function -----------------------------------------------------------------------

    def function(self) -> Written:
        body = trimmed(self.body())
        arguments = self.passed(body)
        names = [(a.name, "tl.constexpr" if a.constexpr else "") for a in arguments]
        text = source(self.kernel.name, names, body, self.emitter.helpers)
        return Written(self.kernel.name, text, arguments, self.kernel.group, self.entry(arguments))

    def passed(self, body: Sequence[ast.stmt]) -> tuple[Argument, ...]:
        """The arguments that the kernel reads."""
        read = {name for s in body for name in loaded(s)}
        return tuple(a for a in self.arguments() if a.name in read)

    def entry(self, arguments: tuple[Argument, ...]) -> Entry:
        kernel, program = self.kernel, self.program
        return Entry(
            kernel.name,
            arguments,
            {t: tuple(axes) for t, axes in tensor_axes(kernel).items()},
            program.schedule,
            kernel.group,
            kernel.whole,
            kernel.splits,
            kernel.ragged,
            {tensor_of(leaf): axes for leaf, axes in program.boxes.items()} | dict(program.stores),
            kernel.streamed,
            contracts=not rounds_alike((*program.roots, *(o.node for o in kernel.outputs))),
        )


def _for(head: Head, body: list[ast.stmt]) -> ast.stmt:
    variable = ast.Name(head.variable, ast.Store())
    return ast.For(variable, sx.call("tl.range", *head.bounds), [*body, *head.after], [])


def write(program: Program) -> Written:
    """The Triton kernel of a loop program."""
    return Writer(program).function()
