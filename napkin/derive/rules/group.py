"""Groups of weaved axes, and the sizes of groups and chunks."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace

import numpy as np

from napkin.algebra.law import chunk_of
from napkin.algebra.law_points import Point, scalars_of
from napkin.algebra.relabel import Labels, Move, Relabel, listed
from napkin.algebra.rule import Instance, Rule, between
from napkin.derive.kernel import leaves
from napkin.derive.label import weaved
from napkin.diagram.interface import Output
from napkin.ir.evaluate import Array, evaluate


def _groups(outputs: Sequence[Output], among: Container[str] | None = None) -> Iterator[Instance]:
    """The axes that terms are weaved over: all, or those `among` some."""
    roots = [o.node for o in outputs]
    for axis in (a for a in weaved(outputs) if among is None or a in among):
        own = [n for n in roots if axis in n.axes]
        yield Instance(axis, axis, between(own, own))


def _in_groups(found: Instance, point: Point) -> Iterator[tuple[str, list[Array]]]:
    """The terms on groups of one position."""
    axis, (roots, _) = found.where, found.sides()
    bind = point.bound(leaves(roots))
    boxes = [{axis: range(i, i + 1)} for i in range(point.sizes[axis])]
    each = [evaluate(roots, chunk_of(bind, b), point.sizes, scalars_of(roots), b) for b in boxes]
    pairs = zip(roots, zip(*each, strict=True), strict=True)
    yield f"{axis} in groups of 1", [np.concatenate(v, n.axes.index(axis)) for n, v in pairs]


GROUP = Rule(
    "group",
    "t(q) = t(q_g) for each group q_g of q: groups run side by side",
    _groups,
    ("every term carries q, or does not depend on it",),
    empty=False,
    relabel=listed("group", lambda m: (m.argument, None)),
    ways=_in_groups,
)


def _tiles(labels: Labels) -> Iterator[Instance]:
    """The axes that are cut, whose groups or chunks have a size."""
    for axis in (*(a for a, _ in labels.group), *labels.stream.split()):
        yield Instance(axis, axis)


def _tile(labels: Labels, m: Move) -> Labels:
    if m.argument in labels.stream.split():
        chunk = {**dict(labels.chunk), m.argument: m.value}
        return replace(labels, chunk=tuple((a, n) for a, n in chunk.items() if n is not None))
    group = tuple((a, m.value if a == m.argument else n) for a, n in labels.group)
    return replace(labels, group=group)


TILE = Rule(
    "tile",
    "groups of n positions = groups of m, chunks of n = chunks of m",
    _tiles,
    ("the axis is grouped or streamed",),
    relabel=Relabel(_tile, lambda labels, m: _tile(labels, replace(m, value=None))),
)
"""The laws of groups and of streams hold at every cut, so that theirs verify it."""
