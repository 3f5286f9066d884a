"""Warp-specialised CTAs: groups that lie side by side, share what they stream, and run as
warpgroups of one block.

A group partition may be cut once more (arXiv 2412.03317, section 4.4): W neighbouring groups along
one axis read the same chunks, so one copy of a chunk in shared memory serves them all, and what is
streamed crosses once for all W. Each group is one warpgroup, which multiplies while another is at
its softmax; one warp more only asks for chunks.

Groups that only add products up may lie so, too (cooperative warpgroups, as CUTLASS calls them), or
take turns (ping-pong): then nothing is shared, and one multiplies while another finishes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from napkin.algebra.fold import State
from napkin.algebra.terms import is_read
from napkin.ir.node import Node, postorder
from napkin.ir.operators import POINTWISE
from napkin.lower.descriptors import ITEM, lines
from napkin.lower.divisibility import tensor_axes
from napkin.lower.dots import Dot, dot_of
from napkin.lower.launch import in_box
from napkin.lower.program import Loop, Program, moving_terms
from napkin.target import LINE

ROWS = 64
"""Rows that a warpgroup multiplies at once (PTX ISA, wgmma)."""

WIDEST, DEPTH = 256, 32
"""Columns of one instruction at most, and bytes along what it sums."""

PART_COLUMNS = LINE // ITEM
"""Columns of a part of a product that all warpgroups make, at least, and in what steps: a line of
shared memory."""

ONE = frozenset({"add", "sub", "mul", "neg", "maximum", "minimum", "cast"})
"""Operators of one instruction."""


@dataclass(frozen=True, eq=False)
class Delayed:
    """A state to which each chunk adds a product whose rows are computed there: it is added while
    the next chunk's scores are, or at once (`SpecialisedCta.at_once`).

    Attributes:
        state: the state.
        before: the state as it is taken over, rescaled or not.
        product: what is added.
    """

    state: State
    before: Node
    product: Dot


@dataclass(frozen=True, eq=False)
class Crossed:
    """What a chunk adds to in memory: a product that is summed over the rows of all warpgroups.
    They leave their rows in shared memory, where each makes a part of the product of them all.

    Attributes:
        tensor: the output.
        product: what a chunk adds.
        cut: which side of a part is shorter than the product: 0 its rows, 1 its columns.
        part: rows and columns of a part.
    """

    tensor: str
    product: Dot
    cut: int
    part: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Sum:
    """A state that adds up products of two tiles, or what is computed of each of their values.

    Attributes:
        state: the state.
        product: that of a chunk.
        anew: whether it is made by itself, and then added, scaled or computed with: of fp8, too, of
            whose sums tensor cores keep few bits (`napkin.algebra.contraction.EXACT_SUM`).
    """

    state: State
    product: Dot
    anew: bool


@dataclass(frozen=True, eq=False)
class SpecialisedCta:
    """A warp-specialised program.

    Attributes:
        program: that of one group.
    """

    program: Program

    @property
    def axis(self) -> str:
        """Along which its groups lie side by side; "" where they take turns."""
        return self.program.schedule.axis

    @property
    def groups(self) -> int:
        """How many there are in one block, a warpgroup each."""
        return self.program.schedule.warpgroups

    @property
    def stages(self) -> int:
        """Chunks that are in shared memory at once."""
        return self.program.schedule.stages

    @property
    def ping_pong(self) -> bool:
        """Whether its groups take turns at the tensor cores, and share nothing."""
        return not self.axis

    @cached_property
    def row(self) -> int:
        """The tile dimension of the rows."""
        if self.sums:
            return self.sums[0].product.rows[0]
        return self.program.shape_of((self.axis,))[0]

    @cached_property
    def sums(self) -> tuple[Sum, ...]:
        """The states of a program whose only loop adds products of two tiles to each of them, or
        what it computes of their values; nothing where it does something else."""
        if len(self.program.loops) != 1:
            return ()
        (loop,) = self.program.loops
        found: list[Sum] = []
        for s in self.program.kernel.stream.passes[loop.part].states:
            n = loop.steps[s.name]
            added = n.op == "add" and n.args[0] is s.leaf("old")
            dot = _one_product(self.program, n.args[1]) if added else None
            if dot is None or len(dot.parts) != 2 or not self.program.boxes.keys() >= {*dot.parts}:
                return ()
            plain = dot.node is n.args[1] and not dot.outside and not dot.dtype
            found.append(Sum(s, dot, not plain))
        return tuple(found) if len({x.anew for x in found}) < 2 else ()

    @property
    def anew(self) -> bool:
        """Whether products of chunks are made by themselves, and then added up."""
        return any(x.anew for x in self.sums)

    @cached_property
    def leading(self) -> tuple[Dot, ...]:
        """The products of two tiles that each chunk begins with, in the order of the loops."""
        found = {d.node: d for loop in self.program.loops for d in self.begun(loop)}
        return tuple(found.values())

    def begun(self, loop: Loop) -> tuple[Dot, ...]:
        """The products of a loop whose operands both lie in shared memory."""
        dots = (dot_of(self.program, n) for n in postorder(loop.steps.values()))
        return tuple(d for d in dots if d and self.program.boxes.keys() >= set(d.parts))

    @cached_property
    def first(self) -> set[Node]:
        """The boxes of these products."""
        return {p for d in self.leading for p in d.parts}

    def delayed(self, loop: Loop) -> tuple[Delayed, ...]:
        """The states of a loop that only add a product of computed rows to what they were: they
        take it up one chunk later."""
        found: list[Delayed] = []
        states = self.program.kernel.stream.passes[loop.part].states
        for s in states:
            added = _added(self.program, loop.steps[s.name])
            others = [loop.steps[x.name] for x in states if x is not s]
            own = {s.leaf("old"), s.leaf("new")}
            if added is not None and not own & set(postorder([*others, added[1].node])):
                found.append(Delayed(s, *added))
        return tuple(found)

    def crossed(self, loop: Loop) -> tuple[Crossed, ...]:
        """The sums over the rows of all warpgroups that a loop adds to in memory; groups that take
        turns have rows of their own."""
        if self.ping_pong:
            return ()
        program = self.program
        dots = {t: dot_of(program, n) for t, n in loop.emits.items() if t in program.kernel.added}
        found = (self._crossed(t, d) for t, d in dots.items() if d is not None)
        return tuple(x for x in found if x)

    def _crossed(self, tensor: str, dot: Dot) -> Crossed | None:
        """A sum as one over the rows of all warpgroups, of which each makes a part of whole
        instructions; None where it is none."""
        left, right = dot.sides
        held = len(right) == 1 and right[0] in self.held and self.own(right[0])
        computed = not any(p in self.program.boxes or is_read(p) for p in left)
        matrix = len(dot.rows) == len(dot.columns) == 1 and dot.gone == (self.row,)
        if dot.outside or not held or not computed or not matrix:
            return None
        rows, columns = (self.program.extent(d) for d in (*dot.rows, *dot.columns))
        for cut, part in enumerate(
            [(rows // self.groups, columns), (rows, columns // self.groups)]
        ):
            whole = part[0] and part[0] % ROWS == 0 and part[1] % PART_COLUMNS == 0
            if whole and part[1] <= WIDEST:
                return Crossed(tensor, dot, cut, part)
        return None

    @cached_property
    def crossing(self) -> tuple[Crossed, ...]:
        """Those of a program, in every loop the same; none where it streams nothing."""
        return tuple(x for loop in self.program.loops[:1] for x in self.crossed(loop))

    def across(self, loop: Loop) -> tuple[Node, ...]:
        """Terms of a loop with one value for each column of the scores, computed of readings: each
        thread has many rows and columns of a tile, so that all would compute each value again. What
        comes beside boxes is at hand."""
        found, order = self.of_columns(loop), list(postorder(loop.steps.values()))
        alone = {n for n in found if not reads([n]) <= self.program.beside.keys()}
        last = {a for n in order if n not in found for a in n.args}
        return tuple(n for n in order if n in alone & last and n.kind == "real")

    def of_columns(self, loop: Loop) -> set[Node]:
        """Terms of a loop with one value for each column of the scores, computed of readings; of a
        product that a sum multiplies out, its factors."""
        program, moving = self.program, moving_terms(self.program, loop)
        order = list(postorder(loop.steps.values()))
        found = set[Node]()
        for n in order:
            if n not in moving or program.shape(n) != self.columns[:1] or n in program.products:
                continue
            read = is_read(n) and not n.args and n not in program.boxes
            of = [a for a in n.args if program.shape(a)]
            if read or (n.op in POINTWISE and of and found.issuperset(of)):
                found.add(n)
        return found

    @cached_property
    def every_across(self) -> tuple[Node, ...]:
        """Those of all loops."""
        return tuple(dict.fromkeys(n for loop in self.program.loops for n in self.across(loop)))

    @cached_property
    def held(self) -> tuple[Node, ...]:
        """Boxes that stay for the whole stream: left operands of the first products, so that each
        group has its own. A right one would leave the left one to be streamed, which carries the
        rows and is shared by no groups (`napkin.lower.warpgroups.whether`)."""
        carried = self.program.kernel.stream.carried
        return tuple(n for n in self.program.boxes if not carried(n.axes))

    @cached_property
    def streamed(self) -> tuple[Node, ...]:
        """Boxes that every chunk brings: those of its first products, then the others."""
        moving = [n for n in self.program.boxes if n not in self.held]
        return tuple(sorted(moving, key=lambda n: n not in self.first))

    @property
    def carrier(self) -> Node:
        """The box beside which numbers of columns come: one that the whole iteration reads."""
        return next(n for n in self.streamed if n in self.first and n in self.added)

    @cached_property
    def added(self) -> tuple[Node, ...]:
        """The boxes of the products of computed rows."""
        found = (x.product.sides[1][0] for loop in self.program.loops for x in self.delayed(loop))
        return tuple(dict.fromkeys(found))

    @cached_property
    def at_once(self) -> bool:
        """Whether an iteration makes all products of its chunk: where the first products read boxes
        that others read, too, these would stay for another iteration, and the next come late. In
        attention's gradient, dK with dV and dQ took 1,693 and 1,155 us so, and 2,524 and 1,655
        with products left (H100, 64 heads of 4,096 x 128, bf16)."""
        return not self.first.isdisjoint(self.added)

    @property
    def left(self) -> tuple[Node, ...]:
        """The boxes of which an iteration leaves products to the next."""
        return () if self.at_once else self.added

    @cached_property
    def vacated(self) -> dict[str, Node]:
        """The held box in whose place each result of its form leaves: one that nothing reads any
        more when results are stored, and for each another one, as results leave while the next is
        stored."""
        read = set(postorder(self.program.tails.values()))
        free = [n for n in self.held if n not in read]
        found: dict[str, Node] = {}
        for tensor, axes in self.program.stores.items():
            like = next((n for n in free if self.same_form(n, axes)), None)
            if like is not None:
                free.remove(like)
                found[tensor] = like
        return found

    def own(self, leaf: Node) -> bool:
        """Whether each group has a box of its own."""
        return self.axis in leaf.axes

    def same_form(self, leaf: Node, axes: tuple[str, ...]) -> bool:
        """Whether the boxes that each group holds of a reading have the form of others with these
        axes."""
        tiles = self.program.tiles
        forms = [[tiles[a] for a in in_box(own, tiles)] for own in (self.program.boxes[leaf], axes)]
        return forms[0] == forms[1] and self.own(leaf)

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """The tile dimensions that lie across the rows, that of the first scores first."""
        found = [d.columns[0] for d in self.leading]
        found += [x.product.columns[0] for loop in self.program.loops for x in self.delayed(loop)]
        others: Iterable[int] = range(len(self.program.dims))
        if self.sums:  # of chunks, nothing comes to registers
            tails = postorder(self.program.tails.values())
            others = sorted({d for n in tails for d in self.program.shape(n)})
        return tuple(i for i in dict.fromkeys([*found, *others]) if i != self.row)


def with_columns(program: Program) -> Program:
    """The program with numbers of columns, or of rows, read beside boxes, where an iteration makes
    all of its products: threads take them from shared memory where they compute with them, and none
    waits for others that leave them there. What is computed of those of columns in more than a few
    instructions is computed by one thread for all, and these are read by themselves."""
    cta = SpecialisedCta(program)
    if not cta.anew and (cta.sums or cta.ping_pong or not cta.at_once):
        return program
    terms = [n for loop in program.loops for n in cta.of_columns(loop)]
    beside = lines(program)
    while True:
        own = [
            n for n in terms if not (reads([n]) <= beside.keys() and (is_read(n) or n.op in ONE))
        ]
        kept = {n: axes for n, axes in beside.items() if n not in set(postorder(own))}
        if len(kept) == len(beside):
            return replace(program, beside=kept)
        beside = kept


def with_adds(program: Program) -> Program:
    """The program with the results that its warpgroups add to in memory, in boxes."""
    axes, crossing = tensor_axes(program.kernel), SpecialisedCta(program).crossing
    return replace(program, adds={x.tensor: axes[x.tensor] for x in crossing})


def reads(terms: Iterable[Node]) -> set[Node]:
    """The readings that terms are computed of."""
    return {m for m in postorder(terms) if is_read(m)}


def _one_product(program: Program, n: Node) -> Dot | None:
    """The matrix product of each of whose values a term computes one, of readings beside; None
    where it is computed otherwise."""
    found, todo = dict[Node, Dot](), [n]
    while todo:
        m = todo.pop()
        dot = dot_of(program, m)
        one = m.op in POINTWISE or (m.op == "sum" and program.shape(m) == program.shape(m.args[0]))
        if dot is not None:
            found[m] = dot
            todo += dot.outside
        elif one:
            todo += m.args
        elif not (m.constant or is_read(m)):
            return None
    return next(iter(found.values())) if len(found) == 1 else None


def _added(program: Program, n: Node) -> tuple[Node, Dot] | None:
    if n.op != "add":
        return None
    for a, b in (n.args, n.args[::-1]):
        dot = dot_of(program, b)
        if dot is None or dot.outside:
            continue
        left, right = dot.sides
        computed = not any(p in program.boxes for p in left)
        same = program.shape(a) == program.shape(n)
        computed = computed and not (len(left) == 1 and is_read(left[0]))
        if same and computed and len(right) == 1 and right[0] in program.boxes:
            return a, dot
    return None
