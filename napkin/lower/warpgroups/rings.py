"""What goes through the shared memory of a warp-specialised CTA: boxes in rings, and barriers for
each place."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from napkin.algebra.terms import is_read
from napkin.derive.kernel import tensor_of
from napkin.ir.node import Node, postorder
from napkin.lower import syntax as sx
from napkin.lower.descriptors import item_bytes
from napkin.lower.dots import Dot
from napkin.lower.emit import Emitter
from napkin.lower.emit_memory import corner
from napkin.lower.launch import in_box
from napkin.lower.loops import Loops
from napkin.lower.places import Places
from napkin.lower.printer import comment
from napkin.lower.program import Loop
from napkin.lower.syntax import Expr, Operand
from napkin.lower.warpgroups.cta import DEPTH, WIDEST, SpecialisedCta
from napkin.lower.warpgroups.emit_gluon import Alone, Registers
from napkin.lower.warpgroups.gluon_scope import CtaScope


class Rings:
    """Writes how the boxes of a warp-specialised CTA come, and holds what writes the rest of it.

    Attributes:
        rank: the dimensions of what lies in shared memory, by its name.
    """

    def __init__(self, cta: SpecialisedCta) -> None:
        self.rank: dict[str, int] = {}
        self.cta, self.program, self.scope = cta, cta.program, CtaScope(cta)
        self.lang = self.scope.lang
        self.emitter = Emitter(self.program, self.scope, Registers(self.scope))
        self.loops = Loops(self.emitter)
        self.places = self.loops.places

    def index_type(self) -> ast.stmt:
        """The type of positions."""
        return sx.assign("INDEX", self.lang.word("int32"), self.lang.word("constexpr"))

    # --- places -----------------------------------------------------------------------------

    def own(self) -> ast.stmt:
        """Which group of the warp-specialised CTA this is."""
        axis, scope = self.cta.axis, self.scope
        first = sx.binary(scope.group_id(axis), "*", self.cta.groups)
        return sx.assign(scope.own(axis), sx.binary(first, "+", scope.warpgroup))

    def bases(self) -> list[ast.stmt]:
        """Pointers of tensors without a descriptor."""
        out, _ = self.places.bases()
        return [comment("where its tensors start"), *out] if out else []

    def layouts(self) -> Iterator[ast.stmt]:
        """The register layouts of tiles: rows by warps, across the columns of one instruction."""
        depth = DEPTH // item_bytes(self.cta.streamed[0])  # operands have one type
        for dim in self.cta.columns:
            wide = min(WIDEST, max(8, self.program.extent(dim)))
            lists = map(sx.tuple_of, ((3, 0), (4, 1), (16, wide, depth)))
            made = self.lang("NVMMADistributedLayout", *lists)
            yield sx.assign(self.scope.layout(dim), made, self.lang.word("constexpr"))

    # --- shared memory ----------------------------------------------------------------------

    def box(self, leaf: Node) -> tuple[str, ...]:
        """The axes of a reading's box."""
        return in_box(self.program.boxed[leaf], self.program.tiles)

    def room(
        self, name: str, dtype: Operand, shape: Sequence[Operand], layout: Operand
    ) -> ast.stmt:
        """Room in shared memory."""
        self.rank[name] = len(shape)
        made = self.lang("allocate_shared_memory", dtype, sx.tuple_of(shape), layout)
        return sx.assign(name, made)

    def ring(self, name: str, count: Operand, axes: Sequence[str]) -> ast.stmt:
        """Room for so many boxes of a tensor."""
        tensor = self.scope.tensor(name)
        shape = [count, *(self.emitter.block(a) for a in axes)]
        return self.room(self.scope.ring(name), f"{tensor}.dtype", shape, f"{tensor}.layout")

    def shared(self, n: Node) -> ast.stmt:
        """Room for a term with one value for each column, for each group."""
        shape = [self.cta.groups, self.scope.extent(self.cta.columns[0])]
        layout = self.lang("SwizzledSharedLayout", 1, 1, 1, sx.tuple_of([0]))
        return self.room(self.scope.shared(n), self.lang.word("float32"), shape, layout)

    def barriers(self, name: str, count: Operand, arrivals: int) -> list[ast.stmt]:
        """So many barriers, each of which waits for `arrivals`."""
        layout = sx.call("mbarrier.MBarrierLayout")
        made = self.room(name, self.lang.word("int64"), [count, 1], layout)
        place = sx.method(name, "index", self.scope.each)
        begun = ast.Expr(sx.call("mbarrier.init", place, count=arrivals))
        every = sx.loop(self.scope.each, self.lang("static_range", count), [begun])
        return [made, every]

    def view(self, leaf: Node, at: Operand) -> Expr:
        """A box as a matrix, or as a row of numbers."""
        box = sx.method(self.scope.ring(tensor_of(leaf)), "index", at)
        dims = self.program.shape(leaf)
        if len(self.box(leaf)) == len(dims):
            return box
        return sx.method(box, "reshape", self.emitter.extents(dims))

    def tile(self, leaf: Node, slot: Operand, transposed: bool) -> Expr:
        """A box as an operand, that of this place in its ring where it is streamed."""
        held = leaf in self.cta.held
        box = sx.name(self.scope.tile(leaf)) if held else self.view(leaf, slot)
        return sx.method(box, "permute", sx.pair(1, 0)) if transposed else box

    def sides(self, d: Dot, at: Callable[[Node], Operand]) -> list[Expr]:
        """The operands of a product of two tiles, in these places of their rings."""
        leaves = [(d.sides[i][0], d.transposed(i)) for i in (0, 1)]
        return [self.tile(n, at(n), transposed) for n, transposed in leaves]

    def begun(self, d: Dot, at: Callable[[Node], Operand]) -> ast.stmt:
        """A product of two tiles, begun, of the boxes in these places of their rings."""
        shape = self.emitter.extents((d.rows[0], d.columns[0]))
        layout, float32 = self.scope.layout(d.columns[0]), self.lang.word("float32")
        none = self.lang("zeros", shape, float32, layout=layout)
        made = sx.call("warpgroup_mma", *self.sides(d, at), none, use_acc=False, is_async=True)
        return sx.assign(self.scope.value(d.node), made)

    def slots(self, before: bool = False) -> list[ast.stmt]:
        """The place of this iteration's boxes, or of those before, and the parity of a barrier."""
        number: Operand = self.scope.iteration
        if before:
            number = sx.binary(number, "-", 1)
        (slot, phase), stages = self.scope.slot(before), self.scope.stages
        parity = sx.binary(number, "//", stages, "%", 2)
        return [sx.assign(slot, sx.binary(number, "%", stages)), sx.assign(phase, parity)]

    def parity(self) -> Expr:
        """That of this iteration, at barriers of one place."""
        return sx.binary(self.scope.iteration, "%", 2)

    def wait(self, name: str, at: Operand, phase: Operand) -> ast.stmt:
        """Wait at one of these barriers."""
        return ast.Expr(sx.call("mbarrier.wait", sx.method(name, "index", at), phase))

    def arrive(self, name: str, at: Operand) -> ast.stmt:
        """Arrive at one of these barriers."""
        return ast.Expr(sx.call("mbarrier.arrive", sx.method(name, "index", at)))

    # --- what is asked for ------------------------------------------------------------------

    def values(self, leaf: Node) -> Expr:
        """Values of a box."""
        sizes = [self.emitter.block(a) for a in self.box(leaf) if self.program.tiles[a] > 1]
        return sx.chain("*", sizes)

    def copy(self, leaf: Node, full: Operand, at: Operand) -> ast.stmt:
        """A box asked for."""
        t, scope = tensor_of(leaf), self.scope
        begin = sx.tuple_of(corner(self.emitter, a) for a in self.box(leaf))
        into = sx.method(scope.ring(t), "index", at)
        return ast.Expr(sx.call("async_load", scope.tensor(t), begin, full, into))

    def first(self) -> ast.stmt:
        """The first iteration, before which there is one that leaves products, or none."""
        return sx.assign(self.scope.iteration, 1 if self.cta.left else 0)

    def next(self) -> ast.stmt:
        """The next iteration."""
        number = self.scope.iteration
        return sx.assign(number, sx.binary(number, "+", 1))

    def over_chunks(
        self, loop: Loop, body: Sequence[ast.stmt], positions: Sequence[ast.stmt] | None = None
    ) -> list[ast.stmt]:
        """A loop over chunks that counts iterations: its title, what stands before it, and itself.
        Where a chunk lies is all that is known of its `positions`, if they are left out."""
        head = self.loops.head(loop)
        found = self.loops.starts() if positions is None else positions
        body = [*head.find, *found, *body, self.next(), *head.after]
        every = sx.loop(head.variable, sx.call("range", *head.bounds), body)
        return [comment(self.loops.title(loop)), *head.before, every]

    def across(self, loop: Loop, inner: Emitter) -> list[ast.stmt]:
        """Terms of a loop with one value for each column of a chunk: while products are made, each
        thread computes one of them, and leaves it to all in shared memory."""
        terms, scope = self.cta.across(loop), self.scope
        if not terms:
            return []
        apart = scope.apart(self.cta.columns[0])
        alone = Emitter(self.program, apart, Alone(apart))
        alone.have, alone.uses = dict(self.emitter.have), self.emitter.uses
        alone.inside = set(self.program.kernel.stream.axes) if loop.whole else set()
        ids = {a: sx.name(scope.own(a)) for a in self.program.kernel.group}
        places = Places(alone).lanes(self.cta.columns[0], ids, loop)
        for n in filter(is_read, postorder(terms)):  # all on their way before one is waited for
            alone.define(n)
        for n in terms:
            place = sx.method(scope.shared(n), "index", scope.warpgroup)
            alone.statements.append(ast.Expr(sx.method(place, "store", alone.value(n))))
            inner.have[n] = sx.method(place, "load", scope.of(self.cta.columns[:1]))
        return [*places, *alone.drain()]

    def each_warpgroup(self, body: list[ast.stmt]) -> ast.stmt:
        """A loop over the warpgroups of a block, of one warp that does something for each."""
        return sx.loop(self.scope.warpgroup, self.lang("static_range", self.cta.groups), body)

    def stored(self) -> list[ast.stmt]:
        """Wait until boxes that are stored have left, if any are."""
        return [ast.Expr(sx.call("tma.store_wait", 0))] if self.program.stores else []


def waited(names: Sequence[str], outstanding: int) -> ast.stmt:
    """These products, done."""
    made = sx.call("warpgroup_mma_wait", outstanding, sx.tuple_of(names))
    if len(names) == 1:
        return sx.assign(names[0], made)
    target = ast.Tuple([ast.Name(n, ast.Store()) for n in names], ast.Store())
    return ast.Assign([target], made)
