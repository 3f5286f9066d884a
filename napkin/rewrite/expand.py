"""Composites, renames and takes as what they stand for (`napkin.ir.expansion`)."""

from __future__ import annotations

from napkin.algebra.relabel import listed
from napkin.algebra.rule import node_rule
from napkin.ir.expansion import opened

EXPANDED = node_rule(
    "expand",
    "softmax, logsumexp, mean, renames and takes = what they stand for",
    lambda _: opened,
    ("a maximum starts at the lowest finite number", "a sum of 0 divides as 1"),
    infinite=True,
    relabel=listed("expanded"),
)
