"""The loop program: where each term of a kernel is computed, and on which tile.

Tiles have one dimension per class of axes: axes that every value of the kernel carries together
(query heads and queries in grouped-query attention) share one dimension. Axes with tile size 1
are scalars of the program instance and have no dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from napkin.derive.kernel import Kernel, is_read
from napkin.diagram.node import REDUCTIONS, SCANS, Node, node, over, postorder
from napkin.lower.masks import masked


@dataclass(frozen=True, eq=False)
class Loop:
    """One pass over the streamed axis, with masked steps.

    Attributes:
        steps: state name to its new value, in order.
        emits: output name to the value stored at each chunk.
    """

    steps: Mapping[str, Node]
    emits: Mapping[str, Node]


@dataclass(frozen=True, eq=False)
class Program:
    """A kernel with tile sizes.

    Attributes:
        kernel: the labelled kernel.
        tiles: values of each axis that one tile holds, a power of two; axes at 1 are scalars.
        dims: the classes of axes, in the order of tile dimensions.
        loops: the passes.
        tails: outputs computed after the loops.
    """

    kernel: Kernel
    tiles: Mapping[str, int]
    dims: tuple[tuple[str, ...], ...]
    loops: tuple[Loop, ...]
    tails: Mapping[str, Node]
    constants: tuple[Node, ...] = field(default=())

    def shape(self, n: Node) -> tuple[int, ...]:
        """Indices of the tile dimensions that `n` has."""
        return self.shape_of(n.axes)

    def shape_of(self, axes: Sequence[str]) -> tuple[int, ...]:
        """Indices of the tile dimensions that arrays with these axes have."""
        return tuple(i for i, group in enumerate(self.dims) if any(a in axes for a in group))

    def span(self, dims: Iterable[int]) -> int:
        """Values of a tile with these dimensions."""
        return math.prod(self.extent(d) for d in dims)

    def extent(self, dim: int) -> int:
        """Values along one tile dimension."""
        return math.prod(self.tiles[a] for a in self.dims[dim])

    @property
    def roots(self) -> tuple[Node, ...]:
        """Every term that the program computes."""
        inside = [n for loop in self.loops for n in (*loop.steps.values(), *loop.emits.values())]
        return (*inside, *self.tails.values())


def build(kernel: Kernel, tiles: Mapping[str, int]) -> Program:
    """The loop program of a kernel for given tile sizes."""
    tiled = [a for a in kernel.axes if tiles[a] > 1]
    done = masked(kernel.terms, tiled)
    s = kernel.stream
    loops = tuple(
        Loop(
            {x.name: done[x.step] for x in p.states},
            {e.output: done[e.node] for e in p.emits},
        )
        for p in s.passes
    )
    tails = {e.output: done[e.node] for e in s.tails}
    roots = [n for loop in loops for n in (*loop.steps.values(), *loop.emits.values())]
    roots += tails.values()
    constants = tuple(_constants(roots))
    return Program(
        kernel,
        dict(tiles),
        _classes(kernel, tiled, list(postorder(roots))),
        loops,
        tails,
        constants,
    )


def _constants(roots: list[Node]) -> list[Node]:
    """Expressions over sizes and user scalars that the launcher computes."""
    found: dict[Node, None] = {}
    for n in postorder(roots):
        if n.constant:
            continue
        for a in n.args:
            if a.constant and a.op not in {"number", "size"} and not is_read(n):
                found[a] = None
    for n in roots:
        if n.constant and n.op not in {"number", "size"}:
            found[n] = None
    return list(found)


def _classes(kernel: Kernel, tiled: list[str], order: list[Node]) -> tuple[tuple[str, ...], ...]:
    carried = [frozenset(n.axes) for n in order if n.axes]
    carried += [frozenset(over(n)) for n in order if n.op in REDUCTIONS or n.op in SCANS]
    sequence = _memory_order(kernel, tiled)
    classes: list[list[str]] = []
    for axis in sequence:
        for group in classes:
            together = all((axis in c) == (group[0] in c) for c in carried)
            # A streamed axis keeps its own dimension unless it is chunked beside whole axes.
            if together and _role(kernel, axis) == _role(kernel, group[0]):
                group.append(axis)
                break
        else:
            classes.append([axis])
    return tuple(tuple(g) for g in classes)


def _role(kernel: Kernel, axis: str) -> str:
    if axis in kernel.group:
        return "group"
    return "stream" if axis == kernel.stream.axis else "whole"


def _memory_order(kernel: Kernel, tiled: list[str]) -> list[str]:
    """Axes so that every tensor's own order is kept where possible: the last stays contiguous."""
    orders = [a.leaf.axes for a in kernel.reads] + [o.axes for o in kernel.outputs]
    after: dict[str, set[str]] = {a: set() for a in tiled}
    for axes in orders:
        held = [a for a in axes if a in after]
        for i, a in enumerate(held):
            after[a] |= {b for b in held[i + 1 :] if a not in after[b]}
    out: list[str] = []
    left = list(tiled)
    while left:
        ready = [a for a in left if not any(a in after[b] for b in left if b != a)]
        chosen = (ready or left)[0]
        out.append(chosen)
        left.remove(chosen)
    return out


def size_node(axis: str) -> Node:
    """The leaf for the size of an axis."""
    return node("size", params=(axis,), kind="int")
