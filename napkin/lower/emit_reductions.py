"""Statements that reduce: matrix products, and reductions of a tile along its dimensions."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from napkin.algebra.contraction import EXACT_SUM
from napkin.algebra.terms import identity, is_operand, is_read, rounded
from napkin.count.matrix_products import turns
from napkin.ir.node import REDUCTIONS, Kind, Node, over, postorder, stabilises
from napkin.ir.operators import FUNCTIONS
from napkin.lower import syntax as sx
from napkin.lower.dots import Dot, contracted, dot_of, multiplied_as, multiplies
from napkin.lower.emit_block import Block
from napkin.lower.pointwise import TILES, TYPES, as_kind
from napkin.lower.program import Join
from napkin.lower.syntax import Expr

INNERMOST = 8
"""Values along the innermost of three dimensions of an operand in shared memory, at least."""


def reduction(into: Block, n: Node) -> Expr:
    body = n.args[0]
    dims = list(into.program.shape(body))
    value = as_kind(into.lang, n.kind, body, into.value(body))
    value, dims = _first(into, n, value, dims)
    value = _reduce_dims(into, _combined(n), value, dims, over(n))
    if stabilises(n) and n not in into.begun:  # held whole: no state has begun for it
        value = into.lang(REDUCTIONS[n.op].combine, value, into.lang.literal(identity(n)))
    return value


def joined(into: Block, join: Join, lane: int) -> Expr:
    """What lanes hold of a state, reduced along their dimension."""
    value = into.value(join.of)
    if join.like is None:
        return value
    dims = list(into.program.shape(join.of))
    return _reduce_dims(into, _combined(join.like), value, dims, into.program.dims[lane])


def _first(into: Block, n: Node, value: Expr, dims: list[int]) -> tuple[Expr, list[int]]:
    """What a reduction reduces, and its dimensions: with the last one first where it must not be
    the last."""
    if n not in into.mishandled or len(dims) < 2 or into.program.dims[dims[-1]][0] not in over(n):
        return value, list(dims)
    order = [dims[-1], *dims[:-1]]
    return into.permuted(value, dims, order), order


def _reduce_dims(into: Block, op: str, value: Expr, dims: list[int], axes: Sequence[str]) -> Expr:
    """A tile reduced along its dimensions of these axes.

    Triton 3.6 fails to compile for sm_100 a reduction of what a product became, where it is along
    the one dimension left: a pass (TritonNvidiaGPUOptimizeTMemLayouts) asks its layout for another.
    Along no dimension in particular, the tile is reshaped before, and the pass ends there.
    """
    had, program = list(dims), into.program
    gone = [d for d in dims if program.dims[d][0] in axes]
    for d in reversed(gone):
        last = len(dims) == 1 and not program.schedule.warpgroups and multiplies(program)
        at = sx.const(None if last else dims.index(d))
        dims.remove(d)
        if op in FUNCTIONS:
            value = into.lang("reduce", value, at, op)
        else:
            value = into.lang(op, value, axis=at)
    return into.layouts.reduced(value, had, dims)


def fused_add(into: Block, n: Node) -> Expr | None:
    """`accumulator + product` as one product that starts from the accumulator."""
    for a, b in (n.args, n.args[::-1]):
        if b.op == "sum" and b.kind == a.kind and b not in into.have and into.uses[b] <= 1:
            dot = dot_of(into.program, b)
            shapes = {into.program.shape(x) for x in (a, b, n)}
            # A factor outside scales the product, and not what it is added to.
            if dot and not dot.outside and len(shapes) == 1 and _is_fresh(into, a):
                return contraction(into, b, a)
    return None


def _is_fresh(into: Block, n: Node) -> bool:
    """Whether a term has registers of its own each time: it is computed of a state, or of what is
    read or multiplied here. A product that starts from what a loop finds as it was, or from values
    that several rows share, is wrong: ptxas takes what the first of several wgmma makes of these
    registers for the start of the next one (CUDA 12.8, H200)."""
    here = (m for m in postorder([n], into.have) if m not in into.have)
    moves = any(m.op == "state" for m in postorder([n]))
    return moves or any(is_read(m) or dot_of(into.program, m) for m in here)


def contraction(into: Block, n: Node, start: Node | None) -> Expr:
    c, shape = contracted(into.program, n), into.program.shape(n)
    if c.is_product:
        total, dims = _dot(into, c, start)
        return _times(into, total, dims, c.outside, shape)
    if not c.gone:  # every reduced axis has tile size 1
        return product(into, c.outside, shape, n.kind, bool(into.program.kernel.rounds))
    dims = sorted({d for p in c.parts for d in into.program.shape(p)})
    kind = n.kind if not c.dtype else "int"  # a product in 8 bits is summed in whole numbers
    made = product(into, c.parts, dims, kind, bool(into.program.kernel.rounds))
    value, order = _first(into, n, made, dims)
    total = _reduce_dims(into, "sum", value, order, over(n))
    return _times(into, total, [d for d in dims if d not in c.gone], c.outside, shape)


def _times(
    into: Block, total: Expr, have: Sequence[int], more: Sequence[Node], dims: Sequence[int]
) -> Expr:
    total = into.layouts.spread(total, have, dims)
    return sx.chain("*", [total, *(into.fit(p, dims) for p in more)])


def product(
    into: Block, parts: Sequence[Node], dims: Sequence[int], kind: Kind, rounds: bool = False
) -> Expr:
    """`parts` multiplied, over tile dimensions `dims`, for what has items of a kind. Whole numbers
    wrap, and reals do not: no two are multiplied, and none is alone, where reals are wanted.

    Triton 3.6 takes `tl.sum(x[:, :, None] * y[None, :, :])` for a TF32 `tl.dot(x, y)`,
    whichever dimension is summed; `y[None, :, :] * x[:, :, None]` it leaves alone. So with
    three dimensions or more, factors that lack the first one come first.
    """
    if len(dims) > 2:
        parts = sorted(parts, key=lambda p: dims[0] in into.program.shape(p))
    values = [into.fit(p, dims) for p in parts]
    for i, p in enumerate(parts):
        if rounds and p in rounded(parts):
            values[i] = sx.method(
                sx.method(values[i], "to", _type(into, parts)), "to", into.lang.word("float32")
            )
    kinds = [p.kind for p in parts]
    whole = kinds[: kinds.index("real")] if "real" in kinds else kinds
    wraps = kind == "real" and whole.count("int") > ("real" in kinds)
    loose = [i for i, p in enumerate(parts) if not p.constant]
    if loose and (wraps or all(kinds[i] == "bool" for i in loose)):
        first = loose[0]
        values[first] = as_kind(into.lang, "real" if wraps else "int", parts[first], values[first])
    return sx.chain("*", values)


def _dot(into: Block, c: Dot, start: Node | None) -> tuple[Expr, list[int]]:
    """A matrix product, and its dimensions."""
    if c.node in into.made:
        assert start is None  # a product without a factor outside is a value itself
        return into.made[c.node], sorted((*c.rows, *c.columns))
    # First, so that a product in the accumulator has used its operands before these are read.
    begin = None if start is None else into.value(start)
    left, right = operand(into, c, 0), operand(into, c, 1)
    a, b = _flattened(into, left, c, 0), _flattened(into, right, c, 1)
    turned = turns(c, into.program.extents)
    out = [*c.rows, *c.columns]
    args = [_turned(into, b), _turned(into, a)] if turned else [a, b]
    flat = len(out) == 2
    if begin is not None:
        want = list(into.program.shape(c.node))
        if want != out:
            begin = into.permuted(begin, want, out)
        begin = begin if flat else _matrix(into, begin, out, c.rows, c.columns)
        args.append(_turned(into, begin) if turned else begin)
    kinds: dict[str, Expr] = {"input_precision": ast.Constant("ieee")}
    if c.node.kind == "int":  # Triton 3.6 does not see it from the accumulator
        kinds["out_dtype"] = into.lang.word(TILES[c.node.kind])
    if c.dtype == "fp8":
        kinds["max_num_imprecise_acc"] = _exact_sum(into, c.gone, begin is not None)
    done = into.lang("dot", *args, **kinds)
    done = _turned(into, done) if turned else done
    if not flat:
        done = into.lang("reshape", done, into.extents(out))
    want = sorted(out)
    return (into.permuted(done, out, want) if want != out else done), want


def _turned(into: Block, value: Expr) -> Expr:
    """A matrix with its dimensions swapped."""
    match value:
        case ast.Call(ast.Attribute(attr="trans"), [plain], []):
            return plain
        case _:
            return into.lang("trans", value)


def _exact_sum(into: Block, gone: Sequence[int], added: bool) -> Expr:
    """`EXACT_SUM`, or where the depth of the product is less, the depth if the product is added to
    something, and no limit if it is all that tensor cores add up: with a limit Triton 3.6 keeps
    accumulators of its own for every part, and waits for each."""
    depth = sx.chain("*", [into.scope.extent(d) for d in gone])
    most = sx.const(EXACT_SUM)
    if added:
        return sx.choose(sx.less(depth, most), depth, most)
    return sx.choose(sx.less(most, depth), most, sx.const(None))


def operand(into: Block, c: Dot, side: int) -> Expr:
    """One operand of a product."""
    parts, every = c.sides[side], c.parts
    if len(parts) == 1 and is_read(parts[0]):
        into.value(parts[0])
        value = into.have[parts[0]]
        if is_operand(parts[0], every) or c.dtype:
            return value
    else:
        value = product(into, parts, c.spans[side], c.node.kind)
    return sx.method(value, "to", _type(into, every))


def _type(into: Block, every: Sequence[Node]) -> Expr:
    """The type in which a product of these factors is multiplied."""
    boxes, kernel = into.program.boxes, into.program.kernel
    like = multiplied_as(kernel, every, {*into.program.boxed, *into.program.stores})
    if like:
        return sx.name(f"{into.scope.tensor(like)}.dtype.element_ty")
    if boxed := [p for p in (*every, *into.have) if p in boxes]:
        into.value(boxed[0])  # a descriptor has no element type; its tile has
        return sx.name(f"{ast.unparse(into.have[boxed[0]])}.dtype")
    return into.lang.word(TYPES[kernel.rounds or "fp32"])


def _flattened(into: Block, value: Expr, c: Dot, side: int) -> Expr:
    """An operand of a product as a matrix.

    One with more dimensions is flattened with its depth last, and the right one is then transposed.
    Triton 3.6 flattens three dimensions in shared memory, and fails to compile for sm_90 and sm_100
    where the innermost has fewer than `INNERMOST` values: a pass (TritonGPUOptimizeDotOperands)
    gives shared memory a layout that none has. Where the depth would end so, it comes first.
    """
    dims, others = c.spans[side], (c.rows, c.columns)[side]
    depth_first = side == 1
    if len(dims) > 2:
        depth_first = len(dims) == 3 and into.program.extents[c.gone[-1]] < INNERMOST
    order = (c.gone, others) if depth_first else (others, c.gone)
    made = _matrix(into, value, dims, *order)
    return made if depth_first == (side == 1) else into.lang("trans", made)


def _matrix(
    into: Block, value: Expr, dims: Sequence[int], first: Sequence[int], second: Sequence[int]
) -> Expr:
    order = [*first, *second]
    if list(dims) != order:
        value = into.permuted(value, list(dims), order)
    if len(order) == 2:
        return value
    shape = [sx.chain("*", [into.scope.extent(d) for d in group]) for group in (first, second)]
    return into.lang("reshape", value, sx.tuple_of(shape))


def _combined(n: Node) -> str:
    """What combines the values of a reduction: a function of the kernel file, or of Triton, whose
    `tl.max` and `tl.min` lose a NaN."""
    record = REDUCTIONS[n.op]
    exact = record.function and n.kind == "real" and not stabilises(n)
    return record.function if exact or not record.native else record.native
