"""What the warps of a warp-specialised CTA do whose groups only add products up.

A block lasts: while its warpgroups finish a group, the chunks of the next are on their way. Groups
that lie side by side share what does not carry their axis (CUTLASS calls such warpgroups
cooperative). Groups in turn share nothing (ping-pong): a warpgroup multiplies when the one before
it has begun its last product, and what it does after the stream is done while the others multiply.

Where each chunk's product is made by itself, scaled, say, and then added, groups lie side by side:
one computes while others multiply, chunk by chunk.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from napkin.derive.kernel import tensor_of
from napkin.ir.node import Node, postorder
from napkin.lower import syntax as sx
from napkin.lower.descriptors import item_bytes
from napkin.lower.launch import in_box
from napkin.lower.printer import comment
from napkin.lower.scope import GROUPS
from napkin.lower.syntax import Expr, Operand
from napkin.lower.warpgroups.cta import reads
from napkin.lower.warpgroups.rings import Rings, waited

EVERY = ""
"""The name of the barriers of all tensors together: their boxes come and go at once."""


# --- shared memory --------------------------------------------------------------------------------


def first(r: Rings) -> list[ast.stmt]:
    """Room for boxes and their barriers."""
    scope, cta = r.scope, r.cta
    stages, groups = sx.name(scope.stages), sx.const(cta.groups)
    out: list[ast.stmt] = [comment("boxes in shared memory, and barriers for each place")]
    for n in _boxes(r):
        count = sx.binary(stages, "*", groups) if cta.own(n) else stages
        out.append(r.ring(tensor_of(n), count, r.box(n)))
    for t, axes in r.program.stores.items():
        out.append(r.ring(t, groups, in_box(axes, r.program.tiles)))
    out += [r.shared(n) for n in cta.every_across]
    out += r.barriers(scope.full(EVERY), stages, 1)
    out += r.barriers(scope.free(EVERY), stages, 1 if cta.ping_pong else cta.groups)
    if cta.ping_pong:
        out += r.barriers(scope.order, groups, 1)
    out.append(ast.Expr(sx.call("fence_async_shared")))
    if cta.ping_pong:
        out.append(r.arrive(scope.order, 0))
    return out


def _boxes(r: Rings) -> list[Node]:
    """What comes in boxes with each chunk."""
    return [*r.cta.streamed, *r.program.beside]


def _place(r: Rings, leaf: Node, slot: Operand) -> Operand:
    """Where a box of this warpgroup lies."""
    if not r.cta.own(leaf):
        return slot
    return sx.binary(slot, "*", r.cta.groups, "+", r.scope.warpgroup)


# --- groups, one after another --------------------------------------------------------------------


def _over_groups(r: Rings, body: list[ast.stmt], by: int) -> list[ast.stmt]:
    """A loop over groups, of which this is every `by`-th."""
    first, step = (r.lang(x, 0) for x in ("program_id", "num_programs"))
    if by > 1:
        own = sx.binary(r.scope.warpgroup, "*", step)
        first, step = sx.binary(first, "+", own), sx.binary(step, "*", by)
    return r.places.over_groups(sx.call("range", first, GROUPS, step), body)


def _over_chunks(r: Rings, body: list[ast.stmt]) -> list[ast.stmt]:
    """A loop over chunks."""
    return r.over_chunks(r.program.loops[0], [*r.slots(), *body])


def loads(r: Rings) -> list[ast.stmt]:
    """What the warp does that asks for chunks."""
    cta, scope = r.cta, r.scope
    slot, phase = map(sx.name, scope.slot())
    full = sx.method(scope.full(EVERY), "index", slot)
    boxes = _boxes(r)
    body = [
        r.wait(scope.free(EVERY), slot, sx.binary(1, "-", phase)),
        ast.Expr(sx.call("mbarrier.expect", full, _bytes(r, boxes))),
    ]
    own = [n for n in boxes if cta.own(n)]
    if own:
        copies = [r.own(), *(r.copy(n, full, _place(r, n, slot)) for n in own)]
        body.append(r.each_warpgroup(copies))
    body += [r.copy(n, full, slot) for n in boxes if n not in own]
    group = [*r.places.numbers(), *_over_chunks(r, body)]
    return [r.index_type(), sx.assign(scope.iteration, 0), *_over_groups(r, group, 1)]


def _bytes(r: Rings, boxes: Sequence[Node]) -> Expr:
    """Bytes of boxes that a chunk brings."""
    found: list[Expr] = []
    for item in dict.fromkeys(map(item_bytes, boxes)):
        values = sx.chain("+", [_times(r, n) for n in boxes if item_bytes(n) == item])
        found.append(sx.binary(values, "*", item) if item > 1 else values)
    return sx.chain("+", found)


def _times(r: Rings, leaf: Node) -> Expr:
    """Values of a reading that a chunk brings."""
    groups = r.cta.groups if r.cta.own(leaf) else 1
    return sx.binary(r.values(leaf), "*", groups)


# --- one group ------------------------------------------------------------------------------------


def folds(r: Rings) -> list[ast.stmt]:
    """What one warpgroup does."""
    cta, scope = r.cta, r.scope
    out: list[ast.stmt] = [r.index_type(), *r.layouts()]
    if not cta.ping_pong:
        out += [sx.assign(scope.iteration, 0), *_over_groups(r, _group(r), 1)]
    else:
        many = sx.chain("*", [r.loops.count(a) for a in r.program.kernel.stream.axes])
        out += [
            comment("its chunks come after those of the warpgroups before it"),
            sx.assign(scope.chunks, many),
            sx.assign(scope.iteration, sx.binary(scope.warpgroup, "*", scope.chunks)),
            sx.assign(scope.rounds, 0),
            *_over_groups(r, _group(r), cta.groups),
        ]
    return [*out, *r.stored()]


def _group(r: Rings) -> list[ast.stmt]:
    """All that one group does."""
    scope, cta, emitter = r.scope, r.cta, r.emitter
    states = [x.state for x in cta.sums]
    names = [scope.state(s.name) for s in states]
    own = [] if cta.ping_pong else [r.own()]
    out = [*r.places.numbers(), *own, *r.places.standing(), *r.bases()]
    out += [r.loops.begin(s, emitter) for s in states]
    if cta.ping_pong:
        out.append(r.wait(scope.order, scope.warpgroup, sx.binary(scope.rounds, "%", 2)))
    r.loops.define_invariants()
    out += [*emitter.drain(), *_over_chunks(r, _anew(r) if cta.anew else _added(r, names))]
    if cta.ping_pong:
        after = sx.binary(scope.warpgroup, "+", 1, "%", cta.groups)
        out.append(r.arrive(scope.order, after))
    out += [] if cta.anew else [waited(names, 0), _leave(r)]
    if cta.ping_pong:
        past = sx.binary(scope.chunks, "*", cta.groups - 1)
        out += [
            sx.assign(scope.iteration, sx.binary(scope.iteration, "+", past)),
            sx.assign(scope.rounds, sx.binary(scope.rounds, "+", 1)),
        ]
    for s, name in zip(states, names, strict=True):
        emitter.have[s.leaf("new")] = sx.name(name)
    return [*out, comment("tail"), *r.stored(), *r.loops.tail()]


def _added(r: Rings, names: Sequence[str]) -> list[ast.stmt]:
    """The products of one chunk, begun, and what they free of the one before."""
    scope = r.scope
    slot, phase = map(sx.name, scope.slot())
    out = [r.wait(scope.full(EVERY), slot, phase)]
    for name, x in zip(names, r.cta.sums, strict=True):
        sides = r.sides(x.product, lambda n: _place(r, n, slot))
        made = sx.call("warpgroup_mma", *sides, name, is_async=True)
        out.append(sx.assign(name, made))
    first = sx.less(0, r.loops.head(r.program.loops[0]).variable)
    return [*out, waited(names, len(names)), ast.If(first, [_leave(r)], [])]


def _anew(r: Rings) -> list[ast.stmt]:
    """The products of one chunk, made, and what is computed of them added. While one warpgroup does
    so, others multiply; what it reads beside is in registers before its products are made."""
    (loop,), scope, inner = r.program.loops, r.scope, r.emitter.child()
    slot, phase = map(sx.name, scope.slot())
    dots = [x.product for x in r.cta.sums]
    shared, beside = r.cta.across(loop), r.program.beside
    read = reads(loop.steps.values()) - reads(shared) - r.program.boxed.keys()
    for n in filter(read.__contains__, postorder(loop.steps.values())):
        inner.define(n)
    out = [*inner.drain(), r.wait(scope.full(EVERY), slot, phase)]
    out += [r.begun(d, lambda n: _place(r, n, slot)) for d in dots]
    out += r.across(loop, inner)
    inner.have |= {n: r.view(n, _place(r, n, slot)) for n in beside}
    inner.raw.update(beside)
    for n in (*shared, *beside):
        out.append(sx.assign(scope.value(n), inner.value(n)))
        inner.have[n] = sx.name(scope.value(n))
    inner.raw.difference_update(beside)
    values = {d: scope.value(d.node) for d in dots}
    out += [waited([*values.values()], 0), r.arrive(scope.free(EVERY), slot)]
    for d, name in values.items():
        (inner.made if d.outside else inner.have)[d.node] = sx.name(name)
    after = r.loops.steps(loop, [x.state for x in r.cta.sums], inner, ())
    return [*out, *inner.drain(), *after]


def _leave(r: Rings) -> ast.stmt:
    """The chunk of the iteration before is read."""
    return r.arrive(r.scope.free(EVERY), sx.binary(r.scope.iteration, "-", 1, "%", r.scope.stages))
