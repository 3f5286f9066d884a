"""A loop program as a Triton kernel: positions, loops, tail, and the source text."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from napkin.algebra.fold import State
from napkin.count.residency import live_set
from napkin.ir.node import Node
from napkin.ir.slots import slots_of
from napkin.lower import syntax as sx
from napkin.lower.emit import Emitter
from napkin.lower.emit_memory import fill, store
from napkin.lower.emit_reductions import joined
from napkin.lower.loops import Loops
from napkin.lower.parameters import Written, entry_of, passed
from napkin.lower.per_thread import as_joined, as_seen
from napkin.lower.printer import comment, function
from napkin.lower.program import Loop, Program
from napkin.lower.rolled import rolled
from napkin.lower.scope import DESCRIPTORS, GROUPS, Scope
from napkin.lower.thread_locality import mishandled
from napkin.lower.trim import loaded, trimmed
from napkin.lower.waited_products import awaited


def write(program: Program) -> Written:
    """The Triton kernel of a loop program."""
    scope = Scope(program)
    body = rolled(trimmed(_Kernel(scope).body()), lambda: scope.name(object(), "turn"))
    read = {name for s in body for name in loaded(s)}
    arguments = passed(read, scope)
    names = {a.name: a.constexpr for a in arguments}
    text = function(scope.lang, program.kernel.name, names, body)
    text = "\n".join([*scope.lang.functions(read), text])
    return Written(text, entry_of(arguments, program))


class _Kernel:
    """Writes the statements of a kernel."""

    def __init__(self, scope: Scope) -> None:
        self.scope, self.program, self.lang = scope, scope.program, scope.lang
        self.kernel, self.stream = self.program.kernel, self.program.kernel.stream
        self.emitter = Emitter(self.program, scope)
        self.loops = Loops(self.emitter)
        self.places = self.loops.places

    def body(self) -> list[ast.stmt]:
        """All statements."""
        wide = sx.choose("WIDE", self.lang.word("int64"), self.lang.word("int32"))
        index = sx.assign("INDEX", wide, self.lang.word("constexpr"))
        group = self._group()
        groups = self._one_by_one(group) if self.program.schedule.persistent else group
        return [index, *self.places.steps(), *groups]

    def _one_by_one(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """A loop of one program instance over groups; where descriptors serve its boxes it is
        flattened with the loop inside, so that a group's first chunks are loaded while the one
        before it is finished."""
        first, step = (self.lang(x, 0) for x in ("program_id", "num_programs"))
        every = self.lang("range", first, GROUPS, step, flatten=sx.name(DESCRIPTORS))
        return self.places.over_groups(every, body)

    def _group(self) -> list[ast.stmt]:
        """All that one group does."""
        emitter, places = self.emitter, self.places
        emitter.count(self.program.roots)
        out = [*places.numbers(), *places.standing(), *self._bases()]
        self.loops.define_invariants()
        if emitter.statements and self.program.loops:
            out += [comment("held by the group for the whole stream"), *emitter.drain()]
        out += self.loops.visits("group")
        for i in range(len(self.program.loops)):
            out += self._loop(i)
        tail = self.loops.tail()
        out += [comment("tail"), *tail] if tail and self.program.loops else tail
        for name, n in self.program.fills.items():
            out += self._fill(name, n)
        return out

    def _bases(self) -> list[ast.stmt]:
        out, described = self.places.bases()
        if described:
            plain = ast.UnaryOp(ast.Not(), sx.name(DESCRIPTORS))
            out.append(ast.If(plain, described, []))
        return [comment("where its tensors start"), *out] if out else []

    def _loop(self, index: int) -> list[ast.stmt]:
        loop = self.program.loops[index]
        step = self.stream.passes[loop.part]
        first = index == 0 or self.program.loops[index - 1].part != loop.part
        self.loops.define_found(loop)
        out: list[ast.stmt] = [*self.emitter.drain(), comment(self.loops.title(loop))]
        seen = as_seen(self.program, loop)
        inner = self.emitter.seen_as(seen)
        inner.mishandled = mishandled(seen, loop)
        own = [s for s in step.states if first and s.name not in loop.begins]
        out += [self.loops.begin(s, inner) for s in own]
        for name, read in loop.begins.items():
            out += self.loops.begun(name, read)
        head = self.loops.head(loop)
        positions = [*head.find, *self.loops.chunk(loop)]
        after = self.loops.steps(loop, step.states, inner, loop.emits.values())
        for name, n in loop.emits.items():
            store(inner, name, n)
        # Triton loads operands ahead, and what else a loop reads if it is told so.
        held = live_set(self.kernel)
        told = held.streamed_others or (held.waited and not loop.joins)
        ahead = {"num_stages": self.program.schedule.stages} if told else {}
        body = [*positions, *inner.statements]
        body += [*awaited(self.lang, body), *after]
        out += [*head.before, self.loops.over(head, body, **ahead)]
        return [*out, *self._join(loop, step.states)] if loop.joins else out

    def _join(self, loop: Loop, states: Sequence[State]) -> list[ast.stmt]:
        """The states that lanes have kept by themselves, joined."""
        scope, out = self.scope, [comment("join what lanes have folded")]
        known = {x.leaf("left"): sx.name(scope.state(x.name)) for x in states}
        for x in states:
            join, target = loop.joins[x.name], scope.joined(x.name)
            view = as_joined(self.program, loop, join)
            inner = self.emitter.seen_as(view)
            inner.have |= known
            inner.recount([join.of])
            value = joined(inner, join, view.lane)
            out += [*inner.statements, sx.assign(target, value)]
            self.emitter.have[x.leaf("new")] = known[x.leaf("new")] = sx.name(target)
        return out

    def _fill(self, name: str, n: Node) -> list[ast.stmt]:
        """A loop over the slots of an output that stores what those without a key hold; no
        iteration of it where every query of the group fills its window."""
        emitter, axes = self.emitter, slots_of(n).slots
        emitter.drain()
        counts = zip(n.args, axes, strict=True)
        short = sx.chain("|", [self._short(c, a) for c, a in counts if not c.constant])
        before = emitter.drain()
        head = self.loops.boxes(axes)
        find = [*head.find, *self.loops.starts(axes)]
        for dim, own in enumerate(self.program.dims):
            if set(own) & set(axes):
                find += self.places.lanes(dim, {})
        fill(emitter, name, n)
        bounds = [self.lang("where", short, head.bounds[-1], 0)]
        body = [*find, *emitter.drain()]
        loop = self.loops.over(replace(head, bounds=bounds), body)
        return [comment(f"slots of {name} that have no key"), *before, loop]

    def _short(self, count: Node, axis: str) -> sx.Expr:
        """Whether some query of the group has fewer keys than there are slots."""
        value = self.emitter.value(count)
        for _ in self.program.shape(count):
            value = self.lang("min", value, axis=0)
        return sx.less(value, self.scope.size(axis))
