"""The shared memory of a warp-specialised CTA whose groups compute with every chunk: rings and
barriers for each tensor, and the warp that asks for chunks."""

from __future__ import annotations

import ast

from napkin.derive.kernel import tensor_of
from napkin.ir.node import Node
from napkin.lower import syntax as sx
from napkin.lower.descriptors import ITEM, item_bytes
from napkin.lower.emit_memory import corner
from napkin.lower.launch import in_box
from napkin.lower.printer import comment
from napkin.lower.syntax import Expr, Operand
from napkin.lower.warpgroups.cta import Crossed
from napkin.lower.warpgroups.rings import Rings
from napkin.schedule import WARPS
from napkin.target import LINE

EACH = 8
"""Values that a thread stores at once, of 16 bits."""


def first(r: Rings) -> list[ast.stmt]:
    """Where the warp-specialised CTA stands, and room for boxes with their barriers."""
    places = r.places.numbers()
    return [*places, *r.bases(), *r.loops.visits("specialised"), *_rings(r)]


def _rings(r: Rings) -> list[ast.stmt]:
    scope, cta = r.scope, r.cta
    out: list[ast.stmt] = [comment("boxes in shared memory, and barriers for each")]
    leaves = (*cta.held, *cta.streamed)
    lying = (*leaves, *r.program.beside)
    rings = {tensor_of(n): (_boxes_held(r, n), r.box(n)) for n in lying}
    for t, axes in r.program.stores.items():
        if t in cta.vacated:
            scope.share(t, tensor_of(cta.vacated[t]))
        else:
            rings[t] = sx.const(cta.groups), in_box(axes, r.program.tiles)
    out += [r.ring(t, count, axes) for t, (count, axes) in rings.items()]
    out += [r.shared(n) for n in cta.every_across]
    for n in leaves:
        t, count = tensor_of(n), _boxes_held(r, n)
        out += r.barriers(scope.full(t), count, 1)
        if n in cta.streamed:
            out += r.barriers(scope.free(t), count, cta.groups)
    out += [s for x in cta.crossing for s in _crossing(r, x)]
    first = [x for n in cta.left for x in _zeros(r, n)]
    fence = ast.Expr(sx.call("fence_async_shared"))
    full = [r.arrive(scope.full(tensor_of(n)), 0) for n in cta.streamed if cta.left]
    return [*out, *first, fence, *full]


def _crossing(r: Rings, x: Crossed) -> list[ast.stmt]:
    """Room for the rows that warpgroups leave to each other, and for a chunk's sums."""
    scope, groups, rows = r.scope, r.cta.groups, r.scope.rows(x.tensor)
    places = sx.binary(scope.stages, "*", groups)
    shape = [places, *(scope.extent(d) for d in x.product.spans[0])]
    layout = r.lang("NVMMASharedLayout", LINE, 8 * ITEM, 2)
    dtype = sx.name(f"{scope.ring(tensor_of(x.product.sides[1][0]))}.dtype")
    return [
        r.room(scope.ring(rows), dtype, shape, layout),
        *r.barriers(scope.full(rows), places, 1),
        *r.barriers(scope.free(rows), places, groups - 1),
        r.ring(x.tensor, 1, in_box(r.program.adds[x.tensor], r.program.tiles)),
        *r.barriers(scope.full(x.tensor), 1, groups),
        *r.barriers(scope.free(x.tensor), 1, 1),
        *r.barriers(scope.ended, 1, groups),
    ]


def _zeros(r: Rings, leaf: Node) -> list[ast.stmt]:
    """The box of which the iteration before the first leaves a product: as that product is of rows
    of 0, what lies there must be finite."""
    dims = r.program.shape(leaf)
    lists = ([1, EACH], [4, 8], [WARPS, 1], [1, 0])
    layout = r.lang("BlockedLayout", *map(sx.tuple_of, lists))
    dtype = sx.name(f"{r.scope.ring(tensor_of(leaf))}.dtype")
    none = r.lang("zeros", r.emitter.extents(dims), dtype, layout=layout)
    return [ast.Expr(sx.method(r.view(leaf, 0), "store", none))]


def _boxes_held(r: Rings, leaf: Node) -> Expr:
    """How many boxes of a reading lie in shared memory."""
    if leaf in r.cta.held:
        return sx.const(r.cta.groups)
    return sx.name(r.scope.stages)


def loads(r: Rings) -> list[ast.stmt]:
    """What the warp does that asks for chunks."""
    cta, scope = r.cta, r.scope
    out: list[ast.stmt] = [r.index_type()]
    held = [x for n in cta.held for x in _ask(r, n, scope.warpgroup)]
    out.append(r.each_warpgroup([r.own(), *held]))
    out.append(r.first())
    for loop in r.program.loops:
        body, (slot, phase) = r.slots(), scope.slot()
        for n in cta.streamed:
            parity = sx.binary(1, "-", phase)
            body.append(r.wait(scope.free(tensor_of(n)), slot, parity))
            body += _ask(r, n, slot)
        out += r.over_chunks(loop, body)
    return out


def adds(r: Rings) -> list[ast.stmt]:
    """What the warp does that adds the sums of chunks to memory, in bulk."""
    scope, out = r.scope, [r.index_type(), r.first()]
    for loop in r.program.loops:
        body = list[ast.stmt]()
        for x in r.cta.crossing:
            axes = in_box(r.program.adds[x.tensor], r.program.tiles)
            at = sx.tuple_of(corner(r.emitter, a) for a in axes)
            box = sx.method(scope.ring(x.tensor), "index", 0)
            body += [
                r.wait(scope.full(x.tensor), 0, r.parity()),
                ast.Expr(sx.call("async_add", scope.tensor(x.tensor), at, box)),
                ast.Expr(sx.call("tma.store_wait", 0)),
                r.arrive(scope.free(x.tensor), 0),
            ]
        out += r.over_chunks(loop, body)
    return out


def _ask(r: Rings, leaf: Node, at: Operand) -> list[ast.stmt]:
    """A box asked for, with its bytes, and what comes beside it."""
    beside = r.program.beside
    boxes = [leaf, *(beside if beside and leaf is r.cta.carrier else ())]
    full = sx.method(r.scope.full(tensor_of(leaf)), "index", at)
    each = [sx.binary(r.values(n), "*", item_bytes(n)) for n in boxes]
    expected = ast.Expr(sx.call("mbarrier.expect", full, sx.chain("+", each)))
    return [expected, *(r.copy(n, full, at) for n in boxes)]
