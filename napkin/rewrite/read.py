"""Tensors in memory read at their positions and slots."""

from __future__ import annotations

from napkin.algebra.rule import node_rule
from napkin.ir.node import Node
from napkin.ir.slotted import read_inputs
from napkin.ir.taking import read_table


def read(old: Node, args: tuple[Node, ...]) -> Node | None:
    """For `rewrite`: a take or a spread of a tensor as a reading of it."""
    return read_table(old, args) or read_inputs(old, args)


READ = node_rule(
    "read where values lie",
    "take(T, p) = T at p, spread(T, keys) = T at its slots",
    lambda _: read,
    ("T is read from memory",),
    infinite=True,
)
