"""Statements that read and write tiles: addresses, masks, tensor descriptors."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from napkin.derive.kernel import tensor_of
from napkin.ir import sliding
from napkin.ir.node import Node, number
from napkin.ir.slots import slots_of
from napkin.ir.slotted import guard, place_of
from napkin.ir.storage import own_type, packed_axis
from napkin.ir.taking import clamped, perhaps_empty, read_axes
from napkin.lower import syntax as sx
from napkin.lower.divisibility import tensor_axes
from napkin.lower.dots import beside_depth
from napkin.lower.emit_block import Block
from napkin.lower.launch import in_box
from napkin.lower.pointwise import TILES
from napkin.lower.scope import DESCRIPTORS
from napkin.lower.syntax import Expr


def load(into: Block, leaf: Node) -> Expr:
    """A tile of a tensor, 0 where it reaches past an axis."""
    dims = into.program.shape(leaf)
    for s, at in sliding.windows(leaf):
        if any(s.beyond) and at not in into.have:
            target = into.scope.place(leaf, tensor_of(leaf), s.axis)
            into.statements.append(sx.assign(target, into.computed(at)))
            into.have[at] = sx.name(target)
    where = address(into, tensor_of(leaf), read_axes(leaf), dims, leaf)
    mask = within(into, leaf.axes, dims, leaf)
    if mask is None:
        return _whole(into, leaf, into.lang("load", where), dims)
    other = sx.const(0.0 if leaf.kind == "real" else 0)
    made = into.lang("load", where, mask=mask, other=other)
    # Triton's interpreter takes a single 0 for no `other`.
    if into.program.span(dims) == (2 if packed_axis(leaf) else 1):
        made = into.lang("where", mask, made, other)
    return _whole(into, leaf, made, dims)


def _whole(into: Block, leaf: Node, found: Expr, dims: Sequence[int]) -> Expr:
    """The values of a tile as it was loaded: of one of bytes that hold two each, these, which are
    put together where they lie, or before the other dimensions (`beside_depth`)."""
    packed = packed_axis(leaf)
    if not packed:
        return found
    here = next(d for d in dims if packed in into.program.dims[d])
    have, last = list(dims), [*(d for d in dims if d != here), here]
    if have != last:
        found = into.permuted(found, have, last)
    helper = "signed_halves" if own_type(leaf) == "int4" else "halves"
    found, made = sx.call(helper, found), last
    if beside_depth(into.program, leaf, here):
        n = len(dims)
        found = into.lang("permute", found, sx.tuple_of([n - 1, n, *range(n - 1)]))
        made = [here, *last[:-1]]
    found = into.lang("reshape", found, into.extents(made))
    return found if have == made else into.permuted(found, made, have)


def boxed_load(into: Block, leaf: Node) -> Expr:
    """A tile through the tensor's descriptor where the call gives one, else by addresses."""
    target = into.scope.value(leaf)
    own = in_box(into.program.boxes[leaf], into.program.tiles)
    at = [corner(into, a) for a in own]
    tensor = sx.name(into.scope.tensor(tensor_of(leaf)))
    made = sx.method(tensor, "load", sx.tuple_of(at))
    if len(into.program.shape(leaf)) != len(at):
        made = into.lang("reshape", made, into.extents(into.program.shape(leaf)))
    ways = [sx.assign(target, made)], [sx.assign(target, load(into, leaf))]
    into.statements.append(ast.If(sx.name(DESCRIPTORS), *ways))
    return sx.name(target)


def corner(into: Block, axis: str) -> Expr:
    """Where a tile begins along an axis."""
    kernel, scope = into.program.kernel, into.scope
    if into.program.tiles[axis] == 1:
        return sx.name(scope.position(axis))
    if axis in kernel.stream.axes:
        return sx.name(scope.start(axis))
    if axis in kernel.group:
        return sx.binary(scope.own(axis), "*", scope.block(axis))
    return sx.const(0)


def address(
    into: Block, tensor: str, axes: Sequence[str], dims: Sequence[int], placed: Node | None = None
) -> Expr:
    """Pointers to a tile of a tensor under these axes; `placed` is the reading or the scatter that
    says where along key axes."""
    group, own = into.program.kernel.group, tensor_axes(into.program.kernel)[tensor]
    fixed = [a for a in axes if a in group and into.program.tiles[a] == 1]
    fixed = [a for a in fixed if placed is None or place_of(placed, a) is None]
    key = placed if placed and placed.op != "scatter" else tensor
    start = into.scope.base(key, tensor) if fixed else into.scope.tensor(tensor)
    parts: list[Expr] = [sx.name(start)]
    for axis, stride in zip(axes, own, strict=True):
        if axis in fixed:
            continue
        slot = place_of(placed, axis) if placed else None
        if slot is not None:
            at = into.fit(slot, dims)
            if placed and clamped(placed, axis):
                at = _clamped(into, at, placed, tensor, stride)
        else:
            paired = placed is not None and axis == packed_axis(placed)
            name = into.scope.pair(axis) if paired else into.scope.position(axis)
            at = into.along(axis, name, dims)
        parts.append(sx.binary(at, "*", into.scope.stride(tensor, stride)))
    return sx.chain("+", parts)


