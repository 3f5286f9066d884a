"""Changes of what the points of a term are, each priced by the cut that it allows.

One point more: an operand that every group of a reduction computes again, or that the steps of a
scan would wait for, is stored once. One point fewer: a reduction that several kernels need is
computed by each of them, and not stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from napkin.algebra.terms import compared, is_read
from napkin.algebra.tracer import active
from napkin.cut.frontier import Frontier
from napkin.cut.pieces import Piece
from napkin.cut.points import is_pointwise, narrow, values, with_read_again
from napkin.cut.ways import Cut, named
from napkin.diagram.interface import Output
from napkin.ir.node import REDUCTIONS, Node, over, postorder
from napkin.ir.storage import own_type

KINDS = 4
"""Kinds of operands that may be stored, at most; what two layers compute alike is of one kind."""


@dataclass(frozen=True, eq=False)
class Change:
    """Other points of a term.

    Attributes:
        points: all of them.
        nodes: those by which they differ.
    """

    points: Set[Node]
    nodes: Sequence[Node]

    def text(self, names: Mapping[Node, str]) -> str:
        """The change in words."""
        terms = ", ".join(named(self.nodes, names))
        first = self.nodes[0] in self.points
        return f"store {terms} first" if first else f"compute {terms} in each kernel that reads it"


def stored(
    outputs: Sequence[Output], sizes: Mapping[str, int], points: Set[Node], found: Cut | None
) -> Change | None:
    """Operands that may be stored: those that a cut stores in no case, though groups along the axes
    that one lacks compute it again, each for itself, or steps wait for it: these store no more
    than is read for it, unless there is no cut that stores less."""
    frontier = Frontier(outputs, sizes, points=points)
    kinds: dict[object, list[Node]] = {}
    for n, m in operands(frontier.points):
        large = found is not None and n.op == "steps" and not (is_read(m) or narrow(m, sizes))
        if m not in points and not large and _may_store(m, frontier):
            kinds.setdefault((n.op, n.axes, m.op, m.axes), []).append(m)
    taken = [m for kind in list(kinds.values())[:KINDS] for m in dict.fromkeys(kind)]
    _tell_left([m for kind in list(kinds.values())[KINDS:] for m in kind])
    return Change(points | set(taken), taken) if taken else None


def operands(order: Iterable[Node]) -> Iterator[tuple[Node, Node]]:
    """Each reduction with the largest terms that it reads and that lack some of its axes: groups
    along these need one again, each for itself; and each scan by steps with all that it reads: the
    steps, which wait for each other, else compute it. What two reductions along the same axes read
    by way of one term is given with the first."""
    seen = set[tuple[Node, frozenset[str], tuple[str, ...]]]()
    for n in order:
        every = frozenset({*n.axes, *over(n)})
        stack = [*n.args] if n.op in REDUCTIONS else []
        if n.op == "steps":
            yield from ((n, a) for a in n.args)
        while stack:
            m = stack.pop()
            if not every.issubset(m.axes):
                yield n, m
            elif is_pointwise(m) and (m, every, over(n)) not in seen:
                seen.add((m, every, over(n)))
                stack += reversed(m.args)


def _may_store(n: Node, frontier: Frontier) -> bool:
    """Whether storing an operand is a change: of one that is computed, or lies otherwise."""
    if is_read(n):
        return n in frontier.layouts and not (n.args or own_type(n))
    return is_pointwise(n) and n.kind == "real" and n not in frontier.sources(n)


def _tell_left(operands: Sequence[Node]) -> None:
    if (tracer := active()) is not None:
        for n in operands:
            why = f"the search is bounded: {KINDS} kinds of operands are tried"
            tracer.dropped("points", f"store {n.op} [{' '.join(n.axes)}] first", why)


def again(
    outputs: Sequence[Output], sizes: Mapping[str, int], points: Set[Node], found: Cut | None
) -> Change | None:
    """Points that may be computed by each kernel that needs them: those of arrays that several do,
    and that are larger than what they are computed from."""
    if found is None:
        return None
    needed = _needed(found.pieces)
    kept = {o.node for o in (*outputs, *found.materialised.values())}
    once = compared(o.node for o in outputs)
    large: dict[Node, None] = {}
    for name, o in found.materialised.items():
        more = list(_large(o.node, sizes, points - once, kept)) if needed[name] > 1 else []
        kept -= {o.node} if more else set()
        large.update(dict.fromkeys(more))
    return Change(with_read_again(outputs, points - set(large)), list(large)) if large else None


def _needed(pieces: Sequence[Piece]) -> Counter[str]:
    """How many kernels need an array: those that read it, and the one that stores it where it
    computes something else beside."""
    found = Counter[str]()
    for p in pieces:
        stores = {p.binding[o.name] for o in p.choice.kernel.outputs}
        found.update({*p.binding.values()} - (stores if len(stores) == 1 else set()))
    return found


def _large(n: Node, sizes: Mapping[str, int], points: Set[Node], kept: Set[Node]) -> Iterator[Node]:
    """The points under an array that are as large, and larger than all that they read of inputs and
    of what is `kept` in memory."""
    for m in (*postorder(n.args, kept), n):
        if m in points and (m is n or m not in kept) and _may_repeat(m) and {*m.axes} >= {*n.axes}:
            reads = [x for x in postorder(m.args, kept) if is_read(x) or x in kept]
            if values(m.axes, sizes) > sum(values(x.axes, sizes) for x in reads):
                yield m


def _may_repeat(n: Node) -> bool:
    return n.op in REDUCTIONS or is_pointwise(n)
