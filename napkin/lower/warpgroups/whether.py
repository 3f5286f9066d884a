"""Whether the groups of a program may run as warpgroups, and why not."""

from __future__ import annotations

from collections.abc import Iterable

from napkin.algebra.terms import is_operand, is_read
from napkin.derive.kernel import tensor_of
from napkin.errors import Refusal
from napkin.ir.key_sets import bounds_of
from napkin.ir.node import Node, factors, postorder
from napkin.ir.operators import POINTWISE
from napkin.lower.corners import rises
from napkin.lower.dots import Dot, dot_of
from napkin.lower.program import Loop, Program, moving_terms
from napkin.lower.spelling import GLUON
from napkin.lower.warpgroups.cta import ROWS, WIDEST, SpecialisedCta


def why_not(program: Program) -> str:
    """Why the groups of a program cannot run as the warpgroups that its schedule asks for; "" where
    they can. It streams tensors of 16 bits, and an axis of the warpgroups is grouped in tiles."""
    kernel, cta = program.kernel, SpecialisedCta(program)
    if cta.sums:
        return _why_not_added(cta)
    if not cta.axis:
        return "its groups share a stream, and lie along no axis"
    if len(kernel.stream.passes) != 1 or kernel.fills:
        return "it is not one pass over a stream"
    if kernel.ragged:
        return "its groups are not numbered one by one"
    if program.extent(cta.row) % ROWS:
        return f"a group has {program.extent(cta.row)} rows, not a multiple of {ROWS}"
    if any(dot_of(program, n) for n in postorder(program.tails.values())):
        return "a product is made after the stream"
    for loop in program.loops:
        reason = _loop_reason(cta, loop)
        if reason:
            return reason
    if cta.crossing and not cta.at_once:
        return "what it adds in memory would wait for the next chunk"
    left = [{x.state.name: x.product.sides[1] for x in cta.delayed(loop)} for loop in program.loops]
    if not all(x and x == left[0] for x in left):
        return "no product of computed rows is added to a state, in every loop the same"
    if not set(cta.added) <= set(cta.streamed) or any(map(cta.own, cta.streamed)):
        return "its warpgroups share no streamed tiles"
    reason = _tile_reason(cta)
    if reason:
        return reason
    seen = kernel.visits
    if seen is not None:
        bounds = filter(program.shape, bounds_of(seen.boxes))
        if not all(rises(n, kernel.residues) for n in bounds):
            return "the keys of neighbouring queries begin and end in no order"
    return ""


def gluon_lacks(terms: Iterable[Node]) -> str:
    """What Gluon lacks for the functions that operators of terms call, whatever the tiles; "" where
    it has all."""
    ops = {n.op for n in postorder(terms)} & POINTWISE.keys()
    try:
        GLUON.functions({name for op in ops for name in POINTWISE[op].functions})
    except Refusal as refusal:
        return str(refusal)
    return ""


def _why_not_added(cta: SpecialisedCta) -> str:
    """The same for a program that only adds products up."""
    program, axis = cta.program, cta.axis
    kernel = program.kernel
    if kernel.fills or kernel.ragged or program.loops[0].emits:
        return "its groups are not numbered one by one"
    if kernel.visits is not None or cta.held:
        return "it reads chunks that a key set names, or holds an operand"
    if any(dot_of(program, n) for n in postorder(program.tails.values())):
        return "a product is made after the stream"
    for x in cta.sums:
        reason = _product_reason(cta, x.product)
        if reason:
            return reason
    if cta.anew and cta.ping_pong:
        return "one warpgroup computes while another multiplies only side by side"
    if program.extent(cta.row) % ROWS:
        return f"a group has {program.extent(cta.row)} rows, not a multiple of {ROWS}"
    if axis and program.shape_of((axis,)) != (cta.row,):
        return f"{axis} is not that of the rows"
    return _tile_reason(cta)


def _product_reason(cta: SpecialisedCta, dot: Dot) -> str:
    """Why warpgroups cannot make a product of two tiles; "" where they can."""
    if len(dot.rows) != 1 or len(dot.columns) != 1 or len(dot.gone) != 1:
        return "an operand is no matrix as it lies"
    if dot.rows[0] != cta.row or len(dot.sides[1]) != 1:
        return "the rows of a product are not those of the group"
    if not all(is_operand(p, dot.parts) for p in dot.parts if is_read(p)) or dot.dtype == "int8":
        return "an operand has a type of its own"
    if dot.dtype and (dot.transposed(0) or not dot.transposed(1)):
        return "operands of 8 bits do not lie along what is summed"
    if not all(_lies_in_rows(cta.program, p) for p in dot.parts if p in cta.program.boxes):
        return "several axes lie inside the rows of an operand"
    if cta.program.extent(dot.columns[0]) > WIDEST:
        return f"a product has more than {WIDEST} columns"
    return ""


def _lies_in_rows(program: Program, leaf: Node) -> bool:
    """Whether a box has one axis within its rows: of several, instructions find no matrix."""
    inner = program.shape(leaf)[-1]
    within = [a for a in program.dims[inner] if a in leaf.axes and program.tiles[a] > 1]
    return len(within) < 2


def _tile_reason(cta: SpecialisedCta) -> str:
    """Why a tile has no register layout; "" where all have one. What a group holds is read from
    shared memory where it is computed with; a streamed box is given back too early for that."""
    program = cta.program
    computed = _in_registers(program)
    for leaf in program.boxes:
        if leaf in computed and leaf not in cta.held:
            return f"{tensor_of(leaf)} is an operand and is computed with, too"
    added = {n for loop in program.loops for n in loop.emits.values()}
    for n in postorder(program.roots):
        if n in program.products or n in added or (n in program.boxes and n not in computed):
            continue
        shape = program.shape(n)
        if len(shape) > 2 or (len(shape) == 2 and shape[0] != cta.row):
            return f"a tile with the axes {' '.join(n.axes)} does not lie across the rows"
    return ""


def _in_registers(program: Program) -> set[Node]:
    """The terms that are computed or computed with: all but operands of products as they lie."""
    found, stack = set[Node](), list(program.roots)
    while stack:
        n = stack.pop()
        if n not in found:
            found.add(n)
            dot = dot_of(program, n)
            within = {p for p in dot.parts if p in program.boxes} if dot else set[Node]()
            stack += [p for p in factors(n.args[0]) if p not in within] if dot else n.args
    return found


def _loop_reason(cta: SpecialisedCta, loop: Loop) -> str:
    program = cta.program
    crossed = cta.crossed(loop)
    if len(loop.emits) > len(crossed):
        return "it writes as it streams"
    known = {d.node for d in cta.begun(loop)}
    if not known:
        return "no product of two tiles begins a chunk"
    known |= {x.product.node for x in cta.delayed(loop)}
    if not known <= moving_terms(program):
        return "a product is made before the stream"
    added = {x.product.node for x in crossed}
    for n in postorder([*loop.steps.values(), *added]):
        dot = None if n in added else dot_of(program, n)
        if dot is None:
            continue
        if n not in known:
            return "a product waits for values that are not kept for the next chunk"
        reason = _product_reason(cta, dot)
        if reason:
            return reason
    return ""
