"""The looped pseudocode diagram of a kernel (arXiv 2412.03317, Figures 27 and 29).

A streamed kernel starts its states, runs a body once for every chunk, and finishes. Body and end
are diagrams over the same nodes as the kernel, so their columns are those of
`napkin.diagram.columns`: every variable is an array in a column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from napkin.algebra.fold import Pass, State
from napkin.algebra.terms import is_read
from napkin.derive.kernel import Kernel
from napkin.diagram.columns import Column, Stage, columns, stages
from napkin.diagram.diagram import Diagram
from napkin.diagram.interface import Output
from napkin.errors import Refusal
from napkin.ir.node import REDUCTIONS, Node, node, over, postorder
from napkin.ir.rewrite import substitute


@dataclass(frozen=True, eq=False)
class Block:
    """A part of the pseudocode, run once or once for every chunk.

    Attributes:
        diagram: what it computes; old states are among its inputs, new ones among its outputs.
        states: the states that it updates, by the node of the new value.
        title: what it is, in words.
    """

    diagram: Diagram
    states: Mapping[Node, State]
    title: str

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The arrays that exist at each moment."""
        return columns(self.diagram)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The operators between the columns."""
        return stages(self.diagram)

    @cached_property
    def names(self) -> Mapping[Node, str]:
        """What each array is called."""
        return {e.node: e.name for c in reversed(self.columns) for e in c}

    def readers(self, n: Node) -> tuple[Stage, ...]:
        """The stages that take `n`."""
        return tuple(s for s in self.stages if n in s.args)


def looped(kernel: Kernel) -> tuple[Block, ...]:
    """The pseudocode diagram of a streamed kernel: a loop body for each pass over its streamed
    axes, and what follows the loops.

    Raises:
        Refusal: it has no streamed axis.
    """
    if not kernel.stream.axes:
        raise Refusal(
            "a looped diagram", kernel.name, "no axis is streamed, so there is no loop",
            "stream an axis that is reduced",
        )  # fmt: skip
    axis = kernel.stream.axis
    bodies = [
        _body(kernel, p, f"for each chunk of {axis}" + (f", pass {i + 1}" if i else ""))
        for i, p in enumerate(kernel.stream.passes)
    ]
    ends = [Output(e.output, e.node, e.node.axes) for e in kernel.stream.tails]
    return (*bodies, Block(_diagram(kernel, ends), {}, "after the loop"))


def _body(kernel: Kernel, p: Pass, title: str) -> Block:
    """One pass as a block: a new state that a later step reads is the term that it was."""
    new: dict[Node, Node] = {}
    made: dict[Node, State] = {}
    outputs: list[Output] = []
    for s in p.states:
        value = substitute([s.step], new)[s.step]
        if value in made:  # two states with one step are two arrays: the second is a copy
            value = node("rename", (value,), ((),), value.axes, value.kind)
        new[s.leaf("new")] = value
        made[value] = s
        outputs.append(Output(f"{s.name}'", value, s.axes))
    for e in p.emits:
        value = substitute([e.node], new)[e.node]
        value = value.args[0] if value.op == "scatter" else value
        outputs.append(Output(e.output, value, value.axes))
    return Block(_diagram(kernel, outputs), made, title)


def _diagram(kernel: Kernel, outputs: Sequence[Output]) -> Diagram:
    """A block's diagram: what it reads are readings of memory and states."""
    roots = [o.node for o in outputs]
    leaves = [n for n in postorder(roots) if n.op == "state" or is_read(n)]
    hints = {**kernel.names, **_hints(kernel, outputs)}
    return Diagram(kernel.name, tuple(leaves), tuple(outputs), names=hints)


def _hints(kernel: Kernel, outputs: Sequence[Output]) -> dict[Node, str]:
    """Names: O_x of what a chunk of x adds to O, p of exponentials of a chunk, and delta of those
    by which several states are rescaled."""
    stream, out = kernel.stream, dict[Node, str]()
    chunk = "_".join(stream.axes)
    uses = Counter(a for n in postorder(o.node for o in outputs) for a in n.args)
    for o in outputs:
        for n in postorder([o.node]):
            if n.op in REDUCTIONS and stream.carried(over(n)) and o.name.endswith("'"):
                out.setdefault(n, f"{o.name[:-1]}_{chunk}")
            elif n.op == "exp" and n not in kernel.names:
                if stream.carried(n.axes):
                    out[n] = "p"
                elif uses[n] > 1:
                    out[n] = "delta"
    return out
