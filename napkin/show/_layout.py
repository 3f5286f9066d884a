"""Where the wires of a neural circuit diagram run: lanes, blocks and columns, before any drawing.

An array is a bundle of wires, one per axis, that stays at one height as long as the array lives. An
operator is a block in the place of the arguments that end with it: the axes that it is weaved over
pass above, and the box below them holds the axes that it works along (arXiv 2412.03317, section 2:
weaving). Its result continues from the block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import cast

from napkin.diagram.columns import Stage, alive, stages
from napkin.diagram.diagram import Diagram
from napkin.ir.node import Node

LANE = 20
"""Between two wires of a bundle."""

GAP = 40
"""Between the last wire of an array and the first of the next."""

RULE = 24
"""How far above an array's first wire runs the dashed line that parts it from the one above."""

ITEM = ""
"""The lane of an array without axes: it has no wire of its own, but is there."""


@dataclass(frozen=True)
class Wire:
    """An argument's wire on its way into a block: to a lane above the box, or to a port of it."""

    source: Node
    axis: str
    lane: int


@dataclass(frozen=True, eq=False)
class Block:
    """One operator.

    Attributes:
        stage: what it does.
        passing: how many lanes run above the box.
        wires: what comes in, the wire that a lane continues before those that join it.
        ports: how many lanes the box covers.
        joined: wires that join a lane which another wire continues.
    """

    stage: Stage
    passing: int
    wires: tuple[Wire, ...]
    ports: int
    joined: tuple[Wire, ...]


@dataclass(frozen=True, eq=False)
class Layout:
    """Heights and order.

    Attributes:
        cuts: the arrays of every data column, from top to bottom.
        blocks: the operators between them.
        lanes: the wires of every array, from top to bottom.
        top: the height of the first wire of every array.
    """

    cuts: tuple[tuple[Node, ...], ...]
    blocks: tuple[Block, ...]
    lanes: Mapping[Node, tuple[str, ...]]
    top: Mapping[Node, int]

    def y(self, n: Node, lane: int) -> int:
        """The height of a lane of an array, or of the block that makes it."""
        return self.top[n] + lane * LANE

    def of(self, n: Node, axis: str) -> int:
        """The height of the wire of `axis`."""
        return self.y(n, self.lanes[n].index(axis))

    @property
    def foot(self) -> int:
        """The height of the lowest wire or port."""
        wires = [self.y(n, len(self.lanes[n]) - 1) for n in self.top]
        ports = [self.y(b.stage.node, b.passing + b.ports - 1) for b in self.blocks]
        return max([0, *wires, *ports])


def layout(diagram: Diagram) -> Layout:
    """The layout of `diagram`, composites as they are."""
    lanes: dict[Node, tuple[str, ...]] = {n: n.axes or (ITEM,) for n in diagram.inputs}
    blocks: list[Block] = []
    cuts = alive(diagram)
    for stage, cut in zip(stages(diagram), cuts, strict=False):
        # From top to bottom, not in the order of reading: fewer wires cross.
        args = [a for a in cut if a in stage.args]
        lanes[stage.node] = _lanes(stage, args, lanes)
        blocks.append(_block(stage, args, lanes))
    return Layout(cuts, tuple(blocks), lanes, _heights(cuts, blocks, lanes))


def _lanes(
    stage: Stage, args: Sequence[Node], lanes: Mapping[Node, tuple[str, ...]]
) -> tuple[str, ...]:
    # In the order of the arguments' wires, not of the memory, for the same reason. What comes out
    # of the box comes last, below the wires that pass above it.
    pairs = stage.node.params[0] if stage.op == "rename" else ()
    new = dict(cast("tuple[tuple[str, str], ...]", pairs))
    order = dict.fromkeys(new.get(axis, axis) for a in args for axis in lanes[a])
    order |= dict.fromkeys(stage.node.axes)
    kept = [axis for axis in order if axis in stage.node.axes]
    return tuple(sorted(kept, key=lambda axis: axis in stage.over)) or (ITEM,)


def _block(stage: Stage, args: Sequence[Node], lanes: Mapping[Node, tuple[str, ...]]) -> Block:
    out = lanes[stage.node]
    weaved = () if stage.op in {"pointwise", "rename"} else out
    above = [axis for axis in weaved if axis not in stage.over and axis != ITEM]
    wires: list[Wire] = []
    joined: list[Wire] = []
    ports = len(above)
    for a in args:
        for axis in lanes[a]:
            if axis in above:
                wire = Wire(a, axis, above.index(axis))
                taken = any(w.lane == wire.lane for w in wires)
                (joined if taken else wires).append(wire)
            else:
                wires.append(Wire(a, axis, ports))
                ports += 1
    ports = max(ports, len(out), len(above) + 1) - len(above)
    return Block(stage, len(above), tuple(wires), ports, tuple(joined))


def _heights(
    cuts: Sequence[Sequence[Node]],
    blocks: Sequence[Block],
    lanes: Mapping[Node, tuple[str, ...]],
) -> dict[Node, int]:
    """The least heights that keep every array and block clear of what stands above it.

    The order on each cut only ever loses and gains arrays, so the constraints have no cycle.
    """
    above: dict[Node, dict[Node, int]] = {n: {} for cut in cuts for n in cut}

    def below(upper: Node, lower: Node, distance: int) -> None:
        above[lower][upper] = max(above[lower].get(upper, 0), distance)

    for i, cut in enumerate(cuts):
        for upper, lower in pairwise(cut):
            below(upper, lower, (len(lanes[upper]) - 1) * LANE + GAP)
            if i and upper is blocks[i - 1].stage.node:
                made = blocks[i - 1]
                below(upper, lower, (made.passing + made.ports - 1) * LANE + GAP)
        if i:
            made = blocks[i - 1].stage
            ending = [a for a in cuts[i - 1] if a in made.args and a not in cut]
            if ending:
                below(ending[0], made.node, 0)
    top: dict[Node, int] = {}
    for n in TopologicalSorter(above).static_order():
        top[n] = max([0, *(top[upper] + distance for upper, distance in above[n].items())])
    return top
