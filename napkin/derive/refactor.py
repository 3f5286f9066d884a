"""Refactoring: the same values in another order, which may be cheaper, as sizes are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from itertools import islice

from napkin.derive.rules.rule import Instance, Rule
from napkin.derive.rules.table import ADDED, TABLE
from napkin.diagram.interface import Output
from napkin.ir.listing import text
from napkin.ir.node import Node, postorder
from napkin.ir.rewrite import substitute

MOST = 4
"""Instances in one term that are tried, of the rules of napkin and of those that were added."""


@dataclass(frozen=True, eq=False)
class Refactored:
    """A term in which one node has another form: the outputs, names, and sizes of axes that got a
    new name.

    Attributes:
        place: the node's name.
        law: the equation that was used, in words.
        same_size: new axis to the axis whose size it has.
    """

    outputs: tuple[Output, ...]
    names: Mapping[Node, str]
    place: str
    law: str
    same_size: Mapping[str, str]


def refactorings(outputs: Sequence[Output], names: Mapping[Node, str]) -> Iterator[Refactored]:
    """The terms of `outputs` with one instance of a rule whose terms are weighed, each in turn."""
    roots = [o.node for o in outputs]
    for rules in (TABLE.values(), ADDED.values()):
        for rule, found in islice(_instances(roots, rules), MOST):
            yield _refactored(rule, found, outputs, names)


def _instances(roots: Sequence[Node], rules: Iterable[Rule]) -> Iterator[tuple[Rule, Instance]]:
    """The instances of rules, in the order of the nodes that they rewrite."""
    at = {n: i for i, n in enumerate(postorder(roots))}

    def of(rule: Rule) -> Iterator[tuple[Rule, Instance]]:
        return ((rule, found) for found in rule.matches(roots))

    each = [of(rule) for rule in rules if rule.alternative]
    return merge(*each, key=lambda pair: at[pair[1].sides()[0][0]])


def _refactored(
    rule: Rule, found: Instance, outputs: Sequence[Output], names: Mapping[Node, str]
) -> Refactored:
    (n,), new = found.sides()[0], rule.apply(found)
    done = substitute([o.node for o in outputs], {n: new})
    results = tuple(replace(o, node=done[o.node]) for o in outputs)
    known = {done.get(m, m): t for m, t in names.items()}
    kept = {m: known[m] for m in postorder(o.node for o in results) if m in known}
    left = {*postorder([n])} - {*postorder([new])}
    others = {m: t for m, t in names.items() if m not in left}
    law = f"{text(n, others)} = {text(new, others)}"
    return Refactored(results, kept, names.get(n, n.op), law, found.same_size)
