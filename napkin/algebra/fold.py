"""Folds: what a streamed axis becomes.

A fold carries states over the chunks of its axis: init, step, merge and tail, each a term over
nodes, so that evaluation, laws, cost and kernels all read the same definition
(arXiv 2505.09326, Def. 1: B(f(x), y) = f(x (+) y), (+) joining along the axis).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from napkin.ir.node import Kind, Node, node, over, postorder

Tag = Literal["old", "new", "left", "right"]


def state_leaf(name: str, tag: Tag, axes: tuple[str, ...], kind: Kind) -> Node:
    """The value of a state before ("old") or after ("new") a step, or of one side of a merge."""
    return node("state", params=(name, tag), axes=axes, kind=kind)


@dataclass(frozen=True, eq=False)
class State:
    """One carried array.

    Attributes:
        name: unique in its kernel.
        init: the value before the first chunk.
        step: the new value, over the chunk, old states, and new states listed before.
        merge: the value for two joined parts, over left and right states; None where two parts
            cannot be joined.
        held: "fold" for the result of a reduction so far; "running" for one kept at the current
            value of other results and rescaled when they change; "carried" for a value kept only
            so that the next step can rescale from it; "stepped" for one of any step, whose chunks
            are single positions.
        begin: what a group of a part reads in the place of `init`; None where it begins with that.
    """

    name: str
    axes: tuple[str, ...]
    kind: Kind
    init: float
    step: Node
    merge: Node | None
    held: Literal["fold", "running", "carried", "stepped"]
    begin: Node | None = None

    @property
    def joined(self) -> Node:
        """The merge of a state that has one."""
        assert self.merge is not None, f"{self.name} is stepped: no two parts of it are joined"
        return self.merge

    def leaf(self, tag: Tag) -> Node:
        """The leaf that stands for this state."""
        return state_leaf(self.name, tag, self.axes, self.kind)


def begins(states: Iterable[State]) -> Iterator[Node]:
    """What states begin with that is read."""
    return (s.begin for s in states if s.begin is not None)


def needed(
    states: Sequence[State],
    terms: Iterable[Node],
    of: Callable[[State], Node] = lambda s: s.step,
) -> tuple[State, ...]:
    """The states that terms read, and those that terms of these read, and so on."""
    found, todo = set[str](), list(terms)
    while todo:
        more = {str(n.params[0]) for n in postorder(todo) if n.op == "state"} - found
        found |= more
        todo = [of(s) for s in states if s.name in more]
    return tuple(s for s in states if s.name in found)


@dataclass(frozen=True, eq=False)
class Emit:
    """An output that carries the streamed axis: `node` is stored chunk by chunk."""

    output: str
    node: Node


@dataclass(frozen=True, eq=False)
class Pass:
    """One loop over the axis: its states, and the outputs it stores as it goes."""

    states: tuple[State, ...]
    emits: tuple[Emit, ...]

    @property
    def terms(self) -> tuple[Node, ...]:
        """Every term that is computed in the loop, or before it as a state."""
        return (*begins(self.states), *self.computed)

    @property
    def computed(self) -> tuple[Node, ...]:
        """What every iteration computes: a step of each state, and what it stores."""
        return (*(s.step for s in self.states), *(e.node for e in self.emits))

    @property
    def stepped(self) -> bool:
        """Whether a chunk is a single position."""
        return any(s.held == "stepped" for s in self.states)


@dataclass(frozen=True, eq=False)
class Separation:
    """One use of the theorem, for the trail.

    Attributes:
        place: the reduction that was separated.
        body: its body g.
        parts: the pairs a_k, b_k as text.
        running, deferred: the results whose factors are rescaled at each step, or applied in the
            tail.
    """

    place: str
    body: str
    parts: tuple[tuple[str, str], ...]
    running: tuple[str, ...]
    deferred: tuple[str, ...]
    rescale: str = ""

    def __str__(self) -> str:
        form = " + ".join(f"[{a}] * [{b}]" if b != "1" else f"[{a}]" for a, b in self.parts)
        how: list[str] = []
        if self.running:
            how.append(f"running {', '.join(self.running)} (rescale {self.rescale})")
        if self.deferred:
            how.append(f"deferred {', '.join(self.deferred)}")
        return f"{self.body} = {form}" + (f"; {'; '.join(how)}" if how else "")


@dataclass(frozen=True)
class Twin:
    """A streamed axis under other names, for pairs of positions of one chunk.

    Attributes:
        axis: the streamed axis.
        name: its name for the later position of a pair.
        between: its name for a position between both.
        length: the positions of a chunk.
        rounded: whether operands of products are rounded to 16 bits.
    """

    axis: str
    name: str
    between: str
    length: int
    rounded: bool = False

    @property
    def names(self) -> tuple[str, str]:
        """The names beside its own."""
        return self.name, self.between


@dataclass(frozen=True, eq=False)
class Stream:
    """A term streamed along one axis, or along several that are always reduced together.

    Attributes:
        axes: the streamed axes: a chunk is a box of them. () where nothing is streamed.
        passes: the loops, one after another; final results of one are known to the next.
        tails: outputs that do not carry the axis, over final ("new") states.
        separations: how the states were found.
        twin: the other names of the axis, where positions of a chunk are paired.
        beside: states that no step and no output reads, but merges of others do: what parts are
            folded to beside.
    """

    axes: tuple[str, ...]
    passes: tuple[Pass, ...]
    tails: tuple[Emit, ...]
    separations: tuple[Separation, ...]
    twin: Twin | None = None
    beside: tuple[State, ...] = ()

    @property
    def axis(self) -> str:
        """The streamed axes in words, "" where nothing is streamed."""
        return " ".join(self.axes)

    def carried(self, axes: Iterable[str]) -> bool:
        """Whether an array with these axes differs from chunk to chunk."""
        return not self._own.isdisjoint(axes)

    @cached_property
    def _own(self) -> frozenset[str]:
        return frozenset(self.axes)

    def moves(self, n: Node) -> bool:
        """Whether a term changes from chunk to chunk, whatever it is computed of."""
        return n.op == "state" or self.carried((*n.axes, *over(n)))

    @property
    def states(self) -> tuple[State, ...]:
        """The states of all passes."""
        return tuple(s for p in self.passes for s in p.states)

    @property
    def emits(self) -> tuple[Emit, ...]:
        """What all passes store as they go."""
        return tuple(e for p in self.passes for e in p.emits)

    @property
    def terms(self) -> tuple[Node, ...]:
        """Every term that is computed: begins, steps, emits and tails."""
        steps = (s.step for s in self.states)
        return (*begins(self.states), *steps, *(e.node for e in (*self.emits, *self.tails)))
