"""What passes between kernels: which arrays a cut of a term has to store, and which it may.

The heavy terms, reductions and scans, are taken in dataflow order. Every other term comes with a
heavy term, the last one below it; a cut after heavy term i stores what terms of levels up to i hand
on to later ones. Where storing less and computing it again moves fewer values, that is done.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from napkin.derive.terms import is_count, is_read
from napkin.diagram.diagram import Output
from napkin.diagram.expand import own_axes
from napkin.diagram.node import REDUCTIONS, SCANS, Node, postorder
from napkin.diagram.storage import own_type

READ_AGAIN = frozenset({"rename", "spread"})
"""Operators whose argument is read from memory, under other axis names or at computed addresses."""


class Frontier:
    """The arrays that lie between the kernels of any cut of a term.

    Attributes:
        heavy: the reductions and scans, in dataflow order, but not those that only say where a key
            set begins and ends: the kernel whose loops it governs computes them.
        level: the place in `heavy` of the term that each term comes with; -1 for none.
        results: the nodes of the outputs.
    """

    def __init__(self, outputs: Sequence[Output], sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self.order = _order(outputs)
        bounds = _bounds(self.order, outputs)
        self.heavy = [n for n in self.order if _is_heavy(n) and n not in bounds]
        self.results = {o.node for o in outputs}
        self.level = self._levels()
        self._heavy = set(self.heavy)
        self._place = {n: i for i, n in enumerate(self.order)}
        self._readers = self._find_readers()
        self._frontiers: dict[tuple[Node, int], frozenset[Node]] = {}

    def _levels(self) -> dict[Node, int]:
        """The heavy term that each term comes with: the last one below it; -1 for none."""
        place = {n: i for i, n in enumerate(self.heavy)}
        out: dict[Node, int] = {}
        for n in self.order:
            out[n] = place.get(n, max((out[a] for a in n.args), default=-1))
        return out

    def wanted(self, j: int, i: int) -> list[Node]:
        """What heavy terms j to i (and their pointwise followers) hand on."""
        out: dict[Node, None] = {n: None for n in self.results if j <= self.level[n] <= i}
        for n in dict.fromkeys(n for at in range(j, i + 1) for n in self._readers[at]):
            if self.level[n] > i:
                below = self._below(n, i)
                out.update(dict.fromkeys(m for m in below if j <= self.level[m] <= i))
        return sorted(out, key=lambda n: self._place[n])

    def stored(self, wanted: Sequence[Node], boundary: int) -> list[Node] | None:
        """Arrays of earlier kernels that `wanted` reads; None where one is read under other axis
        names, or moved between keys and slots, inside the kernel that computes it."""
        found: dict[Node, None] = {}
        stack, seen = list(reversed(wanted)), set[Node]()
        while stack:
            n = stack.pop()
            if n in seen or n.constant:
                continue
            seen.add(n)
            if is_read(n):
                stack.extend(n.args)
            elif n.op in READ_AGAIN:
                source = n.args[0]
                if self.level[n] > boundary or (self.level[n] < 0 and not is_read(source)):
                    return None
                if source.op == "rename":
                    stack.append(source)
                else:
                    found[source] = None
            elif any(a.op == "compress" and self.level[a] > boundary for a in n.args):
                return None
            elif n not in wanted and self.level[n] >= 0 and n in self._needed(n, boundary):
                found[n] = None
            else:
                stack.extend(_arguments(n))
        return list(found)

    def _find_readers(self) -> list[list[Node]]:
        """For each heavy term, the heavy terms and results that its level's arrays go into."""
        out: list[list[Node]] = [[] for _ in self.heavy]
        touches: dict[Node, frozenset[int]] = {}
        for n in self.order:
            below = frozenset[int]().union(*(touches[a] for a in n.args))
            touches[n] = frozenset({self.level[n]}) if n in self._heavy else below
            if n in self._heavy or n in self.results:
                for at in below - {-1}:
                    out[at].append(n)
            if n not in self._heavy and self.level[n] >= 0:
                touches[n] = below | {self.level[n]}
        return out

    def _below(self, n: Node, boundary: int) -> frozenset[Node]:
        """Arrays of level at most `boundary` that computing `n` reads directly."""
        key = (n, boundary)
        if key not in self._frontiers:
            args = _arguments(n)
            found: set[Node] = set()
            for a in args:
                found |= self._needed(a, boundary)
            self._frontiers[key] = frozenset(found)
        return self._frontiers[key]

    def _needed(self, n: Node, boundary: int) -> frozenset[Node]:
        if n.constant or self.level[n] < 0:
            return frozenset()
        if is_read(n):
            return self._below(n, boundary)
        if n in self._heavy or n.op in READ_AGAIN:
            inner = n
            while inner.op in READ_AGAIN:
                inner = inner.args[0]
            return frozenset({inner}) if self.level[n] <= boundary else frozenset()
        below = self._below(n, boundary)
        if self.level[n] > boundary or not self._worth(n, below):
            return below
        return frozenset({n})

    def _worth(self, n: Node, below: frozenset[Node]) -> bool:
        """Whether storing `n` moves less than storing what it is computed from."""
        if n in self.results:
            return True
        if any(m.op == "compress" and self.level[m] == self.level[n] for m in below):
            return False  # the kernel that computes it has it in memory only
        reads = _leaves_of(n, below)
        again = sum(2 * self._values(m) for m in below) + sum(self._values(m) for m in reads)
        if 2 * self._values(n) == again:  # of two that are as small, the one with a type of its own
            return not reads and (bool(own_type(n)) or not any(map(own_type, below)))
        return 2 * self._values(n) < again

    def _values(self, n: Node) -> int:
        return math.prod(self.sizes[a] for a in (own_axes(n) if is_read(n) else n.axes))


def _order(outputs: Sequence[Output]) -> list[Node]:
    """Dataflow order in which what is read under other names comes as early as it can: it has to
    be stored, so nothing that could be one kernel should lie around it."""
    roots = [o.node for o in outputs]
    return list(postorder([*(n for n in postorder(roots) if n.op == "rename"), *roots]))


def _bounds(order: Sequence[Node], outputs: Sequence[Output]) -> set[Node]:
    """Whole numbers that nothing but the bounds of key sets is computed from."""
    sets = [n for n in order if n.op == "keys"]
    others = set(postorder((o.node for o in outputs), set(sets)))
    under = postorder(a for n in sets for a in n.args)
    whole = set[Node]()
    for n in under:
        if n not in others and n.kind != "real" and all(a in whole for a in n.args):
            whole.add(n)
    return whole


def _is_heavy(n: Node) -> bool:
    return (n.op in REDUCTIONS or n.op in SCANS or n.op == "compress") and not is_count(n)


def _arguments(n: Node) -> tuple[Node, ...]:
    # The product inside a contraction is no array; its two sides may be.
    return n.args[0].args if n.op == "sum" and n.args[0].op == "mul" else n.args


def _leaves_of(n: Node, stop: frozenset[Node]) -> set[Node]:
    out: set[Node] = set()
    stack = list(n.args)
    while stack:
        m = stack.pop()
        if m in stop:
            continue
        if is_read(m):
            out.add(m)
        stack.extend(m.args)
    return out
