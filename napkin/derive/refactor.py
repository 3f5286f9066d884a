"""Refactoring: sum_x (sum_d A B) C = sum_d A (sum_x B C), where only B and C carry x.

Both sides are the same linear map; which is cheaper depends on sizes. Linear attention is the
known case: (Q K^T) V against Q (K^T V). The bound axis d takes a new name if C carries one like it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from napkin.diagram.diagram import Output
from napkin.diagram.expand import sunk
from napkin.diagram.infer import along, pointwise
from napkin.diagram.listing import text
from napkin.diagram.node import Node, factors, over, postorder, substitute

MOST = 4
"""Contractions of one diagram that are tried the other way round."""


@dataclass(frozen=True, eq=False)
class Refactored:
    """One contraction turned: the outputs, names, and sizes of axes that got a new name.

    Attributes:
        place: the contraction's name.
        law: the equation that was used, in words.
        same_size: new axis to the axis whose size it has.
    """

    outputs: tuple[Output, ...]
    names: Mapping[Node, str]
    place: str
    law: str
    same_size: Mapping[str, str]


def refactorings(outputs: Sequence[Output], names: Mapping[Node, str]) -> Iterator[Refactored]:
    """The terms of `outputs` with one contraction of a contraction turned, each way in turn."""
    taken = {a for n in postorder(o.node for o in outputs) for a in n.axes}
    found = 0
    for n in postorder(o.node for o in outputs):
        if n.op != "sum" or n.args[0].op != "mul":
            continue
        inner = _inner(n)
        turned = _turned(n, inner, taken) if inner else None
        if inner is None or turned is None:
            continue
        found += 1
        if found > MOST:
            return
        new, same_size = turned
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


def _turned(n: Node, inner: Node, taken: set[str]) -> tuple[Node, dict[str, str]] | None:
    parts, gone = factors(n.args[0]), over(n)
    outer = [p for p in parts if p is not inner]
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
