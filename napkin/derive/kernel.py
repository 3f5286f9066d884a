"""A kernel as labels: a term whose axes are grouped, streamed or held whole.

Labels change how a term runs, never what it computes (arXiv 2412.03317, section 2: relabelling).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from napkin.algebra.contraction import Contraction, in_axes
from napkin.algebra.fold import Emit, Stream
from napkin.algebra.terms import is_read
from napkin.diagram.interface import Output
from napkin.ir.node import Node, names_of, postorder, preorder
from napkin.ir.sliding import taps
from napkin.ir.slots import slots_of
from napkin.ir.slotted import filling
from napkin.ir.taking import read_axes
from napkin.keys.residues import Blocks, Split, sized
from napkin.keys.visits import Visits
from napkin.rewrite.visit import visits


@dataclass(frozen=True, eq=False)
class Access:
    """One reading of an input tensor under some axis names.

    Attributes:
        tensor: the tensor's name.
        leaf: the node that is read: an input, or an input renamed.
        loops: indices of the passes that read it chunk by chunk; () if it is read once a group.
    """

    tensor: str
    leaf: Node
    loops: tuple[int, ...]

    @property
    def times(self) -> int:
        """How often a group reads its part of the tensor."""
        return max(1, len(self.loops))


@dataclass(frozen=True, eq=False)
class Kernel:
    """One kernel: a streamed term and the labels of its axes.

    Attributes:
        name: the kernel's name.
        outputs: results, over the kernel's inputs.
        names: distinct names of the term's reductions and named arrays.
        group: axes cut into groups (weaved axes), in grid order.
        whole: axes that every group holds whole.
        stream: the loops; it has no axes where nothing is streamed.
        splits: the axes that are split by residue; `outputs` are on their places.
        origin: the results as they lie in memory, before any axis was split.
        part: the grouped axis whose groups each stream one part of the streamed axis; "" where
            every group streams it whole (`napkin.derive.parts`).
        unit: positions of which its parts have a whole number; 0 where that is a chunk's.
        merges: the axis of parts whose states it merges; "" for other kernels.
        blocks: the folded axis that is grouped, each group storing the states of its block
            (`napkin.derive.rules.block`); of the kernel that merges them, too.
        added: the outputs to which all groups along an axis that these lack add, in memory that
            begins as zeros (`napkin.derive.rules.accumulate`).
        ahead: whether it computes what chunks give by themselves, in parts of the streamed axis, or
            reads that (`napkin.derive.rules.ahead`).
        rounds: the type to which it rounds the factors of a sum of products, with or without matrix
            instructions; "" where only these round, to the type of its tensors.
    """

    name: str
    outputs: tuple[Output, ...]
    names: Mapping[Node, str]
    group: tuple[str, ...]
    whole: tuple[str, ...]
    stream: Stream
    origin: tuple[Output, ...]
    splits: tuple[Split, ...] = ()
    part: str = ""
    unit: int = 0
    merges: str = ""
    blocks: tuple[Blocks, ...] = ()
    added: tuple[str, ...] = ()
    ahead: bool = False
    rounds: str = ""

    @property
    def partial(self) -> str:
        """The axis of the parts or blocks whose states it stores; "" for other kernels."""
        return self.part or next((b.place for b in self.blocks if not self.merges), "")

    @property
    def paired(self) -> bool:
        """Whether it is one of two kernels that compute a term, and stores or reads what passes
        between them."""
        return bool(self.partial or self.merges or self.added or self.ahead)

    @cached_property
    def residues(self) -> frozenset[str]:
        """The axes of residues: grouped one by one."""
        return frozenset(s.residue for s in self.splits)

    @cached_property
    def taps(self) -> frozenset[str]:
        """The axes of taps of windows that share positions, if they are streamed: one by one, since
        a tile in registers cannot be read at a shift."""
        found = {tap for a in self.reads for tap in taps(a.leaf)}
        return frozenset(found & set(self.stream.axes))

    @cached_property
    def ragged(self) -> Mapping[str, Split]:
        """The axes whose length depends on a residue."""
        return {s.place: s for s in self.splits if s.place in self.axes}

    def sized(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes of the diagram's axes with those of the axes that were split or paired."""
        known, twin = sized(sizes, (*self.splits, *self.blocks)), self.stream.twin
        return known | dict.fromkeys(twin.names, twin.length) if twin else known

    @cached_property
    def twins(self) -> tuple[str, ...]:
        """The other names of the streamed axis, under which terms have it."""
        names = self.stream.twin.names if self.stream.twin else ()
        return tuple(a for a in names if any(a in n.axes for n in postorder(self.terms)))

    @cached_property
    def fills(self) -> tuple[Emit, ...]:
        """What is stored in the slots of compressed outputs that have no key, by output."""
        made = [(o.name, filling(o.node)) for o in self.outputs if o.node.op == "compress"]
        return tuple(Emit(name, n) for name, n in made if n is not None)

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """Axes of slots along which fills are stored, after the loops."""
        return tuple(dict.fromkeys(a for e in self.fills for a in slots_of(e.node).slots))

    @cached_property
    def terms(self) -> tuple[Node, ...]:
        """Every term that the kernel computes: steps, emits and tails."""
        return self.stream.terms

    @cached_property
    def streamed(self) -> tuple[tuple[str, ...], ...]:
        """The axes of every reading in the loops."""
        return tuple(a.leaf.axes for a in self.reads if a.loops)

    @cached_property
    def reads(self) -> tuple[Access, ...]:
        """The readings of input tensors, in order of first use."""
        loops: dict[Node, list[int]] = {}
        for i, p in enumerate(self.stream.passes):
            for leaf in leaves(p.terms):
                loops.setdefault(leaf, []).append(i)
        for leaf in leaves(e.node for e in self.stream.tails):
            loops.setdefault(leaf, [])
        return tuple(
            Access(tensor_of(leaf), leaf, tuple(at) if self.stream.carried(leaf.axes) else ())
            for leaf, at in loops.items()
        )

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """Inputs in order of use, then outputs."""
        every = (*(a.tensor for a in self.reads), *(o.name for o in self.outputs))
        return tuple(dict.fromkeys(every))

    @cached_property
    def visits(self) -> Visits | None:
        """The key set that says which chunks are visited; None where all are, as in every part."""
        if self.part:
            return None
        queries = [s for s in self.splits if s.place in {*self.group, *self.whole}]
        return visits(self.stream, queries, self.added)

    @cached_property
    def placing(self) -> frozenset[str]:
        """The tensors that say which chunks are visited, and are read for nothing else."""
        if self.visits is None:
            return frozenset()
        keys = self.visits.own
        others = preorder(self.terms, lambda n: n is not keys)
        return frozenset(map(tensor_of, {*leaves([keys])}.difference(others)))

    def lacking(self, axes: Iterable[str]) -> tuple[str, ...]:
        """The grouped axes that an array does not carry: each of their groups has it again. What is
        streamed is divided among the groups of parts."""
        own = set(axes)
        if self.part and self.stream.carried(own):
            own.add(self.part)
        own |= {b.axis for b in self.blocks if b.place in own and b.place == self.partial}
        return tuple(a for a in self.group if a not in own)

    @cached_property
    def alone(self) -> frozenset[str]:
        """Grouped axes that are cut one by one: residues, and parts."""
        return self.residues | {self.part} if self.part else self.residues

    @cached_property
    def single(self) -> frozenset[str]:
        """Axes of which a group or a chunk has one position: those cut one by one, taps, steps, and
        parts that are merged one after another, by no reduction."""
        merged = {self.merges for x in self.stream.states if self.merges in x.step.axes}
        return self.alone | self.taps | self.stepped | merged

    @cached_property
    def stepped(self) -> frozenset[str]:
        """The axis along which a state is stepped, if there is one."""
        return frozenset(a for p in self.stream.passes if p.stepped for a in self.stream.axes)

    @cached_property
    def renamed(self) -> tuple[frozenset[str], ...]:
        """Axes that one tile in registers has, by the names under which it is computed with."""
        found = list[frozenset[str]]()
        renamed = (names_of(n) for n in postorder(self.terms) if n.op == "rename")
        for pair in (p for names in renamed for p in names):
            both = frozenset(pair).union(*(x for x in found if x & set(pair)))
            found = [*(x for x in found if not x & both), both]
        return tuple(found)

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Every axis: grouped, streamed, held whole, filled, and other names of the streamed."""
        return (*self.group, *self.stream.axes, *self.whole, *self.slots, *self.twins)

    @cached_property
    def contractions(self) -> Mapping[Node, Contraction[str]]:
        """Every sum in axes, in an order in which they can run."""
        order = self.memory_order(self.axes)
        # One position of these is never a tile.
        whole = frozenset((*self.whole, *self.twins)) - self.single
        sums = [n for n in postorder(self.terms) if n.op == "sum"]
        return {n: in_axes(n, order, whole, single=self.stepped) for n in sums}

    @cached_property
    def products(self) -> tuple[Contraction[str], ...]:
        """The sums that are matrix products at some tiles."""
        return tuple(c for c in self.contractions.values() if c.is_product)

    def memory_order(self, among: Sequence[str]) -> list[str]:
        """Axes so that every tensor's own order is kept where possible: the last stays
        contiguous. Other names of the streamed axis stand where it does."""
        stored = [*(read_axes(a.leaf) for a in self.reads), *(o.axes for o in self.outputs)]
        for name in self.twins:
            streamed = self.stream.axes
            stored += [[name if a in streamed else a for a in axes] for axes in stored]
        orders = [[a for a in axes if a in among] for axes in stored]
        after: dict[str, set[str]] = {a: set() for a in among}
        for order in orders:
            for i, a in enumerate(order):
                after[a] |= {b for b in order[i + 1 :] if a not in after[b]}
        out: list[str] = []
        while left := [a for a in among if a not in out]:
            ready = [a for a in left if not any(a in after[b] for b in left if b != a)]
            out.append((ready or left)[0])
        return out


def tile_axes(o: Output) -> tuple[str, ...]:
    """The axes of the tile that a kernel stores of an output at once."""
    if o.node.op != "compress":
        return o.axes
    return (*o.node.args[0].axes, *(a for a in o.axes if a not in o.node.axes))


def tensor_of(leaf: Node) -> str:
    """The name of the tensor that a reading reads."""
    return str(leaf.params[0])


def leaves(roots: Iterable[Node]) -> tuple[Node, ...]:
    """The readings under `roots`, each once; where one is read may be read, too."""
    return tuple(filter(is_read, preorder(roots)))
