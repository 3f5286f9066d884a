"""Refactoring: the same values in another order, which may be cheaper, as sizes are."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter

from napkin.algebra.rule import Instance, Rule
from napkin.algebra.tracer import active, tracing
from napkin.derive.rules.table import ADDED, TABLE
from napkin.diagram.interface import Output
from napkin.ir.listing import text
from napkin.ir.names import with_named
from napkin.ir.node import Node, over, postorder
from napkin.ir.rewrite import substitute
from napkin.rewrite.order import ORDERED, far

MOST = 4
"""Nodes of one term that are rewritten, by the rules of napkin and by those that were added."""

EVERY = 64
"""Nodes of one kind that are rewritten together."""

CHEAP = "what it takes away has next to no part in the time of the last cut"
FURTHER = f"the search is bounded: the first {MOST} nodes are rewritten for which that may pay"
"""Why rewrites are not tried."""

Operators = tuple[tuple[str, tuple[str, ...]], ...]
"""Reductions, each with the axes of its result."""


@dataclass(frozen=True, eq=False)
class Refactored:
    """A term in which one node has another form: the outputs, names, and sizes of axes that got a
    new name.

    Attributes:
        at: that node.
        made: that form.
        place: the node's name.
        law: the equation that was used, in words.
        same_size: new axis to the axes whose size it has (`napkin.ir.names.with_named`).
        kind: the rule, and the reductions that it takes away and adds: equal for one rewrite of
            every layer of a stack.
    """

    outputs: tuple[Output, ...]
    names: Mapping[Node, str]
    at: Node
    made: Node
    place: str
    law: str
    same_size: Mapping[str, str]
    kind: tuple[str, Operators, Operators]


def refactorings(
    outputs: Sequence[Output],
    names: Mapping[Node, str],
    sizes: Mapping[str, int],
    done: Container[Node] = (),
    pays: Callable[[Node, Node], bool] | None = None,
) -> Iterator[Refactored]:
    """The terms of `outputs` with one instance of a rule whose terms are weighed, each in turn.

    Args:
        sizes: of every axis.
        done: nodes that are left as they are.
        pays: whether it may pay that one node becomes another; by default it may wherever it can.
    """
    roots = [o.node for o in outputs]
    for rules in (TABLE.values(), ADDED.values()):
        for rule, found in _instances(roots, names, rules, sizes, done, pays):
            yield _refactored(rule, found, outputs, names)


def in_near_orders(
    outputs: Sequence[Output], names: Mapping[Node, str], sizes: Mapping[str, int]
) -> Iterator[Refactored]:
    """The rewrites, each of the term before, that give contractions their least order whose own
    cost far more (`napkin.rewrite.order.FAR`)."""
    for _ in range(EVERY):
        found = next(far([o.node for o in outputs], sizes), None)
        if found is None:
            return
        made = _refactored(ORDERED, found, outputs, names)
        outputs, names = made.outputs, made.names
        sizes = with_named(sizes, made.same_size)
        yield made


def everywhere(
    first: Refactored,
    before: Sequence[Output],
    sizes: Mapping[str, int],
    done: Set[Node] = frozenset(),
) -> list[Refactored]:
    """A rewrite, and after it those of its kind at the other nodes, each of the term before.

    All are found in one term, and name the axes that they add alike. So kernels of what they make
    are alike.

    Args:
        before: the term that the first is of.
        sizes: of every axis of that.
        done: nodes that are left as they are.
    """
    rule, own, alike = (TABLE | ADDED)[first.kind[0]], _of(first.at), dict[Node, Instance]()
    with tracing():  # who traces was told of those left out as the first was found
        for found in rule.matches([o.node for o in before], sizes):
            (n,), _ = found.sides()
            left = n not in done and n not in alike and n is not first.at
            if left and _of(n) == own and _kind(rule, found) == first.kind:
                alike[n] = found
    made, change = [first], {first.at: first.made}
    left = [(n, rule.apply(found), found) for n, found in islice(alike.items(), EVERY - 1)]
    while left:
        image = substitute([x for n, new, _ in left for x in (n, new)], change)
        (n, new, found), *left = [(image[n], image[new], found) for n, new, found in left]
        change = {n: new}
        if n in set(postorder(o.node for o in made[-1].outputs)):
            made.append(_replaced(rule, found, n, new, made[-1].outputs, made[-1].names))
    return made


def _of(n: Node) -> tuple[str, tuple[str, ...]]:
    return n.op, n.axes


def _kind(rule: Rule, found: Instance) -> tuple[str, Operators, Operators]:
    """The kind of a rewrite (`Refactored.kind`)."""
    before, after = (list(postorder(side)) for side in found.sides())
    kept = {*before}.intersection(after)
    taken, added = (
        tuple(_of(n) for n in side if over(n) and n not in kept) for side in (before, after)
    )
    return rule.name, taken, added


def _instances(
    roots: Sequence[Node],
    names: Mapping[Node, str],
    rules: Iterable[Rule],
    sizes: Mapping[str, int],
    done: Container[Node],
    pays: Callable[[Node, Node], bool] | None,
) -> Iterator[tuple[Rule, Instance]]:
    """The instances of rules at the first nodes that they rewrite and where that may pay."""
    at = {n: i for i, n in enumerate(postorder(roots))}

    def of(rule: Rule) -> Iterator[tuple[int, Rule, Instance]]:
        for found in rule.matches(roots, sizes):
            (n,), (new,) = found.sides()
            if n in done:
                continue
            if pays is None or pays(n, new):
                yield at[n], rule, found
            else:
                _tell_left(_law(n, new, names), CHEAP)

    each = [of(rule) for rule in rules if rule.alternative]
    places = groupby(merge(*each, key=itemgetter(0)), key=itemgetter(0))
    for _, found in islice(places, MOST):
        yield from ((rule, instance) for _, rule, instance in found)
    if active() is not None and next(places, None) is not None:
        _tell_left("rewrites of further nodes", FURTHER)


def _law(n: Node, new: Node, names: Mapping[Node, str]) -> str:
    """A rewrite as an equation."""
    left = {*postorder([n])} - {*postorder([new])}
    others = {m: t for m, t in names.items() if m not in left}
    return f"{text(n, others)} = {text(new, others)}"


def _tell_left(law: str, why: str) -> None:
    """Report a rewrite that is not tried."""
    if (tracer := active()) is not None:
        tracer.dropped("term", law, why)


def _refactored(
    rule: Rule, found: Instance, outputs: Sequence[Output], names: Mapping[Node, str]
) -> Refactored:
    (n,), new = found.sides()[0], rule.apply(found)
    return _replaced(rule, found, n, new, outputs, names)


def _replaced(
    rule: Rule,
    found: Instance,
    n: Node,
    new: Node,
    outputs: Sequence[Output],
    names: Mapping[Node, str],
) -> Refactored:
    """A term with a node in another form, which an instance gives there or where it was found."""
    done = substitute([o.node for o in outputs], {n: new})
    results = tuple(replace(o, node=done[o.node]) for o in outputs)
    known = {done.get(m, m): t for m, t in names.items()}
    kept = {m: known[m] for m in postorder(o.node for o in results) if m in known}
    law, kind = _law(n, new, names), _kind(rule, found)
    return Refactored(results, kept, n, new, names.get(n, n.op), law, found.same_size, kind)
