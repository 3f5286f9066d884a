"""`nk.rule`: rewrite rules that users add, each in one file outside the package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from napkin.algebra.rule import Instance, LawError, Rule, hold_terms, one_node
from napkin.derive.prepare import prepare
from napkin.derive.rules.table import ADDED, TABLE
from napkin.diagram import library
from napkin.diagram.diagram import Diagram
from napkin.errors import InputError
from napkin.ir.array import Array
from napkin.ir.expansion import expanded
from napkin.ir.listing import text
from napkin.ir.node import Node, postorder
from napkin.ir.whole_numbers import flag

ENOUGH = 8
"""Instances at which the law of a new rule is evaluated, at most."""


def rule(
    *,
    name: str,
    law: str,
    matches: Callable[[Node], Sequence[object] | None],
    apply: Callable[..., Array],
    provided: Sequence[str] = (),
    examples: Sequence[Diagram] | None = None,
    empty: bool = True,
) -> Rule:
    """Add a rewrite rule: the planner weighs every term with it beside the term as it was, and
    keeps the faster by its prediction.

    Args:
        name: its name, by which moves, explanations and errors call it. Another rule of that name
            which was added before is replaced.
        law: the equation, left side first.
        matches: given a term, what `apply` needs, or None where the rule does not apply. A term
            has `op`, `args` (terms), `axes` and `params`: those of a reduction begin with the axes
            that it removes. Composites are opened by then, as `napkin explain` shows.
        apply: given what `matches` found, its terms as arrays, the term in its place, written as
            in a diagram.
        provided: side conditions, in words; `matches` checks them.
        examples: diagrams in which the rule applies, for its law; by default those of napkin.
        empty: whether the law holds along axes without positions.

    Raises:
        InputError: napkin has a rule of that name, no example has an instance, an instance has
            other axes or items than its term, or the law fails at a point, which is shown.
    """
    if isinstance(examples, Diagram):
        raise InputError(f"rule {name!r}: examples are a list, as in [{examples.name}]")
    if name in TABLE:
        raise InputError(f"rule {name!r}: napkin has a rule of that name; choose another")
    empty = flag(empty, f"rule {name!r}: empty")
    made = Rule(
        name, law, _matching(name, matches, apply), tuple(provided), empty=empty, alternative=True
    )
    _check_law(made, examples)
    ADDED[name] = made
    return made


def _matching(
    name: str, matches: Callable[[Node], Sequence[object] | None], apply: Callable[..., Array]
) -> Callable[[Sequence[Node], Mapping[str, int]], Iterator[Instance]]:
    """The `matches` of a rule, given those of one term and what is put in its place."""

    def everywhere(terms: Sequence[Node], _: Mapping[str, int]) -> Iterator[Instance]:
        for n in postorder(terms):
            found = matches(n)
            if found is not None:
                if not isinstance(found, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
                    raise InputError(
                        f"rule {name!r}: matches gave {found!r}; return what apply needs in a list,"
                        " or None"
                    )
                arrays = (Array(x) if isinstance(x, Node) else x for x in found)
                yield one_node(n, _checked(name, n, apply(*arrays)))

    return everywhere


def _checked(name: str, n: Node, made: Any) -> Node:
    """The term in place of another, without composites.

    Raises:
        InputError: it is none, or has other axes or items.
    """
    if not isinstance(made, Array):
        raise InputError(f"rule {name!r}: apply gave {made!r}; return an array of the diagram")
    new = expanded([made.node])[made.node]
    if set(new.axes) != set(n.axes) or new.kind != n.kind:
        raise InputError(
            f"rule {name!r}: apply gave {text(new, {})} [{' '.join(new.axes)}] of {new.kind} items "
            f"for {text(n, {})} [{' '.join(n.axes)}] of {n.kind} items; both need the same"
        )
    return new


def _check_law(rule: Rule, examples: Sequence[Diagram] | None) -> None:
    """Evaluate both sides of the law at instances in examples.

    Raises:
        InputError: there is none, or the sides differ at a point.
    """
    tried = 0
    for diagram in examples if examples is not None else map(library.load, library.names()):
        for found in rule.matches([o.node for o in prepare(diagram).outputs], {}):
            try:
                hold_terms(rule, *found.sides(), found)
            except LawError as why:
                raise InputError(str(why)) from None
            tried += 1
            if tried == ENOUGH:
                return
    if not tried:
        where = "of napkin" if examples is None else "among the examples"
        raise InputError(
            f"rule {rule.name!r}: it applies in no diagram {where}; give examples=[diagram] in "
            "which it does"
        )
