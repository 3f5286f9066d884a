"""Groups of weaved axes, and the sizes of groups and chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from napkin.derive.kernel import leaves, weaved
from napkin.derive.labels import Labels, Move, Relabel
from napkin.derive.law import chunk_of
from napkin.derive.rules.points import points, scalars_of
from napkin.derive.rules.rule import Instance, LawError, Rule, agree, verifying
from napkin.diagram.diagram import Output
from napkin.diagram.evaluate import evaluate
from napkin.diagram.node import Node


def _groups(outputs: Sequence[Output]) -> Iterator[Instance]:
    """The axes that terms are weaved over."""
    roots = [o.node for o in outputs]
    for axis in weaved(outputs):
        yield Instance(axis, axis, of=roots)


def _verified(rule: Rule, found: Instance) -> None:
    """Compare the terms on groups of one position with their values on the whole.

    Raises:
        LawError: a position of one differs.
    """
    if not verifying():
        return
    axis: str = found.made
    roots: list[Node] = [n for n in found.of if axis in n.axes]
    read, scalars = leaves(roots), scalars_of(roots)
    for point in points(roots, {}, (), rule.empty, rule.infinite):
        if point.exact:
            continue
        bind, whole = dict(zip(read, point.values(read), strict=True)), point.values(roots)
        for i in range(point.sizes[axis]):
            box = {axis: range(i, i + 1)}
            values = evaluate(roots, chunk_of(bind, box), point.sizes, scalars, box)
            for n, value, every in zip(roots, values, whole, strict=True):
                wanted = every.take(range(i, i + 1), axis=n.axes.index(axis))
                if not agree(value, wanted, point, n):
                    raise LawError(
                        f"rule {rule.name!r} broke its law, {rule.law}: {axis}={i} at {point}:\n"
                        f"{wanted} is\n{value}"
                    )


def _group(labels: Labels, m: Move) -> Labels:
    return replace(labels, group=(*labels.group, (m.argument, None)))


def _ungroup(labels: Labels, m: Move) -> Labels:
    return replace(labels, group=tuple(g for g in labels.group if g[0] != m.argument))


GROUP = Rule(
    "group",
    "t(q) = t(q_g) for each group q_g of q: groups run side by side",
    _groups,
    ("every term carries q, or does not depend on it",),
    relabel=Relabel(_group, _ungroup),
    check=_verified,
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


def _untile(labels: Labels, m: Move) -> Labels:
    return _tile(labels, replace(m, value=None))


TILE = Rule(
    "tile",
    "groups of n positions = groups of m, chunks of n = chunks of m",
    _tiles,
    ("the axis is grouped or streamed",),
    relabel=Relabel(_tile, _untile),
)
"""The laws of groups and of streams hold at every cut, so that theirs verify it."""
