"""What has one value for each column of a chunk: threads compute it once, and share it."""

from __future__ import annotations

import ast

from napkin.algebra.terms import is_read
from napkin.ir.node import postorder
from napkin.lower import syntax as sx
from napkin.lower.emit import Emitter
from napkin.lower.places import Places
from napkin.lower.program import Loop
from napkin.lower.warpgroups.emit_gluon import Alone
from napkin.lower.warpgroups.rings import Rings


def across(r: Rings, loop: Loop, inner: Emitter) -> list[ast.stmt]:
    """Terms with one value for each column: while products are made, each thread computes one of
    them, and leaves it to all in shared memory."""
    terms, scope = r.cta.across(loop), r.scope
    if not terms:
        return []
    apart = scope.apart(r.cta.columns[0])
    alone = Emitter(r.program, apart, Alone(apart))
    alone.have, alone.uses = dict(r.emitter.have), r.emitter.uses
    alone.inside = set(r.program.kernel.stream.axes) if loop.whole else set()
    ids = {a: sx.name(scope.own(a)) for a in r.program.kernel.group}
    places = Places(alone).lanes(r.cta.columns[0], ids, loop)
    for n in filter(is_read, postorder(terms)):  # all on their way before one is waited for
        alone.define(n)
    for n in terms:
        place = sx.method(scope.shared(n), "index", scope.warpgroup)
        alone.statements.append(ast.Expr(sx.method(place, "store", alone.value(n))))
        inner.have[n] = sx.method(place, "load", scope.of(r.cta.columns[:1]))
    return [*places, *alone.drain()]
