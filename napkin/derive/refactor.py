"""Refactoring: the same values in another order, which may be cheaper, as sizes are.

sum_x (sum_d A B) C = sum_d A (sum_x B C), where only B and C carry x: both sides are the same
linear map. Linear attention is the known case: (Q K^T) V against Q (K^T V). The bound axis d takes
a new name if C carries one like it.

sum_{n d} A = sum_n sum_d A, and so of max, min and prod: on the right the positions of n are summed
by groups of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from napkin.derive.rules.rule import Rule, verified
from napkin.derive.terms import in_float32, is_count
from napkin.diagram.diagram import Output
from napkin.diagram.expand import sunk
from napkin.diagram.infer import along, pointwise
from napkin.diagram.listing import text
from napkin.diagram.node import REDUCTIONS, Node, factors, over, postorder, substitute
from napkin.diagram.taking import slides

TURNED = Rule(
    "swap sums",
    "sum_x (sum_d A B) C = sum_d A (sum_x B C)",
    (
        "A does not carry x",
        "one occurrence of the inner sum is opened, and others stay among C",
        "d is renamed where C or the result carries an axis of its name",
    ),
)
NESTED = Rule(
    "nest reductions",
    "sum_{n d} A = sum_n sum_d A, and so of max, min and prod",
    ("every reduction starts from the same value", "axes are no taps of windows"),
    infinite=True,
)
MOST = 4
"""Contractions of one diagram that are tried the other way round."""


@dataclass(frozen=True, eq=False)
class Refactored:
    """One reduction in another order: the outputs, names, and sizes of axes that got a new name.

    Attributes:
        place: the reduction's name.
        law: the equation that was used, in words.
        same_size: new axis to the axis whose size it has.
    """

    outputs: tuple[Output, ...]
    names: Mapping[Node, str]
    place: str
    law: str
    same_size: Mapping[str, str]


def refactorings(outputs: Sequence[Output], names: Mapping[Node, str]) -> Iterator[Refactored]:
    """The terms of `outputs` with one contraction of a contraction turned, or one reduction over
    several axes nested, each way in turn."""
    order = list(postorder(o.node for o in outputs))
    every = set(order)
    taken = {a for n in order for a in n.axes}
    taps = {s.tap for n in order if n.op == "input" for s in slides(n)}
    found = 0
    for n in order:
        if n.op not in REDUCTIONS:
            continue
        inner = _inner(n) if n.op == "sum" and n.args[0].op == "mul" else None
        turned = _turned(n, inner, taken) if inner else _nested(n, taps, in_float32(n) in every)
        if turned is None:
            continue
        found += 1
        if found > MOST:
            return
        new, same_size = turned
        verified(TURNED if inner else NESTED, [n], [new], same_size)
        done = substitute([o.node for o in outputs], {n: new})
        results = tuple(replace(o, node=done[o.node]) for o in outputs)
        known = {done.get(m, m): t for m, t in names.items()}
        kept = {m: known[m] for m in postorder(o.node for o in results) if m in known}
        others = {m: t for m, t in names.items() if m not in {n, inner}}
        law = f"{text(n, others)} = {text(new, others)}"
        yield Refactored(results, kept, names.get(n, "sum"), law, same_size)


def _inner(n: Node) -> Node | None:
    """The contraction inside a contraction, over other axes."""
    parts, gone = factors(n.args[0]), over(n)
    inner = next((p for p in parts if p.op == "sum" and set(gone) & set(p.axes)), None)
    return inner if inner is not None and inner.args[0].op == "mul" else None


def _nested(n: Node, taps: Collection[str], exact: bool) -> tuple[Node, dict[str, str]] | None:
    """A reduction over several axes as one over the first of one over the others, which is kept in
    float32 if the whole is; None of one axis, of a window, and of a contraction, which would have
    more values in between."""
    first, *others = over(n)
    gone = set(over(n))
    contracts = n.op == "sum" and any(gone - set(p.axes) for p in factors(n.args[0]) if p.axes)
    if not others or contracts or is_count(n) or gone & set(taps):
        return None
    inner = along(n.op, n.args[0], tuple(others), n.params[1:])
    inner = in_float32(inner) if exact else inner
    return along(n.op, inner, (first,), n.params[1:]), {}


def joined_with_inner(n: Node, chosen: Callable[[Node], bool]) -> Node | None:
    """The inverse of a nesting: sum_x y sum_a g = sum_{x a} y g, where y does not carry a; of max,
    min and prod, without y. None where no inner reduction is `chosen`."""
    parts = factors(n.args[0]) if n.op == "sum" else (n.args[0],)
    inner = next((p for p in parts if p.op == n.op and chosen(p)), None)
    if inner is None or inner.params[1:] != n.params[1:] or set(over(n)) & set(over(inner)):
        return None
    others = _without(parts, inner)
    if any(set(over(inner)) & set(p.axes) for p in others):
        return None
    body = _product([inner.args[0], *others])
    return along(n.op, body, (*over(n), *over(inner)), n.params[1:])


def _turned(n: Node, inner: Node, taken: set[str]) -> tuple[Node, dict[str, str]] | None:
    parts, gone = factors(n.args[0]), over(n)
    outer = _without(parts, inner)
    if not any(set(gone) & set(p.axes) for p in outer):
        return None
    sides = factors(inner.args[0])
    free = [p for p in sides if not set(gone) & set(p.axes)]
    bound = [p for p in sides if set(gone) & set(p.axes)]
    if not free or not any(set(over(inner)) & set(p.axes) for p in free):
        return None
    table: dict[str, str] = {}
    clash = {a for p in outer for a in p.axes} | set(n.axes)
    for axis in over(inner):
        if axis in clash:
            table[axis] = _fresh(axis, taken | set(table.values()))
    pairs = tuple(table.items())
    if pairs:
        free = [sunk(p, pairs) for p in free]
        bound = [sunk(p, pairs) for p in bound]
    first = along("sum", _product([*bound, *outer]), gone)
    again = tuple(table.get(a, a) for a in over(inner))
    return along("sum", _product([*free, first]), again), {new: old for old, new in table.items()}


def _without(parts: Sequence[Node], one: Node) -> list[Node]:
    """The factors beside one occurrence of a factor; equal factors are one object."""
    at = parts.index(one)
    return [*parts[:at], *parts[at + 1 :]]


def _fresh(axis: str, taken: set[str]) -> str:
    i = 2
    while f"{axis}{i}" in taken:
        i += 1
    return f"{axis}{i}"


def _product(parts: Sequence[Node]) -> Node:
    total = parts[0]
    for p in parts[1:]:
        total = pointwise("mul", (total, p))
    return total