def _clamped(into: Block, at: Expr, placed: Node, tensor: str, axis: str) -> Expr:
    """Positions of a reading clamped into an axis of its tensor, of the type of addresses."""
    last = sx.binary(into.scope.size(axis), "-", 1)
    inside = into.lang("minimum", into.lang("maximum", at, 0), last)
    target = into.scope.place(placed, tensor, axis)
    into.statements.append(sx.assign(target, sx.method(inside, "to", "INDEX")))
    return sx.name(target)


def within(
    into: Block, axes: Sequence[str], dims: Sequence[int], placed: Node | None = None
) -> Expr | None:
    """The lanes of a tile that lie inside every axis, and inside the key set that says where
    `placed` is read or stored; None where all do."""
    tiled = [a for a in axes if into.program.padded(a) and a not in into.inside]
    paired, scope = packed_axis(placed) if placed else "", into.scope
    tests = [
        into.along(a, scope.pair_inside(a) if a == paired else scope.inside(a), dims)
        for a in tiled
        if placed is None or place_of(placed, a) is None
    ]
    for s, at in sliding.windows(placed) if placed else ():  # padded ones read inside the axis
        tests += [into.fit(test, dims) for test in sliding.within(s, at)]
    for axis in perhaps_empty(placed) if placed else ():
        tests.append(sx.less(0, scope.size(axis)))
    seen = guard(placed) if placed else None
    if seen is not None and seen is not number(True):
        tests.append(into.fit(seen, dims))
    return sx.chain("&", tests) if tests else None


def fill(into: Block, tensor: str, n: Node) -> None:
    """Write what the slots of an output without a key hold."""
    s, axes = slots_of(n), tensor_axes(into.program.kernel)[tensor]
    dims = into.program.shape_of(axes)
    lacking = [(a, c) for a, c in zip(s.slots, n.args, strict=True) if not c.constant]
    past = [
        sx.compared(into.along(a, into.scope.position(a), dims), ast.GtE(), into.fit(count, dims))
        for a, count in lacking
    ]
    inside, mask = within(into, axes, dims), sx.chain("|", past)
    mask = mask if inside is None else sx.binary(inside, "&", mask)
    where = address(into, tensor, axes, dims)
    value = into.lang.literal(s.fill)
    if dims:
        value = into.lang("full", into.extents(dims), value, into.lang.word(TILES[n.kind]))
    into.statements.append(ast.Expr(into.lang("store", where, value, mask=mask)))


def store(into: Block, tensor: str, n: Node) -> None:
    """Write a tile of an output, or add it to what memory holds."""
    axes, placed = tensor_axes(into.program.kernel)[tensor], None
    if n.op == "scatter":
        s, placed = slots_of(n), n
        axes = tuple(s.keys[s.slots.index(a)] if a in s.slots else a for a in axes)
        n = n.args[0]
    dims = into.program.shape_of(axes)
    value = into.fit(n, dims)
    boxed = tensor in into.program.stores
    if boxed:
        target = into.scope.done(tensor)
        into.statements.append(sx.assign(target, value))
        value = sx.name(target)
    where = address(into, tensor, axes, dims, placed)
    mask = within(into, axes, dims, placed)
    kinds = {} if mask is None else {"mask": mask}
    if tensor in into.program.kernel.added:
        kinds |= {"sem": sx.const("relaxed")}
        into.statements.append(ast.Expr(into.lang("atomic_add", where, value, **kinds)))
        return
    plain = ast.Expr(into.lang("store", where, value, **kinds))
    into.statements += _boxed_store(into, tensor, value, plain) if boxed else [plain]


def _boxed_store(into: Block, tensor: str, value: Expr, plain: ast.stmt) -> list[ast.stmt]:
    """A tile through the tensor's descriptor where the call gives one, else by addresses."""
    axes = in_box(into.program.stores[tensor], into.program.tiles)
    target = into.scope.tensor(tensor)
    value = sx.method(value, "to", f"{target}.dtype")
    at = sx.tuple_of(corner(into, a) for a in axes)
    return into.layouts.stored(into, tensor, axes, at, value, plain)
