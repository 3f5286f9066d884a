"""Composites, renames and takes as what they stand for (`napkin.ir.expansion`)."""

from __future__ import annotations

from dataclasses import replace

from napkin.derive.relabel import Labels, Move, Relabel
from napkin.derive.rules.rule import node_rule
from napkin.ir.expansion import opened


def _expand(labels: Labels, m: Move) -> Labels:
    return replace(labels, expanded=(*labels.expanded, m.argument))


def _unexpand(labels: Labels, m: Move) -> Labels:
    return replace(labels, expanded=tuple(e for e in labels.expanded if e != m.argument))


EXPANDED = node_rule(
    "expand",
    "softmax, logsumexp, mean, renames and takes = what they stand for",
    lambda _: opened,
    ("a maximum starts at the lowest finite number", "a sum of 0 divides as 1"),
    infinite=True,
    relabel=Relabel(_expand, _unexpand),
)
