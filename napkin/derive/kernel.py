"""A kernel as labels: a term whose axes are grouped, streamed or held whole.

Labels change how a term runs, never what it computes (arXiv 2412.03317, section 2: relabelling).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from napkin.algebra.contraction import Contraction, in_axes
from napkin.algebra.fold import Emit, Stream
from napkin.algebra.terms import is_read
from napkin.derive.rules.counts import COUNTED
from napkin.derive.rules.seen import SEEN
from napkin.derive.rules.split import SplitTerm
from napkin.derive.rules.visit import visits
from napkin.derive.streaming import stream
from napkin.diagram.interface import Output
from napkin.errors import Refusal
from napkin.ir.node import MOVES, Node, over, postorder
from napkin.ir.sliding import taps
from napkin.ir.slots import slots_of
from napkin.ir.slotted import filling, scattered
from napkin.ir.storage import unstored
from napkin.ir.taking import read_axes
from napkin.keys.residues import Blocks, Split, sized
from napkin.keys.visits import Visits


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
        merges: the axis of parts whose states it merges; "" for other kernels.
        blocks: the folded axis that is grouped, each group storing the states of its block
            (`napkin.derive.rules.block`); of the kernel that merges them, too.
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
    merges: str = ""
    blocks: tuple[Blocks, ...] = ()

    @property
    def partial(self) -> str:
        """The axis of the parts or blocks whose states it stores; "" for other kernels."""
        return self.part or next((b.place for b in self.blocks if not self.merges), "")

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
        """Sizes of the diagram's axes with those of the axes that were split."""
        return sized(sizes, (*self.splits, *self.blocks))

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
        s = self.stream
        steps = [x.step for p in s.passes for x in p.states]
        emits = [e.node for p in s.passes for e in p.emits]
        return (*steps, *emits, *(e.node for e in s.tails))

    @cached_property
    def streamed(self) -> tuple[tuple[str, ...], ...]:
        """The axes of every reading in the loops."""
        return tuple(a.leaf.axes for a in self.reads if a.loops)

    @cached_property
    def reads(self) -> tuple[Access, ...]:
        """The readings of input tensors, in order of first use."""
        loops: dict[Node, list[int]] = {}
        for i, p in enumerate(self.stream.passes):
            roots = [*(s.step for s in p.states), *(e.node for e in p.emits)]
            for leaf in leaves(roots):
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
        """The key set that says which chunks are visited; None where all are."""
        grouped = [s for s in self.splits if s.place in self.group]
        return visits(self.stream, grouped)

    def lacking(self, axes: Iterable[str]) -> tuple[str, ...]:
        """The grouped axes that an array does not carry: each of their groups has it again. What is
        streamed is divided among the groups of parts."""
        held = set(axes)
        if self.part and self.stream.carried(held):
            held.add(self.part)
        held |= {b.axis for b in self.blocks if b.place in held and b.place == self.partial}
        return tuple(a for a in self.group if a not in held)

    @cached_property
    def alone(self) -> frozenset[str]:
        """Grouped axes that are cut one by one: residues, and parts."""
        return self.residues | {self.part} if self.part else self.residues

    @cached_property
    def single(self) -> frozenset[str]:
        """Axes of which a group or a chunk has one position: those cut one by one, taps, and parts
        that are merged one after another, by no reduction."""
        merged = {self.merges for x in self.stream.states if self.merges in x.step.axes}
        return self.alone | self.taps | merged

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Every axis: grouped, streamed, held whole, filled."""
        return (*self.group, *self.stream.axes, *self.whole, *self.slots)

    @cached_property
    def contractions(self) -> Mapping[Node, Contraction[str]]:
        """Every sum in axes, in an order in which they can run."""
        order = self.memory_order(self.axes)
        # One position of these is never a tile.
        whole = frozenset(self.whole) - self.single
        return {n: in_axes(n, order, whole) for n in postorder(self.terms) if n.op == "sum"}

    def memory_order(self, among: Sequence[str]) -> list[str]:
        """Axes so that every tensor's own order is kept where possible: the last stays
        contiguous."""
        orders = [[u for u in read_axes(a.leaf) if u in among] for a in self.reads]
        orders += [[a for a in o.axes if a in among] for o in self.outputs]
        after: dict[str, set[str]] = {a: set() for a in among}
        for held in orders:
            for i, a in enumerate(held):
                after[a] |= {b for b in held[i + 1 :] if a not in after[b]}
        out: list[str] = []
        while left := [a for a in among if a not in out]:
            ready = [a for a in left if not any(a in after[b] for b in left if b != a)]
            out.append((ready or left)[0])
        return out


def tile_axes(o: Output) -> tuple[str, ...]:
    """The axes of the tile that a kernel stores of an output at once."""
    return o.node.args[0].axes if o.node.op == "compress" else o.axes


def tensor_of(leaf: Node) -> str:
    """The name of the tensor that a reading reads."""
    return str(leaf.params[0])


def leaves(roots: Iterable[Node]) -> tuple[Node, ...]:
    """The readings under `roots`, each once."""
    out: dict[Node, None] = {}
    stack, seen = list(roots)[::-1], set[Node]()
    while stack:
        n = stack.pop()
        if n in seen:
            continue
        seen.add(n)
        if is_read(n):
            out[n] = None
        stack.extend(reversed(n.args))  # where it is read may be read, too
    return tuple(out)


def weaved(outputs: Sequence[Output]) -> tuple[str, ...]:
    """Axes that the whole term is weaved over: a group partition on them is an identity."""
    order = list(postorder(o.node for o in outputs))
    mixed = {a for n in order for a in over(n)}
    for n in order:
        if n.op in {"rename", "take"} or n.op in MOVES:
            mixed |= set(n.args[0].axes) ^ set(n.axes)
    shared = [a for a in outputs[0].axes if all(a in o.axes for o in outputs)]
    return tuple(a for a in shared if a not in mixed)


def _why_not_weaved(outputs: Sequence[Output], axis: str) -> tuple[str, str]:
    """Where a group partition on `axis` fails, and the condition."""
    order = list(postorder(o.node for o in outputs))
    for n in order:
        if axis in over(n):
            reason = f"{n.op} works along {axis}, so the algorithm is not weaved over it"
            return f"{n.op} over {' '.join(over(n))}", reason
    for o in outputs:
        if axis not in o.axes:
            return f"output {o.name}", f"output {o.name} does not carry {axis}"
    place = f"output {outputs[0].name}"
    for n in order:
        if n.op in MOVES and axis in (*slots_of(n).keys, *slots_of(n).slots):
            return place, f"{n.op} moves between keys and slots, so {axis} is cut with its window"
    return place, f"{axis} is read under two names"


def reduced(outputs: Sequence[Output]) -> tuple[str, ...]:
    """Axes that some operator works along, in order."""
    order = postorder(o.node for o in outputs)
    return tuple(dict.fromkeys(a for n in order for a in over(n)))


def label(
    name: str,
    outputs: Sequence[Output],
    names: Mapping[Node, str],
    *,
    streamed: str = "",
    passes: int = 1,
    group: Collection[str] | None = None,
    hold: Collection[str] = (),
    split: SplitTerm | None = None,
    block: str = "",
) -> Kernel:
    """The kernel with `streamed` (an axis, or several separated by spaces, cut jointly) cut into
    chunks, `group` (default: every weaved axis) cut into
    groups, and all other axes held whole.

    Args:
        split: the term with axes split by residue, if it is to run so.
        block: an axis of which the outputs are of one block: its positions are counted.

    Raises:
        Refusal: a partition is not legal.
    """
    cut, origin = tuple(streamed.split()), tuple(outputs)
    if split is not None:
        outputs, names = split.outputs, split.names
    outputs, names = _seen_from_keys(known_counts(outputs, (*cut, block)), names, cut)
    legal = weaved(outputs)
    chosen = legal if group is None else tuple(group)
    for axis in chosen:
        if axis not in legal:
            nearest = f"group {', '.join(legal)}" if legal else f"stream {axis}"
            raise Refusal(f"group {axis}", *_why_not_weaved(outputs, axis), nearest)
    chosen = tuple(a for a in legal if a in chosen and a not in cut)
    _refuse_moves(outputs, names, streamed)
    computed = [(o.name, unstored(o.node)) for o in outputs]
    pairs = [(name, scattered(n) if n.op == "compress" else n) for name, n in computed]
    every = dict.fromkeys(a for n in postorder(n for _, n in pairs) for a in n.axes)
    every |= dict.fromkeys(a for o in outputs if o.node.op != "compress" for a in o.axes)
    whole = tuple(a for a in every if a not in chosen and a not in cut)
    _check_stored(outputs, streamed)
    made = (
        stream(pairs, cut, names, passes=passes, hold=hold)
        if cut
        else Stream((), (), tuple(Emit(n, t) for n, t in pairs), ())
    )
    _check_states(made, streamed)
    splits = split.splits if split else ()
    kernel = Kernel(name, tuple(outputs), names, chosen, whole, made, origin, splits)
    return replace(kernel, group=_grid_order(kernel))


def _check_stored(outputs: Sequence[Output], streamed: str) -> None:
    """Check that what is stored along a streamed axis is computed along it: else it is stored after
    the loop, for the last chunk.

    Raises:
        Refusal: a result is the same along a streamed axis that it is stored with, or has slots
            without a key there.
    """
    what = f"stream {streamed}"
    for o in outputs:
        compressed = o.node.op == "compress"
        empty = filling(o.node) if compressed else None
        rows = [a for a in streamed.split() if empty is not None and a in empty.axes]
        if rows:
            reason = (
                f"slots without a key are stored after the loop, where {rows[0]} has no position"
            )
            raise Refusal(what, o.name, reason, f"hold {rows[0]} whole")
        more = [a for a in streamed.split() if a in tile_axes(o) and a not in o.node.axes]
        if more and not compressed:
            reason = f"it is stored along {' '.join(more)} and is the same everywhere along it"
            raise Refusal(what, o.name, reason, "stream another axis, or hold this one whole")


def _check_states(made: Stream, streamed: str) -> None:
    """Check that what a step makes of a state has the state's axes, and no others.

    Raises:
        Refusal: a factor of a sum carries an axis that is summed over.
    """
    for state in made.states:
        more = [a for a in state.step.axes if a not in state.axes]
        if more:
            reason = (
                f"a factor that carries {' '.join(more)} would be applied after the sum over it"
            )
            nearest = "stream another axis, or hold this one whole"
            raise Refusal(f"stream {streamed}", state.name, reason, nearest)


def _grid_order(kernel: Kernel) -> tuple[str, ...]:
    """The grouped axes in grid order: first those that all that is streamed carries, so that groups
    which read the same chunks start together, wherever these axes lie in memory. Neighborhoods of
    24 heads that lie inside the tokens took 20.6 ms with the heads last, and 12.8 with them first
    (256 x 256 tokens, windows of 80 x 80, H100)."""
    first = set(kernel.group).intersection(*kernel.streamed) if kernel.streamed else set[str]()
    return tuple(sorted(kernel.group, key=lambda a: a not in first))


def _refuse_moves(outputs: Sequence[Output], names: Mapping[Node, str], streamed: str) -> None:
    """Check that compressed arrays are only stored, and only stored arrays are spread or taken of.

    Raises:
        Refusal: one would have to be moved between keys and slots inside the kernel.
    """
    what = f"stream {streamed}" if streamed else "run as one kernel"
    roots = {o.node for o in outputs if o.node.op == "compress"}
    slots = {a for n in roots for a in slots_of(n).slots}
    instead = "materialise it: nk.derive cuts there"
    for axis in streamed.split():
        if axis in slots:
            reason = f"{axis} is the slots of a compressed array, which are stored as keys are seen"
            keys = " ".join(a for n in roots for a in slots_of(n).keys)
            raise Refusal(what, outputs[0].name, reason, f"stream {keys}")
    for n in postorder(o.node for o in outputs):
        place = names.get(n) or n.op
        if n.op in {"spread", "take"}:
            reason = "what it reads is computed in this kernel, and is read at computed addresses"
            raise Refusal(what, place, reason, instead)
        if any(a.op == "compress" for a in n.args):
            reason = "it reads a compressed array of this kernel, which exists only in memory"
            raise Refusal(what, place, reason, instead)
        if slots & set(n.axes) and n not in roots:
            axis = next(a for a in n.axes if a in slots)
            reason = f"it carries {axis}, the slots of a compressed array of this kernel"
            raise Refusal(what, place, reason, instead)


def _seen_from_keys(
    outputs: Sequence[Output], names: Mapping[Node, str], streamed: Sequence[str]
) -> tuple[Sequence[Output], Mapping[Node, str]]:
    """The outputs, and their names, with key sets whose queries are streamed seen from their
    keys."""
    roots = [o.node for o in outputs]
    if not any(n.op == "keys" for n in postorder(roots)):
        return outputs, names
    done = SEEN.everywhere(roots, roots, streamed)
    return [replace(o, node=done[o.node]) for o in outputs], {
        done.get(n, n): text for n, text in names.items()
    }


def known_counts(outputs: Sequence[Output], streamed: Sequence[str]) -> list[Output]:
    """The outputs with each count of positions as a size, unless streaming makes it grow."""
    roots = [o.node for o in outputs]
    done = COUNTED.everywhere(roots, roots, streamed)
    return [replace(o, node=done[o.node]) for o in outputs]
