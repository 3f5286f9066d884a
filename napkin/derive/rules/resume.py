"""Scans in blocks: each block of a scan begins with the state of all blocks before it.

A scan whose state is seen at every position runs along its axis one chunk after another
(`napkin.derive.scans`). Where its merge is linear in the state that comes first, the axis is cut
into blocks that groups take side by side: one kernel stores what each block by itself is folded
to, and a second one scans these states by the merge, which is a scan again, and computes its block
from the state that it finds there (Blelloch, 1990, section 1.4; arXiv 2312.00752, section 3.3).
Nothing here knows which scan it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from napkin.algebra.fold import State
from napkin.algebra.law import chunk_of
from napkin.algebra.law_points import Point, scalars_of
from napkin.algebra.rule import Instance, Rule, between
from napkin.algebra.terms import carrying, is_count
from napkin.derive.folding import Folding
from napkin.derive.kernel import Kernel, tensor_of
from napkin.derive.label import label
from napkin.derive.rules.block import block_axis, grouped, of_one_block
from napkin.derive.rules.part import handing, readings, why_not_cut, why_paired
from napkin.derive.rules.stream import inputs, sizes_at
from napkin.diagram.interface import Output
from napkin.diagram.scan import moved_along
from napkin.errors import Refusal
from napkin.ir.array import Array, lifted
from napkin.ir.evaluate import Array as Numbers
from napkin.ir.evaluate import aligned, aligned_to, evaluate_more
from napkin.ir.infer import along, pointwise
from napkin.ir.node import REDUCTIONS, Node, in_kind, number, over, postorder
from napkin.ir.rewrite import substitute
from napkin.ir.selecting import first_of, position
from napkin.keys.residues import Blocks


@dataclass(frozen=True, eq=False)
class _Cut:
    """A scan in blocks, as terms.

    Attributes:
        own: the states of one block by itself, by name.
        stored: the reading of each for every block.
        outputs: each result on a block, over what it reads and the states of all blocks.
    """

    blocks: Blocks
    own: Mapping[str, Node]
    stored: Mapping[str, Node]
    outputs: Sequence[Output]


def why_not_resumed(kernel: Kernel) -> str:
    """The condition that fails for scanning a kernel's stream in blocks; "" where none does."""
    return why_not_cut(kernel) or why_paired(kernel) or why_no_scan(kernel)


def why_no_scan(kernel: Kernel) -> str:
    """Why a kernel's stream is no scan alone; "" where it is."""
    s = kernel.stream
    if s.tails:
        return f"output {s.tails[0].output} is what {s.axis} is folded to, and no scan along it"
    for n in postorder(o.node for o in kernel.outputs):
        if n.op in REDUCTIONS and s.axis in over(n) and not is_count(n):
            return f"{s.axis} is reduced, too, and what follows needs the result of all of it"
    if any(n.op == "state" for e in s.passes[0].emits for n in postorder([e.node])):
        return ""
    return f"nothing is scanned along {s.axis}"


def _resumptions(kernel: Kernel, length: int) -> Iterator[Instance]:
    """The kernel that folds each block of so many positions of the streamed axis and stores its
    states, and the one that scans these and computes each block from where it begins; none where
    the stream cannot be scanned in blocks.

    States pass between the two through memory, as float32: one tensor for each, with an axis of
    blocks before its own.
    """
    if why_not_resumed(kernel) or length < 2:
        return
    with suppress(Refusal):
        cut = _cut(kernel, length)
        both, roots = (_first(kernel, cut), _second(kernel, cut)), [o.node for o in kernel.outputs]
        yield Instance(cut.blocks.axis, both, between(roots, roots), of=kernel)


def _cut(kernel: Kernel, length: int) -> _Cut:
    """The terms of a scan in blocks.

    Raises:
        Refusal: a merge is not linear in the state that comes first.
    """
    (axis,) = kernel.stream.axes
    blocks = Blocks(axis, block_axis(axis, length), length)
    folding = Folding([o.node for o in kernel.outputs], (axis,), kernel.names, 1)
    now = [folding.current(o.node, 0) for o in kernel.outputs]
    (states,) = folding.states
    stored = readings(kernel, _beside_each_other(kernel, states), blocks.place)
    begins = {n for n in postorder(now) if n.op == "state"}
    begun = {x.leaf("old"): _start(x, states, stored, blocks) for x in states}
    done = substitute(now, {n: begun[n] for n in begins})
    outputs = [replace(o, node=done[n]) for o, n in zip(kernel.outputs, now, strict=True)]
    every = of_one_block(states)
    own = {name: carrying(every[name], n.axes[1:]) for name, n in stored.items()}
    return _Cut(blocks, own, stored, outputs)


