"""What can be read off a diagram: its inputs, outputs, axes and key sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from napkin.diagram.signature import Shape, Signature
from napkin.ir.key_sets import spec_of
from napkin.ir.node import MOVES, Node, names_of, postorder, within
from napkin.ir.sliding import slides_of
from napkin.ir.slots import slots_of
from napkin.ir.storage import own_type
from napkin.ir.windows import Slide


def of_one_size(nodes: Iterable[Node]) -> Iterator[tuple[str, str]]:
    """Pairs of axes that have one size, because an array is read under both names, or because the
    queries and keys of a set lie alike."""
    for n in nodes:
        yield from names_of(n) if n.op == "rename" else spec_of(n).tied if n.op == "keys" else ()


@dataclass(frozen=True, eq=False)
class Output:
    """One result: its name, its node, and the order of its axes in memory; and whether it is to be
    rounded as it is written, since other kernels compute the same terms and compare them."""

    name: str
    node: Node
    axes: tuple[str, ...]
    as_written: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Interface:
    """Inputs and outputs of a term, and what follows from them.

    Attributes:
        name: the function's name.
        inputs: the input leaves, in the order of the call.
        outputs: the results.
        scalars: user scalars (a softcap, an epsilon) with their default values.
        names: what the function called its arrays; for listings and kernels only.
        sizes: default axis sizes, so that a shipped diagram runs without arguments.
        windows: those that sizes follow from beside the windows that arrays are read in: a gradient
            may read none.
        said: sizes as `counted` has them, of axes whose windows or slots a gradient does not read.
        alike: axes of one size, as `same_size` has them, under whose names a gradient reads no
            array.
    """

    name: str
    inputs: tuple[Node, ...]
    outputs: tuple[Output, ...]
    scalars: Mapping[str, float] = field(default_factory=dict[str, float])
    names: Mapping[Node, str] = field(default_factory=dict[Node, str])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    doc: str = ""
    windows: tuple[Slide, ...] = ()
    said: Mapping[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])
    alike: tuple[tuple[str, str], ...] = ()

    @property
    def signature(self) -> Signature:
        """The shapes of inputs and outputs."""
        return Signature(
            tuple(Shape(n.axes, n.kind, own_type(n)) for n in self.inputs),
            tuple(Shape(o.axes, o.node.kind) for o in self.outputs),
        )

    @property
    def roots(self) -> tuple[Node, ...]:
        """The nodes of the outputs."""
        return tuple(o.node for o in self.outputs)

    @property
    def input_names(self) -> list[str]:
        """What the inputs are called, in the order of the call."""
        return [str(n.params[0]) for n in self.inputs]

    @property
    def axes(self) -> tuple[str, ...]:
        """Every axis of the diagram, in order of first appearance."""
        every = [a for n in self.inputs for a in n.axes]
        every += [a for n in within(self.roots) for a in n.axes]
        return tuple(dict.fromkeys(every))

    @property
    def key_sets(self) -> tuple[Node, ...]:
        """The nodes of the key sets that the diagram uses."""
        return tuple(n for n in postorder(self.roots) if n.op == "keys")

    @property
    def takes(self) -> tuple[Node, ...]:
        """The readings at computed positions."""
        return tuple(n for n in postorder(self.roots) if n.op == "take")

    @property
    def slides(self) -> tuple[Slide, ...]:
        """The windows that sizes follow from, each once."""
        known = {*self.axes, *(s.tap for s in self.windows if s.span.window)}
        kept = (s for s in self.windows if {s.axis, s.out, s.tap} <= known)
        return tuple(dict.fromkeys((*kept, *slides_of(self.takes))))

    @property
    def counted(self) -> dict[str, tuple[int, str]]:
        """Axes whose size the diagram says, the slots of key sets and the taps of windows: the size
        of each, and the reason."""
        out = dict(self.said)
        for n in postorder(self.roots):
            if n.op in MOVES:
                s, text = slots_of(n), spec_of(n.args[1]).text
                for axis, count in zip(s.slots, s.counts, strict=True):
                    reason = f"{axis} is the slots of {text}, which has {count}"
                    out.setdefault(axis, (count, reason))
        for s in self.slides:
            if window := s.span.window:
                reason = f"{self.name} slides a window of {window} along {s.axis}"
                out.setdefault(s.tap, (window, reason))
        return out

    @cached_property
    def same_size(self) -> dict[str, str]:
        """Axes whose size is another axis's, because an array is read under both names."""
        table: dict[str, str] = {}

        def root(axis: str) -> str:
            while axis in table:
                axis = table[axis]
            return axis

        known = {*self.axes} if self.alike else set[str]()
        kept = ((a, b) for a, b in self.alike if {a, b} <= known)
        for old, new in (*of_one_size(within(self.roots)), *kept):
            if root(old) != root(new):
                table[root(new)] = root(old)
        return {axis: root(axis) for axis in table}

    def sized_as(self, axis: str) -> str:
        """The name that stands for all axes of the size of an axis, as `same_size` has it."""
        return self.same_size.get(axis, axis)
