"""The steps that label and tile a kernel of a plan."""

from __future__ import annotations

from napkin.algebra.relabel import Move
from napkin.moves.derivation import divisions, separations
from napkin.settings.choice import Choice

OF_THE_WHOLE = frozenset({"expand", "bound", "refactor", "materialise"})
"""Moves on the diagram, and on no kernel of it: a kernel that is the whole diagram has its name."""


def kernel_moves(choice: Choice) -> list[Move]:
    """The moves that label a kernel and tile it."""
    kernel = choice.kernel
    moves = list(divisions(kernel))
    axis = kernel.stream.axis
    if axis and not kernel.merges:
        passes = len(kernel.stream.passes)
        moves.append(Move("stream", kernel.name, axis, None if passes == 1 else passes))
        moves += separations(kernel)
    if twin := kernel.stream.twin:
        moves.append(Move("pair", kernel.name, twin.axis, twin.length))
    if kernel.ahead:
        moves.append(Move("ahead", kernel.name, axis))
    elif kernel.part:
        rule = "scan_parts" if kernel.unit else "part"
        moves.append(Move(rule, kernel.name, axis, choice.sizes[kernel.part]))
    if kernel.partial and kernel.blocks:
        moves += [Move("block", kernel.name, b.axis, b.step) for b in kernel.blocks]
    if kernel.merges and axis:
        moves.append(Move("merge" if kernel.stream.tails else "scan_parts", kernel.name, axis))
    if kernel.merges and not axis:
        moves += [Move("resume", kernel.name, b.axis, b.step) for b in kernel.blocks]
    moves += [Move("accumulate", kernel.name, o) for o in kernel.added]
    groups = [a for a in kernel.group if a != kernel.part]
    moves += [Move("group", kernel.name, a) for a in groups]
    merged = {kernel.merges} & kernel.single
    tiled = (*groups, *(a for a in kernel.stream.axes if a not in merged))
    moves += [Move("tile", kernel.name, a, choice.schedule.tiles[a]) for a in tiled]
    return moves