def _beside_each_other(kernel: Kernel, states: Sequence[State]) -> list[State]:
    """The states with every grouped axis that some of them has, so that groups along it store them
    all."""
    shared = [a for a in kernel.group if any(a in x.axes for x in states)]
    return [replace(x, axes=tuple(dict.fromkeys((*shared, *x.axes)))) for x in states]


def _start(x: State, states: Sequence[State], stored: Mapping[str, Node], blocks: Blocks) -> Node:
    """The state with which a block begins: where the block before it ends, of the states of all
    blocks scanned by their merge; for the first, the start itself.

    Raises:
        Refusal: the merge is not linear in the state that comes first.
    """
    right = {y.leaf("right"): stored[y.name] for y in states}
    merge, left = substitute([x.joined], right)[x.joined], x.leaf("left")

    def joined(h: Array) -> Array:
        return Array(substitute([merge], {left: h.node})[merge])

    nothing = number(in_kind(x.init, x.kind))
    ends = lifted(moved_along(joined, Array(nothing), blocks.place))
    after = pointwise(
        "mul", (pointwise("add", (position(blocks.place), number(1))), number(blocks.step))
    )
    here = pointwise("equal", (after, first_of(blocks.axis)))
    return along("sum", pointwise("where", (here, ends, nothing)), (blocks.place,))


def _first(kernel: Kernel, cut: _Cut) -> Kernel:
    """The kernel that stores what each block is folded to."""
    outputs = [Output(tensor_of(cut.stored[name]), n, n.axes) for name, n in cut.own.items()]
    made = _labelled(f"{kernel.name}_blocks", kernel, outputs, cut)
    return handing(made, (), cut.stored.values())


def _second(kernel: Kernel, cut: _Cut) -> Kernel:
    """The kernel that computes each block from the state with which it begins."""
    made = _labelled(f"{kernel.name}_resumed", kernel, cut.outputs, cut)
    return replace(made, origin=kernel.outputs, merges=cut.blocks.place)


def _labelled(name: str, kernel: Kernel, outputs: Sequence[Output], cut: _Cut) -> Kernel:
    """A kernel with one block in each group, beside what the scan was grouped along."""
    axis = cut.blocks.axis
    made = label(name, outputs, kernel.names, block=axis)
    own = [a for a in kernel.group if a in made.group]
    return grouped(made, (*own, *(a for a in made.group if a not in own), axis), cut.blocks)


# --- the law --------------------------------------------------------------------------------


def _ways(found: Instance, point: Point) -> Iterator[tuple[str, list[Numbers]]]:
    """The outputs on blocks of a few lengths."""
    for length in (1, 2, 3):
        yield f"in blocks of {length}", _in_blocks(found.of, length, point)


def _in_blocks(kernel: Kernel, length: int, point: Point) -> list[Numbers]:
    """The outputs of a kernel, computed in blocks of so many positions."""
    cut, roots = _cut(kernel, length), [o.node for o in kernel.outputs]
    axis, scalars, bind = cut.blocks.axis, scalars_of(roots), inputs(kernel, point)
    sizes = sizes_at(kernel, point)
    size = sizes[axis]
    blocks = [range(i, min(i + length, size)) for i in range(0, size, length)]
    sizes[cut.blocks.place] = len(blocks)

    def computed(
        terms: Sequence[Node], known: Mapping[Node, Numbers], part: range
    ) -> list[Numbers]:
        box = {axis: part}
        held = {a: range(n) for a, n in sizes.items()} | box
        values = evaluate_more(terms, chunk_of(known, box), sizes, scalars, box)
        return [aligned_to(v, n.axes, n.axes, held) for v, n in zip(values, terms, strict=True)]

    folded = zip(*(computed([*cut.own.values()], bind, b) for b in blocks), strict=True)
    for (name, n), values in zip(cut.own.items(), folded, strict=True):
        leaf = cut.stored[name]
        bind[leaf] = np.stack([aligned(v, n.axes, leaf.axes[1:]) for v in values])
    nodes = [o.node for o in cut.outputs]
    found = zip(*(computed(nodes, bind, b) for b in blocks), strict=True)
    joined = [np.concatenate(v, axis=n.axes.index(axis)) for n, v in zip(nodes, found, strict=True)]
    return [aligned(v, n.axes, o.axes) for v, n, o in zip(joined, nodes, roots, strict=True)]


RESUMED = Rule(
    "resume",
    "scan(x)[b] = scan(x_b) from fold(x_0 .. x_(b-1)), of blocks x_b, with fold by the merge",
    _resumptions,
    (
        "the merge is linear in the state that comes first",
        "nothing else is folded along the axis",
        "the axis is not empty as a whole",
        "states are stored in float32",
    ),
    empty=False,
    ways=_ways,
)
